package controllers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster/clustertest"
	"cloop.dev/cloop/internal/podspec"
	"cloop.dev/cloop/internal/pool"
)

const (
	// patience is how long a test waits for what takes milliseconds.
	patience = 30 * time.Second
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
	stop   func()
}

func restConfig(t *testing.T) *rest.Config {
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
	config := restConfig(t)
	scheme := testScheme(t)
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, ctx: t.Context(), config: config, client: c, ns: clustertest.Namespace(t, config), hub: newFakeHub(t, maxRunners)}
	s.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu-pool-credential"},
		StringData: map[string]string{"credential": fakeCredential},
	})
	s.startController()
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

// startController runs a controller in this process until stop.
func (s *stage) startController() {
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
	recorder, err := addRecorder(mgr, v1alpha1.FieldManagerExecutorPool)
	if err != nil {
		s.t.Fatal(err)
	}
	opts := Options{Namespace: s.ns, RunnerImage: "registry.example.com/runner:1", Build: "test", Instance: "test"}
	if err := addExecutorPool(mgr, opts, recorder, clock.RealClock{}, testGrace); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
		s.stop = func() {}
	}
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
	deadline := time.Now().Add(patience)
	for !so() {
		if time.Now().After(deadline) {
			s.t.Fatalf("not in %s: %s\n%s", patience, what, s.describe())
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
	pod := &corev1.Pod{}
	if err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: name}, pod); err != nil {
		s.t.Fatal(err)
	}
	before := pod.DeepCopy()
	pod.Status.Phase = phase
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: podspec.ContainerName, State: state}}
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

func TestScalesFromZeroAndCleansUp(t *testing.T) {
	s := newStage(t, 4)
	s.pool()
	if pods := s.pods(); len(pods) != 0 {
		t.Fatalf("a pool without demand has %d Pods", len(pods))
	}

	s.hub.queue(2)
	pods := s.untilPods(2)
	first, second := s.run(pods[0]), s.run(pods[1])
	s.hub.handOff(first)
	s.hub.handOff(second)
	s.until("2 busy runners in the status", func() bool {
		p := &v1alpha1.ExecutorPool{}
		return s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: "gpu"}, p) == nil && p.Status.Busy == 2 && p.Status.Queued == 0
	})
	s.event(v1alpha1.ReasonScaledUp)

	s.hub.settle(first)
	s.end(pods[0], 0, "")
	s.untilPods(1)
	if s.hub.state(second) != hubv1.RunnerBusy {
		t.Errorf("the other runner is %s", s.hub.state(second))
	}
	s.hub.settle(second)
	s.end(pods[1], 0, "")
	s.untilPods(0)
	if s.hub.starts != 2 || s.hub.alive() != 0 {
		t.Errorf("%d runners were started and %d are left", s.hub.starts, s.hub.alive())
	}
}

func TestSecretGoesWithItsPod(t *testing.T) {
	s := newStage(t, 1)
	s.pool()
	s.hub.queue(1)
	pod := s.untilPods(1)[0]
	s.until("the Pod owns its Secret", func() bool {
		owners := s.secrets()[0].OwnerReferences
		return len(owners) == 1 && owners[0].UID == pod.UID
	})
}

func TestRetiresIdleRunners(t *testing.T) {
	s := newStage(t, 4)
	s.pool(func(spec *v1alpha1.ExecutorPoolSpec) { spec.ScaleDownDelay.Duration = time.Second })
	s.hub.queue(2)
	pods := s.untilPods(2)
	busy, idle := s.run(pods[0]), s.run(pods[1])
	s.hub.handOff(busy)
	s.hub.queue(-1) // the other run is cancelled

	s.until("the idle runner retires", func() bool { return s.hub.state(idle) == hubv1.RunnerRetiring })
	s.end(pods[1], 0, "")
	s.untilPods(1)
	if s.hub.state(busy) != hubv1.RunnerBusy {
		t.Errorf("the busy runner is %s", s.hub.state(busy))
	}
	s.event(v1alpha1.ReasonScaledDown)
}

