package store_test

import (
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// atOnce starts a run that does not wait.
func atOnce(s *store.Store, key store.Key, project string) (hubv1.Run, error) {
	return s.StartRun(background, admin, key, hubv1.StartRunRequest{Project: project, Command: []string{"true"}, NoWait: true}, store.Undemanding(""))
}

func TestARunThatDoesNotWaitIsTakenAtOnceOrNotQueued(t *testing.T) {
	both(t, testARunThatDoesNotWaitIsTakenAtOnceOrNotQueued)
}

func testARunThatDoesNotWaitIsTakenAtOnceOrNotQueued(t *testing.T) {
	w := newWorld(t, 2)
	w.project(t, "lib")
	queued := 0
	refused := func(project, why string) {
		t.Helper()
		_, err := atOnce(w.s, "again", project)
		if codeOf(err) != hubv1.CodeWaitingForCapacity || !strings.Contains(err.Error(), why) {
			t.Errorf("refused with %v, want %q", err, why)
		}
		runs, err := w.s.ListRuns(background, project, 100)
		check(t, err)
		waits := 0
		for _, run := range runs {
			if run.State == hubv1.RunQueued {
				waits++
			}
		}
		if waits != queued {
			t.Errorf("%d runs of %s wait", waits, project)
		}
		if pool, _, err := w.s.GetPool(background, "gpu"); err != nil || int(pool.Queued) != queued {
			t.Errorf("%d wait, %v", pool.Queued, err)
		}
	}
	refused("app", "no controller of it has been in contact")

	// A run that waits goes first, however long it has waited.
	w.run(t)
	first := w.runner(t, "key-one1")
	leave := w.arrive(t, "c-0")
	defer leave()
	refused("app", "which has 1 of 2 and is to start one")

	free := w.runner(t, "key-two2")
	run, err := atOnce(w.s, "again", "app")
	check(t, err)
	if run.State != hubv1.RunHanded || run.Runner != free.ID {
		t.Fatalf("it is %s, of %q", run.State, run.Runner)
	}
	// What is repeated has its answer, whoever is free.
	if again, err := atOnce(w.s, "again", "app"); err != nil || again.ID != run.ID {
		t.Fatalf("repeated it is %+v, %v", again, err)
	}
	if _, err := atOnce(w.s, "another", "app"); codeOf(err) != hubv1.CodeWaitingForCapacity || !strings.Contains(err.Error(), "as many as it may have") {
		t.Errorf("with every runner busy: %v", err)
	}

	// A runner that may not take it is none, and one of a cordoned pool either.
	check(t, w.s.Bye(background, first, "done"))
	w.holder(t, "key-tre3", w.holdsOf(t, "lib"))
	queued = 0
	if _, err := atOnce(w.s, "third", "app"); codeOf(err) != hubv1.CodeWaitingForCapacity || !strings.Contains(err.Error(), "kept for another project") {
		t.Errorf("beside another project's runner: %v", err)
	}
	must(t)(w.s.Cordon(background, admin, "gpu", "node upgrades"))
	if _, err := atOnce(w.s, "fourth", "lib"); codeOf(err) != hubv1.CodeWaitingForCapacity || !strings.Contains(err.Error(), "cordoned: node upgrades") {
		t.Errorf("of a cordoned pool: %v", err)
	}
	must(t)(w.s.Uncordon(background, admin, "gpu"))
	if run, err = atOnce(w.s, "fifth", "lib"); err != nil || run.State != hubv1.RunHanded {
		t.Errorf("on its own volume it is %+v, %v", run.State, err)
	}
	// Of what was refused there is no trace.
	page, err := w.s.Audit(background, hubv1.AuditQuery{Limit: 1000})
	check(t, err)
	queues := 0
	for _, row := range page.Items {
		if row.Action == store.ActionRunQueue {
			queues++
		}
	}
	if runs, err := w.s.ListRuns(background, "", 100); err != nil || queues != len(runs) {
		t.Errorf("%d runs were queued, and %d are there, %v", queues, len(runs), err)
	}
}

// About PostgreSQL: who is free is so at whichever member, as long as that one
// lives and the runner listens.
func TestARunThatDoesNotWaitFindsTheRunnersOfAnotherMember(t *testing.T) {
	h := twoHubs(t, 5)
	listening := func(key string) (r store.Runner, detach func()) {
		t.Helper()
		minted, err := h.s.Mint(background, h.credential, key)
		check(t, err)
		enrolled, err := h.s.Enroll(background, hubv1.EnrollRequest{Token: minted.Token})
		check(t, err)
		r, err = h.s.AuthRunner(background, enrolled.Session)
		check(t, err)
		detach, err = h.s.Attach(background, r)
		check(t, err)
		return r, detach
	}
	refused := func(why string) {
		t.Helper()
		if _, err := atOnce(h.second, "", "app"); codeOf(err) != hubv1.CodeWaitingForCapacity {
			t.Errorf("%s: %v", why, err)
		}
	}
	taken := func(by store.Runner) {
		t.Helper()
		run, err := atOnce(h.second, "", "app")
		check(t, err)
		snapshot, err := h.s.RunnerSnapshot(background, by)
		check(t, err)
		if run.State != hubv1.RunHanded || snapshot.Run == nil || snapshot.Run.RunID != run.ID {
			t.Fatalf("the run is %s, and the runner has %+v", run.State, snapshot.Run)
		}
	}
	refused("nobody listens")
	r, _ := listening("key-one1")
	heard := h.s.Bus.Subscribe(store.RunnerTopic(r.ID))
	defer heard.Close()
	taken(r)
	woken(t, "the runner at the first member", heard)
	refused("the runner is busy")

	gone, detach := listening("key-two2")
	detach()
	check(t, h.s.Beat(background))
	refused("the runner does not listen any more")
	detach, err := h.s.Attach(background, gone)
	check(t, err)
	detach() // and comes back before anybody has written down that it left
	_, err = h.s.Attach(background, gone)
	check(t, err)
	check(t, h.s.Beat(background))
	taken(gone)

	listening("key-tre3")
	h.passes(t, store.Alive, h.second)
	refused("the member that the runner listens to is dead")
}
