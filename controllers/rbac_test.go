package controllers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster/clustertest"
	"cloop.dev/cloop/kustomize"
)

// unused are rights that no test makes a controller use, by account, each with why
// it is granted all the same.
var unused = map[string]map[string]string{
	kustomize.ExecutorServiceAccount: {
		"update cloop.dev/executorpools/finalizers": "an API server that enforces owner references wants it of whoever makes Pods that a pool owns",
		"patch events":     "an Event that comes again is counted up",
		"update secrets":   "a mint that is repeated brings another token for the Secret",
		"get pods":         "a Pod that went from the cache is asked about where its runner has enrolled",
		"get configmaps":   "an anchor that was just made is read where the cache lags",
		"patch configmaps": "labels that somebody took off an anchor are put back",
		"patch pods":       "labels that somebody took off a Pod are put back",
	},
	kustomize.FleetServiceAccount: {
		"patch events":                "an Event that comes again is counted up",
		"impersonate serviceaccounts": "a PoolSync with a serviceAccountName is applied as that account: TestADeletedNamespaceGoesWithItsPoolSync",
		"get configmaps":              "spec.substitute.from may name a ConfigMap",
	},
}

// others are resources that an overlay may bring, or a PoolSync may name, beside those
// of the test's: they are treated as those are.
var others = []string{"limitranges", "serviceaccounts", "networking.k8s.io/networkpolicies",
	"source.toolkit.fluxcd.io/gitrepositories", "source.toolkit.fluxcd.io/ocirepositories", "source.toolkit.fluxcd.io/buckets"}

// whyUnused is why a right is granted that no test makes a controller use; empty:
// there is no reason.
func whyUnused(account, right string, used map[string]bool) string {
	verb, resource, _ := strings.Cut(right, " ")
	switch {
	case unused[account][right] != "":
		return unused[account][right]
	case slices.Contains(others, resource) && account == kustomize.FleetServiceAccount:
		return "as for the resources that the test has"
	case verb == "list" && used["watch "+resource]:
		return "an API server that does not stream lists is asked for one before each watch"
	case verb == "get" && used["watch "+resource] && account == kustomize.ExecutorServiceAccount:
		return "letting go of a namespace reads what it changes"
	}
	return ""
}

// What a controller asks of the API server is what its Roles grant: nothing is
// refused, and nothing is granted that is not used.
func TestTheFleetControllerUsesItsRightsAndNoOthers(t *testing.T) {
	t.Parallel()
	hub := newHubStage(t)
	s := newStoppedSyncStage(t, overlay("gpu"), hub.ns)
	pools := clustertest.Namespace(t, s.config)
	where := kustomize.Namespaces{Executor: pools, Fleet: s.ns}
	own := asInstalled(t, s.config, where, s.ns, kustomize.FleetServiceAccount)
	stop := runAs(t, own, Options{Controllers: []string{poolSyncController, hubPoolController}, Namespace: s.ns, CacheDir: s.cache, ClusterName: "test"})
	s.hubPoolFile(hub, pools)
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	hubPool := func() *v1alpha1.HubPool { return hub.get() }
	eventually(t, "the pool is defined and its credential minted", func() error {
		p := hubPool()
		return unless(p != nil && p.Status.Credential != nil && p.Status.Credential.ID != "", fmt.Sprintf("it is %+v", p))
	})
	// Somebody edits, the commit takes a pool out, and all of it goes.
	s.git.Commit(fleetRepository, map[string]string{"pools/kustomization.yaml": "resources: []\n", "clusters/dev/kustomization.yaml": "resources: [hubpool.yaml, quota.yaml]\n"})
	s.sync()
	if err := s.client.Delete(s.ctx, s.get()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all of it is gone", func() error {
		return unless(!s.hasSync() && hubPool() == nil, fmt.Sprintf("left is %+v, %v", hubPool(), s.hasSync()))
	})
	stop()
	compareRights(t, where, s.ns, kustomize.FleetServiceAccount)
}

func TestTheExecutorControllerUsesItsRightsAndNoOthers(t *testing.T) {
	t.Parallel()
	s := newEmptyStage(t, 4)
	where := kustomize.Namespaces{Executor: s.ns}
	own := asAccount(t, s.config, where, s.ns, kustomize.ExecutorServiceAccount)
	stop := runAs(t, own, Options{Controllers: []string{executorPoolController}, Namespace: s.ns, RunnerImage: "registry.example.com/runner:1"})
	p := s.pool()
	s.hub.queue(1)
	pod := s.untilPods(1)[0]
	busy := s.run(pod)
	s.hub.handOff(busy)
	if err := s.client.Delete(s.ctx, p); err != nil {
		t.Fatal(err)
	}
	s.hub.settle(busy)
	s.end(pod, 0, "")
	s.until("nothing is left", func() bool { return s.poolGone() && len(s.pods())+len(s.secrets()) == 0 && !s.anchorExists() })
	stop()
	compareRights(t, where, s.ns, kustomize.ExecutorServiceAccount)
}

