package controllers

import (
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
)

// Who waits for an object by kstatus, as Flux does, does not take one for ready that no
// controller has looked at.
func TestWhatNobodyHasLookedAtIsNotReady(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.stop()
	pool := v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu"}, Spec: v1alpha1.ExecutorPoolSpec{
		HubURL: "https://hub.example.com", PoolCredentialSecretRef: v1alpha1.SecretKeyRef{Name: "gpu", Key: "credential"}, MaxRunners: 1,
	}}
	hubPool := v1alpha1.HubPool{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu"}, Spec: v1alpha1.HubPoolSpec{MaxRunners: 1, Harness: "bash", DeletionPolicy: v1alpha1.DeletionOrphan}}
	sync := v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "fleet"}, Spec: v1alpha1.PoolSyncSpec{
		Interval: metav1.Duration{Duration: time.Hour}, Timeout: metav1.Duration{Duration: time.Minute}, Path: ".", Source: v1alpha1.PoolSyncSource{Git: v1alpha1.GitSource{URL: s.git.URL(fleetRepository)}},
	}}
	for kind, object := range map[string]client.Object{v1alpha1.ExecutorPoolKind: &pool, v1alpha1.HubPoolKind: &hubPool, v1alpha1.PoolSyncKind: &sync} {
		s.create(object)
		have := &unstructured.Unstructured{}
		have.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		if err := s.client.Get(s.ctx, client.ObjectKeyFromObject(object), have); err != nil {
			t.Fatal(err)
		}
		result, err := status.Compute(have)
		if err != nil {
			t.Fatal(err)
		}
		if result.Status != status.InProgressStatus {
			t.Errorf("a new %s is %s: %s", kind, result.Status, result.Message)
		}
	}
}
