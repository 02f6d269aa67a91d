package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
)

// Both controllers at work: a PoolSync is deleted while a run is in progress.
func TestADeletedSyncWaitsForRunsInProgress(t *testing.T) {
	t.Parallel()
	git := newSyncStage(t, map[string]string{"README.md": "fleet"})
	s := &stage{t: t, ctx: t.Context(), config: git.config, client: git.client, ns: git.ns, hub: newFakeHub(t, 4), clock: clock.RealClock{}}
	s.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu-pool-credential"},
		StringData: map[string]string{"credential": fakeCredential},
	})
	s.startController()
	t.Cleanup(func() { s.stop() })
	files := overlay("gpu")
	bundle := append([]string{"hubCABundle: |"}, strings.Split(strings.TrimSpace(s.hub.bundle()), "\n")...)
	files["pools/gpu.yaml"] = strings.Replace(poolFile("gpu", 4, strings.Join(bundle, "\n    ")), "https://hub.example.com", s.hub.server.URL, 1)
	git.git.Commit(fleetRepository, files)
	git.poolSync()

	s.hub.queue(1)
	pod := s.untilPods(1)[0]
	busy := s.run(pod)
	s.hub.handOff(busy)
	if err := s.client.Delete(s.ctx, git.get()); err != nil {
		t.Fatal(err)
	}
	git.until("it waits for the pool", func() bool {
		return git.get().Status.ObservedGeneration > 1 && git.pool("gpu").DeletionTimestamp != nil
	})
	if !git.hasSync() || !git.hasQuota() || s.hub.state(busy) != hubv1.RunnerBusy || s.pods()[0].DeletionTimestamp != nil {
		t.Errorf("the run is not left alone: %+v", git.get().Status)
	}
	s.hub.settle(busy)
	s.end(pod, 0, "")
	git.until("all of it is gone", func() bool { return !git.hasSync() && !git.hasQuota() && s.poolGone() })
	s.until("nothing is left", func() bool { return len(s.pods())+len(s.secrets()) == 0 && !s.anchorExists() && s.hub.alive() == 0 })
}