func TestBusyRunnerSurvivesThePoolsDeletion(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		t.Run(string(policy), func(t *testing.T) {
			s := newStage(t, 4)
			p := s.pool()
			s.hub.queue(2)
			pods := s.untilPods(2)
			busy, idle := s.run(pods[0]), s.run(pods[1])
			s.hub.handOff(busy)
			if err := s.client.Delete(s.ctx, p, client.PropagationPolicy(policy)); err != nil {
				t.Fatal(err)
			}
			s.until("the idle runner retires", func() bool { return s.hub.state(idle) == hubv1.RunnerRetiring })
			s.end(pods[1], 0, "")
			s.until("the idle runner's Pod goes", func() bool { return len(s.pods()) == 1 })
			// The garbage collector has had its turn once it took the pool off
			// the Pod's owners; in the background it never does.
			if policy == metav1.DeletePropagationForeground {
				s.until("the Pod has its anchor alone", func() bool { return len(s.pods()[0].OwnerReferences) == 1 })
			}
			if left := s.pods(); left[0].DeletionTimestamp != nil || s.hub.state(busy) != hubv1.RunnerBusy || s.poolGone() {
				t.Fatalf("the busy runner is %s, its Pod %+v", s.hub.state(busy), left[0].ObjectMeta)
			}

			s.hub.settle(busy)
			s.end(pods[0], 0, "")
			s.until("the pool goes", s.poolGone)
			s.until("nothing is left", func() bool { return len(s.pods())+len(s.secrets()) == 0 && !s.anchorExists() })
		})
	}
}

