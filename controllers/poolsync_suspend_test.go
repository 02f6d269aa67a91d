package controllers

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"cloop.dev/cloop/apis/v1alpha1"
)

func TestASuspendedSyncSaysByWhomAndGoesOn(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	suspend := func(until time.Time) {
		t.Helper()
		patch := `{"spec":{"suspend":true,"suspendReason":"nodes are drained","suspendUntil":"` + until.Format(time.RFC3339) + `"}}`
		if err := s.client.Patch(s.ctx, s.get(), client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("kubectl-patch")); err != nil {
			t.Fatal(err)
		}
	}
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	suspend(until)
	sync := s.ready(v1alpha1.ReasonSuspended)
	s.says(sync, "suspended by kubectl-patch: nodes are drained, until "+until.Format(time.RFC3339)+"; what is applied stays as it is")
	s.git.Commit(fleetRepository, map[string]string{"pools/gpu.yaml": poolFile("gpu", 7)})
	until = time.Now().Add(3 * time.Second).UTC().Truncate(time.Second)
	suspend(until)
	s.until("it goes on where Git is", func() bool { return s.pool("gpu").Spec.MaxRunners == 7 })
	if now := time.Now(); now.Before(until) {
		t.Errorf("it goes on %s too early", until.Sub(now))
	}
	sync = s.ready(v1alpha1.ReasonReconciliationSucceeded)
	if !sync.Spec.Suspend {
		t.Error("the spec was changed")
	}
	s.sync()
	s.until("an Event tells of it once", func() bool {
		told := s.events(v1alpha1.ReasonResumed)
		return len(told) == 1 && strings.Contains(told[0], "it was suspended until "+until.Format(time.RFC3339))
	})
}

// A forced request applies what is only reported, too, and once.
func TestAForcedRequestAppliesEverything(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Drift.Mode = v1alpha1.DriftReport })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	edited := func() {
		s.kubectlEdit("gpu", `{"spec":{"maxRunners":3}}`)
		s.drift("an edit", func(e v1alpha1.DriftEntry) bool { return e.Path == "/spec/maxRunners" && e.Corrected == nil })
	}
	edited()
	s.edit(func(sync *v1alpha1.PoolSync) {
		metav1.SetMetaDataAnnotation(&sync.ObjectMeta, fluxmeta.ForceRequestAnnotation, "one")
	})
	s.until("it is applied", func() bool { return s.pool("gpu").Spec.MaxRunners == 4 && s.get().Status.LastHandledForceAt == "one" })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	edited()
	s.sync()
	if s.pool("gpu").Spec.MaxRunners != 3 {
		t.Error("the request was served twice")
	}
}
