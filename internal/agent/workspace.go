package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"cloop.dev/cloop/internal/agent/supervisor"
	"cloop.dev/cloop/internal/removal"
)

// workspace is everything that can be ready before a run arrives: an empty
// repository, a process that waits for a pack to index, a process that waits
// for a command to supervise. What is left for the run is one fetch, one
// checkout and one execution.
type workspace struct {
	// dir is the checkout.
	dir string
	// scratch is the agent's own directory; no run is meant to look into it.
	scratch string
	// git is the path of the executable, environment what it is started with.
	git         string
	environment []string

	remote     *wire
	indexer    *indexer
	supervisor *supervisor.Supervisor
}

// checkoutName is the directory of the checkout below the workspace. It is the
// same for every project, so that caches which record paths stay warm.
const checkoutName = "src"

// prepare makes a workspace ready.
func prepare(ctx context.Context, o Options) (*workspace, error) {
	w := &workspace{dir: filepath.Join(o.Workspace, checkoutName)}
	if err := w.setUp(ctx, o); err != nil {
		w.close()
		return nil, fmt.Errorf("make the workspace ready: %w", err)
	}
	return w, nil
}

func (w *workspace) setUp(ctx context.Context, o Options) (err error) {
	if w.git, err = exec.LookPath("git"); err != nil {
		return fmt.Errorf("%w: the runner's image needs git", err)
	}
	if err := w.vacate(o); err != nil {
		return err
	}
	if err := w.trust(o); err != nil {
		return err
	}
	if _, err := w.run(ctx, "init", "-q", "--template=", "--initial-branch=main", w.dir); err != nil {
		return err
	}
	if w.indexer, err = w.startIndexer(); err != nil {
		return err
	}
	w.supervisor, err = supervisor.Start(supervisorEnvironment(o.Environ))
	return err
}

// vacate makes the directories, without what an earlier run left: that is nobody's
// to read.
func (w *workspace) vacate(o Options) (err error) {
	for _, dir := range []string{o.Home, o.Tmp, o.Workspace} {
		if err := open(dir); err != nil {
			return err
		}
	}
	if w.scratch, err = os.MkdirTemp(o.Tmp, ".cloop-runner-"); err != nil {
		return err
	}
	if err := removal.All(w.dir); err != nil {
		return err
	}
	return os.MkdirAll(w.dir, 0o755) //nolint:gosec // the command's own directory
}

// open makes a directory of the command's own. Where it outlives Pods, an earlier
// run may have closed it.
func open(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the command's own
		return err
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode()&0o700 == 0o700 {
		return err
	}
	if err := os.Chmod(dir, info.Mode().Perm()|0o700); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil // somebody else's: whether it can be used shows soon
}

// supervisorEnvironment keeps what a node finds its processes by.
func supervisorEnvironment(environment []string) []string {
	if mark := lookup(environment, processMark); mark != "" {
		return []string{processMark + "=" + mark}
	}
	return []string{}
}

// trust prepares the certificates for the project's Git server, for both ways
// of talking to it, and the environment of every git process.
func (w *workspace) trust(o Options) error {
	home := filepath.Join(w.scratch, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	w.environment = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C", "TMPDIR=" + w.scratch,
		"GIT_DIR=" + filepath.Join(w.dir, ".git"), "GIT_WORK_TREE=" + w.dir,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=",
		"GIT_ALLOW_PROTOCOL=https", "GIT_PROTOCOL_FROM_USER=0",
	}
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy", processMark} {
		if value := lookup(o.Environ, name); value != "" {
			w.environment = append(w.environment, name+"="+value)
		}
	}
	file := o.GitCAFile
	if file == "" {
		file = o.HubCAFile
	}
	bundle, err := trusted(file)
	if err != nil {
		return err
	}
	if bundle != nil {
		name := filepath.Join(w.scratch, "ca.pem")
		if err := os.WriteFile(name, bundle, 0o600); err != nil {
			return err
		}
		w.environment = append(w.environment, "GIT_SSL_CAINFO="+name)
	}
	w.remote, err = newWire(bundle)
	return err
}

