package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/agent/supervisor"
)

// Exit codes of a command that could not be executed, as shells use them.
const (
	codeNotFound      = 127
	codeNotExecutable = 126
)

// execute runs the command in the prepared workspace and returns when nothing
// of it is left and the hub has its log, as far as it can have it.
func (j *job) execute(commit string) hubv1.ResultRequest {
	environment := j.environment(commit)
	path, err := lookPath(j.Command[0], j.ready.dir, environment)
	if err != nil {
		return notExecuted(j.Command[0], err)
	}
	log, err := newSpool(j.ready.scratch, j.options.SpoolBytes)
	if err != nil {
		return hubv1.ResultRequest{Error: err.Error()}
	}
	defer log.close()
	if j.stopping() != stopNone {
		return hubv1.ResultRequest{}
	}
	// Once asked for, the start is waited for: a stop finds the command then.
	started, err := j.ready.supervisor.Exec(context.WithoutCancel(j.working), supervisor.Command{
		Path: path, Argv: j.Command, Dir: j.ready.dir, Env: environment,
		Deadline: j.lease.lostAt(),
	})
	if err != nil {
		if errors.Is(err, supervisor.ErrLapsed) {
			j.stop(stopFenced)
		}
		return notExecuted(j.Command[0], err)
	}
	j.log.Info("the command has started", "commit", commit, "pid", started.PID)

	delivered := make(chan error, 1)
	go func() { delivered <- j.inform(commit, started.At, log) }()
	read := make(chan struct{})
	go func() {
		defer close(read)
		copyOutput(j.ready.supervisor.Output(), j.secrets, log)
	}()
	exit := j.await()
	if errors.Is(exit.Err, supervisor.ErrLapsed) {
		j.stop(stopFenced)
	}
	j.end(exit)
	j.log.Info("the command has ended", "code", exit.Code, "signal", signalName(exit.Signal))
	j.sweep(read)
	// Nothing of the run lives any more: what there is to report is final.
	if err := j.settle(j.seal(), delivered); err != nil && !j.stopping().atOnce() {
		j.log.Warn("the log is incomplete at the hub", "error", err)
	}
	<-read
	return outcome(exit)
}

// settle waits until the hub has the log, or cannot have it.
func (j *job) settle(reason stop, delivered <-chan error) error {
	if reason != stopTerminated {
		return <-delivered
	}
	// The Pod is killed soon, log or no log.
	grace := j.clock.NewTimer(j.options.TerminateGrace)
	defer grace.Stop()
	select {
	case err := <-delivered:
		return err
	case <-grace.C():
		j.cancelReport()
		return <-delivered
	}
}

// inform tells the hub that the command started, and then its log: the hub
// never gets output of a run that it does not know to be running.
func (j *job) inform(commit string, at time.Time, log *spool) error {
	err := j.persist(j.reporting, "report the start", func(ctx context.Context) error {
		return j.session.RunStarted(ctx, j.RunID, hubv1.StartedRequest{Attempt: j.Attempt, Commit: commit, StartedAt: at.UTC()})
	})
	if err == nil {
		err = newSender(j.runner, j.RunID, log).send(j.reporting)
	}
	log.discard()
	if problem, refused := refusal(err); refused &&
		(problem.Code == hubv1.CodeRunNotHeld || problem.Code == hubv1.CodeNotFound || sessionEnded(err)) {
		j.stop(stopRevoked)
	}
	return err
}

// await returns how the command ended. Asked to stop it, it interrupts the
// command's group, then terminates all that came from it, then kills: each step
// after the grace of the one before.
func (j *job) await() supervisor.Exit {
	s := j.ready.supervisor
	steps := []struct {
		act   func() error
		grace time.Duration
	}{
		{func() error { return s.Interrupt(syscall.SIGINT) }, j.options.InterruptGrace},
		{func() error { return s.SignalAll(syscall.SIGTERM) }, j.options.TerminateGrace},
		{s.Kill, 0},
	}
	next := -1 // the step to take when the grace is over; -1: not asked to stop
	var grace <-chan time.Time
	for {
		select {
		case exit := <-s.Exited():
			return exit
		case <-j.stopped:
			switch reason := j.stopping(); {
			case reason.atOnce():
				next = len(steps) - 1
			case next >= 0:
				continue // being stopped already
			default:
				next = 0
			}
			j.log.Info("stopping the command", "at_once", j.stopping().atOnce())
		case <-grace:
		}
		if err := steps[next].act(); err != nil {
			j.log.Warn("stopping the command failed", "error", err)
		}
		grace = nil
		if wait := steps[next].grace; wait > 0 {
			timer := j.clock.NewTimer(wait)
			defer timer.Stop()
			grace = timer.C()
			next++
		}
	}
}

