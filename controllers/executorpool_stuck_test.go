package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/podspec"
	"cloop.dev/cloop/internal/pool"
)

// cached is a Pod with the status as the controller's cache gives it out.
func cached(t *testing.T, status corev1.PodStatus) *corev1.Pod {
	t.Helper()
	by := executorPoolCacheOptions("")
	for object := range by {
		if _, ok := object.(*corev1.Pod); ok {
			kept, err := by[object].Transform(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: status})
			if err != nil {
				t.Fatal(err)
			}
			return kept.(*corev1.Pod)
		}
	}
	t.Fatal("no Pods are cached")
	return nil
}

func TestWhatKeepsPodsFromComingUpIsToldToTheHub(t *testing.T) {
	waiting := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: podspec.ContainerName, Image: "registry.example.com/x:1",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "try 17"}},
		}}}
	}
	for name, test := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"new":              {corev1.PodStatus{Phase: corev1.PodPending}, ""},
		"being made":       {waiting("ContainerCreating"), ""},
		"running":          {corev1.PodStatus{Phase: corev1.PodRunning}, ""},
		"no such image":    {waiting("ErrImagePull"), "the image registry.example.com/x:1 of Pod p cannot be pulled"},
		"waiting for it":   {waiting("ImagePullBackOff"), "the image registry.example.com/x:1 of Pod p cannot be pulled"},
		"no such Secret":   {waiting("CreateContainerConfigError"), "the container of Pod p cannot be made (CreateContainerConfigError)"},
		"no node takes it": {corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available"}}}, "no node takes Pod p: 0/3 nodes are available"},
	} {
		got := stuckPods(map[string]*corev1.Pod{"p": cached(t, test.status), "q": {Status: corev1.PodStatus{Phase: corev1.PodRunning}}})
		if !strings.HasPrefix(got, test.want) || test.want == "" && got != "" || strings.Contains(got, "try 17") {
			t.Errorf("%s: %q", name, got)
		}
	}
	one, two := &corev1.Pod{Status: waiting("ErrImagePull")}, &corev1.Pod{Status: waiting("ErrImagePull")}
	if got := stuckPods(map[string]*corev1.Pod{"a": one, "b": two}); !strings.HasSuffix(got, " (and 1 more)") {
		t.Errorf("two: %q", got)
	}
}

// A container that only knows that it was killed does not say by whom; its Pod may.
func TestAPodSaysWhoKilledItsContainer(t *testing.T) {
	killed := func(reason, said string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{ExitCode: 137, Reason: reason, Message: said}
	}
	taint := []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint"}}
	for name, test := range map[string]struct {
		status        corev1.PodStatus
		ended         *corev1.ContainerStateTerminated
		reason, words string
	}{
		"out of memory":            {corev1.PodStatus{Reason: "Evicted"}, killed("OOMKilled", ""), "OOMKilled", ""},
		"evicted":                  {corev1.PodStatus{Reason: "Evicted", Message: "The node was low on resource: memory."}, killed("Error", "{}"), "Evicted", "The node was low on resource: memory.; {}"},
		"its node is lost":         {corev1.PodStatus{Conditions: taint}, killed("Error", ""), "DeletionByTaintManager", taint[0].Message},
		"nobody knows":             {corev1.PodStatus{}, killed("Error", "{}"), "Error", "{}"},
		"it ended in order before": {corev1.PodStatus{Reason: "Evicted"}, &corev1.ContainerStateTerminated{Reason: "Completed"}, "Completed", ""},
	} {
		end := endOf(cached(t, test.status), test.ended)
		if end.Reason != test.reason || end.Message != test.words || end.ExitCode == nil || *end.ExitCode != test.ended.ExitCode {
			t.Errorf("%s: %+v", name, end)
		}
	}
}

// Nor does a Pod that has no container left to ask.
func TestAPodWithoutItsContainerSaysWhoEndedIt(t *testing.T) {
	gone := podOf(cached(t, corev1.PodStatus{Phase: corev1.PodFailed, Conditions: []corev1.PodCondition{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists"},
	}}), "")
	if gone.Phase != pool.PodEnded || gone.End.Reason != "DeletionByPodGC" || gone.End.Message != "PodGC: node no longer exists" || gone.End.ExitCode != nil {
		t.Errorf("%+v", gone)
	}
}

// Ten thousand Pods in good order must not cost the cache their conditions.
func TestTheCacheKeepsOfConditionsWhatIsRead(t *testing.T) {
	now := metav1.Now()
	status := corev1.PodStatus{Phase: corev1.PodRunning}
	for _, of := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: of, Status: corev1.ConditionTrue, Message: "as it should", LastProbeTime: now, LastTransitionTime: now})
	}
	if got := cached(t, status).Status.Conditions; got != nil {
		t.Errorf("of a running Pod: %+v", got)
	}
	told := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"}
	status.Conditions = append(status.Conditions, told)
	status.Conditions[5].LastTransitionTime = now
	if got := cached(t, status).Status.Conditions; len(got) != 1 || got[0] != told {
		t.Errorf("of an evicted one: %+v", got)
	}
}

func TestACorrectedTemplateReplacesThePodsThatWait(t *testing.T) {
	s := newStage(t, 4)
	xpool := s.pool(func(spec *v1alpha1.ExecutorPoolSpec) { spec.Template.NodeSelector = map[string]string{"no": "such"} })
	s.hub.queue(2)
	pods := s.untilPods(2)
	busy := s.run(pods[0])
	s.hub.handOff(busy)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"template":{"nodeSelector":null}}}`))
	if err := s.client.Patch(s.ctx, xpool, patch); err != nil {
		t.Fatal(err)
	}
	var next corev1.Pod
	s.until("the Pod that waited is another, and the one that runs the same", func() bool {
		same := false
		next = corev1.Pod{}
		for _, pod := range s.pods() {
			same = same || pod.UID == pods[0].UID && pod.DeletionTimestamp == nil
			if pod.UID != pods[0].UID && pod.UID != pods[1].UID {
				next = pod
			}
		}
		return same && next.Name != "" && len(s.pods()) == 2
	})
	if len(next.Spec.NodeSelector) != 0 {
		t.Errorf("it has the node selector %v", next.Spec.NodeSelector)
	}
	if state := s.hub.state(pods[1].Annotations[v1alpha1.AnnotationRunnerID]); state != hubv1.RunnerRetired {
		t.Errorf("the runner that waited is %s", state)
	}
	if message := s.event(v1alpha1.ReasonScaledDown); !strings.Contains(message, "template") {
		t.Errorf("the Event says %q", message)
	}
	s.untilPods(2)
}
