package store_test

import (
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// What a controller says keeps runners from starting is what a run that waits
// says, in its words and of its kind.
func TestARunQuotesWhatItsControllerSays(t *testing.T) { both(t, testARunQuotesWhatItsControllerSays) }

func testARunQuotesWhatItsControllerSays(t *testing.T) {
	w := newWorld(t, 2)
	w.arrive(t, "c-0")
	run := w.run(t)
	for _, test := range []struct {
		refusal hubv1.Refusal
		want    string
	}{
		{hubv1.Refusal{Message: "quota\nexceeded"}, `its controller cannot start runners: quota\nexceeded`},
		{hubv1.Refusal{Message: "storage class fast is not there", Kind: hubv1.RefusalStorage}, "its controller has no volume for a runner: storage class fast is not there"},
		{hubv1.Refusal{Message: "storage class fast is not there", Kind: hubv1.RefusalPlacement}, "that do not come up: storage class fast is not there"},
		{hubv1.Refusal{}, "and is to start one"},
	} {
		check(t, w.s.SetRefusal(background, w.credential, test.refusal))
		if got := w.get(t, run.ID).Reason; !strings.Contains(got, test.want) {
			t.Errorf("with %+v it waits because %q", test.refusal, got)
		}
	}
}

// What a controller said is over when it is gone, or has another credential by
// now, whoever else is in contact.
func TestARefusalIsOverWithTheContact(t *testing.T) { both(t, testARefusalIsOverWithTheContact) }

func testARefusalIsOverWithTheContact(t *testing.T) {
	w := newWorld(t, 2)
	leave := w.arrive(t, "c-0")
	run := w.run(t)
	quoted := func() (sentence, doctor bool) {
		t.Helper()
		all, err := w.s.Patients(background, "")
		check(t, err)
		return strings.Contains(w.get(t, run.ID).Reason, "exceeded quota"), len(all[0].Trouble) > 0
	}
	check(t, w.s.SetRefusal(background, w.credential, hubv1.Refusal{Message: "exceeded quota"}))
	if sentence, doctor := quoted(); !sentence || !doctor {
		t.Fatalf("while it lasts: sentence %v, doctor %v", sentence, doctor)
	}
	// The controller moves to the new credential, and its quota is raised.
	made, err := w.s.CreateCredential(background, admin, "", "gpu")
	check(t, err)
	next, err := w.s.AuthPool(background, made.Secret)
	check(t, err)
	moved := w.controller("c-0")
	moved.Credential = next
	must(t)(w.s.Arrive(background, moved))
	leave()
	check(t, w.s.SetRefusal(background, next, hubv1.Refusal{}))
	if sentence, doctor := quoted(); sentence || doctor {
		t.Errorf("after the controller moved on: sentence %v (%s), doctor %v", sentence, w.get(t, run.ID).Reason, doctor)
	}
}

func TestARunWhosePoolHasNoCredentialSaysSo(t *testing.T) {
	both(t, testARunWhosePoolHasNoCredentialSaysSo)
}

func testARunWhosePoolHasNoCredentialSaysSo(t *testing.T) {
	w := newWorld(t, 2)
	leave := w.arrive(t, "c-0")
	run := w.run(t)
	must(t)(w.s.RevokeCredential(background, admin, "gpu", w.credential.ID))
	leave()
	if got := w.get(t, run.ID).Reason; !strings.Contains(got, "no live credential") || !strings.Contains(got, "cloop executor pool rotate-credential gpu") {
		t.Errorf("it waits because %q", got)
	}
}

func TestARunSaysWhereGitCordonsItsPool(t *testing.T) { both(t, testARunSaysWhereGitCordonsItsPool) }

func testARunSaysWhereGitCordonsItsPool(t *testing.T) {
	w := newWorld(t, 2)
	run := w.run(t)
	reason := "node upgrades"
	must(t)(w.s.ApplyDocuments(background, store.Revision{Sync: "fleet"}, []store.PoolDocument{{
		Name: "gpu", Definition: w.pool.PoolDefinition, CordonReason: &reason,
		Source: hubv1.Provenance{Sync: "fleet", Repository: "https://git.example.com/fleet", Path: "hub/gpu.yaml", Revision: "main@sha1:abc"},
	}}))
	if got := w.get(t, run.ID).Reason; !strings.Contains(got, "by Git: hub/gpu.yaml of https://git.example.com/fleet at main@sha1:abc") {
		t.Errorf("it waits because %q", got)
	}
}
