package controllers

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/podspec"
)

// patch changes an object with a JSON merge patch, as kubectl does.
func (s *stage) patch(object client.Object, patch string) {
	s.t.Helper()
	if err := s.client.Patch(s.ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		s.t.Fatal(err)
	}
}

const (
	noLabels = `{"metadata":{"labels":{"app.kubernetes.io/name":null,"cloop.dev/executor-pool":null,"cloop.dev/runner":null}}}`
	noMarks  = `{"metadata":{"labels":null,"annotations":null}}`
)

// marked says whether the runner's Pod and Secret are as they were made.
func (s *stage) marked(made *corev1.Pod) bool {
	pod, secret := &corev1.Pod{}, &corev1.Secret{}
	if s.client.Get(s.ctx, client.ObjectKeyFromObject(made), pod) != nil ||
		s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: podspec.SecretOf(made.Name)}, secret) != nil {
		return false
	}
	same := contains(pod.Labels, made.Labels)
	for _, key := range []string{v1alpha1.AnnotationPoolName, v1alpha1.AnnotationRunnerID, v1alpha1.AnnotationMintKey} {
		same = same && pod.Annotations[key] == made.Annotations[key] && secret.Annotations[key] == made.Annotations[key]
	}
	return same && secret.Labels[v1alpha1.LabelExecutorPool] != "" && secret.Labels[v1alpha1.LabelRunner] != ""
}

// exists says whether an object is there, whatever its labels are.
func (s *stage) exists(object client.Object) bool {
	return s.client.Get(s.ctx, client.ObjectKeyFromObject(object), object) == nil
}

func secretOfPod(pod *corev1.Pod) *corev1.Secret {
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = pod.Namespace, podspec.SecretOf(pod.Name)
	return secret
}

func TestLabelsThatSomebodyTakesOffComeBack(t *testing.T) {
	t.Parallel()
	s := newStage(t, 4)
	s.pool()
	s.hub.queue(2)
	pods := s.untilPods(2)
	busy, _ := s.run(pods[0]), s.run(pods[1])
	s.hub.handOff(busy)
	for name, take := range map[string]func(*corev1.Pod){
		"labels of the Pod":            func(pod *corev1.Pod) { s.patch(pod, noLabels) },
		"labels and annotations":       func(pod *corev1.Pod) { s.patch(pod, noMarks) },
		"the label of NetworkPolicies": func(pod *corev1.Pod) { s.patch(pod, `{"metadata":{"labels":{"app.kubernetes.io/name":"other"}}}`) },
		"another pool's label":         func(pod *corev1.Pod) { s.patch(pod, `{"metadata":{"labels":{"cloop.dev/executor-pool":"other"}}}`) },
		"annotations of the Pod":       func(pod *corev1.Pod) { s.patch(pod, `{"metadata":{"annotations":null}}`) },
		"another's mint key":           func(pod *corev1.Pod) { s.patch(pod, `{"metadata":{"annotations":{"cloop.dev/mint-key":"other"}}}`) },
		"all of the Secret":            func(pod *corev1.Pod) { s.patch(secretOfPod(pod), noMarks) },
		"labels of both":               func(pod *corev1.Pod) { s.patch(pod, noLabels); s.patch(secretOfPod(pod), noLabels) },
		"all of both":                  func(pod *corev1.Pod) { s.patch(secretOfPod(pod), noMarks); s.patch(pod, noMarks) },
	} {
		// Not by the pool's memory of how often that happened.
		s.stop()
		s.startController()
		s.until("the controller serves", s.ready)
		for i := range pods {
			take(pods[i].DeepCopy())
		}
		for i := range pods {
			s.until(fmt.Sprintf("%s: they are back on %s", name, pods[i].Name), func() bool { return s.marked(&pods[i]) })
		}
	}
	for i := range pods {
		if pods[i].DeletionTimestamp != nil || s.hub.alive() != 2 {
			t.Errorf("runners are gone: %+v", pods[i].ObjectMeta)
		}
	}
}

