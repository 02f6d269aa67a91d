package controllers

import (
	"context"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster/clustertest"
	"cloop.dev/cloop/kustomize"
)

func deleteNamespace(t *testing.T, c client.Client, name string) {
	t.Helper()
	if err := c.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
}

// namespaceIsGone waits until a namespace is gone. What deletes it looks at it again some
// eight seconds apart, or sixteen, while something is left.
func namespaceIsGone(t *testing.T, c client.Client, name string) {
	t.Helper()
	eventuallyWithin(collectorPatience, t, "namespace "+name+" is gone", func() error {
		ns := &corev1.Namespace{}
		err := c.Get(t.Context(), client.ObjectKey{Name: name}, ns)
		return unless(apierrors.IsNotFound(err), "it is "+string(ns.Status.Phase)+": "+conditionsOf(ns))
	})
}

func conditionsOf(ns *corev1.Namespace) string {
	var said []string
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			said = append(said, c.Message)
		}
	}
	return strings.Join(said, "; ")
}

// With a namespace go its pools, with runs in progress, and the hub is told.
func TestADeletedNamespaceGoesWithItsRuns(t *testing.T) {
	t.Parallel()
	s := newStage(t, 4)
	s.pool()
	s.hub.queue(2)
	pods := s.untilPods(2)
	s.hub.handOff(s.run(pods[0]))
	deleteNamespace(t, s.client, s.ns)
	namespaceIsGone(t, s.client, s.ns)
	if left := s.hub.alive(); left != 0 {
		t.Errorf("%d runners are left at the hub", left)
	}
}

func TestADeletedNamespaceGoesWithItsPoolSync(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("a", "b"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.ServiceAccountName = "applier" })
	s.applier(s.ns)
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	deleteNamespace(t, s.client, s.ns)
	namespaceIsGone(t, s.client, s.ns)
}

// What was applied to a namespace that is gone needs no prune, and the rights to
// look for it went with the namespace.
func TestPruneGoesOnWithoutANamespaceThatIsGone(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, map[string]string{"README.md": "fleet"})
	other := clustertest.Namespace(t, s.config)
	files := overlay("a")
	files["clusters/dev/kustomization.yaml"] = "resources: [../../pools, there, quota.yaml]\n"
	files["clusters/dev/there/kustomization.yaml"] = "namespace: " + other + "\nresources: [b.yaml]\n"
	files["clusters/dev/there/b.yaml"] = poolFile("b", 4)
	s.git.Commit(fleetRepository, files)
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
		spec.ServiceAccountName, spec.PruneLimit.Percent = "applier", 0
	})
	s.applier(s.ns, other)
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	deleteNamespace(t, s.client, other)
	namespaceIsGone(t, s.client, other)
	_, sync := s.push(map[string]string{"clusters/dev/kustomization.yaml": "resources: [../../pools, quota.yaml]\n"})
	if ready := condition(sync, v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue || s.names(sync) != "ExecutorPool/a ResourceQuota/runners" {
		t.Errorf("%s; Ready is %+v", s.names(sync), ready)
	}
}

// A commit with an object where the account may do nothing is put right by the next one,
// and what it may no longer read holds up itself alone.
func TestPruneGoesOnBesideWhatMayNotBeRead(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, map[string]string{"README.md": "fleet"})
	other := clustertest.Namespace(t, s.config)
	files := overlay("a", "c")
	files["clusters/dev/there/kustomization.yaml"] = "namespace: " + other + "\nresources: [b.yaml]\n"
	files["clusters/dev/there/b.yaml"] = poolFile("b", 4)
	const without, with = "resources: [../../pools, quota.yaml]\n", "resources: [../../pools, there, quota.yaml]\n"
	files["clusters/dev/kustomization.yaml"] = without
	s.git.Commit(fleetRepository, files)
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
		spec.ServiceAccountName, spec.PruneLimit.Percent = "applier", 0
	})
	s.applier(s.ns)
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	_, sync := s.push(map[string]string{"clusters/dev/kustomization.yaml": with})
	if ready := condition(sync, v1alpha1.ConditionReady); ready.Status != metav1.ConditionFalse || strings.Contains(s.names(sync), "/b") {
		t.Errorf("%s; Ready is %+v", s.names(sync), ready)
	}
	_, sync = s.push(map[string]string{"clusters/dev/kustomization.yaml": without})
	if ready := condition(sync, v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue {
		t.Errorf("put right, Ready is %+v", ready)
	}
	// It was applied once, and the account has lost its rights since.
	role := s.rights(other)
	_, sync = s.push(map[string]string{"clusters/dev/kustomization.yaml": with})
	if ready := condition(sync, v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue || !strings.Contains(s.names(sync), "ExecutorPool/b") {
		t.Fatalf("%s; Ready is %+v", s.names(sync), ready)
	}
	if err := s.client.Delete(s.ctx, role); err != nil {
		t.Fatal(err)
	}
	_, sync = s.push(map[string]string{"clusters/dev/kustomization.yaml": without, "pools/kustomization.yaml": "resources: [a.yaml]\n"})
	ready := condition(sync, v1alpha1.ConditionReady)
	if ready.Reason != string(v1alpha1.ReasonPruneFailed) || !strings.Contains(ready.Message, "give the account that applies the right") || s.hasPool("c") || strings.Contains(s.names(sync), "/c") || !strings.Contains(s.names(sync), "ExecutorPool/b") {
		t.Errorf("%s, with c %t; Ready is %+v", s.names(sync), s.hasPool("c"), ready)
	}
}

// applier makes the account "applier", which may write pools and what stands
// beside them in some namespaces.
func (s *syncStage) applier(namespaces ...string) {
	s.t.Helper()
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "applier"}})
	for _, ns := range namespaces {
		s.rights(ns)
	}
}

