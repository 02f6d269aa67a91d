// Package gobuild builds a program of one of the repository's modules, once: of
// several processes one builds and the others wait for it. Such a build takes
// minutes, so it tells how far it is.
package gobuild

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

	"cloop.dev/cloop/internal/filelock"
)

// progressEvery is how often a build tells how far it is.
const progressEvery = 10 * time.Second

// Program is what is built.
type Program struct {
	// Name is for people, with the version.
	Name string
	// Dir is the module's directory, and Package what is built of it.
	Dir, Package string
	// Takes says how long that takes, for people.
	Takes string
	// Tags are build tags, with commas. LinkerFlags are those of -ldflags.
	Tags, LinkerFlags string
}

// Build makes the program at the path unless it is there.
func (p Program) Build(ctx context.Context, binary string, progress io.Writer) error {
	dir := filepath.Dir(binary)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	release, err := filelock.Wait(ctx, filepath.Join(dir, "lock"), func() {
		say(progress, "another process builds %s; waiting for it", p.Name)
	})
	if err != nil {
		return err
	}
	defer release()
	if Executable(binary) == nil {
		return nil
	}
	begun := time.Now()
	say(progress, "building %s (once; %s on two cores)", p.Name, p.Takes)
	packages, err := p.Packages(ctx)
	if err != nil {
		return err
	}
	temporary := binary + ".new"
	if err := p.compile(ctx, temporary, packages, progress); err != nil {
		return err
	}
	say(progress, "built %s in %s", p.Name, time.Since(begun).Round(time.Second))
	return os.Rename(temporary, binary)
}

// Packages counts what a build compiles at most.
func (p Program) Packages(ctx context.Context) (int, error) {
	command := p.goCommand(ctx, "list", "-mod=readonly", "-tags="+p.Tags, "-deps", p.Package)
	var problems bytes.Buffer
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		return 0, fmt.Errorf("list the packages of %s: %w\n%s", p.Dir, err, problems.String())
	}
	return bytes.Count(output, []byte("\n")), nil
}

func (p Program) compile(ctx context.Context, output string, packages int, progress io.Writer) error {
	command := p.goCommand(ctx, "build", "-v", "-mod=readonly", "-trimpath", "-tags="+p.Tags,
		"-ldflags", p.LinkerFlags, "-o", output, p.Package)
	stderr, err := command.StderrPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("run go, which builds %s: %w", p.Name, err)
	}
	count := newCounter(packages, progress)
	said := count.follow(stderr)
	err = command.Wait()
	count.stop()
	if err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("build %s in %s: %w\n%s", p.Name, p.Dir, err, said))
	}
	return nil
}

func (p Program) goCommand(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = p.Dir
	// What the caller set for its own module has no place in this one.
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	return command
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

// Executable is an error where a file is no program.
func Executable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("%s is no executable file", file)
	}
	return nil
}
