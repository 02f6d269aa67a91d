package controllers

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"cloop.dev/cloop/apis/v1alpha1"
)

// quota is the quota of the overlay, nil while there is none.
func (s *syncStage) quota() *corev1.ResourceQuota {
	s.t.Helper()
	quota := &corev1.ResourceQuota{}
	err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: "runners"}, quota)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return quota
}

func (s *syncStage) quotaIsAsGitSays() bool {
	quota := s.quota()
	return quota != nil && quota.Spec.Hard.Pods().String() == "20" && len(quota.Spec.Hard) == 1 && quota.Labels[v1alpha1.LabelPoolSyncName] == s.name
}

const podsOfTheQuota = "/spec/hard/pods"

// What stands beside pools is watched as the account that applies it, and an edit is put
// back without waiting for the interval.
func TestEditsBesidePoolsAreSeenByWatch(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	for name, edit := range map[string]string{
		"another value": `{"spec":{"hard":{"pods":"500"}}}`,
		"another owner": `{"metadata":{"labels":{"poolsync.cloop.dev/name":"nobody"}}}`,
		"its label":     `{"metadata":{"labels":{"poolsync.cloop.dev/name":null}},"spec":{"hard":{"pods":"400"}}}`,
	} {
		s.patch(&corev1.ResourceQuota{}, "runners", edit)
		s.until(name+" is put back", s.quotaIsAsGitSays)
	}
	entry := s.drift("it was edited", func(e v1alpha1.DriftEntry) bool { return e.Kind == "ResourceQuota" && e.Path == podsOfTheQuota })
	if entry.Manager != "kubectl-patch" || entry.Cause != v1alpha1.DriftClusterEdited || entry.Corrected == nil {
		t.Errorf("drift is %+v", entry)
	}
	// What counts Pods changes the status all the time.
	passes, _ := s.passes()
	for n := range 20 {
		counted := s.quota()
		counted.Status.Used = corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(int64(n), resource.DecimalSI)}
		if err := s.client.Status().Update(s.ctx, counted); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.client.Delete(s.ctx, s.quota()); err != nil {
		t.Fatal(err)
	}
	s.until("it is there again", s.quotaIsAsGitSays)

	if more, _ := s.passes(); more > passes+15 {
		t.Errorf("20 changes of a status made %d passes", more-passes)
	}

	// Where Git does not want it any more nobody looks after it, nor watches it.
	s.push(map[string]string{"clusters/dev/kustomization.yaml": "resources:\n  - ../../pools\n"})
	s.until("it is gone", func() bool { return s.quota() == nil })
}

// An account that may not watch applies all the same, and what is edited waits for the
// next full pass.
func TestAnAccountThatMayNotWatchApplies(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "applier"}})
	s.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "applier"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"executorpools"}, Verbs: []string{"get", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"resourcequotas"}, Verbs: []string{"get", "create", "patch", "delete"}},
	}})
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "applier"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "applier"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.ns, Name: "applier"}},
	})
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.ServiceAccountName = "applier" })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.patch(&corev1.ResourceQuota{}, "runners", `{"spec":{"hard":{"pods":"500"}}}`)
	s.sync()
	if !s.quotaIsAsGitSays() {
		t.Errorf("the quota is %+v", s.quota())
	}
	if c := condition(s.get(), v1alpha1.ConditionReady); c.Status != metav1.ConditionTrue {
		t.Errorf("Ready is %+v", c)
	}
}

// A watch ends with the last PoolSync that wants it, and one that was refused is not
// opened again at once.
func TestAWatchBesidePoolsEndsWithItsLastUser(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	w := newSideWatches(newAppliers(s.config, s.client.RESTMapper(), newScheme()), make(chan event.GenericEvent, 100), s.clock)
	t.Cleanup(w.stopAll)
	pass := func(name, account string, objects ...*wanted) *syncPass {
		sync := &v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
		sync.Spec.ServiceAccountName = account
		return &syncPass{sync: sync, target: &build{objects: objects}}
	}
	quota := &wanted{id: objectID{kind: "ResourceQuota", namespace: s.ns, name: "runners"}, apiVersion: "v1"}
	pool := &wanted{id: objectID{group: v1alpha1.Group, kind: v1alpha1.ExecutorPoolKind, namespace: s.ns, name: "gpu"}, apiVersion: v1alpha1.GroupVersion.String()}
	watched := func(p *syncPass) bool {
		_, is := w.asApplied(p.sync, &sight{id: quota.id, want: quota}, &objectMemory{})
		return is
	}
	first, second := pass("first", "", quota, pool), pass("second", "", quota)
	w.attend(t.Context(), first)
	w.attend(t.Context(), second)
	s.until("the quota is watched", func() bool { return watched(first) })
	if n := len(w.watches); n != 1 {
		t.Errorf("%d watches are open", n)
	}
	w.forget(types.NamespacedName{Namespace: s.ns, Name: "first"})
	if !watched(second) {
		t.Error("the watch went with the first of two PoolSyncs")
	}
	w.attend(t.Context(), pass("second", "", pool))
	if watched(second) || len(w.watches) != 0 {
		t.Error("the watch is open, and nobody wants it")
	}

	refused := pass("third", "nobody", quota)
	w.attend(context.Background(), refused)
	s.until("it is refused", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.watches) == 0 && len(w.refused) == 1
	})
	w.attend(t.Context(), refused)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.watches) != 0 {
		t.Error("it is asked for again at once")
	}
}

// An account that may read nothing any more does not look like one that has nothing to do:
// a pass that trusts its watches does not take back what one that looked at all has found.
func TestAnAccountThatLosesItsRightsIsNotReady(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "applier"}})
	s.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "applier"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"executorpools"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"resourcequotas"}, Verbs: []string{"*"}},
	}})
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "applier"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "applier"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.ns, Name: "applier"}},
	}
	s.create(binding)
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
		spec.ServiceAccountName, spec.RetryInterval = "applier", &metav1.Duration{Duration: time.Hour}
	})
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	if err := s.client.Delete(s.ctx, binding); err != nil {
		t.Fatal(err)
	}
	s.poke()
	s.ready(v1alpha1.ReasonApplyFailed)
	// A look at what is watched: of the pool, whose edit nobody may take back either.
	passes, _ := s.passes()
	s.kubectlEdit("gpu", `{"metadata":{"labels":{"a":"b"}}}`)
	s.until("more passes", func() bool { more, _ := s.passes(); return more >= passes+2 })
	if c := condition(s.get(), v1alpha1.ConditionReady); c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "forbidden") {
		t.Errorf("Ready is %+v", c)
	}
	binding.ResourceVersion, binding.UID = "", ""
	s.create(binding)
	s.poke()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
}
