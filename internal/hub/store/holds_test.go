package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// project makes a project that is bound to the pool.
func (w *world) project(t testing.TB, name string) {
	t.Helper()
	_, err := w.s.CreateProject(background, admin, "", hubv1.CreateProjectRequest{Name: name, Remote: "https://git.example.com/" + name})
	check(t, err)
	_, err = w.s.BindProject(background, admin, name, "pool:"+w.pool.ID, store.Undemanding(""))
	check(t, err)
}

func (w *world) runOf(t testing.TB, project string) hubv1.Run {
	t.Helper()
	run, err := w.s.StartRun(background, admin, "", hubv1.StartRunRequest{Project: project, Command: []string{"true"}}, store.Undemanding(""))
	check(t, err)
	return run
}

// holding is a controller that asks for what holds are about.
func (w *world) holding() store.Controller {
	c := w.controller("c-0")
	c.Features = []string{hubv1.FeatureRunnerHolds}
	return c
}

// waiting is whose runs wait, by project.
func (w *world) waiting(t testing.TB) map[string]hubv1.WaitingProject {
	t.Helper()
	snapshot, err := w.s.SnapshotFor(background, w.holding())
	check(t, err)
	waiting := map[string]hubv1.WaitingProject{}
	for _, p := range snapshot.Waiting {
		waiting[p.Project] = p
	}
	return waiting
}

// holder mints a runner on a project's volume, which enrolls and listens.
func (w *world) holder(t testing.TB, key, holds string) store.Runner {
	t.Helper()
	minted, err := w.s.MintHolding(background, w.credential, hubv1.MintRequest{Key: key, Holds: holds})
	check(t, err)
	enrolled, err := w.s.Enroll(background, hubv1.EnrollRequest{Token: minted.Token})
	check(t, err)
	r, err := w.s.AuthRunner(background, enrolled.Session)
	check(t, err)
	_, err = w.s.Attach(background, r)
	check(t, err)
	return r
}

// holdsOf learns a project's holds by queueing a run of it.
func (w *world) holdsOf(t testing.TB, project string) string {
	t.Helper()
	run := w.runOf(t, project)
	holds := w.waiting(t)[project].Holds
	_, err := w.s.CancelRun(background, admin, run.ID)
	check(t, err)
	return holds
}

func TestWhatAVolumeHoldsIsOfPoolProjectAndOwner(t *testing.T) {
	both(t, testWhatAVolumeHoldsIsOfPoolProjectAndOwner)
}

func testWhatAVolumeHoldsIsOfPoolProjectAndOwner(t *testing.T) {
	w := newWorld(t, 3)
	project := w.theProject(t)
	run := w.run(t)
	waits := w.waiting(t)["app"]
	if project.Owner != admin || waits.Owner != admin || waits.Holds != store.HoldsOf(w.pool.ID, project) {
		t.Fatalf("of %+v it is said %+v", project, waits)
	}
	// Controller and runner learn the same of the run.
	r := w.runner(t, "key-one1")
	snapshot, err := w.s.RunnerSnapshot(background, r)
	check(t, err)
	runners, err := w.s.PoolRunners(background, "gpu")
	check(t, err)
	if snapshot.Run == nil || snapshot.Run.RunID != run.ID || snapshot.Run.Holds != waits.Holds || len(runners) != 1 || runners[0].RunHolds != waits.Holds {
		t.Errorf("the runner has %+v, and the controller sees %+v", snapshot.Run, runners)
	}
	other, another := project, project
	other.Owner, another.ID = "user:eve", "project_other"
	seen := map[string]string{waits.Holds: "it"}
	for name, holds := range map[string]string{
		"another owner's": store.HoldsOf(w.pool.ID, other), "another project's": store.HoldsOf(w.pool.ID, another), "another pool's": store.HoldsOf("pool_other", project),
	} {
		if same := seen[holds]; same != "" || len(holds) != 32 || strings.Trim(holds, "0123456789abcdef") != "" {
			t.Errorf("%s is %q, as %s is", name, holds, same)
		}
		seen[holds] = name
	}
}

func TestARunnerOnAProjectsVolumeGetsThatProjectsRunsOnly(t *testing.T) {
	both(t, testARunnerOnAProjectsVolumeGetsThatProjectsRunsOnly)
}

