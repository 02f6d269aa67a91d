package store_test

import (
	"fmt"
	"reflect"
	"sync"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

func TestARunnersSnapshotIsOfOneMoment(t *testing.T) { both(t, testARunnersSnapshotIsOfOneMoment) }

// A run and its runner change in one transaction, so no snapshot shows one
// without the other, however they are read meanwhile.
func testARunnersSnapshotIsOfOneMoment(t *testing.T) {
	const runners = 6
	w := newWorld(t, runners)
	var readers sync.WaitGroup
	defer readers.Wait()
	for i := range runners {
		r := w.enroll(t, fmt.Sprintf("key-%04d", i))
		must(t)(w.s.Attach(background, r))
		began := make(chan struct{})
		readers.Go(func() { readToTheEnd(t, w.s, r, began) })
		<-began
		// What it asks of its runner is unknown, so the runner is told what there is.
		run, err := w.s.StartRun(background, admin, "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Source{})
		check(t, err)
		w.started(t, r, run)
		switch i % 3 {
		case 0:
			must(t)(w.s.CancelRun(background, admin, run.ID))
		case 1:
			must(t)(w.s.Gone(background, w.credential, r.ID, hubv1.GoneRequest{Reason: "its node is gone"}))
			check(t, w.s.Bye(background, r, "its node came back"))
			must(t)(w.s.CancelRun(background, admin, run.ID)) // no other runner is to get it
			continue
		}
		exit := int32(0)
		check(t, w.s.Result(background, r, run.ID, hubv1.ResultRequest{Attempt: run.Attempt, ExitCode: &exit, Cancelled: i%3 == 0}))
	}
}

// enroll is a runner that is idle and does not listen yet.
func (w *world) enroll(t testing.TB, key string) store.Runner {
	t.Helper()
	minted, err := w.s.Mint(background, w.credential, key)
	check(t, err)
	enrolled, err := w.s.Enroll(background, hubv1.EnrollRequest{Token: minted.Token, Name: key, Features: []string{hubv1.FeatureRequirements}})
	check(t, err)
	r, err := w.s.AuthRunner(background, enrolled.Session)
	check(t, err)
	return r
}

// readToTheEnd reads a runner's snapshots until it is let go.
func readToTheEnd(t *testing.T, s *store.Store, r store.Runner, began chan<- struct{}) {
	var last hubv1.RunnerSnapshot
	for n := 0; ; n++ {
		now, err := s.RunnerSnapshot(background, r)
		if err == nil {
			err = follows(last, now)
		}
		if n == 0 {
			close(began)
		}
		if err != nil {
			t.Error(err)
			return
		}
		if now.State == hubv1.RunnerRetiring || now.State == hubv1.RunnerRetired {
			return
		}
		last = now
	}
}

// follows says what is wrong with a snapshot that comes after another.
func follows(last, now hubv1.RunnerSnapshot) error {
	same := now
	if last.Run != nil && now.Run != nil {
		// The commit is found out without a word to the runner, which said it.
		run := *now.Run
		run.Commit = last.Run.Commit
		same.Run = &run
	}
	switch {
	case now.Revision < last.Revision:
		return fmt.Errorf("revision %d comes after %d", now.Revision, last.Revision)
	case now.Revision == last.Revision && !reflect.DeepEqual(same, last):
		return fmt.Errorf("revision %d is %+v and %+v", now.Revision, last, now)
	case (now.State == hubv1.RunnerBusy) != (now.Run != nil) || now.Cancel && now.Run == nil:
		return fmt.Errorf("the runner is %+v", now)
	case now.Run != nil && (now.Run.Attempt != 1 || now.Run.Project != "app" || now.Run.Remote == "" || len(now.Run.Command) != 1 ||
		now.Run.Declared == nil || now.Run.Declared.Pool != "gpu"):
		return fmt.Errorf("the run is %+v", now.Run)
	}
	return nil
}

func TestNoRunWaitsBesideARunnerThatListens(t *testing.T) {
	both(t, testNoRunWaitsBesideARunnerThatListens)
}

// What is begun at once shares a transaction, in which a pool that is at rest is
// not looked at again until something is written or a runner begins to listen.
func testNoRunWaitsBesideARunnerThatListens(t *testing.T) {
	const rounds, runners = 4, 8
	w := newWorld(t, rounds*runners)
	for round := range rounds {
		var group sync.WaitGroup
		idle := make([]store.Runner, runners)
		for i := range idle {
			idle[i] = w.enroll(t, fmt.Sprintf("key-%d-%04d", round, i))
		}
		for _, r := range idle {
			group.Go(func() {
				if _, err := w.s.Attach(background, r); err != nil {
					t.Error(err)
				}
			})
			group.Go(func() {
				if _, err := w.s.StartRun(background, admin, "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Undemanding("")); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		for _, r := range idle {
			if snapshot, err := w.s.RunnerSnapshot(background, r); err != nil || snapshot.Run == nil {
				t.Errorf("round %d: a runner listens and has %+v, %v", round, snapshot, err)
			}
		}
	}
}

func TestManyHandOffsWaitForTheDatabaseAsOftenAsOne(t *testing.T) {
	both(t, testManyHandOffsWaitForTheDatabaseAsOftenAsOne)
}

func testManyHandOffsWaitForTheDatabaseAsOftenAsOne(t *testing.T) {
	const runners = 20
	waits := func(n int) int {
		w := newWorld(t, runners)
		// The starter is looked up, and whoever owns the pool.
		must(t)(w.s.UpdatePool(background, admin, "gpu", 0, hubv1.UpdatePoolRequest{Owner: new("role:admin"), Audience: new([]string{admin})}))
		must(t)(w.s.CreateUser(background, admin, "", hubv1.CreateUserRequest{Name: "admin"}))
		must(t)(w.s.GiveRole(background, admin, "admin", hubv1.BindingRequest{Subject: admin}))
		idle := make([]store.Runner, n)
		for i := range idle {
			w.run(t)
			idle[i] = w.enroll(t, fmt.Sprintf("key-%04d", i))
		}
		waits, err := w.s.HandOffWaits(background, idle...)
		check(t, err)
		for _, r := range idle {
			if snapshot, err := w.s.RunnerSnapshot(background, r); err != nil || snapshot.Run == nil {
				t.Fatalf("a runner has %+v, %v", snapshot, err)
			}
		}
		return waits
	}
	if one, many := waits(1), waits(runners); many != one || one == 0 {
		t.Errorf("a hand-off waits for the database %d times and %d wait %d times", one, runners, many)
	}
}