func TestForceDeleteStopsBusyRunners(t *testing.T) {
	s := newStage(t, 4)
	p := s.pool()
	s.hub.queue(1)
	s.hub.handOff(s.run(s.untilPods(1)[0]))
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"cloop.dev/force-delete":"true"}}}`))
	if err := s.client.Patch(s.ctx, p, patch); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Delete(s.ctx, p); err != nil {
		t.Fatal(err)
	}
	s.until("the pool goes", s.poolGone)
	if n := len(s.pods()) + len(s.secrets()); n != 0 || s.hub.alive() != 0 {
		t.Errorf("%d objects and %d runners are left", n, s.hub.alive())
	}
}

func TestConvergesAfterACrashBetweenMintAndPod(t *testing.T) {
	s := newStage(t, 4)
	p := s.pool()
	s.stop()
	s.hub.queue(1)
	// What a controller leaves that dies after it minted and wrote the Secret.
	key := pool.KeyPrefix(string(p.UID)) + "dead-0"
	s.hub.change(func() {
		s.hub.starts++
		s.hub.runners = append(s.hub.runners, &fakeRunner{token: "cloop_run1_lost", PoolRunner: hubv1.PoolRunner{
			ID: "runner-0", Key: key, State: hubv1.RunnerStarting, CreatedAt: time.Now(),
		}})
	})
	left := podspec.Secret(podspec.Runner{Pool: p, ID: "runner-0", Key: key, AnchorUID: "none"}, testToken("cloop_run1_lost"))
	left.OwnerReferences = nil
	s.create(left)

	s.startController()
	pod := s.untilPods(1)[0]
	if pod.Name != podspec.PodName("gpu", key) {
		t.Errorf("the Pod is %s, not the one of the minted runner", pod.Name)
	}
	if runner := s.run(pod); runner != "runner-0" || s.hub.starts != 1 {
		t.Errorf("runner %s, %d runners", runner, s.hub.starts)
	}
}

func TestCollectsOrphans(t *testing.T) {
	s := newStage(t, 4)
	p := s.pool()
	// A Secret without a Pod, and a Pod whose runner the hub has retired.
	s.create(podspec.Secret(podspec.Runner{Pool: p, ID: "runner-x", Key: pool.KeyPrefix(string(p.UID)) + "x-0", AnchorUID: p.UID}, testToken("cloop_run1_x")))
	s.hub.change(func() {
		s.hub.runners = append(s.hub.runners, &fakeRunner{PoolRunner: hubv1.PoolRunner{ID: "runner-y", Key: "y-key-00", State: hubv1.RunnerRetired}})
	})
	s.create(podspec.Pod(podspec.Runner{Pool: p, Image: "image", ID: "runner-y", Key: "y-key-00", AnchorUID: p.UID}))
	s.until("both are gone", func() bool { return len(s.pods())+len(s.secrets()) == 0 })
	s.event(v1alpha1.ReasonOrphanCollected)
}

func TestGivesBackARunnerThatIsNotWanted(t *testing.T) {
	s := newStage(t, 4)
	p := s.pool()
	s.hub.change(func() {
		s.hub.runners = append(s.hub.runners, &fakeRunner{PoolRunner: hubv1.PoolRunner{
			ID: "runner-z", Key: pool.KeyPrefix(string(p.UID)) + "z-0", State: hubv1.RunnerStarting, CreatedAt: time.Now(),
		}})
	})
	s.until("it is retired", func() bool { return s.hub.state("runner-z") == hubv1.RunnerRetired })
}

func TestReportsAFailedRunner(t *testing.T) {
	s := newStage(t, 4)
	s.pool()
	s.hub.queue(1)
	pod := s.untilPods(1)[0]
	runner := s.run(pod)
	s.hub.handOff(runner)
	s.end(pod, 137, `{"reason":"out of memory","token":"cloop_run1_abc"}`)
	message := s.event(v1alpha1.ReasonRunnerFailed)
	if !strings.Contains(message, "out of memory") || strings.Contains(message, "cloop_run1_abc") {
		t.Errorf("the Event says %q", message)
	}
	s.untilPods(0)
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if told := s.hub.gone[runner]; told.ExitCode == nil || *told.ExitCode != 137 || strings.Contains(told.Message, "cloop_run1_abc") {
		t.Errorf("the hub was told %+v", told)
	}
}

func TestTellsTheHubOfADeletedPod(t *testing.T) {
	s := newStage(t, 4)
	s.pool()
	s.hub.queue(1)
	pod := s.untilPods(1)[0]
	runner := s.run(pod)
	s.hub.handOff(runner)
	if err := s.client.Delete(s.ctx, &pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.until("the runner is retired", func() bool { return s.hub.state(runner) == hubv1.RunnerRetired })
}

func TestHubRefusesTheCredential(t *testing.T) {
	s := newStage(t, 4)
	p := s.pool()
	s.hub.queue(2)
	pods := s.untilPods(2)
	busy := s.run(pods[0])
	s.hub.handOff(busy)
	s.hub.revoke()
	c := s.reason(v1alpha1.ConditionDegraded, v1alpha1.ReasonHubRefused)
	if !strings.Contains(c.Message, "rotate-credential") {
		t.Errorf("no remedy in %q", c.Message)
	}
	if err := s.client.Delete(s.ctx, p); err != nil {
		t.Fatal(err)
	}
	// The Pod that never ran goes; the one that runs is left until it ends.
	s.until("one Pod is left", func() bool { return len(s.pods()) == 1 })
	if left := s.pods()[0]; left.Name != pods[0].Name || left.DeletionTimestamp != nil {
		t.Fatalf("%s is left", left.Name)
	}
	s.end(pods[0], 1, "the hub revoked the session")
	s.until("the pool goes", s.poolGone)
	s.until("nothing is left", func() bool { return len(s.pods())+len(s.secrets()) == 0 && !s.anchorExists() })
}

func TestANewCredentialIsTakenAtOnce(t *testing.T) {
	s := newStage(t, 4)
	s.pool()
	s.hub.revoke()
	s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonHubRefused)
	const next = "cloop_pool1_zyxwvutsrqponmlkjihgfedcba0123456789"
	s.hub.change(func() { s.hub.credential = next })
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu-pool-credential"}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"credential":"`+next+`"}}`))
	if err := s.client.Patch(s.ctx, secret, patch); err != nil {
		t.Fatal(err)
	}
	s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonServing)
}

func TestOtherSecretsAreNeverSent(t *testing.T) {
	s := newStage(t, 4)
	s.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "database"},
		StringData: map[string]string{"credential": "hunter2"},
	})
	p := &v1alpha1.ExecutorPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu"},
		Spec: v1alpha1.ExecutorPoolSpec{
			HubURL: s.hub.server.URL, HubCABundle: s.hub.bundle(), MaxRunners: 1,
			PoolCredentialSecretRef: v1alpha1.SecretKeyRef{Name: "database", Key: "credential"},
		},
	}
	s.create(p)
	c := s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonCredentialUnreadable)
	if strings.Contains(c.Message, "hunter2") {
		t.Errorf("the condition quotes the Secret: %q", c.Message)
	}
	if err := s.client.Delete(s.ctx, p); err != nil {
		t.Fatal(err)
	}
	s.until("the pool goes", s.poolGone)
}

