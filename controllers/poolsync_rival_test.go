package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
)

// twoOverlays both have the pool gpu, the second with another maximum and a pool
// of its own.
func twoOverlays() map[string]string {
	files := overlay("gpu")
	files["clusters/two/kustomization.yaml"] = `resources:
  - ../../pools
  - own.yaml
patches:
  - target: {kind: ExecutorPool, name: gpu}
    patch: |
      - {op: replace, path: /spec/maxRunners, value: 9}
`
	files["clusters/two/own.yaml"] = poolFile("own", 4)
	return files
}

// as does something with another PoolSync.
func (s *syncStage) as(name string, do func()) {
	before := s.name
	s.name = name
	do()
	s.name = before
}

func (s *syncStage) second() {
	s.as("second", func() {
		s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Path = "./clusters/two" })
	})
}

func TestASecondSyncLeavesWhatTheFirstHas(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, twoOverlays())
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.second()
	s.as("second", func() {
		sync := s.ready(v1alpha1.ReasonOwnedByAnother)
		ready := condition(sync, v1alpha1.ConditionReady)
		if ready.Status != metav1.ConditionFalse || !strings.Contains(ready.Message, "ExecutorPool "+s.ns+"/gpu is applied by PoolSync "+s.ns+"/fleet") {
			t.Errorf("Ready is %+v", ready)
		}
		if condition(sync, v1alpha1.ConditionStalled).Status != metav1.ConditionTrue || sync.Status.LastAppliedRevision != "" {
			t.Errorf("the status is %+v", sync.Status)
		}
		if names := s.names(sync); names != "ExecutorPool/own" || len(sync.Status.Drift) > 0 {
			t.Errorf("the second has %s, and drift %+v", names, sync.Status.Drift)
		}
		s.until("an Event says so", func() bool { return len(s.events(v1alpha1.ReasonOwnedByAnother)) == 1 })
	})

	// They do not fight, and the first is still obeyed.
	before := s.pool("gpu")
	s.sync()
	s.as("second", func() { s.sync() })
	if after := s.pool("gpu"); after.ResourceVersion != before.ResourceVersion || after.Spec.MaxRunners != 4 {
		t.Errorf("gpu was written: %+v", after.ObjectMeta)
	}
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":3}}`)
	s.until("the first takes an edit back", func() bool { return s.pool("gpu").Spec.MaxRunners == 4 })

	// The second prunes its own, and nothing else.
	s.git.Commit(fleetRepository, map[string]string{"clusters/two/own.yaml": poolFile("another", 4)})
	s.as("second", func() {
		s.sync()
		s.until("its own pool is another", func() bool { return !s.hasPool("own") && s.hasPool("another") })
		if err := s.client.Delete(s.ctx, s.get()); err != nil {
			t.Fatal(err)
		}
		s.until("it is gone", func() bool { return !s.hasSync() })
	})
	if s.hasPool("another") || !s.hasPool("gpu") {
		t.Error("the deleted second left its own pool, or took the first's")
	}
	if sync := s.sync(); condition(sync, v1alpha1.ConditionReady).Status != metav1.ConditionTrue {
		t.Errorf("the first is %+v", condition(sync, v1alpha1.ConditionReady))
	}
}

func (s *syncStage) hasSync() bool {
	err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: s.name}, &v1alpha1.PoolSync{})
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	return err == nil
}

func TestASecondSyncTakesWhatTheFirstLetsGo(t *testing.T) {
	t.Parallel()
	for name, letGo := range map[string]func(*syncStage){
		"pruned": func(s *syncStage) {
			s.push(map[string]string{"clusters/dev/kustomization.yaml": "resources: [quota.yaml]\n"})
		},
		"left where nothing is pruned": func(s *syncStage) {
			s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Prune = false })
			s.push(map[string]string{"clusters/dev/kustomization.yaml": "resources: [quota.yaml]\n"})
		},
		"deleted": func(s *syncStage) {
			if err := s.client.Delete(s.ctx, s.get()); err != nil {
				s.t.Fatal(err)
			}
		},
		"deleted while suspended": func(s *syncStage) {
			s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Suspend = true })
			s.ready(v1alpha1.ReasonSuspended)
			if err := s.client.Delete(s.ctx, s.get()); err != nil {
				s.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSyncStage(t, twoOverlays())
			s.poolSync()
			s.ready(v1alpha1.ReasonReconciliationSucceeded)
			s.second()
			s.as("second", func() { s.ready(v1alpha1.ReasonOwnedByAnother) })
			letGo(s)
			s.until("the second has it", func() bool {
				gpu := &v1alpha1.ExecutorPool{}
				err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: "gpu"}, gpu)
				return err == nil && gpu.Spec.MaxRunners == 9 && syncNamed(gpu).Name == "second"
			})
			s.as("second", func() {
				sync := s.ready(v1alpha1.ReasonReconciliationSucceeded)
				if names := s.names(sync); names != "ExecutorPool/gpu ExecutorPool/own" {
					t.Errorf("the second has %s", names)
				}
			})
		})
	}
}

