package controllers

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

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

// A pool that goes because its document went finishes its runs, and then there is
// nothing to warn of: not that the hub takes no report of the last runner, nor that the
// Secret went with the pool, nor to a process that starts after that.
func TestAPoolThatWasToGoIsNoTrouble(t *testing.T) {
	s := newStage(t, 4)
	s.pool()
	s.hub.queue(1)
	pod := s.untilPods(1)[0]
	s.hub.handOff(s.run(pod))
	s.hub.change(func() {
		s.hub.end = &hubv1.PoolEnd{By: "sync:fleet", Reason: "pool gpu was removed from Git", Drained: true}
	})
	s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonDraining)
	s.hub.revoke()
	s.end(pod, 0, "")
	gone := func() {
		t.Helper()
		c := s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonPoolRevoked)
		if !strings.Contains(c.Message, "the hub has revoked its pool gpu, because pool gpu was removed from Git: take the ExecutorPool out of Git too") {
			t.Errorf("it says %q", c.Message)
		}
		s.reason(v1alpha1.ConditionDegraded, v1alpha1.ReasonPoolRevoked)
		s.reason(v1alpha1.ConditionDrifted, v1alpha1.ReasonPoolRevoked)
	}
	gone()
	s.until("nothing is left", func() bool { return len(s.pods())+len(s.secrets()) == 0 })
	s.stop()
	s.startController()
	if err := s.client.Delete(s.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu-pool-credential"}}); err != nil {
		t.Fatal(err)
	}
	gone()
	events := &corev1.EventList{}
	if err := s.client.List(s.ctx, events, client.InNamespace(s.ns)); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Type == corev1.EventTypeWarning {
			t.Errorf("a Warning says %s: %s", e.Reason, e.Message)
		}
	}
}

func TestANewCredentialIsTakenAtOnce(t *testing.T) {
	s := newStage(t, 4)
	s.pool()
	s.hub.revoke()
	s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonHubRefused)
	next := whole("cloop_pool1_zyxwvutsrqponmlkjihgfedcba0123456789")
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

// A committer who names another hub learns nothing: nobody even connects to it, also
// where the pool was served before, and whoever names an allowed one again is served.
func TestACredentialGoesToAllowedHubsAlone(t *testing.T) {
	s := newEmptyStage(t, 4)
	s.startController(s.hub.server.URL)
	p := s.pool()
	name := func(url, bundle string) {
		s.patch(p, fmt.Sprintf(`{"spec":{"hubURL":%q,"hubCABundle":%q}}`, url, bundle))
	}
	stranger := newCountingHub(t)
	target := stranger.target("")
	name(target.url, target.bundle)
	c := s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonHubNotAllowed)
	if !strings.Contains(c.Message, target.url) {
		t.Errorf("the condition says %q", c.Message)
	}
	name(s.hub.server.URL, s.hub.bundle())
	s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonServing)
	if n := stranger.count(); n > 0 || len(stranger.watches()) > 0 {
		t.Errorf("%d connections to a hub that is not allowed", n)
	}
}
