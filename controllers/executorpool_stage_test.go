package controllers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster/clustertest"
	"cloop.dev/cloop/internal/podspec"
)

const (
	// patience is how long a test waits for what takes milliseconds, on a machine that
	// does other things as well.
	patience = time.Minute
	// collectorPatience is how long it waits for the garbage collector, which
	// looks for kinds that are new to it every half a minute, and tries an object
	// of a kind that it does not know yet at intervals that double: after a slow
	// start the next try may be almost three minutes off.
	collectorPatience = 4 * time.Minute
	// testGrace stands in for the orphan grace time.
	testGrace = time.Second
)

// stage is a namespace with a hub, a pool and a controller.
type stage struct {
	t      *testing.T
	ctx    context.Context
	config *rest.Config
	client client.Client
	ns     string
	hub    *fakeHub
	clock  clock.PassiveClock
	stop   func()
	// hubPatience is the controller's; zero: as anywhere.
	hubPatience time.Duration
}

func restConfig(t testing.TB) *rest.Config {
	t.Helper()
	config, err := clustertest.Start(t, clustertest.WithAuditLog()).RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	clustertest.InstallCRDs(t, config)
	return config
}

// newStage makes all but the pool; the controller is running.
func newStage(t *testing.T, maxRunners int32) *stage {
	t.Helper()
	s := newEmptyStage(t, maxRunners)
	s.startController()
	return s
}

// newEmptyStage makes all but the pool and the controller.
func newEmptyStage(t *testing.T, maxRunners int32) *stage {
	t.Helper()
	config := restConfig(t)
	scheme := testScheme(t)
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, ctx: t.Context(), config: config, client: c, ns: clustertest.Namespace(t, config), hub: newFakeHub(t, maxRunners), clock: clock.RealClock{}}
	s.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu-pool-credential"},
		StringData: map[string]string{"credential": fakeCredential},
	})
	s.stop = func() {}
	t.Cleanup(func() {
		s.stop()
		s.releaseFinalizers()
	})
	return s
}

// agent is the user agent of the stage's controllers.
func (s *stage) agent() string { return "controller-of-" + s.ns }

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// startController runs a controller in this process until stop; a hub that is allowed
// makes it the only one.
func (s *stage) startController(allowed ...string) {
	s.t.Helper()
	config := rest.CopyConfig(s.config)
	config.UserAgent = s.agent()
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  testScheme(s.t),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{s.ns: {}}, ByObject: executorPoolCacheOptions(s.ns),
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	opts := Options{
		Controllers: []string{executorPoolController}, Namespace: s.ns, RunnerImage: "registry.example.com/runner:1", Build: "test", Instance: "test",
		AllowedHubs: allowed, hubPatience: s.hubPatience,
	}
	recorder, err := addRecorder(mgr, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := addExecutorPool(mgr, opts, recorder, s.clock, testGrace); err != nil {
		s.t.Fatal(err)
	}
	s.stop = start(s.t, mgr)
}

// releaseFinalizers lets the namespace of a test that ends early go.
func (s *stage) releaseFinalizers() {
	pools := &v1alpha1.ExecutorPoolList{}
	ctx := context.Background()
	if s.client.List(ctx, pools, client.InNamespace(s.ns)) != nil {
		return
	}
	for i := range pools.Items {
		p := &pools.Items[i]
		_ = s.client.Patch(ctx, p, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		_ = s.client.Delete(ctx, p)
	}
}

func (s *stage) create(object client.Object) {
	s.t.Helper()
	if err := s.client.Create(s.ctx, object); err != nil {
		s.t.Fatal(err)
	}
}

// pool creates the pool gpu, changed as the test wants, and waits until it is
// served.
func (s *stage) pool(change ...func(*v1alpha1.ExecutorPoolSpec)) *v1alpha1.ExecutorPool {
	s.t.Helper()
	p := &v1alpha1.ExecutorPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu"},
		Spec: v1alpha1.ExecutorPoolSpec{
			HubURL: s.hub.server.URL, HubCABundle: s.hub.bundle(),
			PoolCredentialSecretRef: v1alpha1.SecretKeyRef{Name: "gpu-pool-credential", Key: "credential"},
			MaxRunners:              4, ScaleDownDelay: metav1.Duration{Duration: time.Hour},
		},
	}
	for _, c := range change {
		c(&p.Spec)
	}
	s.create(p)
	s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonServing)
	return p
}

// until waits for something to be so.
func (s *stage) until(what string, so func() bool) {
	s.t.Helper()
	s.untilWithin(patience, what, so)
}

