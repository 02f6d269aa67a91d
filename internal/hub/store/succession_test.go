package store_test

import (
	"testing"

	"cloop.dev/cloop/apis/hubv1"
)

func TestAControllerGoesOnWithTheRunnersOfTheCredentialThatItHad(t *testing.T) {
	both(t, testAControllerGoesOnWithTheRunnersOfTheCredentialThatItHad)
}

func testAControllerGoesOnWithTheRunnersOfTheCredentialThatItHad(t *testing.T) {
	w := newWorld(t, 9)
	earlier := w.credential
	newest, c := w.rotate(t)
	_, last := w.rotate(t)
	working, run := w.busy(t, earlier, "key-busy")
	starting, err := w.s.Mint(background, earlier, "key-starting")
	check(t, err)

	// Before it has shown the earlier one, these are another controller's: their Pods
	// may be about to enroll, or busy.
	before, err := w.s.PoolSnapshot(background, c)
	check(t, err)
	if len(before.Runners) != 0 || before.OthersAvailable != 1 {
		t.Errorf("before: %d runners, %d of others", len(before.Runners), before.OthersAvailable)
	}
	if _, err := w.s.Retire(background, c, starting.RunnerID); codeOf(err) != hubv1.CodeForbidden {
		t.Errorf("retire: %v", err)
	}
	killed := hubv1.GoneRequest{Reason: "OOMKilled", ExitCode: new(int32(137))}
	if _, err := w.s.Gone(background, c, working.ID, killed); codeOf(err) != hubv1.CodeForbidden {
		t.Errorf("gone: %v", err)
	}
	if _, err := w.s.Retire(background, c, "runner-none"); codeOf(err) != hubv1.CodeNotFound {
		t.Errorf("retire of one that never was: %v", err)
	}

	for range 2 {
		check(t, w.s.Succeed(background, c, w.secret))
	}
	check(t, w.s.Succeed(background, c, newest.Secret)) // itself
	after, err := w.s.PoolSnapshot(background, c)
	check(t, err)
	if len(after.Runners) != 2 || after.OthersAvailable != 0 {
		t.Errorf("after: %d runners, %d of others", len(after.Runners), after.OthersAvailable)
	}
	again, err := w.s.Mint(background, c, "key-starting")
	check(t, err)
	if again.RunnerID != starting.RunnerID {
		t.Errorf("minted again it is %s", again.RunnerID)
	}
	if _, err := w.s.Enroll(background, hubv1.EnrollRequest{Token: starting.Token}); codeOf(err) != hubv1.CodeTokenRefused {
		t.Errorf("the token from before: %v", err)
	}

	// And a rotation later.
	check(t, w.s.Succeed(background, last, newest.Secret))
	if state, err := w.s.Retire(background, last, starting.RunnerID); err != nil || state != hubv1.RunnerRetired {
		t.Errorf("retired: %s %v", state, err)
	}
	w.detach[working.ID]()
	must(t)(w.s.Gone(background, last, working.ID, killed))
	if got := w.get(t, run.ID); len(got.Earlier) != 1 || got.Earlier[0].PodEnd == nil || got.Earlier[0].PodEnd.Reason != "OOMKilled" {
		t.Errorf("the run knows %+v", got.Earlier)
	}
	// Who goes back to the first has them all, too.
	check(t, w.s.Succeed(background, earlier, newest.Secret))
	if all, err := w.s.PoolSnapshot(background, earlier); err != nil || all.OthersAvailable != 0 {
		t.Errorf("back at the first: %+v %v", all, err)
	}
}

func TestOnlyALiveCredentialOfThePoolIsSucceeded(t *testing.T) {
	both(t, testOnlyALiveCredentialOfThePoolIsSucceeded)
}

func testOnlyALiveCredentialOfThePoolIsSucceeded(t *testing.T) {
	w := newWorld(t, 9)
	newest, c := w.rotate(t)
	_, session := w.enrolled(t, "key-one1")
	other, err := w.s.CreatePool(background, admin, "", hubv1.CreatePoolRequest{Name: "other", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}})
	check(t, err)
	for what, test := range map[string]struct {
		text string
		want hubv1.Code
	}{
		"of another pool": {other.Credential.Secret, hubv1.CodeConflict},
		"a session":       {session, hubv1.CodeInvalid},
	} {
		if err := w.s.Succeed(background, c, test.text); codeOf(err) != test.want {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t)(w.s.RevokeCredential(background, admin, "gpu", w.credential.ID))
	if err := w.s.Succeed(background, c, w.secret); codeOf(err) != hubv1.CodeConflict {
		t.Errorf("a revoked one: %v", err)
	}
	if err := w.s.Succeed(background, w.credential, newest.Secret); codeOf(err) != hubv1.CodeUnauthenticated {
		t.Errorf("by a revoked one: %v", err)
	}
}

// Of another controller's runner it is told that it is retired: its Pod has
// nothing to do any more.
func TestAControllerLearnsThatAnothersRunnerIsRetired(t *testing.T) {
	both(t, testAControllerLearnsThatAnothersRunnerIsRetired)
}

func testAControllerLearnsThatAnothersRunnerIsRetired(t *testing.T) {
	w := newWorld(t, 9)
	minted, err := w.s.Mint(background, w.credential, "key-one1")
	check(t, err)
	_, c := w.rotate(t)
	w.clock.Step(w.s.Limits.TokenTTL)
	check(t, w.s.Expire(background))
	if state, err := w.s.Retire(background, c, minted.RunnerID); err != nil || state != hubv1.RunnerRetired {
		t.Errorf("answered %s %v", state, err)
	}
}
