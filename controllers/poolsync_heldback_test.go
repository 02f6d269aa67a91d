package controllers

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// What the check finds wrong with one pool is that pool's trouble: it stays as it was
// applied last, and the rest of the commit lands.
func TestABadPoolIsHeldBackAlone(t *testing.T) {
	s := newSyncStage(t, overlay("gpu", "batch", "docs"))
	s.poolSync()
	good := s.ready(v1alpha1.ReasonReconciliationSucceeded)
	change := overlay("gpu", "batch", "docs", "extra")
	change["pools/gpu.yaml"] = poolFile("gpu", -1)
	change["pools/batch.yaml"] = poolFile("batch", 6)
	_, sync := s.push(change)
	ready := condition(sync, v1alpha1.ConditionReady)
	if ready.Status != metav1.ConditionFalse || ready.Reason != string(v1alpha1.ReasonValidationFailed) || condition(sync, v1alpha1.ConditionStalled).Status != metav1.ConditionTrue {
		t.Errorf("Ready is %+v", ready)
	}
	for _, want := range []string{"applied 4 of 5 objects", "held back:", "pools/gpu.yaml", "spec.maxRunners"} {
		if !strings.Contains(ready.Message, want) {
			t.Errorf("%q does not say %q", ready.Message, want)
		}
	}
	as := func(gpu, batch int32) func() bool {
		return func() bool {
			return s.pool("gpu").Spec.MaxRunners == gpu && s.pool("batch").Spec.MaxRunners == batch && s.hasPool("extra") && s.hasPool("docs")
		}
	}
	if !as(4, 6)() {
		t.Errorf("gpu has %d runners, batch %d; the pools are %s", s.pool("gpu").Spec.MaxRunners, s.pool("batch").Spec.MaxRunners, s.names(sync))
	}
	if sync.Status.LastAppliedRevision != good.Status.LastAppliedRevision {
		t.Errorf("%s counts as applied", sync.Status.LastAppliedRevision)
	}
	entry := s.drift("gpu waits", func(e v1alpha1.DriftEntry) bool { return e.Name == "gpu" && e.Corrected == nil })
	if entry.Cause != v1alpha1.DriftCommitNotApplied || entry.Git != "" {
		t.Errorf("drift is %+v", entry)
	}
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":1}}`)
	s.kubectlEdit("batch", `{"spec":{"maxRunners":1}}`)
	s.until("both are held to what was applied of them", as(4, 6))

	s.stop()
	s.startController()
	s.sync()
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":1}}`)
	s.kubectlEdit("batch", `{"spec":{"maxRunners":1}}`)
	s.until("another process knows as much", as(4, 6))
	if names := s.names(s.sync()); !strings.Contains(names, "gpu") || !strings.Contains(names, "docs") {
		t.Errorf("the inventory is %s", names)
	}

	// What is gone may have been renamed to what is new and held back.
	change = overlay("gpu", "batch", "extra", "manuals")
	change["pools/gpu.yaml"], change["pools/docs.yaml"], change["pools/manuals.yaml"] = poolFile("gpu", 5), fleettest.Removed, poolFile("manuals", -1)
	_, sync = s.push(change)
	if message := condition(sync, v1alpha1.ConditionReady).Message; !strings.Contains(message, "1 object that Git lacks is kept until what is new is applied") || !s.hasPool("docs") {
		t.Errorf("docs is there: %t; Ready says %q", s.hasPool("docs"), message)
	}
	// What is there and held back is nothing's new name.
	delete(change, "pools/docs.yaml")
	change["pools/gpu.yaml"], change["pools/manuals.yaml"] = poolFile("gpu", -1), poolFile("manuals", 4)
	s.push(change)
	s.until("what Git lacks is gone", func() bool { return !s.hasPool("docs") && s.hasPool("manuals") })
	if s.pool("gpu").Spec.MaxRunners != 5 {
		t.Errorf("gpu has %d runners", s.pool("gpu").Spec.MaxRunners)
	}

	_, sync = s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 5)})
	if ready := condition(sync, v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue || s.pool("gpu").Spec.MaxRunners != 5 {
		t.Errorf("after the repair: %+v", ready)
	}
	if revision := s.get().Status.LastAppliedRevision; revision == good.Status.LastAppliedRevision {
		t.Errorf("%s counts as applied last", revision)
	}
}

// A pool does not move while what is to stand beside it is held back; what no
// PoolSync applies holds nobody up.
func TestAPoolWaitsForWhatIsHeldBackBesideIt(t *testing.T) {
	s := newSyncStage(t, map[string]string{"pools/gpu.yaml": poolFile("gpu", 4)})
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Path = "./pools" })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	_, sync := s.push(map[string]string{
		"pools/quota.yaml": "apiVersion: v1\nkind: ResourceQuota\nmetadata: {labels: {a: b}}\nspec: {hard: {pods: \"4\"}}\n",
		"pools/gpu.yaml":   poolFile("gpu", 6),
	})
	ready := condition(sync, v1alpha1.ConditionReady)
	if ready.Reason != string(v1alpha1.ReasonValidationFailed) || !strings.Contains(ready.Message, "metadata.name") ||
		!strings.Contains(ready.Message, "stands beside it") || s.pool("gpu").Spec.MaxRunners != 4 {
		t.Errorf("gpu has %d runners, Ready is %+v", s.pool("gpu").Spec.MaxRunners, ready)
	}
	_, sync = s.push(map[string]string{"pools/quota.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"})
	ready = condition(sync, v1alpha1.ConditionReady)
	if ready.Reason != string(v1alpha1.ReasonValidationFailed) || !strings.Contains(ready.Message, "Deployment") || s.pool("gpu").Spec.MaxRunners != 6 {
		t.Errorf("gpu has %d runners, Ready is %+v", s.pool("gpu").Spec.MaxRunners, ready)
	}
}
