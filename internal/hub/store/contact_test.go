package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

func (w *world) controller(instance string) store.Controller {
	return store.Controller{Credential: w.credential, Instance: instance, Build: "b1"}
}

// arrive opens a controller's watch and returns what closes it.
func (w *world) arrive(t testing.TB, instance string) (leave func()) {
	t.Helper()
	left, err := w.s.Arrive(context.Background(), w.controller(instance))
	check(t, err)
	return func() {
		t.Helper()
		check(t, left(context.Background()))
	}
}

func (w *world) contacts(t testing.TB) []hubv1.ControllerContact {
	t.Helper()
	pool, _, err := w.s.GetPool(context.Background(), "gpu")
	check(t, err)
	return pool.Controllers
}

// dataVersion changes whenever another connection writes to the database.
func (w *world) dataVersion(t testing.TB) func() int {
	db := looking(t, w.dir)
	db.SetMaxOpenConns(1)
	query := "PRAGMA data_version"
	if onPostgres(t) {
		query = "SELECT pg_snapshot_xmax(pg_current_snapshot())::TEXT::BIGINT"
	}
	return func() int {
		var version int
		check(t, db.QueryRow(query).Scan(&version))
		return version
	}
}

func TestAControllerWithAnOpenWatchIsInContact(t *testing.T) {
	both(t, testAControllerWithAnOpenWatchIsInContact)
}

func testAControllerWithAnOpenWatchIsInContact(t *testing.T) {
	w := newWorld(t, 1)
	leave := w.arrive(t, "c-0")
	version := w.dataVersion(t)
	before := version()
	w.clock.Step(3 * time.Hour)
	got := w.contacts(t)
	if len(got) != 1 || !got[0].Connected || !got[0].LastContact.Equal(w.clock.Now()) {
		t.Fatalf("three hours into its watch: %+v at %s", got, w.clock.Now())
	}
	if after := version(); after != before {
		t.Error("an open watch writes to the database")
	}
	closed := w.clock.Now()
	leave()
	w.clock.Step(5 * time.Minute)
	if got := w.contacts(t); got[0].Connected || !got[0].LastContact.Equal(closed) {
		t.Fatalf("after its watch closed at %s: %+v", closed, got)
	}
	// It was written down.
	check(t, w.s.Close())
	w.s = open(t, w.dir, w.clock)
	if got := w.contacts(t); got[0].Connected || !got[0].LastContact.Equal(closed) {
		t.Fatalf("after the hub started again: %+v, want %s", got, closed)
	}
}

func TestAControllerIsInContactUntilItsLastWatchCloses(t *testing.T) {
	both(t, testAControllerIsInContactUntilItsLastWatchCloses)
}

func testAControllerIsInContactUntilItsLastWatchCloses(t *testing.T) {
	w := newWorld(t, 1)
	first := w.arrive(t, "c-0")
	w.clock.Step(time.Minute)
	second := w.arrive(t, "c-0") // it connects again before the old connection is known to be gone
	w.clock.Step(time.Minute)
	first()
	if got := w.contacts(t); len(got) != 1 || !got[0].Connected {
		t.Fatalf("with one watch of two open: %+v", got)
	}
	second()
	if got := w.contacts(t); got[0].Connected {
		t.Fatalf("with no watch open: %+v", got)
	}
}

func TestTheControllersOfACredentialAreBounded(t *testing.T) {
	both(t, testTheControllersOfACredentialAreBounded)
}

// Whoever has a pool's credential can call itself anything.
func testTheControllersOfACredentialAreBounded(t *testing.T) {
	w := newWorld(t, 1)
	leave := w.arrive(t, "stays")
	for i := range 150 {
		w.clock.Step(time.Second)
		w.arrive(t, fmt.Sprintf("c-%d", i))()
	}
	var n int
	check(t, looking(t, w.dir).QueryRow("SELECT COUNT(*) FROM controllers").Scan(&n))
	if n > 65 {
		t.Errorf("%d controllers are remembered", n)
	}
	w.clock.Step(time.Second)
	if got := w.contacts(t); got[0].Instance != "stays" || !got[0].Connected || got[1].Instance != "c-149" {
		t.Errorf("those in contact first, they are %+v", got[:2])
	}
	leave()
}

func TestControllersInContactAreShownFirst(t *testing.T) {
	both(t, testControllersInContactAreShownFirst)
}

func testControllersInContactAreShownFirst(t *testing.T) {
	w := newWorld(t, 1)
	w.arrive(t, "c-0")
	for _, instance := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q"} {
		w.clock.Step(time.Second)
		w.arrive(t, instance)()
	}
	w.clock.Step(time.Second)
	if got := w.contacts(t); len(got) != 16 || got[0].Instance != "c-0" || got[1].Instance != "q" {
		t.Fatalf("shown are %+v", got)
	}
}

func TestARunSaysThatNoControllerIsInContact(t *testing.T) {
	both(t, testARunSaysThatNoControllerIsInContact)
}

