package controllers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

// hanging is how many objects have a hub that answers nothing: more than there are
// workers.
const hanging = hubWorkers + 4

// never is longer than a test lasts: what waits for an answer waits to its end.
const never = time.Hour

// runController runs the HubPool controller in this process until the test ends.
func (s *hubStage) runController() {
	s.t.Helper()
	mgr, err := ctrl.NewManager(s.config, ctrl.Options{
		Scheme: newScheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{s.ns: {}}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	opts := Options{Build: "test", ClusterName: "test", hubPatience: never}
	if _, err := addHubPool(mgr, opts, &eventRecorder{EventRecorder: loggedRecorder{s.recorded}}, s.clock); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(start(s.t, mgr))
}

func TestHubPoolsOfASilentHubStopNoOthers(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	door := newSilentDoor(t, nil)
	for i := range hanging {
		s.pool(func(p *v1alpha1.HubPool) {
			p.Name = fmt.Sprint("hanging-", i)
			p.Spec.Hub.URL, p.Spec.Hub.CABundle = door.server.URL, door.bundle()
		})
	}
	s.runController()
	eventually(t, "all but the one that waits say that the hub does not answer", func() error {
		pools := &v1alpha1.HubPoolList{}
		if err := s.client.List(s.ctx, pools, client.InNamespace(s.ns)); err != nil {
			return err
		}
		say := 0
		for i := range pools.Items {
			ready := meta.FindStatusCondition(pools.Items[i].Status.Conditions, v1alpha1.ConditionReady)
			if ready != nil && ready.Reason == string(v1alpha1.ReasonHubUnavailable) && strings.Contains(ready.Message, "one thing at a time") {
				say++
			}
		}
		return unless(say == hanging-1, fmt.Sprint(say, " do"))
	})
	s.pool()
	for _, runners := range []int32{3, 2} {
		eventually(t, "another hub is told", func() error {
			pool, err := s.hub.admin.GetPool(s.ctx, s.name)
			if err != nil {
				return err
			}
			return unless(pool.MaxRunners == runners, fmt.Sprintf("it has %+v", pool.PoolDefinition))
		})
		s.edit(func(p *v1alpha1.HubPool) { p.Spec.MaxRunners = 2 })
	}
}

// newMintlessHub is a hub that brings watches and answers nothing else.
func newMintlessHub(t *testing.T) *fakeHub {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			data, _ := json.Marshal(hubv1.PoolSnapshot{
				Revision: 1, Features: []string{hubv1.FeatureRunnerStates, hubv1.FeatureRunnerGone}, Queued: 1,
				Pool: hubv1.Pool{ID: bearer(r), Name: "gpu", State: hubv1.PoolActive, PoolDefinition: hubv1.PoolDefinition{MaxRunners: 4}},
			})
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "id: 1\ndata: %s\n\n", data)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &fakeHub{server: server}
}

func TestPoolsOfAHubThatHangsStopNoOthers(t *testing.T) {
	t.Parallel()
	s := newEmptyStage(t, 4)
	hub := newMintlessHub(t)
	for i := range hanging {
		name := fmt.Sprint("hanging-", i)
		s.create(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
			StringData: map[string]string{"credential": whole(fmt.Sprintf("cloop_pool1_%032d", i))},
		})
		s.create(&v1alpha1.ExecutorPool{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
			Spec: v1alpha1.ExecutorPoolSpec{
				HubURL: hub.server.URL, HubCABundle: hub.bundle(), MaxRunners: 4,
				PoolCredentialSecretRef: v1alpha1.SecretKeyRef{Name: name, Key: "credential"},
			},
		})
	}
	s.hubPatience = never
	s.startController()
	s.until("all but the one that waits say how they stand with the hub", func() bool {
		pools := &v1alpha1.ExecutorPoolList{}
		if err := s.client.List(s.ctx, pools, client.InNamespace(s.ns)); err != nil {
			return false
		}
		served := 0
		for i := range pools.Items {
			if ready := meta.FindStatusCondition(pools.Items[i].Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Reason == string(v1alpha1.ReasonServing) {
				served++
			}
		}
		return served >= hanging-1
	})
	s.pool()
	s.hub.queue(1)
	s.until("another hub's run has its Pod", func() bool { return len(s.pods()) == 1 })
}
