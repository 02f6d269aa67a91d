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

// rotate mints another credential, some time after whatever was before.
func (w *world) rotate(t testing.TB) (hubv1.Credential, store.Credential) {
	t.Helper()
	w.clock.Step(time.Hour)
	made, err := w.s.CreateCredential(context.Background(), admin, "", "gpu")
	check(t, err)
	w.clock.Step(time.Minute)
	return made, store.Credential{ID: made.ID, PoolID: w.pool.ID}
}

func (w *world) use(t testing.TB, secret string) {
	t.Helper()
	_, err := w.s.AuthPool(context.Background(), secret)
	check(t, err)
}

// busy starts a run on a runner of the credential.
func (w *world) busy(t testing.TB, c store.Credential, key string) (store.Runner, hubv1.Run) {
	t.Helper()
	before := w.credential
	w.credential = c
	defer func() { w.credential = before }()
	r := w.runner(t, key)
	run := w.run(t)
	w.started(t, r, w.get(t, run.ID))
	return r, run
}

func TestARotationIsFinishedOnceNothingNeedsTheOlderCredentials(t *testing.T) {
	both(t, testARotationIsFinishedOnceNothingNeedsTheOlderCredentials)
}

func testARotationIsFinishedOnceNothingNeedsTheOlderCredentials(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*testing.T, *world, hubv1.Credential)
		// refusals are what the hub says is missing; none: it finishes.
		refusals []string
	}{
		"the newest was never used": {func(*testing.T, *world, hubv1.Credential) {}, []string{"never used"}},
		"the newest is in use": {func(t *testing.T, w *world, newest hubv1.Credential) {
			w.use(t, newest.Secret)
		}, nil},
		"an older one was used since": {func(t *testing.T, w *world, newest hubv1.Credential) {
			w.use(t, newest.Secret)
			w.clock.Step(time.Second)
			w.use(t, w.secret)
		}, []string{"it was used at"}},
		"used at the same moment": {func(t *testing.T, w *world, newest hubv1.Credential) {
			w.use(t, newest.Secret)
			w.use(t, w.secret)
		}, []string{"it was used at"}},
		"a controller has its watch open with an older one": {func(t *testing.T, w *world, newest hubv1.Credential) {
			w.arrive(t, "old-controller")
			w.clock.Step(time.Minute)
			w.use(t, newest.Secret)
		}, []string{"by old-controller, in contact now"}},
		"the controller changed over": {func(t *testing.T, w *world, newest hubv1.Credential) {
			leave := w.arrive(t, "controller")
			w.clock.Step(time.Minute)
			leave()
			w.clock.Step(2 * time.Minute) // members tell each other to the minute
			w.use(t, newest.Secret)
		}, nil},
		"a busy runner of an older one": {func(t *testing.T, w *world, newest hubv1.Credential) {
			w.busy(t, w.credential, "key-one1")
			w.clock.Step(time.Second)
			w.use(t, newest.Secret)
		}, []string{"1 runner of it is busy"}},
		"an idle runner of an older one": {func(t *testing.T, w *world, newest hubv1.Credential) {
			w.runner(t, "key-one1")
			w.clock.Step(time.Second)
			w.use(t, newest.Secret)
		}, nil},
		"both": {func(t *testing.T, w *world, _ hubv1.Credential) {
			w.busy(t, w.credential, "key-one1")
		}, []string{"never used", "1 runner of it is busy"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4)
			newest, _ := w.rotate(t)
			test.prepare(t, w, newest)
			done, err := w.s.FinishRotation(background, admin, "", "gpu", hubv1.FinishRotationRequest{})
			if len(test.refusals) > 0 {
				wantRefusals(t, err, test.refusals)
				w.use(t, w.secret) // it still works
				return
			}
			check(t, err)
			if done.Kept.ID != newest.ID || len(done.Revoked) != 1 || done.Revoked[0].ID != w.credential.ID {
				t.Fatalf("kept %s and revoked %+v", done.Kept.ID, done.Revoked)
			}
			if _, err := w.s.AuthPool(background, w.secret); codeOf(err) != hubv1.CodeUnauthenticated {
				t.Errorf("the older one: %v", err)
			}
			w.use(t, newest.Secret)
			again, err := w.s.FinishRotation(background, admin, "", "gpu", hubv1.FinishRotationRequest{})
			if err != nil || len(again.Revoked) != 0 || again.Kept.ID != newest.ID {
				t.Errorf("repeated: %+v %v", again, err)
			}
		})
	}
}

func TestAHubThatStartsDoesNotKnowEachUse(t *testing.T) {
	both(t, testAHubThatStartsDoesNotKnowEachUse)
}

