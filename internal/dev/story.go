package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
)

// Story is the product's main job, told on a running System: a pool is
// committed, a run runs on it, differences are shown and corrected, a bad
// commit changes nothing, and a removed pool lets its run finish first.
//
// Every step checks what it says. A step that is interrupted, because a part
// was killed meanwhile, goes on where it was once the part is back.
type Story struct {
	System *System
	// Begin is called as a step begins; may be nil.
	Begin func(step string)
	// Done is called with each step that happened; may be nil.
	Done func(Result)
	// StepTimeout bounds one step. Zero: one minute.
	StepTimeout time.Duration

	fleet *Repository
	pools map[string]hubv1.Pool
	good  string // revision that is known to be good
}

// Result is what a step showed.
type Result struct {
	Step    string
	Took    time.Duration
	Moments []Moment
}

// Moment is one thing that happened within a step.
type Moment struct {
	// What happened, in the past tense.
	What string
	// After is how long after the step's cause; zero where time is not the
	// point.
	After time.Duration
}

// Names of the pools that the seed of the fleet repository defines.
const (
	agentsPool = "agents" // keeps one runner waiting
	batchPool  = "batch"  // scales to nothing; the story removes it
)

type step struct {
	name string
	tell func(*Story, context.Context, *record) error
}

// steps in the order that they happen.
var steps = []step{
	{"commit the fleet", (*Story).commitFleet},
	{"run on a cold pool", (*Story).coldRun},
	{"run on a warm pool", (*Story).warmRun},
	{"edit the pool in the cluster", (*Story).editCluster},
	{"edit the pool at the hub", (*Story).editHub},
	{"merge a bad commit", (*Story).badCommit},
	{"revert it", (*Story).revert},
	{"remove a pool under a run", (*Story).removePool},
}

// Steps names the steps in their order.
func Steps() []string {
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = s.name
	}
	return names
}

// Run plays the story and stops at the first step that did not happen.
func (st *Story) Run(ctx context.Context) error {
	return st.RunUntil(ctx, steps[len(steps)-1].name)
}

// RunUntil plays the story up to the named step and with it.
func (st *Story) RunUntil(ctx context.Context, last string) error {
	for _, s := range steps {
		if err := st.play(ctx, s); err != nil || s.name == last {
			return err
		}
	}
	return fmt.Errorf("the story has no step %q", last)
}

func (st *Story) play(ctx context.Context, s step) error {
	if st.Begin != nil {
		st.Begin(s.name)
	}
	timeout := st.StepTimeout
	if timeout == 0 {
		timeout = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := &record{began: time.Now()}
	if err := s.tell(st, ctx, r); err != nil {
		return fmt.Errorf("step %q: %w", s.name, err)
	}
	if st.Done != nil {
		st.Done(Result{Step: s.name, Took: time.Since(r.began), Moments: r.moments})
	}
	return nil
}

// record collects the moments of one step.
type record struct {
	began   time.Time
	moments []Moment
}

func (r *record) note(format string, args ...any) {
	r.moments = append(r.moments, Moment{What: fmt.Sprintf(format, args...)})
}

func (r *record) timed(after time.Duration, format string, args ...any) {
	r.moments = append(r.moments, Moment{What: fmt.Sprintf(format, args...), After: after})
}

// errNever marks what waiting cannot mend.
var errNever = errors.New("will not happen")

// never is an error that ends an until at once.
func never(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errNever, fmt.Errorf(format, args...))
}

// until calls probe until it succeeds or says never, and reports what it last
// said when the step's time is up.
func until(ctx context.Context, what string, probe func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := probe(ctx)
		if errors.Is(err, errNever) {
			return false, err
		}
		// What ended because time was up says less than what came before it.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case last == nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w (last: %w)", what, err, last)
}

// unlessUnavailable turns a hub's refusal into one that ends an until, and
// leaves an unreachable hub to be tried again.
func unlessUnavailable(err error) error {
	if err == nil || errors.Is(err, hubclient.ErrUnavailable) {
		return err
	}
	return never("%w", err)
}

// cloop runs this system's cloop binary as a person at a shell would, and
// returns what it printed and its exit code. Exit code 2 is tried again: the
// command could not answer, because a part was down.
func (s *System) cloop(ctx context.Context, args ...string) (output string, code int, err error) {
	err = until(ctx, "cloop "+strings.Join(args, " "), func(ctx context.Context) error {
		command := exec.CommandContext(ctx, s.executable, args...)
		command.Dir = s.path("work", "fleet")
		// A token of the caller's shell, for another hub, would come first.
		command.Env = append(append(command.Environ(), s.Environment()...), "CLOOP_TOKEN=")
		var printed bytes.Buffer
		command.Stdout, command.Stderr = &printed, &printed
		runErr := command.Run()
		output = printed.String()
		var exit *exec.ExitError
		if runErr != nil && !errors.As(runErr, &exit) {
			return never("%w", runErr)
		}
		if code = command.ProcessState.ExitCode(); code == 2 {
			return fmt.Errorf("exit code 2: %s", strings.TrimSpace(output))
		}
		return nil
	})
	return output, code, err
}

// Environment is what a shell needs for cloop and kubectl to reach the system.
func (s *System) Environment() []string {
	return []string{
		"KUBECONFIG=" + s.Kubeconfig,
		"CLOOP_HUB=" + s.HubURL,
		"CLOOP_HUB_PIN=" + s.HubPin,
		"CLOOP_HUB_CA_FILE=" + s.CAFile,
		"CLOOP_TOKEN_FILE=" + s.AdminTokenFile,
	}
}
