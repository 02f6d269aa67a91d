package controllers

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
)

// drains gives a pool a finalizer, as the executor controller does.
func (s *syncStage) drains(name string, yes bool) {
	s.t.Helper()
	patch := `{"metadata":{"finalizers":null}}`
	if yes {
		patch = `{"metadata":{"finalizers":["cloop.dev/executor-pool"]}}`
	}
	if err := s.client.Patch(s.ctx, s.pool(name), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.t.Fatal(err)
	}
}

func TestPruneWaitsForApprovalAndForDraining(t *testing.T) {
	s := newSyncStage(t, overlay("a", "b", "c"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.PruneLimit = v1alpha1.PruneLimit{Count: 1, Percent: 50} })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.drains("b", true)

	next := overlay("a")
	next["pools/a.yaml"] = poolFile("a", 9)
	commit, sync := s.push(next)
	ready := condition(sync, v1alpha1.ConditionReady)
	if ready.Reason != string(v1alpha1.ReasonPruneNeedsApproval) || !strings.Contains(ready.Message, "ExecutorPool "+s.ns+"/b, ExecutorPool "+s.ns+"/c") || !strings.Contains(ready.Message, commit) {
		t.Errorf("Ready is %s: %s", ready.Reason, ready.Message)
	}
	if !s.hasPool("b") || !s.hasPool("c") || s.pool("a").Spec.MaxRunners != 9 || strings.HasSuffix(sync.Status.LastAppliedRevision, commit) {
		t.Errorf("after the refusal: %s, applied %s", s.names(sync), sync.Status.LastAppliedRevision)
	}

	s.edit(func(sync *v1alpha1.PoolSync) {
		metav1.SetMetaDataAnnotation(&sync.ObjectMeta, v1alpha1.AnnotationApprovePrune, commit)
	})
	sync = s.ready(v1alpha1.ReasonReconciliationSucceeded)
	if s.hasPool("c") || !s.hasPool("b") {
		t.Error("c is there or b is not")
	}
	if names := s.names(sync); names != "ExecutorPool/a ExecutorPool/b ResourceQuota/runners" || !strings.HasSuffix(sync.Status.LastAppliedRevision, commit) {
		t.Errorf("while b drains: %s, applied %s", names, sync.Status.LastAppliedRevision)
	}
	s.drains("b", false)
	s.until("b is gone from the inventory", func() bool { return s.names(s.get()) == "ExecutorPool/a ResourceQuota/runners" })
}

func TestWithoutPruneNothingIsDeleted(t *testing.T) {
	s := newSyncStage(t, overlay("a", "b"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Prune = false })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	_, sync := s.push(overlay("a"))
	if !s.hasPool("b") || s.names(sync) != "ExecutorPool/a ResourceQuota/runners" {
		t.Errorf("inventory is %s", s.names(sync))
	}
}

func TestPruneLeavesWhatAnotherSyncHasTaken(t *testing.T) {
	s := newSyncStage(t, overlay("a", "b"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Suspend = true })
	s.ready(v1alpha1.ReasonSuspended)
	s.kubectlEdit("b", `{"metadata":{"labels":{"poolsync.cloop.dev/name":"other"}}}`)
	s.git.Commit(fleetRepository, overlay("a"))
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Suspend = false })
	s.until("b is left", func() bool { return s.names(s.get()) == "ExecutorPool/a ResourceQuota/runners" })
	if !s.hasPool("b") {
		t.Error("b was deleted")
	}
}

func TestDeletedSyncPrunesAndWaits(t *testing.T) {
	s := newSyncStage(t, overlay("a", "b"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.PruneLimit = v1alpha1.PruneLimit{} })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.drains("b", true)
	if err := s.client.Delete(s.ctx, s.get()); err != nil {
		t.Fatal(err)
	}
	// What stands beside a pool goes after it.
	s.until("only b and the quota are left", func() bool {
		return !s.hasPool("a") && s.names(s.get()) == "ExecutorPool/b ResourceQuota/runners"
	})
	s.drains("b", false)
	s.until("the PoolSync is gone", func() bool { return !s.hasSync() })
	if s.hasPool("b") || s.hasQuota() {
		t.Error("b or the quota is there")
	}
}

