package controllers

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

// rotate puts another credential into the pool's Secret; the one before stays live.
func (s *stage) rotate() {
	s.t.Helper()
	next := whole("cloop_pool1_ZYXWVUTSRQPONMLKJIHGFEDCBA98")
	s.hub.rotate(next)
	object := &corev1.Secret{}
	object.Namespace, object.Name = s.ns, "gpu-pool-credential"
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"credential":"`+next+`"}}`))
	if err := s.client.Patch(s.ctx, object, patch); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) shown() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.hub.earlier[fakeCredential]
}

// Whatever its credential, a controller starts what it began and tells how it ends,
// also once it has been started anew.
func TestARotationLosesNoRunner(t *testing.T) {
	s := newStage(t, 2)
	s.pool()
	s.hub.queue(2)
	pods := s.untilPods(2)
	busy := s.run(pods[0])
	s.hub.handOff(busy)
	s.rotate()
	s.until("the hub knows that the runners are the controller's", s.shown)
	s.stop()
	s.startController()
	s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonServing)
	s.staysFor(3*testGrace, "2 Pods", func() bool { return len(s.pods()) == 2 })

	s.end(pods[0], 137, "killed")
	s.until("the hub is told how the busy one ended", func() bool {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		end, told := s.hub.gone[busy]
		return told && end.Reason == "Error" && *end.ExitCode == 137
	})
	late := s.run(pods[1])
	if state := s.hub.state(late); state != hubv1.RunnerIdle {
		t.Errorf("the runner that came up after the rotation is %s", state)
	}
	if started := s.hub.started(); started != 2 {
		t.Errorf("%d runners were started", started)
	}
}

// A rotation that no controller saw leaves runners of a credential that nobody has
// any more: their Pods stay as long as they may be of use.
func TestARotationThatNobodySawKeepsThePods(t *testing.T) {
	s := newStage(t, 2)
	s.pool()
	s.hub.queue(2)
	pods := s.untilPods(2)
	s.stop()
	s.rotate()
	s.startController()
	s.staysFor(3*testGrace, "2 Pods", func() bool { return len(s.pods()) == 2 })
	if s.shown() {
		t.Error("the hub was shown a credential that the process never had")
	}
	s.run(pods[0])
	s.hub.change(func() { s.hub.find(pods[1].Annotations[v1alpha1.AnnotationRunnerID]).State = hubv1.RunnerRetired }) // its token's time is over
	s.hub.queue(-2)
	left := s.untilPods(1)[0]
	if left.Name != pods[0].Name {
		t.Errorf("%s is left", left.Name)
	}
	if message := s.event(v1alpha1.ReasonOrphanCollected); !strings.Contains(message, "the hub has retired") {
		t.Errorf("the Event says %q", message)
	}
}

// staysFor checks that something is so all the time.
func (s *stage) staysFor(long time.Duration, what string, so func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(long); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if !so() {
			s.t.Fatalf("not %s any more\n%s", what, s.describe())
		}
	}
}