// What nobody could put back while no controller ran is found by the next one.
func TestWhatLostItsLabelsIsCleanedUpWhenItHasEnded(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(*stage, *corev1.Pod){
		"labels": func(s *stage, pod *corev1.Pod) { s.patch(pod, noLabels) },
		"all, and the Secret": func(s *stage, pod *corev1.Pod) {
			s.patch(secretOfPod(pod), noMarks)
			s.patch(pod, noMarks)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 4)
			s.pool()
			s.hub.queue(2)
			pods := s.untilPods(2)
			settled, running := s.run(pods[0]), s.run(pods[1])
			s.hub.handOff(settled)
			s.hub.handOff(running)
			s.until("the Pods own their Secrets", func() bool {
				for _, secret := range s.secrets() {
					if len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].Kind != "Pod" {
						return false
					}
				}
				return true
			})
			s.stop()
			for i := range pods {
				take(s, pods[i].DeepCopy())
			}
			s.hub.settle(settled)
			s.end(pods[0], 0, "")
			s.startController()
			s.until("the ended Pod and its Secret are gone", func() bool {
				return !s.exists(pods[0].DeepCopy()) && !s.exists(secretOfPod(&pods[0]))
			})
			s.until("the running one is found", func() bool { return s.marked(&pods[1]) })
			s.hub.settle(running)
			s.end(pods[1], 0, "")
			s.until("nothing is left", func() bool { return !s.exists(pods[1].DeepCopy()) && !s.exists(secretOfPod(&pods[1])) })
		})
	}
}

// A busy runner outlives its pool's deletion whatever became of its labels.
func TestABusyRunnerWithoutLabelsSurvivesItsPoolsDeletion(t *testing.T) {
	t.Parallel()
	for name, noFinalizer := range map[string]bool{"drained": false, "its finalizer is taken off": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 4)
			p := s.pool()
			s.hub.queue(1)
			pod := s.untilPods(1)[0]
			busy := s.run(pod)
			s.hub.handOff(busy)
			s.stop()
			s.patch(secretOfPod(&pod), noMarks)
			s.patch(pod.DeepCopy(), noMarks)
			// As the garbage collector does once the pool is on its way.
			s.patch(pod.DeepCopy(), fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q}]}}`,
				podspec.AnchorName("gpu"), anchorUID(&pod)))
			if err := s.client.Delete(s.ctx, p); err != nil {
				t.Fatal(err)
			}
			if noFinalizer {
				s.hub.revoke()
				s.patch(p, `{"metadata":{"finalizers":null}}`)
				s.until("the pool is gone", s.poolGone)
			}
			s.startController()
			left := pod.DeepCopy()
			s.until("the Pod is found", func() bool { return s.exists(left) && left.Labels[v1alpha1.LabelExecutorPool] == "gpu" })
			if left.DeletionTimestamp != nil || !s.anchorExists() || !noFinalizer && s.poolGone() {
				t.Fatalf("left is %+v", left.ObjectMeta)
			}
			if !noFinalizer {
				s.hub.settle(busy)
			}
			s.end(pod, 0, "")
			s.until("nothing is left", func() bool { return s.poolGone() && !s.exists(pod.DeepCopy()) && !s.anchorExists() })
		})
	}
}

func anchorUID(pod *corev1.Pod) string {
	for _, owner := range pod.OwnerReferences {
		if owner.Kind == "ConfigMap" {
			return string(owner.UID)
		}
	}
	return ""
}

func TestAnAnchorGetsItsLabelBack(t *testing.T) {
	t.Parallel()
	s := newStage(t, 4)
	s.pool()
	s.hub.queue(1)
	s.untilPods(1)
	anchor := &corev1.ConfigMap{}
	anchor.Namespace, anchor.Name = s.ns, podspec.AnchorName("gpu")
	s.patch(anchor, noMarks)
	s.hub.queue(1)
	s.untilPods(2)
	// One that the cache never showed is missed a little later.
	s.untilWithin(2*cacheLag, "the label is back", func() bool {
		return s.exists(anchor) && anchor.Labels[v1alpha1.LabelExecutorPool] == "gpu" && anchor.Annotations[v1alpha1.AnnotationPoolName] == "gpu"
	})
}

// What usually becomes of a Pod costs no look for what did not happen.
func TestNobodyLooksForPodsThatTheControllerDeleted(t *testing.T) {
	t.Parallel()
	s := newStage(t, 4)
	s.pool()
	s.hub.queue(3)
	for _, pod := range s.untilPods(3) {
		runner := s.run(pod)
		s.hub.handOff(runner)
		s.hub.settle(runner)
		s.end(pod, 0, "")
	}
	s.untilPods(0)
	s.hub.queue(1)
	s.untilPods(1)
	lists := 0
	for _, request := range s.requests() {
		if strings.HasPrefix(request, "get ") && strings.Contains(request, "/pods/") {
			t.Errorf("%s", request)
		}
		if strings.HasPrefix(request, "list ") && strings.Contains(request, "/pods?") && strings.Contains(request, "%21") {
			lists++
		}
	}
	if lists != 1 {
		t.Errorf("looked through the namespace %d times", lists)
	}
}
