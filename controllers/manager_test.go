package controllers

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster/clustertest"
)

func TestOptionsNameEveryProblem(t *testing.T) {
	good := Options{Controllers: []string{"poolsync"}, Namespace: "fleet", RESTConfig: &rest.Config{}, CacheDir: "/cache"}
	for _, controllers := range [][]string{{"poolsync"}, {"hubpool"}, {"poolsync", "hubpool"}} {
		good.Controllers = controllers
		if err := good.validate(); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		options Options
		want    []string
	}{
		"nothing":  {Options{}, []string{"no controller", "no namespace", "no API server"}},
		"unknown":  {Options{Controllers: []string{"gitsync"}, Namespace: "a", RESTConfig: &rest.Config{}}, []string{`no controller "gitsync"`}},
		"twice":    {Options{Controllers: []string{"hubpool", "hubpool"}, Namespace: "a", RESTConfig: &rest.Config{}}, []string{"named twice"}},
		"both":     {Options{Controllers: []string{"executorpool", "poolsync"}, Namespace: "a", RESTConfig: &rest.Config{}, CacheDir: "/cache"}, []string{"nothing else"}},
		"cluster":  {Options{Controllers: []string{"hubpool"}, Namespace: "a", RESTConfig: &rest.Config{}, ClusterName: "a/b"}, []string{`name "a/b"`}},
		"no cache": {Options{Controllers: []string{"poolsync"}, Namespace: "a", RESTConfig: &rest.Config{}}, []string{"cache directory"}},
	} {
		err := test.options.validate()
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", name, err, want)
			}
		}
	}
	if err := Run(t.Context(), Options{}); err == nil {
		t.Error("runs without options")
	}
}

func TestManagerOptions(t *testing.T) {
	executor := managerOptions(Options{Controllers: []string{"executorpool"}, Namespace: "pools", LeaderElect: true, MetricsAddr: ":1", HealthAddr: ":2"})
	if executor.LeaderElectionID != "cloop-executor-controller" || executor.LeaderElectionNamespace != "pools" || !executor.LeaderElection || !executor.LeaderElectionReleaseOnCancel {
		t.Errorf("leader election is %+v", executor)
	}
	if executor.Metrics.BindAddress != ":1" || executor.HealthProbeBindAddress != ":2" {
		t.Errorf("serves metrics on %s, health on %s", executor.Metrics.BindAddress, executor.HealthProbeBindAddress)
	}
	if *executor.RenewDeadline >= *executor.LeaseDuration || *executor.RetryPeriod*2 > *executor.RenewDeadline {
		t.Error("a leader would act after its Lease")
	}
	if _, only := executor.Cache.DefaultNamespaces["pools"]; !only || len(executor.Cache.DefaultNamespaces) != 1 {
		t.Errorf("caches %v", executor.Cache.DefaultNamespaces)
	}
	fleet := managerOptions(Options{Controllers: []string{"poolsync"}, Namespace: "fleet"})
	if fleet.LeaderElectionID != "cloop-fleet-controller" || fleet.LeaderElection {
		t.Errorf("leader election is %s", fleet.LeaderElectionID)
	}
	for object, by := range fleet.Cache.ByObject {
		if _, all := by.Namespaces[cache.AllNamespaces]; object.GetObjectKind().GroupVersionKind().Kind != v1alpha1.ExecutorPoolKind || !all {
			t.Errorf("caches %T of %v", object, by.Namespaces)
		}
	}
	for controllers, kinds := range map[string]int{"executorpool": 4, "poolsync": 2, "hubpool": 2, "poolsync,hubpool": 3} {
		if got := len(cachedObjects(Options{Controllers: strings.Split(controllers, ",")})); got != kinds {
			t.Errorf("%s watches %d kinds", controllers, got)
		}
	}
}

func TestRESTConfigSaysWhoAsks(t *testing.T) {
	given := &rest.Config{Host: "https://example.com"}
	config := restConfigOf(Options{Controllers: []string{"poolsync"}, RESTConfig: given, Build: "v1"})
	if config.UserAgent != "cloop-fleet-controller/v1" || config.QPS >= 0 || given.UserAgent != "" {
		t.Errorf("config is %+v", config)
	}
	slow := restConfigOf(Options{Controllers: []string{"poolsync"}, RESTConfig: &rest.Config{QPS: 5}})
	if slow.QPS != 5 {
		t.Errorf("QPS is %v", slow.QPS)
	}
}

