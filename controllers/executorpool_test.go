package controllers

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

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
	if started := s.hub.started(); started != 2 || s.hub.alive() != 0 {
		t.Errorf("%d runners were started and %d are left", started, s.hub.alive())
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

// The controller's cache must keep what these two are read from.
func TestTheHubIsToldWhatThePodsConditionsSay(t *testing.T) {
	s := newStage(t, 4)
	s.pool()
	s.hub.queue(1)
	pod := s.untilPods(1)[0]
	s.patchStatus(pod.Name, func(status *corev1.PodStatus) {
		status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available",
		}}
	})
	s.until("the hub is told that no node takes the Pod", func() bool {
		return s.hub.told("no node takes Pod " + pod.Name + ": 0/3 nodes are available")
	})
	runner := s.run(pod)
	s.patchStatus(pod.Name, func(status *corev1.PodStatus) {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
			LastTransitionTime: metav1.Now(), // an old one is taken back by the cluster
		})
	})
	s.end(pod, 2, "")
	var end hubv1.GoneRequest
	s.until("the hub is told that it has ended", func() (told bool) {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		end, told = s.hub.gone[runner]
		return told
	})
	if end.Reason != "EvictionByEvictionAPI" || end.Message != "Eviction API: evicting" || end.ExitCode == nil {
		t.Errorf("of who ended it the hub is told %+v", end)
	}
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

	// A process that starts with both tells them apart before the hub has answered
	// for the first.
	s.stop()
	s.hub.queue(2)
	s.startController()
	for _, pod := range s.untilPods(3) {
		if pod.Annotations[v1alpha1.AnnotationPoolName] != "gpu" {
			t.Errorf("the duplicate started %s", pod.Name)
		}
	}
	// The hub's last word to the second comes while the first is still there.
	s.hub.queue(-3)
	if err := s.client.Delete(s.ctx, first); err != nil {
		t.Fatal(err)
	}
	s.until("the first goes", s.poolGone)
	s.until("the second serves", func() bool {
		return s.client.Get(s.ctx, client.ObjectKeyFromObject(second), second) == nil &&
			meta.IsStatusConditionTrue(second.Status.Conditions, v1alpha1.ConditionReady)
	})
}

// What the hub sees of another namespace or cluster, no controller can see.
func TestAPoolThatTheHubCallsADuplicateStartsNothing(t *testing.T) {
	s := newStage(t, 4)
	p := s.pool()
	s.hub.mu.Lock()
	hello := s.hub.hello
	s.hub.mu.Unlock()
	if hello.Get("executor_pool") != s.ns+"/gpu" || hello.Get("executor_pool_uid") != string(p.UID) || hello.Get("hub_pool") != "gpu" || hello.Get("created") == "0" {
		t.Errorf("it told the hub %v", hello)
	}
	s.hub.change(func() { s.hub.duplicate, s.hub.queued = "east/gpu", 1 })
	c := s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonDuplicatePool)
	if !strings.Contains(c.Message, "east/gpu") {
		t.Errorf("the condition says %q", c.Message)
	}
	if n := len(s.pods()); n > 0 {
		t.Errorf("it started %d Pods", n)
	}
	s.hub.change(func() { s.hub.duplicate = "" })
	s.untilPods(1)
}
