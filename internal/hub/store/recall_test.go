package store_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// Until the runner has let go of a run, or may not be running it any more,
// nobody else gets it: the command would run twice at a time.
func TestARunThatIsTakenBackGoesToNobodyWhileItMayRun(t *testing.T) {
	both(t, testARunThatIsTakenBackGoesToNobodyWhileItMayRun)
}

func testARunThatIsTakenBackGoesToNobodyWhileItMayRun(t *testing.T) {
	silent := func(w *world) time.Duration { return w.s.Limits.Lease + w.s.Limits.Margin }
	for name, test := range map[string]struct {
		// recall makes the hub want the run back from the runner.
		recall func(*testing.T, *world, store.Runner, hubv1.Run)
		cause  string
	}{
		"it did not start in time": {func(t *testing.T, w *world, r store.Runner, _ hubv1.Run) {
			for range 4 {
				w.clock.Step(w.s.Limits.StartTimeout / 4)
				_, err := w.s.Heartbeat(background, r)
				check(t, err)
			}
			check(t, w.s.Expire(background))
		}, "did not start it within"},
		"its Pod is gone and nobody saw it end": {func(t *testing.T, w *world, r store.Runner, run hubv1.Run) {
			w.started(t, r, run)
			w.detach[r.ID]()
			must(t)(w.s.Gone(background, w.credential, r.ID, hubv1.GoneRequest{Reason: "PodDeleted"}))
			must(t)(w.s.Gone(background, w.credential, r.ID, hubv1.GoneRequest{Reason: "PodDeleted"})) // each pass says so
		}, "PodDeleted"},
	} {
		t.Run(name, func(t *testing.T) {
			for name, end := range map[string]func(t *testing.T, w *world, r, next store.Runner){
				"it says goodbye": func(t *testing.T, w *world, r, _ store.Runner) { check(t, w.s.Bye(background, r, "let go")) },
				"its lease ends": func(t *testing.T, w *world, r, next store.Runner) {
					w.clock.Step(silent(w) / 2)
					// Heartbeats do not help it any more.
					if state, err := w.s.Heartbeat(background, r); err != nil || state != hubv1.RunnerRetiring {
						t.Fatalf("a heartbeat is answered %s, %v", state, err)
					}
					must(t)(w.s.Heartbeat(background, next))
					check(t, w.s.Expire(background))
					if held := w.get(t, w.held); held.Runner != r.ID {
						t.Fatalf("before the lease is over: %+v", held)
					}
					w.clock.Step(silent(w) / 2)
					check(t, w.s.Expire(background))
				},
			} {
				t.Run(name, func(t *testing.T) {
					w := newWorld(t, 5)
					run, r := w.run(t), w.runner(t, "key-one1")
					w.held = run.ID
					test.recall(t, w, r, w.get(t, run.ID))
					next := w.runner(t, "key-two2")
					if held := w.get(t, run.ID); held.Runner != r.ID || !strings.Contains(held.Reason, test.cause) {
						t.Fatalf("at once: %+v", held)
					}
					if snapshot, err := w.s.RunnerSnapshot(background, r); err != nil || snapshot.Run != nil || snapshot.State != hubv1.RunnerRetiring {
						t.Fatalf("the runner is told %+v, %v", snapshot, err)
					}
					for what, err := range map[string]error{
						"start":  w.s.Started(background, r, run.ID, hubv1.StartedRequest{Attempt: 1, StartedAt: w.clock.Now()}),
						"result": w.s.Result(background, r, run.ID, hubv1.ResultRequest{Attempt: 1}),
						"log":    func() error { _, err := w.s.AppendLog(background, r, run.ID, 0, []byte("x")); return err }(),
					} {
						if codeOf(err) != hubv1.CodeRunNotHeld {
							t.Errorf("its %s: %v", what, err)
						}
					}
					end(t, w, r, next)
					if again := w.get(t, run.ID); again.State != hubv1.RunHanded || again.Runner != next.ID || again.Reason != "" {
						t.Fatalf("in the end: %+v", again)
					}
				})
			}
		})
	}
}

