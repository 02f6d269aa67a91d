package store_test

import (
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// killRunner ends a runner as a Pod does that ran out of memory.
func (w *world) killRunner(t testing.TB, r store.Runner) {
	t.Helper()
	code := int32(137)
	w.detach[r.ID]()
	_, err := w.s.Gone(background, w.credential, r.ID, hubv1.GoneRequest{Reason: "OOMKilled", ExitCode: &code})
	check(t, err)
}

// log is a run's whole log.
func (w *world) log(t testing.TB, run string) (text string) {
	t.Helper()
	for {
		data, _, err := w.s.ReadLog(background, run, int64(len(text)))
		check(t, err)
		if len(data) == 0 {
			return text
		}
		text += string(data)
	}
}

func TestARunThatNobodyWouldHandOutDoesNotComeBackIntoTheQueue(t *testing.T) {
	both(t, testARunThatNobodyWouldHandOutDoesNotComeBackIntoTheQueue)
}

// What happens while a runner has the run does not stop it; but once the runner is
// lost the run ends, and its project says why.
func testARunThatNobodyWouldHandOutDoesNotComeBackIntoTheQueue(t *testing.T) {
	for name, c := range map[string]struct {
		act func(*testing.T, *world)
		why string
	}{
		"bound elsewhere": {func(t *testing.T, w *world) {
			other, err := w.s.CreatePool(background, admin, "", hubv1.CreatePoolRequest{Name: "other", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}})
			check(t, err)
			must(t)(w.s.BindProject(background, admin, "app", "pool:"+other.Pool.ID, store.Undemanding("")))
		}, "project app was bound to another pool"},
		"another audience": {func(t *testing.T, w *world) {
			must(t)(w.s.UpdatePool(background, admin, "gpu", 0, hubv1.UpdatePoolRequest{Audience: &[]string{"user:else"}}))
		}, "the pool no longer takes it: pool gpu is for user:else"},
		"the pool drains": {func(t *testing.T, w *world) {
			w.apply(t, "fleet", written("fleet", "gpu", 2, "Revoke"))
			w.apply(t, "fleet")
		}, "the pool no longer takes it: pool gpu was removed from Git"},
	} {
		for _, started := range []bool{false, true} {
			w := newWorld(t, 2)
			r := w.runner(t, "key-one1")
			run := w.get(t, w.run(t).ID)
			if started {
				w.started(t, r, run)
				must(t)(w.s.AppendLog(background, r, run.ID, 0, []byte("line\n")))
			}
			c.act(t, w)
			if now := w.get(t, run.ID); now.State.Terminal() || now.State == hubv1.RunQueued {
				t.Fatalf("%s: a run that a runner has is %s: %s", name, now.State, now.Reason)
			}
			w.killRunner(t, r)
			want := "OOMKilled (exit code 137); the run starts no more: " + c.why
			now := w.get(t, run.ID)
			if now.State != hubv1.RunCancelled || !strings.Contains(now.Reason, want) || len(now.Earlier) != 1 {
				t.Errorf("%s, started %v: the run is %s: %s (%+v)", name, started, now.State, now.Reason, now.Earlier)
			}
			if p := w.theProject(t); p.Dropped == nil || p.Dropped.Run != run.ID || p.Dropped.Reason != now.Reason || p.Paused != nil {
				t.Errorf("%s, started %v: the project says %+v, %+v", name, started, p.Dropped, p.Paused)
			}
			if log := w.log(t, run.ID); started && !strings.Contains(log, want) || strings.Contains(log, "starts again") {
				t.Errorf("%s: its log is %q", name, log)
			}
		}
	}
}

func TestARunThatComesBackWaitsSinceThen(t *testing.T) { both(t, testARunThatComesBackWaitsSinceThen) }

// How long a run waits, for the doctor, the gauges and the histograms, is not how
// long ago it was started first; its place in the queue is the old one.
func testARunThatComesBackWaitsSinceThen(t *testing.T) {
	events := make(chan store.Event, 1000) // far more than there are
	w := newWorld(t, 2)
	check(t, w.s.Close())
	s, err := store.Open(background, at(t, w.dir, store.Options{Clock: w.clock, Observe: func(e store.Event) { events <- e }}))
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	w.s = s
	r := w.runner(t, "key-one1")
	run := w.get(t, w.run(t).ID)
	w.started(t, r, run)
	later := w.run(t)
	for range 4 {
		w.clock.Step(10 * time.Second)
		must(t)(w.s.Heartbeat(background, r))
	}
	w.killRunner(t, r)
	cameBack := w.clock.Now()
	if now := w.get(t, run.ID); now.State != hubv1.RunQueued || !now.QueuedAt.Equal(run.QueuedAt) {
		t.Fatalf("the run is %+v", now)
	}
	must(t)(w.s.CancelRun(background, admin, later.ID))
	patients, err := w.s.Patients(background, w.pool.ID)
	check(t, err)
	if since := patients[0].OldestQueued; !since.Equal(cameBack) {
		t.Errorf("it waits since %s, and came back at %s", since, cameBack)
	}
	w.clock.Step(3 * time.Second)
	r = w.runner(t, "key-two2")
	w.clock.Step(2 * time.Second)
	w.started(t, r, w.get(t, run.ID))
	// Of each of the two attempts, in order.
	want := map[string][]time.Duration{store.ActionRunHand: {0, 3 * time.Second}, store.ActionRunStarted: {0, 5 * time.Second}}
	for len(want[store.ActionRunHand])+len(want[store.ActionRunStarted]) > 0 {
		select {
		case e := <-events:
			if left := want[e.Action]; e.Object == run.ID && len(left) > 0 {
				if e.Took != left[0] {
					t.Errorf("%s took %s, not %s", e.Action, e.Took, left[0])
				}
				want[e.Action] = left[1:]
			}
		case <-time.After(patience):
			t.Fatalf("no event of %v", want)
		}
	}
}
