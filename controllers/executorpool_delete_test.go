package controllers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

func TestBusyRunnerSurvivesThePoolsDeletion(t *testing.T) {
	t.Parallel()
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
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
				s.untilWithin(collectorPatience, "the Pod has its anchor alone", func() bool { return len(s.pods()[0].OwnerReferences) == 1 })
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

// Somebody takes the finalizer off a pool that drains. Nobody waits for its runners
// any more, and still nothing is left over in the end.
func TestAPoolThatVanishesLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, 4)
	p := s.pool()
	s.hub.queue(2)
	pods := s.untilPods(2)
	s.hub.handOff(s.run(pods[0]))
	s.hub.revoke() // or the pending one would be retired first
	s.reason(v1alpha1.ConditionDegraded, v1alpha1.ReasonHubRefused)
	s.stop()
	if err := s.client.Delete(s.ctx, p); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Patch(s.ctx, p, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	s.until("the pool is gone", s.poolGone)
	s.startController()
	s.until("the Pod that never ran goes", func() bool { return len(s.pods()) == 1 })
	if left := s.pods()[0]; left.UID != pods[0].UID || left.DeletionTimestamp != nil || !s.anchorExists() {
		t.Fatalf("%s is left: %+v", left.Name, left.ObjectMeta)
	}
	s.end(pods[0], 0, "")
	s.until("nothing is left", func() bool { return len(s.pods())+len(s.secrets()) == 0 && !s.anchorExists() })
}