func TestACancelledRunWhosePodIsGoneIsSettledAtOnce(t *testing.T) {
	both(t, testACancelledRunWhosePodIsGoneIsSettledAtOnce)
}

func testACancelledRunWhosePodIsGoneIsSettledAtOnce(t *testing.T) {
	w := newWorld(t, 5)
	run, r := w.run(t), w.runner(t, "key-one1")
	w.started(t, r, w.get(t, run.ID))
	must(t)(w.s.CancelRun(background, admin, run.ID))
	must(t)(w.s.Gone(background, w.credential, r.ID, hubv1.GoneRequest{Reason: "PodDeleted"}))
	if held := w.get(t, run.ID); held.State != hubv1.RunCancelling || held.Runner != r.ID {
		t.Errorf("while the runner has its watch open it is %s of %s", held.State, held.Runner)
	}
	w.detach[r.ID]()
	if ended := w.get(t, run.ID); ended.State != hubv1.RunCancelled || !strings.Contains(ended.Reason, "cancelled by "+admin) {
		t.Errorf("it is %s: %s", ended.State, ended.Reason)
	}
	// And cancelling one that was taken back already says who did it.
	run, r = w.run(t), w.runner(t, "key-two2")
	w.started(t, r, w.get(t, run.ID))
	w.detach[r.ID]()
	must(t)(w.s.Gone(background, w.credential, r.ID, hubv1.GoneRequest{Reason: "PodDeleted"}))
	must(t)(w.s.CancelRun(background, admin, run.ID))
	check(t, w.s.Bye(background, r, "let go"))
	if ended := w.get(t, run.ID); ended.State != hubv1.RunCancelled || !strings.Contains(ended.Reason, "cancelled by "+admin) {
		t.Errorf("it is %s: %s", ended.State, ended.Reason)
	}
}

func TestARunOfARunnerThatWasSeenToEndStartsAgainAtOnce(t *testing.T) {
	both(t, testARunOfARunnerThatWasSeenToEndStartsAgainAtOnce)
}

func testARunOfARunnerThatWasSeenToEndStartsAgainAtOnce(t *testing.T) {
	killed := hubv1.GoneRequest{Reason: "OOMKilled", ExitCode: new(int32(137))}
	gone := func(t *testing.T, w *world, r store.Runner) {
		must(t)(w.s.Gone(background, w.credential, r.ID, killed))
	}
	// The end of its connection and its controller's word come in any order.
	for name, end := range map[string]func(*testing.T, *world, store.Runner){
		"its watch ends first": func(t *testing.T, w *world, r store.Runner) { w.detach[r.ID](); gone(t, w, r) },
		"its watch ends last":  func(t *testing.T, w *world, r store.Runner) { gone(t, w, r); gone(t, w, r); w.detach[r.ID]() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 5)
			run, r := w.run(t), w.runner(t, "key-one1")
			w.started(t, r, w.get(t, run.ID))
			next := w.runner(t, "key-two2")
			end(t, w, r)
			again := w.get(t, run.ID)
			if again.State != hubv1.RunHanded || again.Runner != next.ID || again.Attempt != 2 {
				t.Fatalf("it is %+v", again)
			}
			if len(again.Earlier) != 1 || again.Earlier[0].PodEnd == nil || again.Earlier[0].PodEnd.Reason != "OOMKilled" {
				t.Errorf("of the first time it knows %+v", again.Earlier)
			}
		})
	}
}

// A controller that is wrong, or lies, does not make the run of a runner that is
// in contact run twice at a time.
func TestARunnerInContactKeepsItsRunWhateverItsControllerSays(t *testing.T) {
	both(t, testARunnerInContactKeepsItsRunWhateverItsControllerSays)
}

