package controllers

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
)

// What is too long is cut before the way out, and what names its own gets no other.
func TestAMessageKeepsItsAdvice(t *testing.T) {
	long := transient(v1alpha1.ReasonApplyFailed, errors.New(strings.Repeat("no ", 20_000)))
	if got := long.message(); len(got) > maxConditionMessage || !strings.HasSuffix(got, "…: "+v1alpha1.ReasonApplyFailed.Remedy()) {
		t.Errorf("%d bytes, ending with %q", len(got), got[len(got)-200:])
	}
	own := transient(v1alpha1.ReasonSourceUnavailable, fmt.Errorf("open it: %w", advisedError{}))
	if got := own.message(); got != "open it: no room: make some; nothing was changed" {
		t.Errorf("the message is %q", got)
	}
}

type advisedError struct{}

func (advisedError) Error() string { return "no room: make some" }
func (advisedError) Advises() bool { return true }

// What somebody did is shown, however much a commit has just brought.
func TestAnEditIsShownBesideManyChangesOfACommit(t *testing.T) {
	now := metav1.NewTime(time.Unix(1_800_000_000, 0))
	var entries []v1alpha1.DriftEntry
	for n := range 2 * maxDrift {
		entries = append(entries, v1alpha1.DriftEntry{Kind: v1alpha1.ExecutorPoolKind, Name: fmt.Sprintf("pool-%03d", n), Cause: v1alpha1.DriftCommitNotApplied, Corrected: &now})
	}
	entries = append(entries,
		v1alpha1.DriftEntry{Kind: v1alpha1.ExecutorPoolKind, Name: "pool-090", Cause: v1alpha1.DriftClusterEdited, Manager: "erin", Corrected: &now},
		v1alpha1.DriftEntry{Kind: v1alpha1.ExecutorPoolKind, Name: "pool-099", Cause: v1alpha1.DriftCommitNotApplied})
	sortDrift(entries)
	if entries[0].Name != "pool-099" || entries[1].Manager != "erin" {
		t.Errorf("the first are %+v", entries[:2])
	}
}

// A namespace that is not there, or about to go, is the way out, and no right that lacks.
func TestANamespaceThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	files := overlay("gpu")
	files["clusters/dev/far.yaml"] = strings.Replace(poolFile("far", 1), "name: far", "name: far\n  namespace: nowhere-at-all", 1)
	files["clusters/dev/kustomization.yaml"] += "  - far.yaml\n"
	s := newSyncStage(t, files)
	s.poolSync()
	sync := s.ready(v1alpha1.ReasonApplyFailed)
	ready := condition(sync, v1alpha1.ConditionReady)
	if !strings.Contains(ready.Message, "create namespace nowhere-at-all") || !strings.HasSuffix(ready.Message, ": it is tried again by itself") || condition(sync, v1alpha1.ConditionStalled).Type != "" {
		t.Errorf("Ready says %q", ready.Message)
	}
	terminating := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Details: &metav1.StatusDetails{Name: "gpu", Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}}}
	var place *placeError
	if err := undefined(&sight{id: objectID{namespace: "going"}}, terminating); !errors.As(err, &place) || place.namespace != "going" {
		t.Errorf("of a namespace that goes it says %v", err)
	}
}

// While a commit is applied nobody is told that it waits.
func TestDriftedSaysNothingOfACommitThatIsApplied(t *testing.T) {
	t.Parallel()
	s := byHand(t, "gpu")
	p := s.process(nil)
	commit := s.git.Commit(fleetRepository, map[string]string{"README.md": "new"})
	p.inStep(commit, "gpu")
	s.git.Commit(fleetRepository, map[string]string{"clusters/dev/kustomization.yaml": "resources: [nowhere.yaml]\n"})
	if err := p.pass(); err != nil {
		t.Fatal(err)
	}
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Drift.Mode = v1alpha1.DriftReport })
	commit = s.git.Commit(fleetRepository, map[string]string{"pools/gpu.yaml": strings.Replace(poolFile("gpu", 7), "maxRunners: 7", "maxRunners: -7", 1), "clusters/dev/kustomization.yaml": overlay("gpu")["clusters/dev/kustomization.yaml"]})
	if err := p.pass(); err != nil {
		t.Fatal(err)
	}
	if c := condition(s.get(), v1alpha1.ConditionDrifted); c.Reason != string(v1alpha1.ReasonCommitWaits) {
		t.Fatalf("Drifted is %+v after %s", c, commit)
	}
	commit = s.git.Commit(fleetRepository, map[string]string{"pools/gpu.yaml": poolFile("gpu", 7)})
	var while *v1alpha1.PoolSync
	p.now(func(r *http.Request) (*http.Response, error) {
		if while == nil && ofPools(r) {
			while = s.get()
		}
		return nil, nil //nolint:nilnil // passed on
	})
	if err := p.pass(); err != nil {
		t.Fatal(err)
	}
	if c := condition(while, v1alpha1.ConditionDrifted); c.Status != metav1.ConditionUnknown || c.Reason != string(v1alpha1.ReasonProgressing) {
		t.Errorf("while it is applied Drifted is %+v", c)
	}
	p.inStep(commit, "gpu")
}
