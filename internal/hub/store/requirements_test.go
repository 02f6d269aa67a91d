package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

func asking(capability string) store.Source {
	return store.Source{Commit: "abc", Requirements: &hubv1.Requirements{Capabilities: map[string]bool{capability: true}}}
}

// declare gives the pool capabilities, as Git does.
func (w *world) declare(t testing.TB, capabilities map[string]bool) {
	t.Helper()
	_, err := w.s.ApplyDocuments(context.Background(), store.Revision{Sync: "fleet"}, []store.PoolDocument{{
		Name: "gpu", Definition: hubv1.PoolDefinition{MaxRunners: 5, Capabilities: capabilities, DeletionPolicy: "Orphan"},
		Source: hubv1.Provenance{Sync: "fleet", Repository: "https://git", Path: "gpu.yaml", Revision: "1"},
	}})
	check(t, err)
}

func (w *world) theProject(t testing.TB) hubv1.Project {
	t.Helper()
	project, err := w.s.GetProject(background, "app")
	check(t, err)
	return project
}

func TestAPoolMustMeetWhatARunAsksFor(t *testing.T) { both(t, testAPoolMustMeetWhatARunAsksFor) }

func testAPoolMustMeetWhatARunAsksFor(t *testing.T) {
	w := newWorld(t, 5)
	request := hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}
	_, err := w.s.StartRun(background, admin, "", request, asking("hypervisor"))
	if codeOf(err) != hubv1.CodeRequirementsUnmet || !strings.Contains(err.Error(), "hypervisor: true, of which pool gpu declares nothing") {
		t.Fatalf("a pool that declares nothing: %v", err)
	}
	if _, err := w.s.BindProject(background, admin, "app", "pool:"+w.pool.ID, asking("hypervisor")); codeOf(err) != hubv1.CodeRequirementsUnmet {
		t.Fatalf("binding to it: %v", err)
	}
	w.declare(t, map[string]bool{"hypervisor": true})
	waits, err := w.s.StartRun(background, admin, "", request, asking("hypervisor"))
	check(t, err)
	other := w.run(t)
	if got := w.theProject(t); got.Paused == nil || got.Paused.Runs != 2 || got.Paused.Reason != "pool_capacity" || got.Paused.Message != waits.Reason || got.Dropped != nil {
		t.Fatalf("the project shows %+v", got.Paused)
	}
	// The pool changes: the run could never be handed out.
	w.declare(t, map[string]bool{"hypervisor": false})
	if got := w.get(t, waits.ID); got.State != hubv1.RunCancelled || !strings.Contains(got.Reason, "no longer takes it") || !strings.Contains(got.Reason, "declares to be false") {
		t.Fatalf("it is %s: %s", got.State, got.Reason)
	}
	if got := w.get(t, other.ID); got.State != hubv1.RunQueued {
		t.Fatalf("the one that asks for nothing is %s: %s", got.State, got.Reason)
	}
	if got := w.theProject(t).Dropped; got == nil || got.Run != waits.ID || !strings.Contains(got.Reason, "hypervisor") || !got.At.Equal(w.clock.Now()) {
		t.Fatalf("the project says %+v", got)
	}
}

// A run that its pool does not take any more leaves the queue when its turn
// comes, and the runner gets the next one.
func TestWhoMayNotRunAnyMoreIsFoundAtTheHandOff(t *testing.T) {
	both(t, testWhoMayNotRunAnyMoreIsFoundAtTheHandOff)
}

func testWhoMayNotRunAnyMoreIsFoundAtTheHandOff(t *testing.T) {
	w := newWorld(t, 5)
	barred, next := w.run(t), w.run(t)
	// As an edit leaves it that no hub knew how to follow.
	_, err := looking(t, w.dir).Exec(`UPDATE runs SET requirements = '{"labels":{"gpu":"a100"}}' WHERE id = '` + barred.ID + `'`)
	check(t, err)
	r := w.runner(t, "key-one1")
	if got := w.get(t, barred.ID); got.State != hubv1.RunCancelled || !strings.Contains(got.Reason, "label gpu=a100, which pool gpu does not have") {
		t.Errorf("it is %s: %s", got.State, got.Reason)
	}
	if got := w.get(t, next.ID); got.State != hubv1.RunHanded || got.Runner != r.ID {
		t.Errorf("the next is %s, of %s", got.State, got.Runner)
	}
}

// What Kubernetes says of a runner's Pod stands with the run that ended with it,
// whichever of the two the hub hears of first, and once.
func TestTheEndOfThePodStandsWithTheRun(t *testing.T) { both(t, testTheEndOfThePodStandsWithTheRun) }

