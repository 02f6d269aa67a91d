package store

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

// Every reason why a run can wait, and what a person reads who can act on it. No
// database is asked, so this is about both databases.
func TestWhyARunWaits(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	here := []hubv1.ControllerContact{{Connected: true, LastContact: at}}
	gone := []hubv1.ControllerContact{{LastContact: at}}
	said := func(message string, kind hubv1.RefusalKind) []saidRefusal {
		return []saidRefusal{{Refusal: hubv1.Refusal{Message: message, Kind: kind}}}
	}
	for name, test := range map[string]struct {
		situation
		want string
	}{
		"cordoned by a person": {
			situation{cordon: &hubv1.Cordon{Reason: "node upgrades", By: "user:eve"}},
			"pool gpu is cordoned: node upgrades (by user:eve; `cloop executor pool uncordon gpu` ends that)",
		},
		"cordoned by Git, which alone can end it": {
			situation{cordon: &hubv1.Cordon{Reason: "node upgrades", By: "git"}, contacts: here, source: &hubv1.Provenance{
				Sync: "fleet", Repository: "https://git.example.com/fleet", Path: "hub/gpu.yaml", Revision: "main@sha1:abc"}},
			"pool gpu is cordoned: node upgrades (by Git: hub/gpu.yaml of https://git.example.com/fleet at main@sha1:abc; removing spec.cordon there ends that)",
		},
		"a pool without room": {
			situation{maximum: -1, contacts: here},
			"waits for a runner of pool gpu, which may have none: raise its maxRunners",
		},
		"no controller ever": {
			situation{credentials: 1},
			"waits for a runner of pool gpu, and no controller of it has been in contact: install one with the pool's credential, or look at its Pods",
		},
		"no credential any more": {
			situation{},
			"waits for a runner of pool gpu, which has no live credential, so no controller can serve it: make one with `cloop executor pool rotate-credential gpu` and give it to its controller",
		},
		"no controller any more": {
			situation{contacts: gone},
			"waits for a runner of pool gpu, and no controller of it is in contact since 2026-05-04T03:02:01Z: look at its Pods",
		},
		"the API server refuses": {
			situation{contacts: here, refusals: said(`pods "x" is forbidden: exceeded quota: runners`, hubv1.RefusalPods)},
			`waits for a runner of pool gpu: its controller cannot start runners: pods "x" is forbidden: exceeded quota: runners`,
		},
		"a controller that does not say of which kind": {
			situation{contacts: here, refusals: said("because", "")},
			"waits for a runner of pool gpu: its controller cannot start runners: because",
		},
		"storage": {
			situation{contacts: here, refusals: said("storage class fast is not there", hubv1.RefusalStorage)},
			"waits for a runner of pool gpu: its controller has no volume for a runner: storage class fast is not there",
		},
		"Pods that do not come up": {
			situation{contacts: here, refusals: said("no node takes Pod x", hubv1.RefusalPlacement), runners: hubv1.RunnerCounts{Starting: 1}},
			"waits for a runner of pool gpu: its controller has started runners that do not come up: no node takes Pod x",
		},
		"one controller of two": {
			situation{contacts: append(slices.Clone(here), hubv1.ControllerContact{Connected: true, CredentialID: "other"}), refusals: said("exceeded quota", hubv1.RefusalPods)},
			"waits for a runner of pool gpu: one of its 2 controllers cannot start runners: exceeded quota",
		},
		"at its maximum, whatever a controller says": {
			situation{contacts: here, runners: hubv1.RunnerCounts{Busy: 4}, refusals: said("exceeded quota", hubv1.RefusalPods)},
			"waits for a runner of pool gpu, which has as many as it may have (maxRunners 4: 4 busy): it is next when one is done, or raise maxRunners",
		},
		"at its maximum with runners that do not come up": {
			situation{contacts: here, runners: hubv1.RunnerCounts{Busy: 3, Starting: 1}, refusals: said("no node takes Pod x", hubv1.RefusalPlacement)},
			"waits for a runner of pool gpu: its controller has started runners that do not come up: no node takes Pod x",
		},
		"at its maximum": {
			situation{contacts: here, runners: hubv1.RunnerCounts{Busy: 2, Starting: 1, Retiring: 1}},
			"waits for a runner of pool gpu, which has as many as it may have (maxRunners 4: 2 busy, 1 starting, 1 retiring): it is next when one is done, or raise maxRunners",
		},
		"one is starting": {
			situation{contacts: here, runners: hubv1.RunnerCounts{Starting: 1}},
			"waits for a runner of pool gpu, of which 1 is starting",
		},
		"two are starting": {
			situation{contacts: here, runners: hubv1.RunnerCounts{Starting: 2}},
			"waits for a runner of pool gpu, of which 2 are starting",
		},
		"one is idle and about to listen": {
			situation{contacts: here, runners: hubv1.RunnerCounts{Idle: 1}},
			"waits for a runner of pool gpu, of which one is idle and about to take it",
		},
		"room that the controller does not use": {
			situation{contacts: here, runners: hubv1.RunnerCounts{Busy: 1}},
			"waits for a runner of pool gpu, which has 1 of 4 and is to start one; should that last, the ExecutorPool's conditions and Events say why",
		},
		"idle runners that may not take it": {
			situation{contacts: here, runners: hubv1.RunnerCounts{Idle: 2}, passedOver: &passedOver{cannot: 2}},
			"waits for a runner of pool gpu, of which 2 are idle and cannot take it: their builds cannot check what a project asks for",
		},
		"one that is another project's": {
			situation{contacts: here, runners: hubv1.RunnerCounts{Idle: 1}, passedOver: &passedOver{kept: 1}},
			"waits for a runner of pool gpu, of which 1 is idle and cannot take it: it is kept for another project, whose volume it has",
		},
		"all are other projects'": {
			situation{contacts: here, runners: hubv1.RunnerCounts{Idle: 3, Busy: 1}, passedOver: &passedOver{kept: 3}},
			"waits for a runner of pool gpu, of which 3 are idle and cannot take it: they are kept for other projects, whose volumes they have; " +
				"the pool has as many as it may have (maxRunners 4), so it is next when one of them is retired, or raise maxRunners",
		},
		"each for another reason": {
			situation{contacts: here, runners: hubv1.RunnerCounts{Idle: 3}, passedOver: &passedOver{kept: 1, cannot: 2}},
			"waits for a runner of pool gpu, of which 3 are idle and cannot take it: some are kept for other projects, whose volumes they have, " +
				"and the builds of the others cannot check what a project asks for",
		},
		"once more": {
			situation{contacts: here, runners: hubv1.RunnerCounts{Starting: 1}, again: "attempt 2 after: the runner was silent for 50s"},
			"waits for a runner of pool gpu, of which 1 is starting (attempt 2 after: the runner was silent for 50s)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := test.situation
			w.pool = "gpu"
			if len(w.contacts) > 0 {
				w.credentials = 1
			}
			switch w.maximum {
			case 0:
				w.maximum = 4
			case -1:
				w.maximum = 0
			}
			got := w.sentence()
			if got != test.want {
				t.Errorf("it says %q", got)
			}
			if strings.ContainsAny(got, "\n") || regexp.MustCompile(`\.\s`).MatchString(got) {
				t.Errorf("that is more than one sentence: %q", got)
			}
		})
	}
}