func (s *syncStage) hasQuota() bool {
	err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: "runners"}, &corev1.ResourceQuota{})
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	return err == nil
}

// A run that finishes on a removed pool still needs the account that it runs as,
// and the NetworkPolicy that keeps it in.
func TestWhatStandsBesideAPoolIsPrunedAfterIt(t *testing.T) {
	s := newSyncStage(t, overlay("a", "b"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.PruneLimit.Percent = 0 })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.drains("a", true)
	next := overlay("b")
	next["clusters/dev/kustomization.yaml"] = "resources: [../../pools]\n"
	_, sync := s.push(next)
	if names := s.names(sync); names != "ExecutorPool/a ExecutorPool/b ResourceQuota/runners" || !s.hasQuota() {
		t.Errorf("while a drains: %s", names)
	}
	if ready := condition(sync, v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue || !strings.Contains(ready.Message, "waits for 2 objects") {
		t.Errorf("Ready is %+v", ready)
	}
	s.drains("a", false)
	s.until("the quota goes", func() bool { return s.names(s.get()) == "ExecutorPool/b" })
	if s.hasQuota() {
		t.Error("the quota is there")
	}
}

// A deletion that takes longer than a pass may goes on in the next one. Nobody is asked
// again for what was approved, and nothing says that the cluster is as Git wants it.
func TestALongPruneGoesOn(t *testing.T) {
	t.Parallel()
	var names []string
	for n := range 40 {
		names = append(names, fmt.Sprintf("pool-%02d", n))
	}
	s := byHand(t, names...)
	s.edit(func(sync *v1alpha1.PoolSync) {
		sync.Spec.Timeout.Duration, sync.Spec.PruneLimit = 5*time.Second, v1alpha1.PruneLimit{Count: 1, Percent: 50}
	})
	p := s.process(nil)
	if err := p.pass(); err != nil {
		t.Fatal(err)
	}
	commit := s.git.Commit(fleetRepository, map[string]string{"pools/kustomization.yaml": "resources: [pool-00.yaml]\n"})
	if err := p.pass(); err != nil {
		t.Fatal(err)
	}
	if c := condition(s.get(), v1alpha1.ConditionReady); c.Reason != string(v1alpha1.ReasonPruneNeedsApproval) {
		t.Fatalf("Ready is %+v", c)
	}
	s.edit(func(sync *v1alpha1.PoolSync) {
		metav1.SetMetaDataAnnotation(&sync.ObjectMeta, v1alpha1.AnnotationApprovePrune, commit)
	})
	var deleted atomic.Int32
	var while *v1alpha1.PoolSync
	p.now(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodDelete {
			return nil, nil //nolint:nilnil // passed on
		}
		switch n := deleted.Add(1); {
		case n <= 20:
			return nil, nil //nolint:nilnil // as above
		case n == 21:
			while = s.get()
		}
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	if err := p.pass(); err != nil {
		t.Fatal(err)
	}
	if c := condition(while, v1alpha1.ConditionReady); c.Reason != string(v1alpha1.ReasonProgressing) || !strings.Contains(c.Message, "deletes 39 objects that") || condition(while, v1alpha1.ConditionStalled).Type != "" {
		t.Errorf("while it deletes Ready is %+v", c)
	}
	sync := s.get()
	ready, drifted := condition(sync, v1alpha1.ConditionReady), condition(sync, v1alpha1.ConditionDrifted)
	if ready.Status != metav1.ConditionUnknown || ready.Reason != string(v1alpha1.ReasonProgressing) || !strings.Contains(ready.Message, "20 went in 5s, and the rest follows at once") {
		t.Errorf("Ready is %+v", ready)
	}
	if drifted.Status != metav1.ConditionTrue || !strings.Contains(drifted.Message, "19 objects that Git lacks are there") {
		t.Errorf("Drifted is %+v", drifted)
	}
	p.now(nil)
	p.inStep(commit, "pool-00")
	if names := s.names(s.get()); strings.Contains(names, "pool-01") || !strings.Contains(names, "ExecutorPool/pool-00") {
		t.Errorf("the inventory is %s", names)
	}
}
