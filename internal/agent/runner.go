package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
)

// Run is a runner's whole life: enroll, take at most one run, report it, leave.
// It returns nil when the run was reported, whatever its result, and when there
// was none to report. The context's end, such as SIGTERM, stops a run
// gracefully. There is one Run in a process.
func Run(ctx context.Context, o Options) error {
	// The run has this process's uid; without this it could read the session
	// from this process's memory.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide the runner's memory from its run: %w", err)
	}
	o = o.withDefaults()
	bundle, err := trusted(o.HubCAFile)
	if err != nil {
		return finish(o, report{Outcome: OutcomeFailed, Reason: err.Error()})
	}
	client, err := hubclient.New(hubclient.Options{
		URL: o.HubURL, Pin: o.HubCAPin, CABundle: bundle, UserAgent: "cloop-runner/" + o.Build,
	})
	if err != nil {
		return finish(o, report{Outcome: OutcomeFailed, Reason: err.Error()})
	}
	defer client.CloseIdleConnections()
	return finish(o, live(ctx, o, remoteHub{client}))
}

// finish writes the report and turns it into the process's result.
func finish(o Options, last report) error {
	o.Log.Info("the runner ends", "runner", o.Name, "outcome", last.Outcome, "reason", last.Reason, "run", last.Run)
	if err := last.write(o.TerminationLog); err != nil {
		o.Log.Warn("the report is not where Kubernetes looks for it", "error", err)
	}
	return last.err()
}

func live(ctx context.Context, o Options, h hub) report {
	token, err := readToken(o.TokenFile)
	if err != nil {
		return report{Outcome: OutcomeFailed, Reason: err.Error()}
	}
	// Before the token is spent: a Pod that cannot work shall not enroll.
	ready, err := prepare(ctx, o)
	if err != nil {
		return report{Outcome: OutcomeFailed, Reason: err.Error()}
	}
	defer ready.close()
	e, refused := enroll(ctx, o, h, token)
	if refused != nil {
		return *refused
	}
	r := &runner{
		options: o, clock: o.Clock, session: h.Session(e.session), heartbeat: e.heartbeat,
		lease:   &lease{clock: o.Clock, life: e.lease, margin: e.margin, last: e.at},
		ready:   ready,
		secrets: secrets(token, e.session),
		log:     o.Log.With("runner", e.id),
	}
	r.log.Info("enrolled", "heartbeat", e.heartbeat, "lease", e.lease, "margin", e.margin)
	return r.serve(ctx)
}

// runner is an enrolled runner.
type runner struct {
	options   Options
	clock     clock.WithTicker
	log       *slog.Logger
	session   session
	heartbeat time.Duration
	lease     *lease
	ready     *workspace
	secrets   [][]byte
}

// inbox is what the loop of a runner hears.
type inbox struct {
	snapshots chan hubv1.RunnerSnapshot
	states    chan hubv1.RunnerState
	ended     chan error // the session, at most one for each sender
	fenced    chan struct{}
	over      chan struct{} // the lease
	done      chan report   // the job's, one value
}

// serve is the one loop that decides. It returns when the runner is to end, and
// no goroutine of its own is left then.
func (r *runner) serve(ctx context.Context) report {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	in := inbox{
		snapshots: make(chan hubv1.RunnerSnapshot), states: make(chan hubv1.RunnerState),
		ended: make(chan error, 2), fenced: make(chan struct{}), over: make(chan struct{}), done: make(chan report, 1),
	}
	group.Go(func() { r.watch(inner, in.snapshots, in.ended) })
	group.Go(func() { r.beat(inner, in.states, in.ended) })
	group.Go(func() { r.lease.guard(inner, r.clock, in.fenced, in.over) })

	var current *job
	var latest hubv1.RunnerSnapshot
	terminated := ctx.Done()
	for {
		select {
		case latest = <-in.snapshots:

		case state := <-in.states:
			latest = heard(latest, state)
			if current != nil && letGo(state) {
				// The watch may be broken. A job whose result the hub has is over
				// and is not stopped by this.
				current.stop(stopRevoked)
				continue
			}
		case last := <-in.done:
			return r.leave(last)
		case err := <-in.ended:
			if current == nil {
				return report{Outcome: OutcomeRetired, Reason: fmt.Sprintf("the hub ended the session of this runner, which had no run: %v", err)}
			}
			current.stop(stopRevoked)
			continue
		case <-in.fenced:
			if current != nil {
				r.log.Warn("no contact with the hub: the run may be given to somebody else soon", "run", current.RunID)
				current.stop(stopFenced)
			}
			continue
		case <-in.over:
			if current == nil {
				// Nothing would ever come of waiting: the hub takes this session no
				// more, and nobody would start a runner in this one's place.
				return r.leave(report{Outcome: OutcomeUnreachable, Reason: fmt.Sprintf("no contact with the hub since %s, so it has given up this runner, which had no run",
					r.lease.contact().at.UTC().Format(time.RFC3339))})
			}
			continue
		case <-terminated:
			if current == nil {
				return r.leave(report{Outcome: OutcomeStopped, Reason: "told to end while there was no run"})
			}
			current.stop(stopTerminated)
			terminated = nil
			continue
		}
		if current != nil {
			current.follow(latest)
			continue
		}
		switch {
		case latest.Run != nil && r.lease.untilFence() > 0:
			current = newJob(inner, r, *latest.Run)
			current.follow(latest)
			group.Go(func() { in.done <- current.run() })
		case latest.Run == nil && letGo(latest.State):
			return r.leave(report{Outcome: OutcomeRetired, Reason: "the hub needs this runner no more"})
		}
	}
}

// heard merges what a heartbeat's answer says into the latest snapshot: a
// runner that retires learns it although its watch is broken.
func heard(latest hubv1.RunnerSnapshot, state hubv1.RunnerState) hubv1.RunnerSnapshot {
	if latest.Run == nil && letGo(state) {
		latest.State = state
	}
	return latest
}

// Bounds of the last word: it saves the hub a wait, and nothing depends on it.
const (
	byeTries   = 2
	byeTimeout = 2 * time.Second
)

// leave says goodbye to the hub, which then counts on this runner no more.
func (r *runner) leave(last report) report {
	for range byeTries {
		ctx, cancel := context.WithTimeout(context.Background(), byeTimeout)
		err := r.session.Bye(ctx, truncate(string(last.Outcome)+": "+last.Reason, maxBye))
		cancel()
		if _, refused := refusal(err); err == nil || refused {
			break
		}
		r.log.Debug("goodbye failed", "error", err)
	}
	return last
}

// maxBye is what the hub takes of a goodbye's reason, in bytes.
const maxBye = 256