func testARunnerInContactKeepsItsRunWhateverItsControllerSays(t *testing.T) {
	for what, lie := range map[string]hubv1.GoneRequest{
		"it was seen to end": {Reason: "Completed", ExitCode: new(int32(0))},
		"it is not there":    {Reason: "PodDeleted"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, 5)
			run := w.run(t)
			r, session := w.enrolled(t, "key-one1")
			w.started(t, r, w.get(t, run.ID))
			w.runner(t, "key-two2") // would take it
			kept := func(when string) {
				t.Helper()
				if held := w.get(t, run.ID); held.Runner != r.ID || held.State != hubv1.RunRunning {
					t.Fatalf("%s: %+v", when, held)
				}
			}
			// It speaks on, so what is said of it is not true, however often, and it
			// is neither told to leave nor taken for silent.
			for range 20 {
				state, err := w.s.Gone(background, w.credential, r.ID, lie)
				if err != nil || state != hubv1.RunnerBusy {
					t.Fatalf("its controller is answered %s, %v", state, err)
				}
				if snapshot, err := w.s.RunnerSnapshot(background, r); err != nil || snapshot.State != hubv1.RunnerBusy || snapshot.Run == nil {
					t.Fatalf("it is told %+v, %v", snapshot, err)
				}
				w.clock.Step(w.s.Limits.Lease / 2)
				must(t)(w.s.AuthRunner(background, session))
				must(t)(w.s.Heartbeat(background, r))
				check(t, w.s.Expire(background))
				kept("while it speaks")
			}
			var rows int
			check(t, looking(t, w.dir).QueryRow("SELECT COUNT(*) FROM audit WHERE action = 'executor_pool.runner.pod_end'").Scan(&rows))
			if rows != 2 {
				t.Errorf("%d rows of the audit trail tell of it", rows)
			}
			w.detach[r.ID]()
			kept("after its watch broke")
			check(t, w.s.Result(background, r, run.ID, hubv1.ResultRequest{Attempt: 1, ExitCode: new(int32(0))}))
			if done := w.get(t, run.ID); done.State != hubv1.RunSucceeded {
				t.Errorf("in the end it is %s: %s", done.State, done.Reason)
			}
		})
	}
}

// What was not true once may be so later.
func TestARunnerEndsAlsoOnceItsControllerWasWrong(t *testing.T) {
	both(t, testARunnerEndsAlsoOnceItsControllerWasWrong)
}

func testARunnerEndsAlsoOnceItsControllerWasWrong(t *testing.T) {
	for what, test := range map[string]struct {
		end   hubv1.GoneRequest
		after func(*world) time.Duration
	}{
		"and somebody sees it":   {hubv1.GoneRequest{Reason: "OOMKilled", ExitCode: new(int32(137))}, func(*world) time.Duration { return 0 }},
		"and nobody sees it end": {hubv1.GoneRequest{Reason: "PodDeleted"}, func(w *world) time.Duration { return w.s.Limits.Lease + w.s.Limits.Margin }},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, 5)
			run := w.run(t)
			r, session := w.enrolled(t, "key-one1")
			w.started(t, r, w.get(t, run.ID))
			must(t)(w.s.Gone(background, w.credential, r.ID, hubv1.GoneRequest{Reason: "Completed", ExitCode: new(int32(0))}))
			must(t)(w.s.AuthRunner(background, session))
			must(t)(w.s.Gone(background, w.credential, r.ID, test.end))
			w.detach[r.ID]()
			w.clock.Step(test.after(w))
			check(t, w.s.Expire(background))
			got := w.get(t, run.ID)
			if len(got.Earlier) != 1 || got.Earlier[0].PodEnd == nil || got.Earlier[0].PodEnd.Reason != test.end.Reason {
				t.Errorf("the run is %s and knows %+v", got.State, got.Earlier)
			}
		})
	}
}

// checkFence: a run is taken from a runner only when that cannot be running it
// any more, or because the run is over.
func (m *machine) checkFence(t *rapid.T) {
	for _, id := range m.runs {
		run, err := m.s.GetRun(background, id)
		m.ok(t, err)
		was := m.holding[id]
		delete(m.holding, id)
		if run.State != hubv1.RunQueued && !run.State.Terminal() {
			m.holding[id] = run.Runner
		}
		if was == "" || was == m.holding[id] || run.State.Terminal() || m.left[was] || m.told[was] && !m.watched(t, was) {
			continue
		}
		if fenced := m.contact[was].Add(m.s.Limits.Lease + m.s.Limits.Margin); m.clock.Now().Before(fenced) {
			t.Fatalf("run %s was taken from runner %s, which may be running it until %s", id, was, fenced)
		}
	}
}