// runAs runs controllers with the rights of an account until stop.
func runAs(t *testing.T, own *rest.Config, o Options) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	o.RESTConfig, o.MetricsAddr, o.HealthAddr, o.LeaderElect, o.Build, o.Instance = own, "0", "0", true, "test", "test"
	go func() { done <- Run(ctx, o) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// asInstalled is a connection with all rights that the manifests give an account.
func asInstalled(t *testing.T, config *rest.Config, where kustomize.Namespaces, namespace, account string) *rest.Config {
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
		if object.GetKind() == "ClusterRoleBinding" {
			object.SetName(object.GetName() + "-" + namespace) // other tests have theirs
			t.Cleanup(func() { _ = c.Delete(context.Background(), object) })
		}
		if object.GetNamespace() == "" || object.GetNamespace() == where.Executor && object.GetName() != kustomize.ExecutorServiceAccount {
			if err := c.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
	}
	return asAccount(t, config, where, namespace, account)
}

// compareRights compares what an account was granted with what it asked for.
func compareRights(t *testing.T, where kustomize.Namespaces, namespace, account string) {
	t.Helper()
	granted := rightsOf(t, where, namespace, account)
	used, refused := rightsUsed(t, "system:serviceaccount:"+namespace+":"+account)
	for _, right := range refused {
		t.Errorf("%s is refused %s", account, right)
	}
	for _, right := range slices.Sorted(maps.Keys(granted)) {
		if !used[right] && whyUnused(account, right, used) == "" {
			t.Errorf("%s has %q and does not use it: take it out of its Roles, or say why it is there", account, right)
		}
	}
	for right := range unused[account] {
		if !granted[right] {
			t.Errorf("%s has no %q any more: take it off the list", account, right)
		}
	}
}

func right(verb, group, resource string) string {
	if group != "" {
		resource = group + "/" + resource
	}
	return verb + " " + resource
}

// rightsOf are all rights that bindings give an account, wherever.
func rightsOf(t *testing.T, where kustomize.Namespaces, namespace, account string) map[string]bool {
	t.Helper()
	objects, err := kustomize.Roles(where)
	if err != nil {
		t.Fatal(err)
	}
	bound, rights := map[string]bool{}, map[string]bool{}
	for _, object := range objects {
		var binding rbacv1.RoleBinding
		if strings.HasSuffix(object.GetKind(), "Binding") && runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding) == nil &&
			slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == account && s.Namespace == namespace }) {
			bound[binding.RoleRef.Kind+binding.RoleRef.Name] = true
		}
	}
	for _, object := range objects {
		var role rbacv1.Role
		if !bound[object.GetKind()+object.GetName()] || runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role) != nil {
			continue
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						rights[right(verb, group, resource)] = true
					}
				}
			}
		}
	}
	return rights
}

// rightsUsed are what the API audit log says that an account asked for, and what it
// was refused.
func rightsUsed(t *testing.T, user string) (used map[string]bool, refused []string) {
	t.Helper()
	file, err := os.Open(clustertest.AuditLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	used = map[string]bool{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(user)) {
			continue
		}
		var entry struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      *struct{ APIGroup, Resource, Subresource, Name, Namespace string }
			ResponseStatus struct{ Code int }
		}
		if json.Unmarshal(lines.Bytes(), &entry) != nil || entry.User.Username != user || entry.ObjectRef == nil {
			continue
		}
		o := entry.ObjectRef
		resource := o.Resource
		if o.Subresource != "" {
			resource += "/" + o.Subresource
		}
		one := right(entry.Verb, o.APIGroup, resource)
		used[one] = true
		if entry.Verb == "patch" && entry.ResponseStatus.Code == http.StatusCreated {
			used[right("create", o.APIGroup, resource)] = true // an apply that makes it
		}
		if entry.ResponseStatus.Code == http.StatusForbidden {
			refused = append(refused, fmt.Sprintf("%s %s/%s", one, o.Namespace, o.Name))
		}
	}
	return used, refused
}

// newStoppedSyncStage is a syncStage whose controller does not run yet, in a
// namespace that is there.
func newStoppedSyncStage(t *testing.T, files map[string]string, ns string) *syncStage {
	t.Helper()
	s := newSyncStage(t, files)
	s.stop()
	if err := s.client.Create(s.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fleet-git"}, Data: map[string][]byte{"ca.crt": s.git.CABundle()},
	}); err != nil {
		t.Fatal(err)
	}
	s.ns = ns
	return s
}

// hubPoolFile adds a HubPool that mints into a namespace to what the PoolSync
// applies, and has the overlay's pools in that namespace.
func (s *syncStage) hubPoolFile(hub *hubStage, pools string) {
	bundle := "      " + strings.ReplaceAll(strings.TrimSpace(hub.hub.bundle()), "\n", "\n      ")
	s.git.Commit(fleetRepository, map[string]string{
		"pools/gpu.yaml":                  strings.Replace(poolFile("gpu", 4, "hubPool: "+hub.name), "https://hub.example.com", hub.hub.door.URL, 1),
		"pools/kustomization.yaml":        "namespace: " + pools + "\nresources: [gpu.yaml]\n",
		"clusters/dev/quota.yaml":         strings.Replace(quotaFile, "  name: runners", "  name: runners\n  namespace: "+pools, 1),
		"clusters/dev/kustomization.yaml": "resources: [../../pools, quota.yaml, hubpool.yaml]\n",
		"clusters/dev/hubpool.yaml": fmt.Sprintf(`apiVersion: cloop.dev/v1alpha1
kind: HubPool
metadata:
  name: %s
spec:
  maxRunners: 9
  deletionPolicy: Revoke
  hub:
    url: %s
    caBundle: |
%s
    tokenSecretRef: {name: hub-token}
  credential:
    secretRef: {namespace: %s, name: gpu-pool-credential}
`, hub.name, hub.hub.door.URL, bundle, pools),
	})
}
