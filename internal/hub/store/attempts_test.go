package store_test

import (
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// What became of a run in the hands of each runner that it came back from stays
// with it, also what Kubernetes says of that later.
func TestEachAttemptKeepsWhatBecameOfIt(t *testing.T) { both(t, testEachAttemptKeepsWhatBecameOfIt) }

func testEachAttemptKeepsWhatBecameOfIt(t *testing.T) {
	w := newWorld(t, 5)
	run := w.run(t)
	// The first runner takes the run and leaves before it has started it.
	first := w.runner(t, "key-one1")
	check(t, w.s.Bye(background, first, "no room on the disk"))
	if got := w.get(t, run.ID); len(got.Earlier) != 1 || got.Earlier[0].StartedAt != nil || got.Earlier[0].Attempt != 1 || got.Earlier[0].Runner != first.ID ||
		got.Earlier[0].Reason != "the runner left: no room on the disk" {
		t.Fatalf("after the first it has %+v", got.Earlier)
	}
	// The second starts it and falls silent.
	second := w.runner(t, "key-two2")
	began := w.clock.Now()
	w.started(t, second, w.get(t, run.ID))
	w.clock.Step(time.Minute)
	check(t, w.s.Expire(background))
	silent := w.get(t, run.ID)
	if len(silent.Earlier) != 2 || silent.State != hubv1.RunQueued || silent.Attempt != 2 {
		t.Fatalf("after the second it is %s with %+v", silent.State, silent.Earlier)
	}
	if got := silent.Earlier[1]; got.Attempt != 1 || got.Runner != second.ID || !got.HandedAt.Equal(began) || got.StartedAt == nil || !got.StartedAt.Equal(began) ||
		!got.EndedAt.Equal(w.clock.Now()) || !strings.Contains(got.Reason, "silent for 50s") || got.PodEnd != nil {
		t.Fatalf("of the second it has %+v", got)
	}
	// Its controller says later what it was, and again when it starts anew.
	watched := w.s.Bus.Subscribe(store.RunTopic(run.ID))
	defer watched.Close()
	for range 2 {
		must(t)(w.s.Gone(background, w.credential, second.ID, hubv1.GoneRequest{Reason: "NodeLost", Message: "node\nn1"}))
	}
	got := w.get(t, run.ID)
	if of := got.Earlier[1]; of.PodEnd == nil || of.PodEnd.Reason != "NodeLost" || strings.Count(of.Reason, "NodeLost") != 1 || !strings.Contains(of.Reason, "silent for 50s; the runner's Pod ended: NodeLost") {
		t.Errorf("of the second it has %+v", of)
	}
	if got.Revision != silent.Revision+1 || got.State != hubv1.RunQueued || got.PodEnd != nil {
		t.Errorf("the run changed to %+v", got)
	}
	select {
	case <-watched.C:
	default:
		t.Error("who watches the run is not woken")
	}
	// One whose Pod was cleaned up, as every Pod is, tells nothing.
	must(t)(w.s.Gone(background, w.credential, first.ID, hubv1.GoneRequest{Reason: "PodDeleted"}))
	if of := w.get(t, run.ID).Earlier[0]; of.PodEnd != nil {
		t.Errorf("of the first it has %+v", of)
	}
	// The third is killed under it, which ends the run; that is the run's own end.
	third := w.runner(t, "key-tre3")
	w.started(t, third, w.get(t, run.ID))
	killed := int32(137)
	w.detach[third.ID]()
	must(t)(w.s.Gone(background, w.credential, third.ID, hubv1.GoneRequest{Reason: "OOMKilled", ExitCode: &killed}))
	got = w.get(t, run.ID)
	if got.State != hubv1.RunLost || got.PodEnd == nil || got.PodEnd.Reason != "OOMKilled" || len(got.Earlier) != 2 || got.Earlier[1].PodEnd.Reason != "NodeLost" {
		t.Errorf("it ended as %+v", got)
	}
	// Whoever lists runs sees the same.
	runs, err := w.s.ListRuns(background, "app", 10)
	check(t, err)
	if len(runs) != 1 || len(runs[0].Earlier) != 2 {
		t.Errorf("listed as %+v", runs)
	}
	causes := 0
	page, err := w.s.Audit(background, hubv1.AuditQuery{Limit: 1000})
	check(t, err)
	for _, row := range page.Items {
		if row.Action == store.ActionRunCause && row.Object == run.ID {
			causes++
		}
	}
	if causes != 2 {
		t.Errorf("%d causes are in the audit trail", causes)
	}
}

// A run that was cancelled while it waited again keeps what it has behind it, and
// what it keeps goes with it.
func TestARunsAttemptsGoWithTheRun(t *testing.T) { both(t, testARunsAttemptsGoWithTheRun) }

func testARunsAttemptsGoWithTheRun(t *testing.T) {
	w := newWorld(t, 5)
	run := w.run(t)
	check(t, w.s.Bye(background, w.runner(t, "key-one1"), ""))
	must(t)(w.s.CancelRun(background, admin, run.ID))
	if got := w.get(t, run.ID); got.State != hubv1.RunCancelled || len(got.Earlier) != 1 {
		t.Fatalf("it is %s with %+v", got.State, got.Earlier)
	}
	w.s.Limits.Retention.RunsPerProject = 0
	w.clock.Step(100 * 24 * time.Hour)
	for more := true; more; {
		var err error
		more, err = w.s.Prune(background)
		check(t, err)
	}
	left := 0
	check(t, looking(t, w.dir).QueryRow("SELECT COUNT(*) FROM run_attempts").Scan(&left))
	if _, err := w.s.GetRun(background, run.ID); codeOf(err) != hubv1.CodeNotFound || left != 0 {
		t.Errorf("%d attempts are left of a run that is gone, %v", left, err)
	}
}