// hardened are settings that no repository may override: nothing that a
// repository brings is executed, and nothing waits for a disk that is thrown
// away with the Pod.
var hardened = []string{
	"-c", "core.hooksPath=" + os.DevNull,
	"-c", "core.fsmonitor=false",
	"-c", "core.fsync=none",
	"-c", "core.untrackedCache=false",
	"-c", "credential.helper=",
	"-c", "gc.auto=0",
	"-c", "maintenance.auto=false",
	"-c", "fetch.writeCommitGraph=false",
	"-c", "fetch.recurseSubmodules=false",
	"-c", "submodule.recurse=false",
	"-c", "protocol.allow=never",
	"-c", "protocol.https.allow=always",
	// A connection that stands still for half a minute is dead.
	"-c", "http.lowSpeedLimit=1",
	"-c", "http.lowSpeedTime=30",
}

// command is a hardened git process. It is its own process group, so that its
// transport helpers end with it.
func (w *workspace) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, w.git, append(append([]string(nil), hardened...), args...)...) //nolint:gosec // no shell; arguments are checked
	command.Dir = w.scratch
	command.Env = w.environment
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	return command
}

// run returns git's standard output; the error holds what git said.
func (w *workspace) run(ctx context.Context, args ...string) (string, error) {
	command := w.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", gitError(args[0], stderr.String(), err)
	}
	return strings.TrimSpace(stdout.String()), nil
}

// maxSaid bounds what is kept of git's own words, in bytes.
const maxSaid = 1024

func gitError(verb, said string, err error) error {
	said = strings.TrimSpace(said)
	if len(said) > maxSaid {
		said = strings.ToValidUTF8(said[len(said)-maxSaid:], "")
	}
	if said == "" {
		return fmt.Errorf("git %s: %w", verb, err)
	}
	return fmt.Errorf("git %s: %s (%w)", verb, strings.ReplaceAll(said, "\n", "; "), err)
}

// indexer is a git process that waits for a pack and writes it into the
// repository with its index.
type indexer struct {
	command *exec.Cmd
	pack    io.WriteCloser
	stderr  bytes.Buffer
	once    bool
}

func (w *workspace) startIndexer() (*indexer, error) {
	i := &indexer{command: w.command(context.Background(), "index-pack", "--stdin")}
	i.command.Stderr = &i.stderr
	pack, err := i.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	i.pack = pack
	if err := i.command.Start(); err != nil {
		return nil, fmt.Errorf("start git index-pack: %w", err)
	}
	return i, nil
}

// finish says whether the pack that was written is whole and in the repository.
func (i *indexer) finish() error {
	if i.once {
		return errors.New("git index-pack has ended already")
	}
	i.once = true
	_ = i.pack.Close()
	if err := i.command.Wait(); err != nil {
		return gitError("index-pack", i.stderr.String(), err)
	}
	return nil
}

// close ends what was made ready and removes the agent's own files; the
// checkout stays as the run left it.
func (w *workspace) close() {
	if w.indexer != nil && !w.indexer.once {
		_ = w.indexer.finish() // without a pack it fails, and ends
	}
	if w.supervisor != nil {
		_ = w.supervisor.Close() // also ends what it supervises
	}
	if w.remote != nil {
		w.remote.client.CloseIdleConnections()
	}
	if w.scratch != "" {
		_ = removal.All(w.scratch)
	}
}

// systemBundles are where distributions keep the certificates that they trust.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// trusted is the system's certificates and those of the file, PEM. Without a
// file it is nil: the system's are what everybody uses anyway.
func trusted(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	extra, err := os.ReadFile(file) //nolint:gosec // the Pod names the file
	if err != nil {
		return nil, fmt.Errorf("read the certificates to trust: %w", err)
	}
	candidates := systemBundles
	if own := os.Getenv("SSL_CERT_FILE"); own != "" {
		candidates = []string{own}
	}
	for _, candidate := range candidates {
		if system, err := os.ReadFile(candidate); err == nil { //nolint:gosec // known places
			return append(append(system, '\n'), extra...), nil
		}
	}
	return extra, nil
}
