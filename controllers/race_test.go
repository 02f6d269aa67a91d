package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/podspec"
)

func TestALostRaceIsNoFailure(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "executorpools"}, "gpu", errors.New("it is newer"))
	if got, err := lostRace(ctrl.Result{}, fmt.Errorf("patch: %w", conflict)); err != nil || got.RequeueAfter == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	failed := errors.New("failed")
	if _, err := lostRace(ctrl.Result{}, failed); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	if got, err := lostRace(ctrl.Result{RequeueAfter: time.Hour}, nil); err != nil || got.RequeueAfter != time.Hour {
		t.Errorf("%+v, %v", got, err)
	}
}

// An anchor that was deleted before the cache ever showed it protects no Pod: the
// garbage collector drops an owner that is not there.
func TestAnAnchorThatNeverShowsIsMadeAgain(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	p := &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gpu"}}
	r := &executorPoolReconciler{client: indexed(fake.NewClientBuilder()).Build()}
	for ago, want := range map[time.Duration]string{time.Second: "made", cacheLag: ""} {
		o := &observation{xpool: p, memory: &poolMemory{anchorUID: "made", anchorAt: now.Add(-ago)}}
		o.snapshot.Now = now
		if err := r.observeCluster(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if o.snapshot.AnchorUID != want {
			t.Errorf("%s after it was made the anchor is %q, want %q", ago, o.snapshot.AnchorUID, want)
		}
	}
	shown := podspec.Anchor(p)
	shown.UID = "shown"
	r.client = indexed(fake.NewClientBuilder()).WithObjects(shown).Build()
	o := &observation{xpool: p, memory: &poolMemory{anchorUID: "made", anchorAt: now}}
	if err := r.observeCluster(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if o.snapshot.AnchorUID != "shown" {
		t.Errorf("the anchor is %q", o.snapshot.AnchorUID)
	}
}

func indexed(b *fake.ClientBuilder) *fake.ClientBuilder {
	return b.WithScheme(newScheme()).WithIndex(&corev1.Pod{}, poolIndex, indexOf).WithIndex(metadataOf("Secret"), poolIndex, indexOf)
}

// meddler changes an object each time that it was read.
type meddler struct {
	client.Reader
	after func()
}

func (m meddler) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := m.Reader.Get(ctx, key, object, options...)
	m.after()
	return err
}

// Somebody changes an object between the look and the correction.
func TestAnObjectThatChangesMeanwhileIsRestored(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.stop()
	s.kubectlEdit("gpu", `{"spec":{"runnerLabels":{"by":"hand"}}}`)
	manager, err := newAppliers(s.config, s.client.RESTMapper(), newScheme()).of(s.get())
	if err != nil {
		t.Fatal(err)
	}
	want := newPool()
	if err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: "gpu"}, want); err != nil {
		t.Fatal(err)
	}
	delete(want.Object["spec"].(map[string]any), "runnerLabels")
	meddled := 0
	restore := func(times int) (*unstructured.Unstructured, error) {
		meddled = 0
		w := &writer{client: manager.Client(), live: meddler{s.client, func() {
			if meddled < times {
				meddled++
				s.kubectlEdit("gpu", fmt.Sprintf(`{"metadata":{"annotations":{"meddled":"%d"}}}`, meddled))
			}
		}}}
		of := &sight{id: idOf(want), want: wantedFrom(t, want)}
		have, err := w.now(s.ctx, of)
		if err != nil || have == nil {
			return have, err
		}
		return w.removeForeignFields(s.ctx, of, have)
	}
	if have, err := restore(2); err != nil || have == nil || len(s.pool("gpu").Spec.RunnerLabels) > 0 {
		t.Errorf("restored %v, %v: %v", have, err, s.pool("gpu").Spec.RunnerLabels)
	}
	before := s.pool("gpu").ResourceVersion
	if have, err := restore(0); err != nil || have == nil || s.pool("gpu").ResourceVersion != before {
		t.Errorf("there is nothing to do: %v, %v", have, err)
	}
	s.kubectlEdit("gpu", `{"spec":{"runnerLabels":{"by":"hand"}}}`)
	if _, err := restore(100); err == nil || !strings.Contains(err.Error(), "as fast as it is restored") {
		t.Errorf("who never stops: %v", err)
	}
	if err := s.client.Delete(s.ctx, s.pool("gpu")); err != nil {
		t.Fatal(err)
	}
	if have, err := restore(0); have != nil || err != nil {
		t.Errorf("what is gone: %v, %v", have, err)
	}
}