func testARunSaysThatNoControllerIsInContact(t *testing.T) {
	w := newWorld(t, 1)
	run := w.run(t)
	says := func(when, want string) {
		t.Helper()
		if got := w.get(t, run.ID).Reason; !strings.Contains(got, want) {
			t.Errorf("%s it waits because %q, want %q", when, got, want)
		}
		runs, err := w.s.ListRuns(context.Background(), "app", 10)
		check(t, err)
		if !strings.Contains(runs[0].Reason, want) {
			t.Errorf("%s the list says that it waits because %q, want %q", when, runs[0].Reason, want)
		}
	}
	says("before any controller", "no controller of it has been in contact")
	leave := w.arrive(t, "c-0")
	w.clock.Step(time.Hour)
	if got := w.get(t, run.ID).Reason; strings.Contains(got, "controller") {
		t.Errorf("with a controller it waits because %q", got)
	}
	check(t, w.s.SetRefusal(context.Background(), w.credential, hubv1.Refusal{Message: "quota exceeded"}))
	says("with a refusal", "quota exceeded")
	sub := w.s.Bus.Subscribe(store.PoolTopic(w.pool.ID))
	defer sub.Close()
	left := w.clock.Now()
	leave()
	w.clock.Step(time.Hour)
	says("without its controller", "is in contact since "+left.UTC().Format(time.RFC3339))
	select {
	case <-sub.C:
	default:
		t.Error("whoever watches the run is not woken")
	}
}

func TestARunSaysThatThePoolIsAtItsMaximum(t *testing.T) {
	both(t, testARunSaysThatThePoolIsAtItsMaximum)
}

func testARunSaysThatThePoolIsAtItsMaximum(t *testing.T) {
	w := newWorld(t, 1)
	w.arrive(t, "c-0")
	w.run(t)
	w.runner(t, "key-one1")
	if waits := w.run(t); !strings.Contains(waits.Reason, "as many as it may have") {
		t.Errorf("it waits because %q", waits.Reason)
	}
}

func TestTwoExecutorPoolsWithOneCredentialAreTold(t *testing.T) {
	both(t, testTwoExecutorPoolsWithOneCredentialAreTold)
}

func testTwoExecutorPoolsWithOneCredentialAreTold(t *testing.T) {
	w := newWorld(t, 1)
	serves := func(instance string, served store.Served) store.Controller {
		c := w.controller(instance)
		c.Serves = served
		return c
	}
	open := func(c store.Controller) func() {
		t.Helper()
		leave, err := w.s.Arrive(background, c)
		check(t, err)
		return func() { check(t, leave(background)) }
	}
	duplicate := func(c store.Controller) string {
		t.Helper()
		snapshot, err := w.s.SnapshotFor(background, c)
		check(t, err)
		return snapshot.Duplicate
	}
	batch := serves("b-0", store.Served{Name: "east/batch", UID: "u1", HubPool: "batch", Created: 1})
	open(batch)
	if got := duplicate(batch); got != "" {
		t.Errorf("alone it is a duplicate of %q", got)
	}
	// The one that names the pool goes before an older one, whichever came first.
	gpu := serves("a-0", store.Served{Name: "west/gpu", UID: "u2", HubPool: "gpu", Created: 9})
	leave := open(gpu)
	if a, b := duplicate(gpu), duplicate(batch); a != "" || b != "west/gpu" {
		t.Errorf("gpu is a duplicate of %q, batch of %q", a, b)
	}
	for _, c := range w.contacts(t) {
		if want := map[string]string{"b-0": "west/gpu", "a-0": ""}[c.Instance]; c.Rival != want || c.ExecutorPool == "" {
			t.Errorf("%s is shown as %+v", c.Instance, c)
		}
	}
	// Its leader changes: that is no second one.
	next := serves("a-1", gpu.Serves)
	leaveNext := open(next)
	if got := duplicate(next); got != "" {
		t.Errorf("a new leader is a duplicate of %q", got)
	}
	leave()
	if got := duplicate(batch); got != "west/gpu" {
		t.Errorf("after the change of the leader batch is a duplicate of %q", got)
	}
	leaveNext()
	if got := duplicate(batch); got != "" {
		t.Errorf("once gpu is gone batch is a duplicate of %q", got)
	}
	// One that does not say what it serves is judged by nobody.
	open(w.controller("old"))
	if got := duplicate(batch) + duplicate(w.controller("old")); got != "" {
		t.Errorf("an old controller makes a duplicate of %q", got)
	}
	// Another credential of the pool is another cluster's.
	made, err := w.s.CreateCredential(background, admin, "", "gpu")
	check(t, err)
	elsewhere := gpu
	elsewhere.Credential, err = w.s.AuthPool(background, made.Secret)
	check(t, err)
	open(elsewhere)
	if got := duplicate(batch) + duplicate(elsewhere); got != "" {
		t.Errorf("with credentials of their own they are duplicates of %q", got)
	}
}