// No database is asked, so this is about both databases.
func TestEachRunnerGetsTheOldestRunThatItMayTake(t *testing.T) {
	read := &hubv1.Requirements{}
	runs := []candidate{{id: "1"}, {id: "2", requirements: read}, {id: "3"}, {id: "4", requirements: read}}
	runners := []runnerRow{{Runner: Runner{ID: "old"}}, {Runner: Runner{ID: "new"}, checks: true}, {Runner: Runner{ID: "old2"}}, {Runner: Runner{ID: "old3"}}}
	got := map[string]string{}
	left, err := match(runs, runners, func(c candidate, r runnerRow) (bool, error) { got[c.id] = r.ID; return true, nil })
	if err != nil || len(left) != 1 || left[0].ID != "old3" || len(got) != 3 || got["1"] != "new" || got["2"] != "old" || got["4"] != "old2" {
		t.Errorf("handed %v, left %v, %v", got, left, err)
	}
	// A run that leaves the queue instead takes nobody's turn.
	got = map[string]string{}
	left, err = match(runs[1:2], runners, func(c candidate, r runnerRow) (bool, error) { got[c.id] = r.ID; return false, nil })
	if err != nil || len(left) != 4 || got["2"] != "old" {
		t.Errorf("handed %v, left %v, %v", got, left, err)
	}
}
