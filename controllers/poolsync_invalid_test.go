package controllers

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
)

// What the API server finds invalid stays so until Git changes: the PoolSync says that,
// not that it tries again.
func TestAnInvalidObjectStalls(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	// The check judges no quota.
	_, sync := s.push(map[string]string{"clusters/dev/quota.yaml": strings.Replace(quotaFile, `"20"`, `"-1"`, 1), "pools/gpu.yaml": poolFile("gpu", 5)})
	ready := condition(sync, v1alpha1.ConditionReady)
	if ready.Reason != string(v1alpha1.ReasonApplyFailed) || condition(sync, v1alpha1.ConditionStalled).Status != metav1.ConditionTrue || condition(sync, v1alpha1.ConditionReconciling).Type != "" {
		t.Errorf("the conditions are %+v", sync.Status.Conditions)
	}
	if !strings.Contains(ready.Message, "spec.hard[pods]: Invalid value") || !strings.HasSuffix(ready.Message, remedyInvalid) || strings.Contains(ready.Message, "a right") {
		t.Errorf("Ready says %s", ready.Message)
	}
	if told := s.events(v1alpha1.ReasonApplyFailed); len(told) != 1 {
		t.Errorf("the Events are %q", told)
	}
	// A pass that follows an edit, and does not look at what stands beside, knows as much.
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":2}}`)
	s.drift("the edit is seen", func(e v1alpha1.DriftEntry) bool { return e.Path == "/spec/maxRunners" && e.Cluster == "2" })
	s.ready(v1alpha1.ReasonApplyFailed)
	if most := s.pool("gpu").Spec.MaxRunners; most == 5 {
		t.Errorf("the pool has %d runners", most)
	}
	_, sync = s.push(map[string]string{"clusters/dev/quota.yaml": quotaFile})
	if condition(sync, v1alpha1.ConditionReady).Status != metav1.ConditionTrue || condition(sync, v1alpha1.ConditionStalled).Type != "" || s.pool("gpu").Spec.MaxRunners != 5 {
		t.Errorf("the conditions are %+v", sync.Status.Conditions)
	}
}
