package controllers

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
)

// silentDoor stands before a hub: it takes every request and passes none on, until it is
// opened. Pings it answers.
type silentDoor struct {
	*fakeHub
	opened atomic.Bool
}

func newSilentDoor(t *testing.T, behind *fakeHub) *silentDoor {
	d := &silentDoor{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.opened.Load() {
			behind.server.Config.Handler.ServeHTTP(w, r)
			return
		}
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	d.fakeHub = &fakeHub{server: server}
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return d
}

// silentStage is a stage whose hub answers nothing, with its pool.
func silentStage(t *testing.T) (*stage, *silentDoor, *v1alpha1.ExecutorPool) {
	t.Helper()
	s := newEmptyStage(t, 4)
	door := newSilentDoor(t, s.hub)
	s.hubPatience = time.Second
	s.startController()
	p := &v1alpha1.ExecutorPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu"},
		Spec: v1alpha1.ExecutorPoolSpec{
			HubURL: door.server.URL, HubCABundle: door.bundle(), MaxRunners: 4,
			PoolCredentialSecretRef: v1alpha1.SecretKeyRef{Name: "gpu-pool-credential", Key: "credential"},
		},
	}
	s.create(p)
	return s, door, p
}

func TestAHubThatAnswersNothingIsUnavailable(t *testing.T) {
	t.Parallel()
	s, door, _ := silentStage(t)
	s.reason(v1alpha1.ConditionDegraded, v1alpha1.ReasonHubUnavailable)
	door.opened.Store(true)
	s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonServing)
}

func TestAPoolWithoutRunnersGoesWhereItsHubAnswersNothing(t *testing.T) {
	t.Parallel()
	s, _, p := silentStage(t)
	s.until("the pool is held", func() bool {
		return s.client.Get(s.ctx, client.ObjectKeyFromObject(p), p) == nil && len(p.Finalizers) > 0
	})
	if err := s.client.Delete(s.ctx, p); err != nil {
		t.Fatal(err)
	}
	s.until("the pool goes", s.poolGone)
}
