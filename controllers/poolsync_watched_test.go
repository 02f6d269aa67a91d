package controllers

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
)

// hubPoolFile is a HubPool that a fleet controller pushes.
func hubPoolFile(name string) string {
	return `apiVersion: cloop.dev/v1alpha1
kind: HubPool
metadata:
  name: ` + name + `
spec:
  maxRunners: 2
  hub:
    url: https://hub.example.com
    tokenSecretRef:
      name: hub-token
`
}

// withHubPool is an overlay that also has a HubPool and, suspended, another PoolSync.
func withHubPool() map[string]string {
	files := overlay("gpu")
	files["clusters/dev/kustomization.yaml"] = "resources:\n  - ../../pools\n  - quota.yaml\n  - hub.yaml\n  - more.yaml\n"
	files["clusters/dev/hub.yaml"] = hubPoolFile("gpu")
	files["clusters/dev/more.yaml"] = "apiVersion: cloop.dev/v1alpha1\nkind: PoolSync\nmetadata: {name: more}\nspec:\n  suspend: true\n  interval: 1h\n  path: ./more\n  source: {git: {url: \"https://git.example.com/more.git\"}}\n"
	return files
}

// patch changes an object as kubectl does.
func (s *syncStage) patch(object client.Object, name, patch string) {
	s.t.Helper()
	object.SetNamespace(s.ns)
	object.SetName(name)
	if err := s.client.Patch(s.ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("kubectl-patch")); err != nil {
		s.t.Fatal(err)
	}
}

// All kinds of cloop.dev that a PoolSync applies are watched: an edit, an addition and a
// deletion are put back without waiting for the interval.
func TestEditsOfAllKindsAreSeenByWatch(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, withHubPool())
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	edits := func(kind, path string) func(v1alpha1.DriftEntry) bool {
		return func(e v1alpha1.DriftEntry) bool {
			return e.Kind == kind && e.Path == path && e.Cause == v1alpha1.DriftClusterEdited && e.Corrected != nil && e.Manager == "kubectl-patch"
		}
	}
	hub := func() *v1alpha1.HubPool {
		pool := &v1alpha1.HubPool{}
		if err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: "gpu"}, pool); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return pool
	}
	s.patch(&v1alpha1.HubPool{}, "gpu", `{"spec":{"maxRunners":6}}`)
	s.drift("the HubPool is put back", edits("HubPool", "/spec/maxRunners"))
	if pool := hub(); pool.Spec.MaxRunners != 2 {
		t.Errorf("it has %d runners", pool.Spec.MaxRunners)
	}
	s.patch(&v1alpha1.HubPool{}, "gpu", `{"spec":{"labels":{"a":"b"}}}`)
	s.drift("what was added to it is taken away", edits("HubPool", "/spec/labels/a"))
	if pool := hub(); len(pool.Spec.Labels) > 0 {
		t.Errorf("it has %v", pool.Spec.Labels)
	}
	// A cordon is an operator's act where Git sets none.
	s.patch(&v1alpha1.HubPool{}, "gpu", `{"spec":{"maxRunners":7,"cordon":{"reason":"node upgrades"}}}`)
	s.until("the HubPool is put back again", func() bool { return hub().Spec.MaxRunners == 2 })
	if cordon := hub().Spec.Cordon; cordon == nil || cordon.Reason != "node upgrades" {
		t.Errorf("its cordon is %+v", cordon)
	}
	s.sync()
	if cordon := hub().Spec.Cordon; cordon == nil {
		t.Error("it has no cordon any more")
	}
	if err := s.client.Delete(s.ctx, hub()); err != nil {
		t.Fatal(err)
	}
	s.until("the HubPool is there again", func() bool { return hub().Spec.MaxRunners == 2 })
	s.patch(&v1alpha1.PoolSync{}, "more", `{"spec":{"path":"./other"}}`)
	s.drift("the PoolSync is put back", edits("PoolSync", "/spec/path"))
	if c := condition(s.get(), v1alpha1.ConditionReady); c.Status != metav1.ConditionTrue {
		t.Errorf("Ready is %+v", c)
	}
}

// A PoolSync that is only compared shows what it differs in at once.
func TestAnObservedPoolSyncIsSeenByWatch(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, withHubPool())
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.push(map[string]string{"clusters/dev/more.yaml": strings.Replace(withHubPool()["clusters/dev/more.yaml"], "{name: more}", "{name: more, annotations: {cloop.dev/observe: \"true\"}}", 1)})
	s.patch(&v1alpha1.PoolSync{}, "more", `{"spec":{"path":"./other"}}`)
	entry := s.drift("it differs", func(e v1alpha1.DriftEntry) bool { return e.Kind == "PoolSync" && e.Path == "/spec/path" })
	if entry.Outcome != v1alpha1.OutcomeObserved || entry.Cluster != `"./other"` {
		t.Errorf("drift is %+v", entry)
	}
}

// With wait, a HubPool that its hub refuses keeps the PoolSync from being Ready.
func TestHubPoolsAreWaitedFor(t *testing.T) {
	t.Parallel()
	files := overlay()
	files["clusters/dev/kustomization.yaml"] = "resources:\n  - quota.yaml\n  - hub.yaml\n"
	files["clusters/dev/hub.yaml"] = hubPoolFile("gpu")
	s := newSyncStage(t, files)
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Wait = true })
	says := func(words string) func() bool {
		return func() bool { return strings.Contains(condition(s.get(), v1alpha1.ConditionReady).Message, words) }
	}
	s.until("it waits", says("HubPool "+s.ns+"/gpu (no controller has looked at it yet)"))
	ready := func(status metav1.ConditionStatus, reason v1alpha1.Reason) {
		t.Helper()
		pool := &v1alpha1.HubPool{}
		if err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: "gpu"}, pool); err != nil {
			t.Fatal(err)
		}
		before := pool.DeepCopy()
		pool.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: string(reason), LastTransitionTime: metav1.Now(), ObservedGeneration: pool.Generation}}
		if err := s.client.Status().Patch(s.ctx, pool, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	ready(metav1.ConditionFalse, v1alpha1.ReasonDefinitionRefused)
	s.until("it says why", says("HubPool "+s.ns+"/gpu (DefinitionRefused)"))
	ready(metav1.ConditionTrue, v1alpha1.ReasonReconciliationSucceeded)
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
}
