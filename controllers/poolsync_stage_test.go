package controllers

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster/clustertest"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// syncStage is a namespace with a fleet repository, a PoolSync and the fleet
// controller.
type syncStage struct {
	t      testing.TB
	ctx    context.Context
	config *rest.Config
	client client.Client
	ns     string
	git    *fleettest.Server
	cache  string
	// name is the PoolSync's.
	name  string
	clock clock.PassiveClock
	// webhookAddr is where forges tell of pushes; empty: nowhere.
	webhookAddr string
	// eventsAddr is where Events are posted; empty: nowhere.
	eventsAddr string
	// wrap is put around the controller's transport; nil: nothing is.
	wrap func(http.RoundTripper) http.RoundTripper
	stop func()
}

const fleetRepository = "fleet"

// poolFile is an ExecutorPool; extra lines are put below spec, indented by two.
func poolFile(name string, maxRunners int, extra ...string) string {
	text := fmt.Sprintf(`apiVersion: cloop.dev/v1alpha1
kind: ExecutorPool
metadata:
  name: %s
spec:
  hubURL: https://hub.example.com
  poolCredentialSecretRef:
    name: %s-pool-credential
  maxRunners: %d
`, name, name, maxRunners)
	for _, line := range extra {
		text += "  " + line + "\n"
	}
	return text
}

const quotaFile = `apiVersion: v1
kind: ResourceQuota
metadata:
  name: runners
spec:
  hard:
    pods: "20"
`

// overlay is a repository whose path clusters/dev has the pools and a quota.
func overlay(pools ...string) map[string]string {
	files := map[string]string{
		"clusters/dev/kustomization.yaml": "resources:\n  - ../../pools\n  - quota.yaml\n",
		"clusters/dev/quota.yaml":         quotaFile,
	}
	list := "resources:\n"
	for _, name := range pools {
		files["pools/"+name+".yaml"] = poolFile(name, 4)
		list += "  - " + name + ".yaml\n"
	}
	files["pools/kustomization.yaml"] = list
	return files
}

// newSyncStage serves the files and starts the controller; there is no PoolSync
// yet.
func newSyncStage(t testing.TB, files map[string]string) *syncStage {
	t.Helper()
	config := restConfig(t)
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	s := &syncStage{
		t: t, ctx: t.Context(), config: config, client: c, ns: clustertest.Namespace(t, config),
		git: fleettest.Serve(t), cache: t.TempDir(), name: "fleet", clock: clock.RealClock{},
	}
	s.git.Create(fleetRepository)
	s.git.Commit(fleetRepository, files)
	s.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "fleet-git"},
		Data:       map[string][]byte{"ca.crt": s.git.CABundle()},
	})
	s.startController()
	t.Cleanup(func() {
		s.stop()
		s.releaseFinalizers()
	})
	return s
}

func (s *syncStage) agent() string { return "fleet-controller-of-" + s.ns }

func (s *syncStage) startController() {
	s.t.Helper()
	opts := Options{
		Controllers: []string{poolSyncController}, Namespace: s.ns, RESTConfig: s.config, CacheDir: s.cache,
		MetricsAddr: "0", HealthAddr: "0", WebhookAddr: s.webhookAddr, EventsAddr: s.eventsAddr,
	}
	config := restConfigOf(opts)
	config.UserAgent = s.agent()
	if s.wrap != nil {
		config.Wrap(s.wrap)
	}
	mgr, err := ctrl.NewManager(config, managerOptions(opts))
	if err != nil {
		s.t.Fatal(err)
	}
	recorder, err := addRecorder(mgr, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := addPoolSync(mgr, opts, recorder, s.clock); err != nil {
		s.t.Fatal(err)
	}
	s.stop = start(s.t, mgr)
}

func (s *syncStage) releaseFinalizers() {
	ctx := context.Background()
	release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	pools, syncs := &v1alpha1.ExecutorPoolList{}, &v1alpha1.PoolSyncList{}
	for _, list := range []client.ObjectList{pools, syncs} {
		if err := s.client.List(ctx, list, client.InNamespace(s.ns)); err != nil {
			s.t.Log(err)
		}
	}
	for i := range pools.Items {
		_ = s.client.Patch(ctx, &pools.Items[i], release)
	}
	for i := range syncs.Items {
		_ = s.client.Patch(ctx, &syncs.Items[i], release)
	}
}

func (s *syncStage) create(object client.Object) {
	s.t.Helper()
	if err := s.client.Create(s.ctx, object); err != nil {
		s.t.Fatal(err)
	}
}

// poolSync creates the PoolSync, changed as the test wants.
func (s *syncStage) poolSync(change ...func(*v1alpha1.PoolSyncSpec)) {
	s.t.Helper()
	sync := &v1alpha1.PoolSync{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: s.name},
		Spec: v1alpha1.PoolSyncSpec{
			Interval: metav1.Duration{Duration: time.Hour}, Timeout: metav1.Duration{Duration: time.Minute},
			RetryInterval: &metav1.Duration{Duration: time.Second},
			Source: v1alpha1.PoolSyncSource{Git: v1alpha1.GitSource{
				URL: s.git.URL(fleetRepository), SecretRef: &v1alpha1.LocalObjectReference{Name: "fleet-git"},
			}},
			Path: "./clusters/dev", Prune: true, PruneLimit: v1alpha1.PruneLimit{Count: 5, Percent: 60},
			Drift: v1alpha1.DriftPolicy{Mode: v1alpha1.DriftCorrect},
		},
	}
	for _, c := range change {
		c(&sync.Spec)
	}
	s.create(sync)
}

