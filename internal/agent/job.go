package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/agent/supervisor"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/retry"
)

// stop says why a run is to end before its command does. A later one in this
// order wins.
type stop int

const (
	stopNone stop = iota
	// stopCancelled: the hub asks; the command may clean up.
	stopCancelled
	// stopTerminated: the Pod goes; the command may clean up.
	stopTerminated
	// stopRevoked: the run is not this runner's any more; it ends at once.
	stopRevoked
	// stopFenced: the hub may give the run away soon; it ends at once.
	stopFenced
)

func (s stop) atOnce() bool { return s >= stopRevoked }

// job is one run on this runner.
type job struct {
	*runner
	hubv1.Assignment
	log *slog.Logger

	// working ends with any stop, waiting with one at once, and reporting when
	// there is nothing that the hub could take: a result may always be offered.
	working, waiting, reporting          context.Context
	cancelWork, cancelWait, cancelReport context.CancelFunc
	stopped                              chan struct{} // gets a value when reason rises

	mu     sync.Mutex // guards all below
	reason stop
	// before is the reason that the fence took the place of.
	before stop
	// ended: there is no command any more; finished: and it has a result.
	ended, finished bool
	over            bool
}

func newJob(ctx context.Context, r *runner, assignment hubv1.Assignment) *job {
	j := &job{
		runner: r, Assignment: assignment, stopped: make(chan struct{}, 1),
		log: r.log.With("run", assignment.RunID, "attempt", assignment.Attempt),
	}
	j.working, j.cancelWork = context.WithCancel(ctx)
	j.waiting, j.cancelWait = context.WithCancel(ctx)
	j.reporting, j.cancelReport = context.WithCancel(ctx)
	return j
}

// follow acts on what the hub says about the run now.
func (j *job) follow(snapshot hubv1.RunnerSnapshot) {
	switch held := snapshot.Run; {
	case held == nil || held.RunID != j.RunID || held.Attempt != j.Attempt:
		j.stop(stopRevoked)
	case snapshot.Cancel:
		j.stop(stopCancelled)
	}
}

// stop asks the job to end. It does not wait, and changes nothing once the
// command is over.
func (j *job) stop(reason stop) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.over || reason <= j.reason {
		return
	}
	if j.finished && (reason == stopFenced || reason == stopTerminated) {
		// What is left of the run has to go; the result is there.
		j.cancelWait()
		return
	}
	if reason == stopFenced {
		j.before = j.reason
	}
	j.reason = reason
	j.cancelWork()
	if reason.atOnce() {
		j.cancelWait()
	}
	if reason == stopRevoked || reason == stopFenced && j.ended {
		j.cancelReport()
	}
	select {
	case j.stopped <- struct{}{}:
	default:
	}
}

// end takes note of how the command ended. One that ended before the fence did
// anything to it has a result: this process may have been stopped for all that
// time, and the hub may still take it.
func (j *job) end(exit supervisor.Exit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended = true
	j.finished = exit.Err == nil && (j.reason != stopFenced || !exit.Killed)
	switch {
	case j.reason != stopFenced:
	case j.finished:
		j.reason = j.before
	default:
		j.cancelReport()
	}
}

func (j *job) stopping() stop {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reason
}

// seal makes what happened so far final: from here on the job only reports.
func (j *job) seal() stop {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.over = true
	return j.reason
}

// run is the job from the assignment to the hub's confirmation.
func (j *job) run() report {
	defer j.cancelWork()
	defer j.cancelWait()
	defer j.cancelReport()
	result := hubv1.ResultRequest{Attempt: j.Attempt}
	commit, err := j.ready.checkout(j.working, j.Assignment)
	switch {
	case err != nil && j.stopping() == stopNone:
		j.log.Warn("the workspace cannot be prepared", "error", err)
		result.Error = "prepare the workspace: " + err.Error()
	case err == nil:
		result = j.execute(commit)
	}
	result.Attempt, result.FinishedAt = j.Attempt, j.clock.Now().UTC()
	switch reason := j.seal(); {
	case reason == stopCancelled:
		result.Cancelled = true
	case reason != stopNone:
		return j.abandoned(reason, result)
	}
	result.Error = truncate(maskText(j.secrets, result.Error), maxError)
	return j.deliver(result)
}

// maxError is what the hub takes of a result's error, in bytes.
const maxError = 4096

// abandoned is the report of a run that is not this runner's to settle. The hub
// settles it, or starts it again, when this runner says goodbye.
func (j *job) abandoned(reason stop, result hubv1.ResultRequest) report {
	last := report{Run: j.RunID, ExitCode: result.ExitCode}
	switch reason {
	case stopTerminated:
		last.Outcome, last.Reason = OutcomeInterrupted, "runner terminated: the Pod was told to end while the run was in progress"
	case stopFenced:
		last.Outcome = OutcomeFenced
		last.Reason = fmt.Sprintf("no contact with the hub since %s, so the run was killed before the hub may start it elsewhere",
			j.lease.contact().at.UTC().Format(time.RFC3339))
	default:
		last.Outcome, last.Reason = OutcomeRevoked, "the hub took the run away, so it was killed"
	}
	return last
}

// deliver offers the result until the hub confirms it, refuses it, or has
// settled the run without it.
func (j *job) deliver(result hubv1.ResultRequest) report {
	last := report{Outcome: OutcomeReported, Run: j.RunID, ExitCode: result.ExitCode, Reason: verdict(result)}
	err := j.persist(j.reporting, "report the result", func(ctx context.Context) error {
		return j.session.RunResult(ctx, j.RunID, result)
	})
	if err == nil {
		return last
	}
	last.Outcome = OutcomeFenced
	if _, refused := refusal(err); refused {
		last.Outcome = OutcomeRevoked
	}
	last.Reason = "the hub did not take the result (" + last.Reason + "): " + err.Error()
	return last
}

// verdict is the result in a few words.
func verdict(result hubv1.ResultRequest) string {
	switch {
	case result.Cancelled:
		return "cancelled"
	case result.Error != "":
		return result.Error
	case result.Signal != "":
		return "the command was ended by the signal " + result.Signal
	case result.ExitCode != nil:
		return fmt.Sprintf("the command exited with code %d", *result.ExitCode)
	}
	return "the command ended"
}

// errLeaseOver says that the hub has settled without this runner by now.
var errLeaseOver = errors.New("contact with the hub was lost for too long")

// persist tries until it works, the hub refuses, the lease is over or the
// context ends.
func (r *runner) persist(ctx context.Context, what string, try func(context.Context) error) error {
	var backoff hubclient.Backoff
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if _, refused := refusal(err); refused || ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if r.lease.over() {
			return fmt.Errorf("%s: %w: %w", what, errLeaseOver, err)
		}
		if backoff == (hubclient.Backoff{}) {
			r.log.Warn("the hub is not reachable, trying again", "what", what, "error", err)
		}
		if !retry.Sleep(ctx, r.clock, min(backoff.Next(), r.heartbeat)) {
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
}
