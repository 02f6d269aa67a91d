package postgrestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// patience bounds the start of a server.
const patience = 60 * time.Second

// superuser owns everything of a server of a test.
const superuser = "cloop"

// errMissing says that there is no server to start.
var errMissing = errors.New("PostgreSQL is not installed here: `apt-get install postgresql` brings it, without a service that runs is enough")

// ServerOptions of a server.
type ServerOptions struct {
	// Durable makes what is committed survive a crash of the machine, as a
	// measurement must; tests need not wait for a disk.
	Durable bool
	// Settings go into the server's configuration.
	Settings map[string]string
}

// Server is a running server.
type Server struct {
	dir     string
	port    int
	command *exec.Cmd
	ended   chan struct{}
	log     *bytes.Buffer
	options ServerOptions
	owner   *syscall.Credential
	bin     string
}

// binaries finds the directory of the newest server that is installed.
func binaries() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	slices.SortFunc(found, func(a, b string) int { return major(a) - major(b) })
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	// Elsewhere than with Debian both are in the path.
	server, err := exec.LookPath("postgres")
	if err == nil {
		_, err = exec.LookPath(filepath.Join(filepath.Dir(server), "initdb"))
	}
	if err != nil {
		return "", errMissing
	}
	return filepath.Dir(server), nil
}

func major(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// unprivileged is whom a server runs as: it refuses to be root's.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("root may not run PostgreSQL, and there is neither a user postgres nor a user nobody")
}

// Start starts a server. The caller stops it; should the caller die, so does
// the server.
func Start(o ServerOptions) (*Server, error) {
	s := &Server{options: o, log: &bytes.Buffer{}}
	var err error
	if s.bin, err = binaries(); err != nil {
		return nil, err
	}
	if s.owner, err = unprivileged(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp(place(o), "cloop-postgres-"); err != nil {
		return nil, err
	}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	if err := s.Up(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

// roomy is what the databases of a test process may take.
const roomy = 1 << 30

// place is where a server keeps its files: in memory where there is room and
// nothing is measured, since no test needs to wait for a disk.
func place(o ServerOptions) string {
	const memory = "/dev/shm"
	var room syscall.Statfs_t
	if o.Durable || syscall.Statfs(memory, &room) != nil || room.Bavail*uint64(room.Bsize) < roomy { //nolint:gosec // a size of blocks
		return ""
	}
	return memory
}

func (s *Server) prepare() error {
	if s.owner != nil {
		if err := os.Chown(s.dir, int(s.owner.Uid), int(s.owner.Gid)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	initdb := s.run(ctx, "initdb", "-D", s.data(), "-U", superuser, "-A", "trust", "-E", "UTF8", "--locale=C", "-N", "--no-instructions")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.port = listener.Addr().(*net.TCPAddr).Port
	return listener.Close()
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// run is a command of the server's package.
func (s *Server) run(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	command.Dir = s.dir
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=" + s.dir}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	return command
}

// Up starts the server again after Down or Crash.
func (s *Server) Up() error {
	settings := map[string]string{
		"port": strconv.Itoa(s.port), "listen_addresses": "127.0.0.1", "unix_socket_directories": s.dir,
		"max_connections": "200", "shared_buffers": "32MB", "log_min_messages": "warning",
	}
	if !s.options.Durable {
		settings["fsync"], settings["full_page_writes"] = "off", "off"
		settings["autovacuum"], settings["max_wal_size"] = "off", "64MB"
	}
	for name, value := range s.options.Settings {
		settings[name] = value
	}
	args := []string{"-D", s.data()}
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	command := s.run(context.Background(), "postgres", args...)
	command.Stdout, command.Stderr = s.log, s.log
	command.Cancel = nil
	// The server is told to end at once when this process does.
	command.SysProcAttr.Pdeathsig = syscall.SIGINT
	s.command, s.ended = command, make(chan struct{})
	started := make(chan error, 1)
	go func() {
		// That signal comes when the thread ends that started the server.
		runtime.LockOSThread()
		err := command.Start()
		started <- err
		if err != nil {
			return
		}
		_ = command.Wait()
		close(s.ended)
	}()
	if err := <-started; err != nil {
		return err
	}
	return s.await()
}

// await waits until the server answers.
func (s *Server) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.ended:
			return fmt.Errorf("the server ended: %s", s.log)
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Down stops the server; Up starts it again.
func (s *Server) Down() { s.end(syscall.SIGINT) }

// Crash ends the server as the loss of its machine would, as far as processes
// go; Up starts it again.
func (s *Server) Crash() { s.end(syscall.SIGQUIT) }

func (s *Server) end(signal syscall.Signal) {
	if err := s.command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(err)
	}
	<-s.ended
}

// Stop stops the server for good and removes what it kept.
func (s *Server) Stop() {
	s.Down()
	_ = os.RemoveAll(s.dir)
}

// URL is of a database of the server, through its socket.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d", superuser, database, s.dir, s.port)
}

// TCP is like URL, through the loopback address.
func (s *Server) TCP(database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", superuser, s.port, database)
}

// Do runs statements in the server's own database.
func (s *Server) Do(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", strings.SplitN(statement, "\n", 2)[0], err)
		}
	}
	return nil
}