func TestAQuotaRefusesPods(t *testing.T) {
	s := newStage(t, 4)
	s.pool()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "one"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	s.create(quota)
	s.until("the quota counts", func() bool {
		return s.client.Get(s.ctx, client.ObjectKeyFromObject(quota), quota) == nil && quota.Status.Hard != nil
	})
	s.hub.queue(2)
	c := s.reason(v1alpha1.ConditionDegraded, v1alpha1.ReasonPodRefused)
	if !strings.Contains(c.Message, "exceeded quota") {
		t.Errorf("the condition says %q", c.Message)
	}
	if message := s.event(v1alpha1.ReasonPodRefused); !strings.Contains(message, "exceeded quota") {
		t.Errorf("the Event says %q", message)
	}
	s.until("the hub is told", func() bool { return s.hub.told("exceeded quota") })
	s.until("what was minted is given back", func() bool { return s.hub.alive() == 0 && len(s.secrets()) == 0 })

	if err := s.client.Delete(s.ctx, quota); err != nil {
		t.Fatal(err)
	}
	s.untilPods(2)
	s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonServing)
}

func TestPodsPassTheRestrictedStandard(t *testing.T) {
	s := newStage(t, 4)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	if err := s.client.Patch(s.ctx, ns, patch); err != nil {
		t.Fatal(err)
	}
	s.pool()
	s.hub.queue(1)
	s.untilPods(1)
}

func TestASecondPoolForOneHubPoolIsRefused(t *testing.T) {
	s := newStage(t, 4)
	first := s.pool()
	second := &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu-again"}, Spec: *first.Spec.DeepCopy()}
	// Names order what was created within one second.
	s.create(second)
	s.until("the second is a duplicate", func() bool {
		if s.client.Get(s.ctx, client.ObjectKeyFromObject(second), second) != nil {
			return false
		}
		c := meta.FindStatusCondition(second.Status.Conditions, v1alpha1.ConditionDegraded)
		return c != nil && c.Reason == string(v1alpha1.ReasonDuplicatePool)
	})
	s.hub.queue(1)
	if pod := s.untilPods(1)[0]; pod.Annotations[v1alpha1.AnnotationPoolName] != "gpu" {
		t.Errorf("the duplicate started %s", pod.Name)
	}
}

// A pool whose every number stands still costs the API server its watches and
// nothing else.
func TestAQuietPoolMakesNoRequests(t *testing.T) {
	s := newStage(t, 4)
	s.pool(func(spec *v1alpha1.ExecutorPoolSpec) { spec.MinRunners = 1 })
	s.run(s.untilPods(1)[0])
	s.until("the runner is idle", func() bool {
		p := &v1alpha1.ExecutorPool{}
		return s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: "gpu"}, p) == nil && p.Status.Idle == 1
	})
	time.Sleep(2 * time.Second) // the last Events are on their way
	const quiet = 10 * time.Second
	before := s.requests()
	// Snapshots that say nothing new come all the time.
	for range 10 {
		s.hub.change(func() {})
		time.Sleep(quiet / 10)
	}
	if after := s.requests(); len(after) > len(before) {
		t.Errorf("requests in %s: %q", quiet, after[len(before):])
	}
}

// requests lists the controllers' finished requests other than watches.
func (s *stage) requests() []string {
	s.t.Helper()
	return requestsBy(s.t, s.agent())
}

// requestsBy are the requests of a user agent but for its watches, as "verb URI".
func requestsBy(t *testing.T, agent string) []string {
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
		var entry struct{ UserAgent, Verb, RequestURI string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.UserAgent == agent && entry.Verb != "watch" {
			found = append(found, entry.Verb+" "+entry.RequestURI)
		}
	}
	return found
}

// From a run that begins to wait to its Pod: the promise is 100 ms at the
// median; the bound leaves room for a machine that other tests share.
func TestAWaitingRunGetsItsPodAtOnce(t *testing.T) {
	s := newStage(t, 100)
	s.pool(func(spec *v1alpha1.ExecutorPoolSpec) { spec.MaxRunners = 100 })
	clientset, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := clientset.CoreV1().Pods(s.ns).Watch(s.ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	var took []time.Duration
	for range 15 {
		began := time.Now()
		s.hub.queue(1)
		for event := range watch.ResultChan() {
			if event.Type == apiwatch.Added {
				break
			}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("median %s, slowest %s", took[len(took)/2], took[len(took)-1])
	if median := took[len(took)/2]; median > 300*time.Millisecond {
		t.Errorf("the median is %s", median)
	}
}