// rights give the account "applier" those in a namespace.
func (s *syncStage) rights(ns string) *rbacv1.RoleBinding {
	s.t.Helper()
	s.create(&rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "applier"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.Group}, Resources: []string{"executorpools"}, Verbs: []string{"*"}},
			{APIGroups: []string{""}, Resources: []string{"resourcequotas"}, Verbs: []string{"*"}},
		},
	})
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "applier"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "applier"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.ns, Name: "applier"}},
	}
	s.create(binding)
	return binding
}

// asAccount is a connection with the rights that the manifests give a controller.
func asAccount(t *testing.T, config *rest.Config, where kustomize.Namespaces, namespace, account string) *rest.Config {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := kustomize.Roles(where)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object.GetNamespace() != namespace {
			continue
		}
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	request := &authenticationv1.TokenRequest{}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := c.SubResource("token").Create(t.Context(), of, request); err != nil {
		t.Fatal(err)
	}
	own := rest.AnonymousClientConfig(config)
	own.BearerToken = request.Status.Token
	return own
}

// A namespace is deleted that the controller lives in: it is told to stop before
// the pools are deleted, and nobody is left to take their finalizers off.
func TestANamespaceGoesWithTheControllerInIt(t *testing.T) {
	t.Parallel()
	s := newEmptyStage(t, 4)
	own := asAccount(t, s.config, kustomize.Namespaces{Executor: s.ns}, s.ns, kustomize.ExecutorServiceAccount)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{
			Controllers: []string{executorPoolController}, Namespace: s.ns, RESTConfig: own, MetricsAddr: "0", HealthAddr: "0",
			LeaderElect: true, RunnerImage: "registry.example.com/runner:1", Build: "test", Instance: "test",
		})
	}()
	p := s.pool()
	s.hub.queue(1)
	pod := s.untilPods(1)[0]
	s.hub.handOff(s.run(pod))
	// Like a Pod that is given its time to end.
	patch := func(object client.Object, text string) {
		t.Helper()
		if err := s.client.Patch(s.ctx, object, client.RawPatch("application/merge-patch+json", []byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	patch(&pod, `{"metadata":{"finalizers":["example.com/ends-slowly"]}}`)
	deleteNamespace(t, s.client, s.ns)
	s.until("the Pod is told to end", func() bool { return s.pods()[0].DeletionTimestamp != nil })
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.client.Get(s.ctx, client.ObjectKeyFromObject(p), p); err == nil && len(p.Finalizers) > 0 {
		t.Errorf("the pool has %q", p.Finalizers)
	}
	patch(&pod, `{"metadata":{"finalizers":null}}`)
	namespaceIsGone(t, s.client, s.ns)
}

// Told to stop while its namespace stays, a controller lets go of nothing.
func TestAStoppedControllerKeepsItsFinalizers(t *testing.T) {
	s := newEmptyStage(t, 4)
	own := asAccount(t, s.config, kustomize.Namespaces{Executor: s.ns}, s.ns, kustomize.ExecutorServiceAccount)
	p := &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu", Finalizers: []string{v1alpha1.FinalizerExecutorPool}}}
	p.Spec.HubURL, p.Spec.MaxRunners, p.Spec.PoolCredentialSecretRef.Name, p.Spec.PoolCredentialSecretRef.Key = s.hub.server.URL, 1, "a", "b"
	s.create(p)
	o := Options{Controllers: []string{executorPoolController}, Namespace: s.ns}
	if err := letGo(t.Context(), own, o); err != nil {
		t.Fatal(err)
	}
	// Nor does one that lives elsewhere, whatever becomes of the namespace.
	deleteNamespace(t, s.client, s.ns)
	if err := letGo(t.Context(), s.config, o); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Get(s.ctx, client.ObjectKeyFromObject(p), p); err != nil || len(p.Finalizers) != 1 {
		t.Errorf("the pool has %q, %v", p.Finalizers, err)
	}
}

func TestTheFleetControllerLetsGoOfItsNamespace(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("a"))
	s.stop()
	s.poolSync()
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Finalizers = []string{v1alpha1.FinalizerPoolSync} })
	own := asAccount(t, s.config, kustomize.Namespaces{Fleet: s.ns}, s.ns, kustomize.FleetServiceAccount)
	// Holds the namespace where its Pods are given their time to end.
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "slow", Finalizers: []string{"example.com/ends-slowly"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
	s.create(pod)
	deleteNamespace(t, s.client, s.ns)
	s.until("the Pod is told to end", func() bool {
		return s.client.Get(s.ctx, client.ObjectKeyFromObject(pod), pod) == nil && pod.DeletionTimestamp != nil
	})
	if err := letGo(t.Context(), own, Options{Controllers: []string{poolSyncController}, Namespace: s.ns}); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Patch(s.ctx, pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	namespaceIsGone(t, s.client, s.ns)
}
