package controllers

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
)

// Nobody says that the cluster is as Git says who does not know it, or whose own
// condition Ready says otherwise.
func TestDriftedClaimsNoMoreThanIsKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(*syncStage)
		ready  v1alpha1.Reason
		status metav1.ConditionStatus
		reason v1alpha1.Reason
		says   string
	}{
		"the path is gone": {func(s *syncStage) { s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Path = "./clusters/nowhere" }) },
			v1alpha1.ReasonPathNotFound, metav1.ConditionUnknown, v1alpha1.ReasonCommitWaits, "; the cluster is as main@sha1:"},
		"the path is empty": {func(s *syncStage) { s.push(map[string]string{"clusters/dev/kustomization.yaml": "resources: []\n"}) },
			v1alpha1.ReasonEmptyBuild, metav1.ConditionUnknown, v1alpha1.ReasonCommitWaits, "what Git says now is not applied"},
		"it does not build": {func(s *syncStage) {
			s.push(map[string]string{"clusters/dev/kustomization.yaml": "resources: [nothing.yaml]\n"})
		},
			v1alpha1.ReasonBuildFailed, metav1.ConditionUnknown, v1alpha1.ReasonCommitWaits, "see the condition Ready"},
		"the branch is gone": {func(s *syncStage) {
			s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Source.Git.Ref.Branch = "nothing" })
		},
			v1alpha1.ReasonSourceUnavailable, metav1.ConditionUnknown, "", "; the cluster is as main@sha1:"},
		"it is suspended": {func(s *syncStage) { s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Suspend = true }) },
			v1alpha1.ReasonSuspended, metav1.ConditionUnknown, v1alpha1.ReasonSuspended, "drift is not looked for"},
		"a prune waits": {func(s *syncStage) {
			s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.PruneLimit = v1alpha1.PruneLimit{Count: 1, Percent: 1} })
			s.push(map[string]string{"pools/kustomization.yaml": "resources: [gpu.yaml]\n"})
		},
			v1alpha1.ReasonPruneNeedsApproval, metav1.ConditionTrue, v1alpha1.ReasonCommitWaits, "2 objects that Git lacks are there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSyncStage(t, overlay("gpu", "batch", "docs"))
			s.poolSync()
			first := s.ready(v1alpha1.ReasonReconciliationSucceeded)
			if c := condition(first, v1alpha1.ConditionDrifted); c.Reason != string(v1alpha1.ReasonNoDrift) {
				t.Fatalf("Drifted is %+v", c)
			}
			c.spoil(s)
			got := condition(s.ready(c.ready), v1alpha1.ConditionDrifted)
			if got.Status != c.status || got.Reason != orElse(string(c.reason), string(c.ready)) || !strings.Contains(got.Message, c.says) || strings.Contains(got.Message, "the cluster is as Git says") {
				t.Errorf("Drifted is %+v", got)
			}
		})
	}
}