func TestStripPool(t *testing.T) {
	pool := newPool()
	pool.Object["metadata"] = map[string]any{"name": "a", "managedFields": []any{map[string]any{"manager": "m"}}}
	pool.Object["spec"], pool.Object["status"] = map[string]any{"maxRunners": int64(1)}, map[string]any{"busy": int64(1)}
	got, err := stripPool(pool)
	stripped, ok := got.(*unstructured.Unstructured)
	if err != nil || !ok || stripped.Object["status"] != nil || stripped.GetManagedFields() != nil || stripped.Object["spec"] == nil || stripped.GetName() != "a" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := stripPool("else"); got != "else" || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestOnlyDefinitionsWakeASync(t *testing.T) {
	changed := definitionChanged()
	old := newPool()
	old.SetLabels(map[string]string{v1alpha1.LabelPoolSyncName: "fleet", v1alpha1.LabelPoolSyncNamespace: "ns"})
	same, spec, label := old.DeepCopy(), old.DeepCopy(), old.DeepCopy()
	same.SetResourceVersion("2")
	spec.SetGeneration(2)
	label.SetLabels(nil)
	for name, test := range map[string]struct {
		to   client.Object
		want bool
	}{"status": {same, false}, "spec": {spec, true}, "label": {label, true}} {
		if got := changed.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: test.to}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWhichSyncsAPoolWakes(t *testing.T) {
	sync := func(name string, reason v1alpha1.Reason) *v1alpha1.PoolSync {
		return &v1alpha1.PoolSync{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Status:     v1alpha1.PoolSyncStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: string(reason)}}},
		}
	}
	r := &poolSyncReconciler{client: fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(
		sync("fleet", v1alpha1.ReasonReconciliationSucceeded), sync("other", v1alpha1.ReasonReconciliationSucceeded), sync("waiting", v1alpha1.ReasonOwnedByAnother),
	).Build()}
	names := func(requests []reconcile.Request) string {
		var names []string
		for _, request := range requests {
			names = append(names, request.String())
		}
		return strings.Join(names, " ")
	}
	pool := newPool()
	if got := names(syncsOf("ns")(t.Context(), pool)); got != "" {
		t.Errorf("without a label wakes %s", got)
	}
	pool.SetLabels(map[string]string{v1alpha1.LabelPoolSyncName: "fleet", v1alpha1.LabelPoolSyncNamespace: "ns"})
	if got := names(syncsOf("ns")(t.Context(), pool)); got != "ns/fleet" {
		t.Errorf("wakes %s", got)
	}
	if got := names(syncsOf("elsewhere")(t.Context(), pool)); got != "" {
		t.Errorf("wakes %s of another namespace", got)
	}
	before := sync("fleet", v1alpha1.ReasonReconciliationSucceeded)
	after := before.DeepCopy()
	after.Status.Inventory = []v1alpha1.InventoryEntry{{Kind: "ExecutorPool", Name: "gpu"}}
	if got := names(r.waiting(t.Context(), before)); got != "ns/waiting" {
		t.Errorf("what lets something go wakes %s", got)
	}
	changed := inventoryChanged()
	if changed.Create(event.CreateEvent{Object: after}) || changed.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: before}) ||
		!changed.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) || !changed.Delete(event.DeleteEvent{Object: before}) {
		t.Error("the wrong changes wake who waits")
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// Two replicas: both are ready, one acts; told to stop, it gives the Lease back
// and the other goes on.
func TestRunServesAndHandsOver(t *testing.T) {
	for _, controllers := range []string{executorPoolController, poolSyncController + "," + hubPoolController} {
		t.Run(controllers, func(t *testing.T) {
			config := restConfig(t)
			ns := clustertest.Namespace(t, config)
			c, err := client.New(config, client.Options{Scheme: newScheme()})
			if err != nil {
				t.Fatal(err)
			}
			start := func() (stop func(), health string) {
				ctx, cancel := context.WithCancel(context.Background())
				health = freeAddress(t)
				done := make(chan error, 1)
				go func() {
					done <- Run(ctx, Options{
						Controllers: strings.Split(controllers, ","), Namespace: ns, RESTConfig: config, LeaderElect: true,
						MetricsAddr: freeAddress(t), HealthAddr: health, CacheDir: t.TempDir(), Instance: health,
					})
				}()
				return func() {
					cancel()
					if err := <-done; err != nil {
						t.Error(err)
					}
				}, health
			}
			holder := func() string {
				lease := &coordinationv1.Lease{}
				if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: Options{Controllers: strings.Split(controllers, ",")}.account()}, lease); err != nil || lease.Spec.HolderIdentity == nil {
					return ""
				}
				return *lease.Spec.HolderIdentity
			}
			stopFirst, health := start()
			eventually(t, "the first is ready", func() error { return get(t, "http://"+health+"/readyz") })
			eventually(t, "the first leads", func() error { return unless(holder() != "", "nobody does") })
			first := holder()
			stopSecond, health := start()
			defer stopSecond()
			eventually(t, "the second is ready", func() error { return get(t, "http://"+health+"/readyz") })
			if err := get(t, "http://"+health+"/healthz"); err != nil {
				t.Error(err)
			}
			stopFirst()
			eventually(t, "the second leads", func() error { return unless(holder() != "" && holder() != first, "it is "+holder()) })
		})
	}
}

func TestNotReadyBeforeTheCachesAreFilled(t *testing.T) {
	if err := (&syncedCaches{}).check(nil); err == nil {
		t.Error("ready without caches")
	}
}

func TestSchemeHasEveryKind(t *testing.T) {
	for _, object := range []client.Object{&v1alpha1.PoolSync{}, &v1alpha1.ExecutorPool{}, &corev1.Secret{}} {
		if _, _, err := newScheme().ObjectKinds(object); err != nil {
			t.Error(err)
		}
	}
}

func unless(so bool, otherwise string) error {
	if so {
		return nil
	}
	return errors.New(otherwise)
}

func eventually(t *testing.T, what string, so func() error) {
	t.Helper()
	eventuallyWithin(patience, t, what, so)
}

func eventuallyWithin(long time.Duration, t *testing.T, what string, so func() error) {
	t.Helper()
	deadline := time.Now().Add(long)
	for {
		err := so()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not in %s: %s: %v", long, what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func get(t *testing.T, url string) error {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return unless(response.StatusCode == http.StatusOK, response.Status)
}
