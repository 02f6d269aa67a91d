package controllers

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
)

// silentGit is a Git server that takes questions and never answers. The Secret of its
// name has its certificate.
func (s *syncStage) silentGit() (url string) {
	s.t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	s.t.Cleanup(server.CloseClientConnections)
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "silent"}, Data: map[string][]byte{
		gitBundleKey: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}})
	return server.URL
}

// named is a PoolSync, nil where there is none.
func (s *syncStage) named(name string) *v1alpha1.PoolSync {
	s.t.Helper()
	sync := &v1alpha1.PoolSync{}
	err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: name}, sync)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return sync
}

// Git servers that say nothing keep no worker: every other PoolSync goes on, and one that
// asks holds the cluster to what was applied.
func TestAGitServerThatSaysNothingStopsNobody(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	url := s.silentGit()
	silent := func(spec *v1alpha1.PoolSyncSpec, name string) {
		spec.Source.Git.URL, spec.Source.Git.SecretRef = fmt.Sprintf("%s/%s.git", url, name), &v1alpha1.LocalObjectReference{Name: "silent"}
		spec.Timeout.Duration = time.Hour
	}
	for n := range 2 * syncsAtOnce {
		other := &v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: fmt.Sprintf("silent-%d", n)}, Spec: *s.get().Spec.DeepCopy()}
		silent(&other.Spec, other.Name)
		s.create(other)
	}
	asking := func(name string) bool {
		sync := s.named(name)
		ready, reconciling := condition(sync, v1alpha1.ConditionReady), condition(sync, v1alpha1.ConditionReconciling)
		return ready.Status == metav1.ConditionUnknown && reconciling.Status == metav1.ConditionTrue && strings.HasPrefix(reconciling.Message, "asks https://") &&
			sync.Status.ObservedGeneration < sync.Generation
	}
	for n := range 2 * syncsAtOnce {
		name := fmt.Sprintf("silent-%d", n)
		s.until(name+" says that it asks", func() bool { return asking(name) })
	}
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":9}}`)
	s.until("an edit is put back by another PoolSync", func() bool { return s.pool("gpu").Spec.MaxRunners == 4 })
	s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 5)})

	s.edit(func(sync *v1alpha1.PoolSync) { silent(&sync.Spec, "fleet") })
	s.until("it asks the silent server", func() bool { return asking(s.name) })
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":9}}`)
	s.until("an edit is put back by one that asks", func() bool { return s.pool("gpu").Spec.MaxRunners == 5 })

	if c := condition(s.get(), v1alpha1.ConditionDrifted); c.Status == metav1.ConditionFalse && c.Reason == string(v1alpha1.ReasonNoDrift) {
		t.Errorf("while it asks about another spec Drifted is %+v", c)
	}

	// It is not waited for by what makes the question void.
	s.edit(func(sync *v1alpha1.PoolSync) {
		sync.Spec.Source.Git = v1alpha1.GitSource{URL: s.git.URL(fleetRepository), SecretRef: &v1alpha1.LocalObjectReference{Name: "fleet-git"}}
	})
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	if err := s.client.Delete(s.ctx, s.named("silent-0")); err != nil {
		t.Fatal(err)
	}
	s.until("one that asks is deleted", func() bool { return s.named("silent-0") == nil })
}

// What goes unseen and is made again under its name begins anew, and nothing of the former
// one goes on.
func TestAPoolSyncThatIsMadeAgainUnseenBeginsAnew(t *testing.T) {
	t.Parallel()
	s := byHand(t, "gpu")
	p := s.process(nil)
	p.inStep(s.git.Commit(fleetRepository, map[string]string{"README.md": "new"}), "gpu")
	former := p.r.memories[client.ObjectKey{Namespace: s.ns, Name: s.name}]
	if _, err := os.Stat(p.r.cloneDir(former)); err != nil {
		t.Fatal(err)
	}
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Finalizers = nil })
	if err := s.client.Delete(s.ctx, s.get()); err != nil {
		t.Fatal(err)
	}
	s.poolSync()
	stopped := make(chan struct{})
	former.asking = &inquiry{done: stopped, stop: func() { close(stopped) }}
	if err := p.pass(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.r.cloneDir(former)); !os.IsNotExist(err) {
		t.Errorf("its clone is there: %v", err)
	}
	if former.asking != nil {
		t.Error("Git is asked for it still")
	}
}

// A request that comes while Git is asked is served by the next question: the answer may
// be from before.
func TestARequestWhileGitIsAskedIsServedAfterwards(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	r := &poolSyncReconciler{clock: clocktesting.NewFakePassiveClock(began)}
	sync := &v1alpha1.PoolSync{}
	metav1.SetMetaDataAnnotation(&sync.ObjectMeta, "reconcile.fluxcd.io/requestedAt", "second")
	m := &syncMemory{}
	p := newSyncPass(sync, m, time.Now())
	failed := transient(v1alpha1.ReasonSourceUnavailable, errors.New("down"))
	m.asking = &inquiry{pass: newSyncPass(sync.DeepCopy(), &syncMemory{}, time.Now()), request: "first", failure: failed, late: true}
	r.answered(t.Context(), p)
	if !p.full || p.request != "first" || m.source != failed || m.asking != nil {
		t.Errorf("full %v, served %q, failed with %v", p.full, p.request, m.source)
	}
	if m.due = began.Add(time.Hour); r.wait(p) > time.Second {
		t.Errorf("it is looked at again in %s", r.wait(p))
	}
	// Whoever forces it is told that Git is asked, as whoever requests it is.
	metav1.SetMetaDataAnnotation(&sync.ObjectMeta, "reconcile.fluxcd.io/requestedAt", "")
	metav1.SetMetaDataAnnotation(&sync.ObjectMeta, "reconcile.fluxcd.io/forceAt", "now")
	p = newSyncPass(sync, &syncMemory{}, began)
	p.status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	if r.stillAsking(p); meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionReconciling) == nil {
		t.Errorf("the conditions are %+v", p.status.Conditions)
	}
}