// Both begin before there is anything to see, or before anybody looked whose an
// object is: one of them has it in the end.
func TestTwoSyncsThatBeginAtOnce(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, twoOverlays())
	s.stop()
	s.poolSync()
	s.second()
	s.startController()
	reasons := func() string {
		var found []string
		for _, name := range []string{"fleet", "second"} {
			s.as(name, func() { found = append(found, condition(s.get(), v1alpha1.ConditionReady).Reason) })
		}
		return strings.Join(found, " ")
	}
	const won, lost = string(v1alpha1.ReasonReconciliationSucceeded), string(v1alpha1.ReasonOwnedByAnother)
	s.until("one has it", func() bool { return reasons() == won+" "+lost || reasons() == lost+" "+won })
	before := s.pool("gpu")
	s.sync()
	s.as("second", func() { s.sync() })
	if after := s.pool("gpu"); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("they write on: %s", reasons())
	}
}

// A label is soon forged: it gives nothing away that is in the inventory.
func TestAForgedOwnerIsTakenBack(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, twoOverlays())
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.second()
	s.as("second", func() { s.ready(v1alpha1.ReasonOwnedByAnother) })
	for _, patch := range []string{
		`{"metadata":{"labels":{"poolsync.cloop.dev/name":"second"}},"spec":{"maxRunners":9}}`,
		`{"metadata":{"labels":{"poolsync.cloop.dev/name":"second"}},"spec":{"maxRunners":3}}`,
		`{"metadata":{"labels":{"poolsync.cloop.dev/name":"nobody"}},"spec":{"maxRunners":3}}`,
		`{"metadata":{"labels":{"poolsync.cloop.dev/namespace":"elsewhere"}},"spec":{"maxRunners":3}}`,
	} {
		s.kubectlEdit("gpu", patch)
		s.until("the edit is taken back", func() bool {
			gpu := s.pool("gpu")
			return gpu.Spec.MaxRunners == 4 && syncNamed(gpu) == types.NamespacedName{Namespace: s.ns, Name: "fleet"}
		})
	}
	// Nor does one that is deleted by hand become whose is first.
	old := s.pool("gpu")
	if err := s.client.Delete(s.ctx, old); err != nil {
		t.Fatal(err)
	}
	s.until("it is there again", func() bool {
		again := &v1alpha1.ExecutorPool{}
		err := s.client.Get(s.ctx, client.ObjectKeyFromObject(old), again)
		return err == nil && again.UID != old.UID
	})
	s.as("second", func() { s.sync() })
	if gpu := s.pool("gpu"); gpu.Spec.MaxRunners != 4 || syncNamed(gpu).Name != "fleet" {
		t.Errorf("it is %+v", gpu.ObjectMeta)
	}
}

// What another namespace's PoolSync has applied cannot be looked up, and what is
// no pool is not looked at in every pass.
func TestAnotherNamespacesObjectIsLeft(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu", "batch"))
	elsewhere := map[string]string{v1alpha1.LabelPoolSyncName: "fleet", v1alpha1.LabelPoolSyncNamespace: "elsewhere"}
	gpu := &v1alpha1.ExecutorPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu", Labels: elsewhere},
		Spec: v1alpha1.ExecutorPoolSpec{
			HubURL: "https://hub.example.com", MaxRunners: 2, PoolCredentialSecretRef: v1alpha1.SecretKeyRef{Name: "a", Key: "credential"},
		},
	}
	s.create(gpu)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "runners", Labels: elsewhere}}
	s.create(quota)
	s.poolSync()
	sync := s.ready(v1alpha1.ReasonOwnedByAnother)
	if message := condition(sync, v1alpha1.ConditionReady).Message; strings.Count(message, "PoolSync elsewhere/fleet") != 2 {
		t.Errorf("Ready says %s", message)
	}
	s.kubectlEdit("batch", `{"spec":{"maxRunners":1}}`)
	s.until("an edit of the sync's own pool is taken back", func() bool { return s.pool("batch").Spec.MaxRunners == 4 })
	s.drift("the edit shows", isEdit("batch"))
	if err := s.client.Get(s.ctx, client.ObjectKeyFromObject(quota), quota); err != nil || len(quota.Spec.Hard) > 0 {
		t.Errorf("the quota is %+v, %v", quota.Spec, err)
	}
	if sync = s.get(); s.pool("gpu").Spec.MaxRunners != 2 || s.names(sync) != "ExecutorPool/batch" || condition(sync, v1alpha1.ConditionReady).Reason != string(v1alpha1.ReasonOwnedByAnother) {
		t.Errorf("gpu is %+v, the inventory %s, Ready %+v", s.pool("gpu").Spec, s.names(sync), condition(sync, v1alpha1.ConditionReady))
	}
	// Once nothing is wanted of them, nothing is wrong.
	files := overlay("batch")
	files["clusters/dev/kustomization.yaml"] = "resources: [../../pools]\n"
	s.push(files)
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
}
