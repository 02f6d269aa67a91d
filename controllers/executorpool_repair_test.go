package controllers

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		s.hub.runners = append(s.hub.runners, &fakeRunner{token: "cloop_run1_lost", credential: s.hub.credential, PoolRunner: hubv1.PoolRunner{
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
	if runner, started := s.run(pod), s.hub.started(); runner != "runner-0" || started != 1 {
		t.Errorf("runner %s, %d runners", runner, started)
	}
}

func TestCollectsOrphans(t *testing.T) {
	s := newStage(t, 4)
	p := s.pool()
	// A Secret without a Pod, and a Pod whose runner the hub has retired.
	s.create(podspec.Secret(podspec.Runner{Pool: p, ID: "runner-x", Key: pool.KeyPrefix(string(p.UID)) + "x-0", AnchorUID: p.UID}, testToken("cloop_run1_x")))
	s.hub.change(func() {
		s.hub.runners = append(s.hub.runners, &fakeRunner{credential: s.hub.credential, PoolRunner: hubv1.PoolRunner{ID: "runner-y", Key: "y-key-00", State: hubv1.RunnerRetired}})
	})
	s.create(podspec.Pod(podspec.Runner{Pool: p, Image: "image", ID: "runner-y", Key: "y-key-00", AnchorUID: p.UID}))
	s.until("both are gone", func() bool { return len(s.pods())+len(s.secrets()) == 0 })
	s.event(v1alpha1.ReasonOrphanCollected)
}

func TestGivesBackARunnerThatIsNotWanted(t *testing.T) {
	s := newStage(t, 4)
	p := s.pool()
	s.hub.change(func() {
		s.hub.runners = append(s.hub.runners, &fakeRunner{credential: s.hub.credential, PoolRunner: hubv1.PoolRunner{
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

// The label of a pool whose name is too long for a label's value may be another
// pool's name, whose runners are none of its business.
func TestALongPoolNameIsNotTakenForAnother(t *testing.T) {
	s := newStage(t, 4)
	long := strings.Repeat("a", 70)
	twin := podspec.LabelValue(long)
	other := newFakeHub(t, 4)
	other.id = "pool-2"
	create := func(name string, hub *fakeHub) *v1alpha1.ExecutorPool {
		t.Helper()
		p := &v1alpha1.ExecutorPool{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
			Spec: v1alpha1.ExecutorPoolSpec{
				HubURL: hub.server.URL, HubCABundle: hub.bundle(), MaxRunners: 4, ScaleDownDelay: metav1.Duration{Duration: time.Hour},
				PoolCredentialSecretRef: v1alpha1.SecretKeyRef{Name: "gpu-pool-credential", Key: "credential"},
			},
		}
		s.create(p)
		return p
	}
	create(twin, s.hub)
	s.hub.queue(1)
	pod := s.untilPods(1)[0]
	p := create(long, other)
	other.queue(1)
	s.untilPods(2)
	own := podspec.PodName(long, "")
	for _, each := range s.pods() {
		if each.Name == pod.Name {
			continue
		}
		if own = each.Name; each.Labels[v1alpha1.LabelExecutorPool] != twin || each.Annotations[v1alpha1.AnnotationPoolName] != long {
			t.Errorf("the Pod of the long name has %v and %v", each.Labels, each.Annotations)
		}
	}
	// Deleting the one drains it, and leaves the other's Pod and Secret.
	if err := s.client.Delete(s.ctx, p); err != nil {
		t.Fatal(err)
	}
	s.until("the pool with the long name goes", func() bool {
		return apierrors.IsNotFound(s.client.Get(s.ctx, client.ObjectKeyFromObject(p), p))
	})
	if left := s.untilPods(1); left[0].UID != pod.UID || left[0].DeletionTimestamp != nil || s.hub.alive() != 1 || other.alive() != 0 {
		t.Errorf("%s is left of %s and %s; %d and %d runners", left[0].Name, pod.Name, own, s.hub.alive(), other.alive())
	}
}