// sweep waits a while for the end of the output, then kills what the command
// left behind, so that the output ends.
// A process that still holds the pipe gets a little time, because the last
// element of a pipeline may outlive the command with output to come.
func (j *job) sweep(read <-chan struct{}) {
	if !j.stopping().atOnce() {
		grace := j.clock.NewTimer(j.options.DrainGrace)
		select {
		case <-read:
		case <-grace.C():
			j.log.Info("a process that the command left behind holds its output; it is killed")
		case <-j.waiting.Done():
		}
		grace.Stop()
	}
	if err := j.ready.supervisor.Kill(); err != nil {
		j.log.Warn("processes of the run may be left", "error", err)
		// Whoever holds the pipe now may hold it for ever.
		_ = j.ready.supervisor.Output().SetReadDeadline(time.Now().Add(time.Second))
	}
}

func outcome(exit supervisor.Exit) hubv1.ResultRequest {
	var result hubv1.ResultRequest
	switch {
	case errors.Is(exit.Err, supervisor.ErrDied):
		result.Error = fmt.Sprintf("how the command ended is not known: %v: the run itself may have killed it, or the node for want of memory", exit.Err)
	case exit.Err != nil:
		result.Error = fmt.Sprintf("how the command ended is not known: %v", exit.Err)
	case exit.Signal != 0:
		result.Signal = signalName(exit.Signal)
	default:
		code := int32(exit.Code) //nolint:gosec // 0 to 255
		result.ExitCode = &code
	}
	return result
}

func signalName(signal syscall.Signal) string {
	if signal == 0 {
		return ""
	}
	return signal.String()
}

// notExecuted is the result of a command that never ran.
func notExecuted(name string, err error) hubv1.ResultRequest {
	code, reason := int32(codeNotExecutable), err.Error()
	switch {
	case errors.Is(err, errNotFound):
		code, reason = codeNotFound, fmt.Sprintf("%s: command not found", name)
	case errors.Is(err, syscall.ENOENT):
		// The file was there: its interpreter is not.
		code, reason = codeNotFound, fmt.Sprintf("%s: its interpreter does not exist", name)
	case errors.Is(err, syscall.ENOEXEC):
		reason = fmt.Sprintf("%s: not an executable format: does it begin with #! and an interpreter?", name)
	case errors.Is(err, syscall.EACCES):
		reason = fmt.Sprintf("%s: permission denied: is it executable?", name)
	case errors.Is(err, supervisor.ErrDied), errors.Is(err, supervisor.ErrLapsed):
		return hubv1.ResultRequest{Error: fmt.Sprintf("the command was not started: %v", err)}
	}
	return hubv1.ResultRequest{ExitCode: &code, Error: reason}
}

var errNotFound = errors.New("not found")

// lookPath finds the executable as a shell would in the directory and
// environment of the command: never in the agent's own.
func lookPath(name, dir string, environment []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(resolve(dir, name))
	}
	result := fmt.Errorf("%s: %w", name, errNotFound)
	for _, entry := range filepath.SplitList(lookup(environment, "PATH")) {
		candidate := resolve(dir, filepath.Join(entry, name))
		// A directory that cannot be searched, or of that name, has no command.
		if info, err := os.Stat(candidate); err != nil || info.IsDir() {
			continue
		}
		if result = executable(candidate); result == nil {
			return candidate, nil
		}
	}
	return "", result
}

func resolve(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil && !errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s: %w", path, errNotFound)
	case err != nil, info.IsDir(), unix.Access(path, unix.X_OK) != nil:
		return fmt.Errorf("%s: %w", path, syscall.EACCES)
	}
	return nil
}