func (s *syncStage) get() *v1alpha1.PoolSync {
	s.t.Helper()
	sync := &v1alpha1.PoolSync{}
	if err := s.client.Get(context.Background(), client.ObjectKey{Namespace: s.ns, Name: s.name}, sync); err != nil {
		s.t.Fatal(err)
	}
	return sync
}

// edit changes the PoolSync.
func (s *syncStage) edit(change func(*v1alpha1.PoolSync)) {
	s.t.Helper()
	sync := s.get()
	before := sync.DeepCopy()
	change(sync)
	if err := s.client.Patch(s.ctx, sync, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// poke asks for a sync now and returns what it asked with.
func (s *syncStage) poke() string {
	s.t.Helper()
	at := time.Now().Format(time.RFC3339Nano)
	s.edit(func(sync *v1alpha1.PoolSync) {
		metav1.SetMetaDataAnnotation(&sync.ObjectMeta, fluxmeta.ReconcileRequestAnnotation, at)
	})
	return at
}

// sync pokes and waits until the request was served.
func (s *syncStage) sync() *v1alpha1.PoolSync {
	s.t.Helper()
	at := s.poke()
	var sync *v1alpha1.PoolSync
	s.until("the request is served", func() bool {
		sync = s.get()
		return sync.Status.LastHandledReconcileAt == at
	})
	return sync
}

// push commits files, syncs, and returns the commit and the PoolSync.
func (s *syncStage) push(files map[string]string) (string, *v1alpha1.PoolSync) {
	s.t.Helper()
	commit := s.git.Commit(fleetRepository, files)
	return commit, s.sync()
}

func (s *syncStage) until(what string, so func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for !so() {
		if time.Now().After(deadline) {
			sync := &v1alpha1.PoolSync{}
			_ = s.client.Get(context.Background(), client.ObjectKey{Namespace: s.ns, Name: s.name}, sync)
			s.t.Fatalf("not in %s: %s\n%+v", patience, what, sync.Status)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// ready waits for the Ready condition to have a reason.
func (s *syncStage) ready(reason v1alpha1.Reason) *v1alpha1.PoolSync {
	s.t.Helper()
	var sync *v1alpha1.PoolSync
	s.until("Ready is "+string(reason), func() bool {
		sync = s.get()
		c := meta.FindStatusCondition(sync.Status.Conditions, v1alpha1.ConditionReady)
		return c != nil && c.Reason == string(reason) && c.ObservedGeneration == sync.Generation
	})
	return sync
}

func (s *syncStage) pool(name string) *v1alpha1.ExecutorPool {
	s.t.Helper()
	pool := &v1alpha1.ExecutorPool{}
	if err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: name}, pool); err != nil {
		s.t.Fatal(err)
	}
	return pool
}

func (s *syncStage) hasPool(name string) bool {
	err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: name}, &v1alpha1.ExecutorPool{})
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	return err == nil
}

// kubectlEdit patches a pool as `kubectl edit` does.
func (s *syncStage) kubectlEdit(name, patch string) {
	s.t.Helper()
	pool := &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
	err := s.client.Patch(s.ctx, pool, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("kubectl-edit"))
	if err != nil {
		s.t.Fatal(err)
	}
}

// drift waits for an entry.
func (s *syncStage) drift(what string, so func(v1alpha1.DriftEntry) bool) v1alpha1.DriftEntry {
	s.t.Helper()
	var found v1alpha1.DriftEntry
	s.until("drift: "+what, func() bool {
		for _, e := range s.get().Status.Drift {
			if so(e) {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// events are the messages of the PoolSync's Events of a reason.
func (s *syncStage) events(reason v1alpha1.Reason) []string {
	s.t.Helper()
	list := &corev1.EventList{}
	if err := s.client.List(s.ctx, list, client.InNamespace(s.ns)); err != nil {
		s.t.Fatal(err)
	}
	var messages []string
	for _, e := range list.Items {
		if e.Reason == string(reason) && e.InvolvedObject.Kind == v1alpha1.PoolSyncKind {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

func (s *syncStage) names(sync *v1alpha1.PoolSync) string {
	var names []string
	for _, e := range sync.Status.Inventory {
		names = append(names, e.Kind+"/"+e.Name)
	}
	return strings.Join(names, " ")
}

func condition(sync *v1alpha1.PoolSync, conditionType string) metav1.Condition {
	if c := meta.FindStatusCondition(sync.Status.Conditions, conditionType); c != nil {
		return *c
	}
	return metav1.Condition{}
}
