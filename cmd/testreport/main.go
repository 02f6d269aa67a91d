// Command testreport runs `go test` with the arguments that it gets, and says
// what came of it: which packages failed and why, what was skipped, and where
// the time went.
//
// A test that is skipped shows nothing. Every skip is named, and with CI=true
// in the environment one is a failure, so that a machine which lacks something
// is not taken for one where all is well. The race detector is treated alike:
// where it cannot run, the tests run without it and that is said.
//
// With -kubernetes it first finds the control plane that tests start, or builds
// it, which takes minutes once and belongs to no test's time.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"cloop.dev/cloop/e2e/cluster"
)

func main() {
	kubernetes := flag.Bool("kubernetes", false, "find or build the control plane first")
	race := flag.Bool("race", false, "use the race detector where it can run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	passed, err := run(ctx, *kubernetes, *race, flag.Args())
	stop()
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "testreport: %v\n", err)
		os.Exit(2)
	case !passed:
		os.Exit(1)
	}
}

func run(ctx context.Context, kubernetes, race bool, arguments []string) (passed bool, err error) {
	out := os.Stdout
	strict := os.Getenv("CI") == "true"
	r := newReport(out)
	if kubernetes {
		began := time.Now()
		binaries, err := cluster.FindBinaries(ctx, out)
		if err != nil {
			return false, fmt.Errorf("find the control plane: %w", err)
		}
		fmt.Fprintf(out, "control plane: %s\n", strings.Join(binaries.APIServer, " "))
		r.phase("control plane", time.Since(began))
	}
	command := []string{"test", "-json"}
	if race {
		if canRace(ctx) {
			command = append(command, "-race", "-gcflags="+unraced)
		} else {
			r.unable("the race detector", "it needs cgo and a C compiler")
		}
	}
	began := time.Now()
	failed, err := goTest(ctx, append(command, arguments...), r)
	if err != nil {
		return false, err
	}
	r.finish(time.Since(began))
	return !failed && r.passed(strict), nil
}

// unraced leaves SQLite alone, which is C that was translated to Go: it shares no
// memory with our code, and checks of its pointers are half of what tests of the
// hub take under the race detector.
const unraced = "modernc.org/sqlite/lib=-race=false -d=checkptr=0"

// goTest feeds the output of one `go test -json` to the report.
func goTest(ctx context.Context, arguments []string, r *report) (failed bool, err error) {
	command := exec.CommandContext(ctx, "go", arguments...)
	// A SIGKILL of go would leave its test binaries, and what they started.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	var stderr bytes.Buffer
	command.Stderr = io.MultiWriter(os.Stderr, &stderr)
	stdout, err := command.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := command.Start(); err != nil {
		return false, err
	}
	readErr := r.read(stdout)
	waitErr := command.Wait()
	var exit *exec.ExitError
	switch {
	case readErr != nil:
		return false, fmt.Errorf("read the output of go test: %w", readErr)
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case waitErr != nil && !errors.As(waitErr, &exit):
		return false, waitErr
	}
	return waitErr != nil, nil
}

// canRace says whether go can link a program with the race detector here.
func canRace(ctx context.Context) bool {
	enabled, err := exec.CommandContext(ctx, "go", "env", "CGO_ENABLED").Output()
	return err == nil && strings.TrimSpace(string(enabled)) == "1"
}