func testTheEndOfThePodStandsWithTheRun(t *testing.T) {
	killed := int32(137)
	oom := hubv1.GoneRequest{Reason: "OOMKilled", Message: "over\n\x1b[31mits limit", ExitCode: &killed}
	for name, test := range map[string]struct {
		end   func(t *testing.T, w *world, r store.Runner, run hubv1.Run)
		says  hubv1.GoneRequest
		state hubv1.RunState
		want  []string
		known bool
	}{
		"the command was killed, and the runner said so": {func(t *testing.T, w *world, r store.Runner, run hubv1.Run) {
			check(t, w.s.Result(background, r, run.ID, hubv1.ResultRequest{Attempt: 1, Signal: "killed"}))
		}, oom, hubv1.RunFailed, []string{"ended by the signal killed; the runner's Pod ended: OOMKilled (exit code 137): over"}, true},
		"and it said goodbye": {func(t *testing.T, w *world, r store.Runner, run hubv1.Run) {
			check(t, w.s.Result(background, r, run.ID, hubv1.ResultRequest{Attempt: 1, Signal: "killed"}))
			check(t, w.s.Bye(background, r, "done"))
		}, oom, hubv1.RunFailed, []string{"OOMKilled"}, true},
		"the Pod's end is how the hub hears of it": {func(*testing.T, *world, store.Runner, hubv1.Run) {}, oom,
			hubv1.RunLost, []string{"the runner's Pod ended: OOMKilled"}, true},
		"the node was lost, and silence came first": {func(t *testing.T, w *world, _ store.Runner, _ hubv1.Run) {
			w.clock.Step(time.Minute)
			check(t, w.s.Expire(background))
		}, hubv1.GoneRequest{Reason: "NodeLost"}, hubv1.RunLost, []string{"silent for 50s", "; the runner's Pod ended: NodeLost"}, true},
		"it ended as it should": {func(t *testing.T, w *world, r store.Runner, run hubv1.Run) {
			check(t, w.s.Result(background, r, run.ID, hubv1.ResultRequest{Attempt: 1, ExitCode: new(int32(3))}))
		}, hubv1.GoneRequest{Reason: "Completed", ExitCode: new(int32(0))}, hubv1.RunFailed, []string{"exited with code 3"}, false},
		"it was cleaned up": {func(t *testing.T, w *world, r store.Runner, run hubv1.Run) {
			check(t, w.s.Result(background, r, run.ID, hubv1.ResultRequest{Attempt: 1, ExitCode: new(int32(3))}))
		}, hubv1.GoneRequest{Reason: "PodDeleted"}, hubv1.RunFailed, []string{"exited with code 3"}, false},
		"the run succeeded": {func(t *testing.T, w *world, r store.Runner, run hubv1.Run) {
			check(t, w.s.Result(background, r, run.ID, hubv1.ResultRequest{Attempt: 1, ExitCode: new(int32(0))}))
		}, oom, hubv1.RunSucceeded, []string{""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 5)
			run, err := w.s.StartRun(background, admin, "", hubv1.StartRunRequest{
				Project: "app", Command: []string{"true"}, Failover: hubv1.FailoverNever,
			}, store.Undemanding(""))
			check(t, err)
			r := w.runner(t, "key-one1")
			w.started(t, r, w.get(t, run.ID))
			test.end(t, w, r, run)
			w.detach[r.ID]()
			for range 2 { // a controller that starts again says it again
				must(t)(w.s.Gone(background, w.credential, r.ID, test.says))
			}
			got := w.get(t, run.ID)
			if got.State != test.state || (got.PodEnd != nil) != test.known {
				t.Fatalf("it is %s with %+v: %s", got.State, got.PodEnd, got.Reason)
			}
			for _, want := range test.want {
				if !strings.Contains(got.Reason, want) {
					t.Errorf("it does not say %q: %q", want, got.Reason)
				}
			}
			if strings.Count(got.Reason, test.says.Reason) > 1 || strings.ContainsAny(got.Reason, "\n\x1b") {
				t.Errorf("it says %q", got.Reason)
			}
			if test.known && got.PodEnd.Reason != test.says.Reason {
				t.Errorf("it knows %+v", got.PodEnd)
			}
		})
	}
}

// A runner killed twice under one run ends it, and says that there was a first
// time.
func TestARunnerKilledTwiceUnderARunEndsIt(t *testing.T) {
	both(t, testARunnerKilledTwiceUnderARunEndsIt)
}

func testARunnerKilledTwiceUnderARunEndsIt(t *testing.T) {
	w := newWorld(t, 5)
	run := w.run(t)
	killed := int32(137)
	for attempt, key := range []string{"key-one1", "key-two2"} {
		r := w.runner(t, key)
		held := w.get(t, run.ID)
		if held.State != hubv1.RunHanded || held.Attempt != int32(attempt)+1 {
			t.Fatalf("attempt %d: %+v", attempt+1, held)
		}
		w.started(t, r, held)
		w.detach[r.ID]()
		must(t)(w.s.Gone(background, w.credential, r.ID, hubv1.GoneRequest{Reason: "OOMKilled", ExitCode: &killed}))
	}
	got := w.get(t, run.ID)
	if got.State != hubv1.RunLost || !strings.Contains(got.Reason, "OOMKilled") || !strings.Contains(got.Reason, "attempt 2, and the run starts no more") {
		t.Fatalf("it is %s: %s", got.State, got.Reason)
	}
}

func TestOfAnOldBuildNothingIsAskedThatItCannotCheck(t *testing.T) {
	both(t, testOfAnOldBuildNothingIsAskedThatItCannotCheck)
}

func testOfAnOldBuildNothingIsAskedThatItCannotCheck(t *testing.T) {
	w := newWorld(t, 5)
	request := hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}
	unread, err := w.s.StartRun(background, admin, "", request, store.Source{Unknown: "not reached"})
	check(t, err)
	read := w.run(t)
	old := w.runner(t, "key-one1")
	if got := w.get(t, read.ID); got.Runner != old.ID {
		t.Errorf("the one that is read is %s", got.State)
	}
	if got := w.get(t, unread.ID); got.State != hubv1.RunQueued {
		t.Errorf("the one that is not is %s", got.State)
	}
}
