package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// progressEvery is how often a build tells how far it is.
const progressEvery = 10 * time.Second

// build makes the multi-call binary at the path. Of several processes one
// builds and the others wait for it.
func (s source) build(ctx context.Context, binary string, progress io.Writer) error {
	dir := filepath.Dir(binary)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	release, err := lockFile(ctx, filepath.Join(dir, "lock"), func() {
		say(progress, "another process builds Kubernetes %s; waiting for it", s.version)
	})
	if err != nil {
		return err
	}
	defer release()
	if executable(binary) == nil {
		return nil
	}
	begun := time.Now()
	say(progress, "building Kubernetes %s (once; about ten minutes on two cores)", s.version)
	packages, err := s.packages(ctx)
	if err != nil {
		return err
	}
	temporary := binary + ".new"
	if err := s.compile(ctx, temporary, packages, progress); err != nil {
		return err
	}
	say(progress, "built Kubernetes %s in %s", s.version, time.Since(begun).Round(time.Second))
	return os.Rename(temporary, binary)
}

// packages counts what a build compiles at most.
func (s source) packages(ctx context.Context) (int, error) {
	command := s.goCommand(ctx, "list", "-mod=readonly", "-tags="+buildTags, "-deps", ".")
	var problems bytes.Buffer
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		return 0, fmt.Errorf("list the packages of %s: %w\n%s", s.dir, err, problems.String())
	}
	return bytes.Count(output, []byte("\n")), nil
}

const buildTags = "grpcnotrace,nokmem"

func (s source) compile(ctx context.Context, output string, packages int, progress io.Writer) error {
	command := s.goCommand(ctx, "build", "-v", "-mod=readonly", "-trimpath", "-tags="+buildTags,
		"-ldflags", s.linkerFlags(), "-o", output, ".")
	stderr, err := command.StderrPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("run go, which builds Kubernetes: %w", err)
	}
	count := newCounter(packages, progress)
	said := count.follow(stderr)
	err = command.Wait()
	count.stop()
	if err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("build Kubernetes in %s: %w\n%s", s.dir, err, said))
	}
	return nil
}

func (s source) goCommand(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = s.dir
	// What the caller set for its own module has no place in this one.
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	return command
}

// linkerFlags give the binary the version that it reports and that clients
// compare theirs with. It is stamped by hand because the module is not
// Kubernetes' own repository.
func (s source) linkerFlags() string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(s.version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := []string{"-s", "-w"}
	for _, variable := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X", variable+".gitVersion="+s.version, "-X", variable+".gitMajor="+major,
			"-X", variable+".gitMinor="+minor, "-X", variable+".gitTreeState=clean")
	}
	return strings.Join(flags, " ")
}

// counter tells how far a build is, by the packages that go names as it
// compiles them.
type counter struct {
	total    int
	progress io.Writer
	begun    time.Time
	stopped  chan struct{}
	ticking  sync.WaitGroup

	mu   sync.Mutex // guards done
	done int
}

func newCounter(total int, progress io.Writer) *counter {
	c := &counter{total: total, progress: progress, begun: time.Now(), stopped: make(chan struct{})}
	c.ticking.Go(func() {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-c.stopped:
				return
			case <-ticker.C:
				c.mu.Lock()
				done := c.done
				c.mu.Unlock()
				say(progress, "%s: %d of at most %d packages compiled", time.Since(c.begun).Round(time.Second), done, c.total)
			}
		}
	})
	return c
}

func (c *counter) stop() {
	close(c.stopped)
	c.ticking.Wait()
}

// follow reads what go says until it ends, and returns what is no package.
func (c *counter) follow(output io.Reader) string {
	var said strings.Builder
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || strings.ContainsAny(line, " \t:#") {
			said.WriteString(line + "\n")
			continue
		}
		c.mu.Lock()
		c.done++
		c.mu.Unlock()
	}
	return said.String()
}

// say writes one line of progress. That nobody reads it stops no build.
func say(progress io.Writer, format string, arguments ...any) {
	_, _ = fmt.Fprintf(progress, format+"\n", arguments...)
}
