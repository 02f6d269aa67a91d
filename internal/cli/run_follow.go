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
	err := a.copyLog(ctx, hub, logPart{run: id, follow: true}, log)
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

// logPart is what is wanted of a run's log.
type logPart struct {
	run    string
	offset int64
	// follow is to go on until the run is settled.
	follow bool
}

// logTries is how often in a row a log that is not followed is asked for without
// a byte of it: nobody waits for ever for what is there already.
const logTries = 5

// copyLog writes a run's log from an offset: what there is, or with follow until
// the run is settled. A connection that breaks is made again where it broke: the
// hub cuts off whoever reads slowly.
func (a *app) copyLog(ctx context.Context, hub *hubclient.Client, part logPart, to io.Writer) error {
	doing := "read"
	if part.follow {
		doing = "follow"
	}
	var backoff hubclient.Backoff
	begun, fruitless := part.follow, 0
	for {
		before := part.offset
		opened, done, err := copyLogOnce(ctx, hub, &part, to)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		begun = begun || opened
		if done || !begun {
			return err
		}
		fruitless++
		if part.offset > before {
			backoff.Reset()
			fruitless = 0
		}
		if !part.follow && fruitless >= logTries {
			return fmt.Errorf("read the log of run %s: it breaks off behind byte %d: %w", part.run, part.offset, err)
		}
		if err := a.again(ctx, &backoff, fmt.Errorf("%s the log of run %s: %w", doing, part.run, err)); err != nil {
			return err
		}
	}
}

// copyLogOnce reports opened when the hub began to give the log, and done when
// trying again would not help.
func copyLogOnce(ctx context.Context, hub *hubclient.Client, part *logPart, to io.Writer) (opened, done bool, err error) {
	log, err := hub.Logs(ctx, part.run, part.offset, part.follow)
	if err != nil {
		return false, !errors.Is(err, hubclient.ErrUnavailable), fmt.Errorf("read the log of run %s: %w", part.run, err)
	}
	defer func() { _ = log.Close() }()
	chunk := make([]byte, 32<<10)
	for {
		n, readErr := log.Read(chunk)
		if n > 0 {
			if _, err := to.Write(chunk[:n]); err != nil {
				return true, true, fmt.Errorf("write the log: %w", err)
			}
			part.offset += int64(n)
		}
		switch {
		case errors.Is(readErr, io.EOF):
			return true, true, nil
		case readErr != nil:
			return true, false, readErr
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
