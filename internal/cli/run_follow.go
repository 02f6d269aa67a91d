package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
)

// follow writes a run's log as it comes, says how the run ended and returns
// the error that makes the process exit with the run's code.
func (a *app) follow(ctx context.Context, hub *hubclient.Client, id string) error {
	log := a.stdout
	if !a.text() {
		// Standard output is for the one document that says how it ended.
		log = a.stderr
	}
	log, end := logWriter(log)
	err := a.copyLog(ctx, hub, id, 0, log)
	end()
	if err != nil {
		return err
	}
	run, err := a.settled(ctx, hub, id)
	if err != nil {
		return err
	}
	if a.text() {
		a.remark("run %s %s%s", run.ID, run.State, because(run.Reason))
	} else if err := a.show(run, func(io.Writer) {}); err != nil {
		return err
	}
	return runExit(run)
}

// copyLog writes a run's log from an offset until the run is settled. A
// connection that breaks is made again where it broke.
func (a *app) copyLog(ctx context.Context, hub *hubclient.Client, id string, offset int64, to io.Writer) error {
	var backoff hubclient.Backoff
	for {
		before := offset
		done, err := copyLogOnce(ctx, hub, id, &offset, to)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if done {
			return err
		}
		if offset > before {
			backoff.Reset()
		}
		if err := a.again(ctx, &backoff, fmt.Errorf("follow the log of run %s: %w", id, err)); err != nil {
			return err
		}
	}
}

// copyLogOnce reports done when trying again would not help.
func copyLogOnce(ctx context.Context, hub *hubclient.Client, id string, offset *int64, to io.Writer) (done bool, err error) {
	log, err := hub.Logs(ctx, id, *offset, true)
	if err != nil {
		return !errors.Is(err, hubclient.ErrUnavailable), fmt.Errorf("read the log of run %s: %w", id, err)
	}
	defer func() { _ = log.Close() }()
	chunk := make([]byte, 32<<10)
	for {
		n, readErr := log.Read(chunk)
		if n > 0 {
			if _, err := to.Write(chunk[:n]); err != nil {
				return true, fmt.Errorf("write the log: %w", err)
			}
			*offset += int64(n)
		}
		switch {
		case errors.Is(readErr, io.EOF):
			return true, nil
		case readErr != nil:
			return false, readErr
		}
	}
}

// errWatchEnded is a watch that the hub closed before there was an end to
// report, as one that shuts down does.
var errWatchEnded = errors.New("the hub ended the watch")

// settled waits for a run's terminal state.
func (a *app) settled(ctx context.Context, hub *hubclient.Client, id string) (hubv1.Run, error) {
	var backoff hubclient.Backoff
	for {
		last := errWatchEnded
		for run, err := range hub.WatchRun(ctx, id) {
			if err != nil {
				last = err
				break
			}
			backoff.Reset()
			if run.State.Terminal() {
				return run, nil
			}
		}
		if !errors.Is(last, errWatchEnded) && !errors.Is(last, hubclient.ErrUnavailable) && ctx.Err() == nil {
			return hubv1.Run{}, fmt.Errorf("watch run %s: %w", id, last)
		}
		if err := a.again(ctx, &backoff, fmt.Errorf("watch run %s: %w", id, last)); err != nil {
			return hubv1.Run{}, err
		}
	}
}

// again waits before the next try, and says why there is one. It returns the
// reason to stop instead.
func (a *app) again(ctx context.Context, backoff *hubclient.Backoff, cause error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	wait := backoff.Next()
	a.remark("%s: trying again in %s", oneLine(cause.Error()), wait.Round(10*time.Millisecond))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// runExit is how a settled run ends the process.
func runExit(run hubv1.Run) error {
	switch {
	case run.Signal != "":
		return silent(signalExit(run.Signal))
	case run.ExitCode != nil && *run.ExitCode != 0:
		return silent(int(*run.ExitCode))
	case run.State == hubv1.RunSucceeded:
		return nil
	}
	return silent(codeNo)
}

// signalExit is the code that a shell gives a command ended by a signal.
func signalExit(name string) int {
	for number := syscall.Signal(1); number < 65; number++ {
		if number.String() == name {
			return 128 + int(number)
		}
	}
	return codeNo
}

// interruption is the error of a command that a person ended before it had its
// answer. The process exits with 2.
type interruption struct{ rest string }

// Error says what became of what was under way.
func (i *interruption) Error() string { return "interrupted: " + i.rest }

// interrupted says whether an error comes from the person's interrupt.
func interrupted(ctx context.Context, err error) bool {
	var code *exitCode
	return err != nil && errors.Is(ctx.Err(), context.Canceled) && !errors.As(err, &code)
}

// goesOn says of an interrupt that it ended the waiting and not the run.
func goesOn(ctx context.Context, run string, err error) error {
	if !interrupted(ctx, err) {
		return err
	}
	run = shellQuote(run)
	return &interruption{fmt.Sprintf("run %s goes on: follow it with `cloop run logs --follow %s`, or stop it with `cloop run cancel %s`", run, run, run)}
}
