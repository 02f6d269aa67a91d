package controllers

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/podspec"
	"cloop.dev/cloop/internal/pool"
)

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