func (s *stage) untilWithin(long time.Duration, what string, so func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(long)
	for !so() {
		if time.Now().After(deadline) {
			s.t.Fatalf("not in %s: %s\n%s", long, what, s.describe())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// describe is the pool's status, for failures.
func (s *stage) describe() string {
	p := &v1alpha1.ExecutorPool{}
	if err := s.client.Get(context.Background(), client.ObjectKey{Namespace: s.ns, Name: "gpu"}, p); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("status %+v, Pods %d, Secrets %d", p.Status, len(s.pods()), len(s.secrets()))
}

// reason waits for a condition's reason.
func (s *stage) reason(conditionType string, reason v1alpha1.Reason) *metav1.Condition {
	s.t.Helper()
	var found *metav1.Condition
	s.until(conditionType+" is "+string(reason), func() bool {
		p := &v1alpha1.ExecutorPool{}
		if err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: "gpu"}, p); err != nil {
			return false
		}
		found = meta.FindStatusCondition(p.Status.Conditions, conditionType)
		return found != nil && found.Reason == string(reason)
	})
	return found
}

func (s *stage) pods() []corev1.Pod {
	list := &corev1.PodList{}
	if err := s.client.List(context.Background(), list, client.InNamespace(s.ns), client.HasLabels{v1alpha1.LabelRunner}); err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}

func (s *stage) secrets() []corev1.Secret {
	list := &corev1.SecretList{}
	if err := s.client.List(context.Background(), list, client.InNamespace(s.ns), client.HasLabels{v1alpha1.LabelRunner}); err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}

// untilPods waits for exactly n Pods with a Secret each and returns them.
func (s *stage) untilPods(n int) []corev1.Pod {
	s.t.Helper()
	s.until(fmt.Sprintf("%d Pods and Secrets", n), func() bool { return len(s.pods()) == n && len(s.secrets()) == n })
	return s.pods()
}

// run starts the Pod as a kubelet would, and its agent enrolls.
func (s *stage) run(pod corev1.Pod) (runner string) {
	s.t.Helper()
	mounted := &corev1.Secret{}
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil {
			if err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: v.Secret.SecretName}, mounted); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	s.setStatus(pod.Name, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
	runner, ok := s.hub.enroll(string(mounted.Data["token"]))
	if !ok {
		s.t.Fatalf("the token of Pod %s is refused", pod.Name)
	}
	return runner
}

// end ends the Pod's container.
func (s *stage) end(pod corev1.Pod, code int32, message string) {
	s.t.Helper()
	phase, reason := corev1.PodSucceeded, "Completed"
	if code != 0 {
		phase, reason = corev1.PodFailed, "Error"
	}
	s.setStatus(pod.Name, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message,
	}})
}

func (s *stage) setStatus(name string, phase corev1.PodPhase, state corev1.ContainerState) {
	s.t.Helper()
	s.patchStatus(name, func(status *corev1.PodStatus) {
		status.Phase = phase
		status.ContainerStatuses = []corev1.ContainerStatus{{Name: podspec.ContainerName, State: state}}
	})
}

// patchStatus writes a Pod's status as the scheduler, the kubelet or the Eviction
// API does.
func (s *stage) patchStatus(name string, change func(*corev1.PodStatus)) {
	s.t.Helper()
	pod := &corev1.Pod{}
	if err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: name}, pod); err != nil {
		s.t.Fatal(err)
	}
	before := pod.DeepCopy()
	change(&pod.Status)
	if err := s.client.Status().Patch(s.ctx, pod, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// event waits for an Event and returns its message.
func (s *stage) event(reason v1alpha1.Reason) string {
	s.t.Helper()
	var message string
	s.until("Event "+string(reason), func() bool {
		events := &corev1.EventList{}
		if err := s.client.List(s.ctx, events, client.InNamespace(s.ns)); err != nil {
			return false
		}
		for _, e := range events.Items {
			if e.Reason == string(reason) && e.InvolvedObject.Kind == v1alpha1.ExecutorPoolKind {
				message = e.Message
				return true
			}
		}
		return false
	})
	return message
}

func (s *stage) poolGone() bool {
	err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: "gpu"}, &v1alpha1.ExecutorPool{})
	return err != nil && client.IgnoreNotFound(err) == nil
}

func (s *stage) anchorExists() bool {
	return s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: podspec.AnchorName("gpu")}, &corev1.ConfigMap{}) == nil
}

// requests lists the controllers' finished requests other than watches. The API server
// logs one after it has answered, so what was just seen to be done may not be in it yet.
func (s *stage) requests() []string {
	s.t.Helper()
	return requestsBy(s.t, s.agent())
}

// wroteOnce waits until the log has a write beyond the first so many requests of an
// agent, and fails unless it is the only one.
func wroteOnce(t *testing.T, agent string, before int, what string) {
	t.Helper()
	var made []string
	eventually(t, what+": the write is logged", func() error {
		made = writes(requestsBy(t, agent)[before:])
		return unless(len(made) > 0, "there is none")
	})
	if len(made) != 1 {
		t.Errorf("%s: to take it back took %q", what, made)
	}
}

// requestsBy are the requests of a user agent but for its watches, as "verb URI".
func requestsBy(t testing.TB, agent string) []string {
	t.Helper()
	file, err := os.Open(clustertest.AuditLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var found []string
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(agent)) {
			continue // most are others': the log is long, and is read again and again
		}
		var entry struct{ UserAgent, Verb, RequestURI string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.UserAgent == agent && entry.Verb != "watch" {
			found = append(found, entry.Verb+" "+entry.RequestURI)
		}
	}
	return found
}