// Not every use of a credential is written down, so what a hub that has started finds
// written may be less than the hub before knew.
func testAHubThatStartsDoesNotKnowEachUse(t *testing.T) {
	w := newWorld(t, 2)
	newest, _ := w.rotate(t)
	w.use(t, w.secret)
	w.clock.Step(20 * time.Second)
	w.use(t, newest.Secret)
	w.clock.Step(20 * time.Second)
	w.use(t, w.secret) // which is not written down
	check(t, w.s.Close())
	w.s = open(t, w.dir, w.clock)
	_, err := w.s.FinishRotation(background, admin, "", "gpu", hubv1.FinishRotationRequest{})
	wantRefusals(t, err, []string{"less than 1m0s before the newest"})
	// Once the newest was used for longer than a use stays unwritten, all is known.
	w.clock.Step(time.Minute)
	w.use(t, newest.Secret)
	must(t)(w.s.FinishRotation(background, admin, "", "gpu", hubv1.FinishRotationRequest{}))
}

func wantRefusals(t *testing.T, err error, refusals []string) {
	t.Helper()
	if codeOf(err) != hubv1.CodeRotationUnfinished {
		t.Fatalf("answered %v", err)
	}
	for _, want := range refusals {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestForcingARotationStopsTheRunsOfTheOlderCredentials(t *testing.T) {
	both(t, testForcingARotationStopsTheRunsOfTheOlderCredentials)
}

func testForcingARotationStopsTheRunsOfTheOlderCredentials(t *testing.T) {
	w := newWorld(t, 6)
	r, run := w.busy(t, w.credential, "key-one1")
	_, second := w.rotate(t)
	kept, keptRun := w.busy(t, second, "key-two2")
	idle := w.runner(t, "key-three3")
	token, err := w.s.Mint(background, w.credential, "key-four4")
	check(t, err)
	done, err := w.s.FinishRotation(background, admin, "lost", "gpu", hubv1.FinishRotationRequest{Force: true})
	check(t, err)
	// Whoever lost the answer still learns what was stopped.
	again, err := w.s.FinishRotation(background, admin, "lost", "gpu", hubv1.FinishRotationRequest{Force: true})
	if check(t, err); asJSON(again) != asJSON(done) {
		t.Errorf("repeated with its key: %s, want %s", asJSON(again), asJSON(done))
	}
	if _, err := w.s.FinishRotation(background, admin, "lost", "gpu", hubv1.FinishRotationRequest{}); codeOf(err) != hubv1.CodeConflict {
		t.Errorf("another request with the key: %v", err)
	}
	if len(done.Revoked) != 1 || done.Revoked[0].Runners != (hubv1.RunnerCounts{Starting: 1, Idle: 1, Busy: 1}) {
		t.Fatalf("revoked %+v", done.Revoked)
	}
	if got := w.get(t, run.ID); got.State != hubv1.RunCancelled || !strings.Contains(got.Reason, "finished the rotation") {
		t.Errorf("the run is %s: %s", got.State, got.Reason)
	}
	for what, r := range map[string]store.Runner{"busy": r, "idle": idle} {
		if _, err := w.s.Heartbeat(background, r); codeOf(err) != hubv1.CodeRunnerRetired {
			t.Errorf("its %s runner: %v", what, err)
		}
	}
	if _, err := w.s.Enroll(background, hubv1.EnrollRequest{Token: token.Token}); codeOf(err) != hubv1.CodeTokenRefused {
		t.Errorf("its token: %v", err)
	}
	// What the newest started goes on.
	if _, err := w.s.Heartbeat(background, kept); err != nil {
		t.Error(err)
	}
	if got := w.get(t, keptRun.ID); got.State != hubv1.RunRunning {
		t.Errorf("the newest's run is %s", got.State)
	}
}

func TestOneCredentialIsRevokedByItsID(t *testing.T) { both(t, testOneCredentialIsRevokedByItsID) }

func testOneCredentialIsRevokedByItsID(t *testing.T) {
	w := newWorld(t, 4)
	_, run := w.busy(t, w.credential, "key-one1")
	newest, second := w.rotate(t)
	theirs, theirRun := w.busy(t, second, "key-one1") // a key is the credential's own
	if _, err := w.s.RevokeCredential(background, admin, "gpu", "cred_none"); codeOf(err) != hubv1.CodeNotFound {
		t.Errorf("one that there is not: %v", err)
	}
	gone, err := w.s.RevokeCredential(background, admin, w.pool.ID, newest.ID)
	check(t, err)
	if gone.RevokedAt == nil || gone.Runners != (hubv1.RunnerCounts{}) {
		t.Errorf("revoked as %+v", gone)
	}
	if _, err := w.s.Heartbeat(background, theirs); codeOf(err) != hubv1.CodeRunnerRetired {
		t.Errorf("its runner: %v", err)
	}
	if got := w.get(t, theirRun.ID); got.State != hubv1.RunCancelled || !strings.Contains(got.Reason, newest.ID) {
		t.Errorf("its run is %s: %s", got.State, got.Reason)
	}
	if got := w.get(t, run.ID); got.State != hubv1.RunRunning {
		t.Errorf("the other credential's run is %s", got.State)
	}
	again, err := w.s.RevokeCredential(background, admin, "gpu", newest.ID)
	if err != nil || !again.RevokedAt.Equal(*gone.RevokedAt) {
		t.Errorf("repeated: %+v %v", again, err)
	}
	// The last one goes too: it may have leaked.
	_, err = w.s.RevokeCredential(background, admin, "gpu", w.credential.ID)
	check(t, err)
	if _, err := w.s.FinishRotation(background, admin, "", "gpu", hubv1.FinishRotationRequest{}); codeOf(err) != hubv1.CodeConflict || !strings.Contains(err.Error(), "rotate-credential gpu") {
		t.Errorf("finishing with none: %v", err)
	}
}

func TestCredentialsAreListedWithWhatUsesThem(t *testing.T) {
	both(t, testCredentialsAreListedWithWhatUsesThem)
}

func testCredentialsAreListedWithWhatUsesThem(t *testing.T) {
	w := newWorld(t, 4)
	first := w.clock.Now()
	w.runner(t, "key-one1")
	leave := w.arrive(t, "c-0")
	newest, _ := w.rotate(t)
	list := func(revoked bool) []hubv1.Credential {
		t.Helper()
		got, err := w.s.ListCredentials(background, "gpu", revoked)
		check(t, err)
		return got
	}
	got := list(false)
	if len(got) != 2 || got[0].ID != newest.ID || got[0].UsedAt != nil || got[1].Runners.Idle != 1 {
		t.Fatalf("listed as %+v", got)
	}
	if old := got[1]; !old.UsedAt.Equal(w.clock.Now()) || len(old.Controllers) != 1 || !old.Controllers[0].Connected {
		t.Errorf("one that is in use: %+v", old)
	}
	left := w.clock.Now()
	leave()
	w.clock.Step(48 * time.Hour)
	// Long after the controller is forgotten, and after a restart.
	check(t, w.s.Close())
	w.s = open(t, w.dir, w.clock)
	if old := list(false)[1]; old.UsedAt == nil || old.UsedAt.Before(first) || old.UsedAt.After(left) {
		t.Errorf("last used at %v, between %v and %v", old.UsedAt, first, left)
	}
	_, err := w.s.RevokeCredential(background, admin, "gpu", w.credential.ID)
	check(t, err)
	if got := list(false); len(got) != 1 {
		t.Errorf("the live ones are %+v", got)
	}
	if got := list(true); len(got) != 2 || got[1].RevokedAt == nil {
		t.Errorf("all are %+v", got)
	}
}

// The clock may go back between two mints; the newest is the last all the same.
func TestTheNewestCredentialIsTheLastThatWasMinted(t *testing.T) {
	both(t, testTheNewestCredentialIsTheLastThatWasMinted)
}

func testTheNewestCredentialIsTheLastThatWasMinted(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 3 {
		w.clock.Step(-time.Hour)
		made, err := w.s.CreateCredential(background, admin, "", "gpu")
		check(t, err)
		list, err := w.s.ListCredentials(background, "gpu", false)
		check(t, err)
		if list[0].ID != made.ID {
			t.Fatalf("after mint %d the newest is %s, not %s", i, list[0].ID, made.ID)
		}
	}
}

func TestAControllerRetiresOnlyWhatItsOwnCredentialMinted(t *testing.T) {
	both(t, testAControllerRetiresOnlyWhatItsOwnCredentialMinted)
}

func testAControllerRetiresOnlyWhatItsOwnCredentialMinted(t *testing.T) {
	w := newWorld(t, 4)
	_, second := w.rotate(t)
	states := map[string]func(c store.Credential, key string) string{
		"starting": func(c store.Credential, key string) string {
			out, err := w.s.Mint(background, c, key)
			check(t, err)
			return out.RunnerID
		},
		"idle": func(c store.Credential, key string) string {
			w.credential = c
			return w.runner(t, key).ID
		},
	}
	mine := w.credential
	n := 0
	for state, make := range states {
		n++
		id := make(mine, fmt.Sprintf("key-%04d", n))
		if _, err := w.s.Retire(background, second, id); codeOf(err) != hubv1.CodeForbidden {
			t.Errorf("another's %s runner is retired: %v", state, err)
		}
		if _, err := w.s.Gone(background, second, id, hubv1.GoneRequest{Reason: "Error"}); codeOf(err) != hubv1.CodeForbidden {
			t.Errorf("another's %s runner is reported gone: %v", state, err)
		}
		if got, err := w.s.Retire(background, mine, id); err != nil || got == hubv1.RunnerState(state) {
			t.Errorf("its own %s runner is %s: %v", state, got, err)
		}
	}
}