func testARunnerOnAProjectsVolumeGetsThatProjectsRunsOnly(t *testing.T) {
	w := newWorld(t, 8)
	w.project(t, "lib")
	app, lib := w.holdsOf(t, "app"), w.holdsOf(t, "lib")
	if app == lib || app == "" {
		t.Fatalf("app holds %q and lib %q", app, lib)
	}
	first, second := w.runOf(t, "app"), w.runOf(t, "app")
	onLib := w.holder(t, "key-lib1", lib)
	for _, run := range []hubv1.Run{first, second} {
		if got := w.get(t, run.ID); got.State != hubv1.RunQueued {
			t.Fatalf("a run of app is %s on %s", got.State, got.Runner)
		}
	}
	// A run of lib passes those that nobody may take.
	behind := w.runOf(t, "lib")
	if got := w.get(t, behind.ID); got.Runner != onLib.ID {
		t.Fatalf("the run of lib is %s on %q", got.State, got.Runner)
	}
	snapshot, err := w.s.RunnerSnapshot(background, onLib)
	if err != nil || snapshot.Run == nil || snapshot.Run.Holds != lib {
		t.Errorf("the runner is told %+v %v", snapshot.Run, err)
	}
	// Of two that may, the one on the volume takes it, however long the other has
	// been idle.
	_, err = w.s.Cordon(background, admin, "gpu", "x")
	check(t, err)
	_, err = w.s.Uncordon(background, admin, "gpu")
	check(t, err)
	onApp := w.holder(t, "key-app1", app)
	if got := w.get(t, first.ID); got.Runner != onApp.ID {
		t.Errorf("the oldest run of app is on %q", got.Runner)
	}
	w.runner(t, "key-free")
	if got := w.get(t, second.ID); got.State != hubv1.RunHanded {
		t.Errorf("the second is %s", got.State)
	}
	runners, err := w.s.PoolRunners(background, "gpu")
	check(t, err)
	at := slices.IndexFunc(runners, func(r hubv1.PoolRunner) bool { return r.ID == onApp.ID })
	if r := runners[at]; r.Holds != app || r.HoldsProject != "app" || r.RunHolds != app {
		t.Errorf("it is listed as %+v", r)
	}
}

func TestAnIdleRunnerOnTheProjectsVolumeGoesBeforeOthers(t *testing.T) {
	both(t, testAnIdleRunnerOnTheProjectsVolumeGoesBeforeOthers)
}

func testAnIdleRunnerOnTheProjectsVolumeGoesBeforeOthers(t *testing.T) {
	w := newWorld(t, 4)
	app := w.holdsOf(t, "app")
	w.runner(t, "key-free1")
	w.clock.Step(time.Minute)
	onApp := w.holder(t, "key-app1", app)
	if run := w.runOf(t, "app"); run.Runner != onApp.ID {
		t.Errorf("the run is on %q, not on its volume", run.Runner)
	}
	if run := w.runOf(t, "app"); run.State != hubv1.RunHanded {
		t.Errorf("the second is %s", run.State)
	}
}

func TestHoldsAreOfAProjectThatThePoolServes(t *testing.T) {
	both(t, testHoldsAreOfAProjectThatThePoolServes)
}

func testHoldsAreOfAProjectThatThePoolServes(t *testing.T) {
	w := newWorld(t, 4)
	app := w.holdsOf(t, "app")
	mint := func(key, holds string) error {
		_, err := w.s.MintHolding(background, w.credential, hubv1.MintRequest{Key: key, Holds: holds})
		return err
	}
	if err := mint("key-one1", "00112233445566778899aabbccddeeff"); codeOf(err) != hubv1.CodeHoldsUnknown {
		t.Errorf("nobody's volume: %v", err)
	}
	check(t, mint("key-one1", app))
	check(t, mint("key-one1", app)) // the token is replaced
	if err := mint("key-one1", ""); codeOf(err) != hubv1.CodeConflict {
		t.Errorf("the same key without the volume: %v", err)
	}
	// The same project on another pool has another volume.
	other, err := w.s.CreatePool(background, admin, "", hubv1.CreatePoolRequest{Name: "other", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}})
	check(t, err)
	_, err = w.s.BindProject(background, admin, "app", "pool:"+other.Pool.ID, store.Undemanding(""))
	check(t, err)
	if err := mint("key-two2", app); codeOf(err) != hubv1.CodeHoldsUnknown {
		t.Errorf("a project that moved away: %v", err)
	}
}

func TestOnlyAControllerThatAsksIsToldWhoseRunsWait(t *testing.T) {
	both(t, testOnlyAControllerThatAsksIsToldWhoseRunsWait)
}

func testOnlyAControllerThatAsksIsToldWhoseRunsWait(t *testing.T) {
	w := newWorld(t, 0)
	w.project(t, "lib")
	w.runOf(t, "lib")
	for range 2 {
		w.runOf(t, "app")
	}
	snapshot, err := w.s.PoolSnapshot(background, w.credential)
	check(t, err)
	if snapshot.Waiting != nil || !slices.Contains(snapshot.Features, hubv1.FeatureRunnerHolds) {
		t.Errorf("without asking: %+v", snapshot)
	}
	snapshot, err = w.s.SnapshotFor(background, w.holding())
	check(t, err)
	if fmt.Sprint(projectsOf(snapshot.Waiting)) != "[lib 1 app 2]" {
		t.Errorf("waiting are %+v", snapshot.Waiting)
	}
	_, err = w.s.Cordon(background, admin, "gpu", "x")
	check(t, err)
	if got := w.waiting(t); len(got) != 0 {
		t.Errorf("of a cordoned pool wait %+v", got)
	}
}

func projectsOf(waiting []hubv1.WaitingProject) (out []string) {
	for _, w := range waiting {
		out = append(out, w.Project, fmt.Sprint(w.Runs))
	}
	return out
}
