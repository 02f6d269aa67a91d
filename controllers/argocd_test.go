package controllers

import (
	"context"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/argocdtest"
)

// argoHealth is what the example's health check of a kind says of an object that the
// API server has.
func argoHealth(ctx context.Context, t *testing.T, c client.Client, kind, namespace, name string) argocdtest.Health {
	t.Helper()
	script, err := os.ReadFile("../examples/argocd/settings/health/" + strings.ToLower(kind) + ".lua")
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		t.Fatal(err)
	}
	health, err := argocdtest.Run(ctx, string(script), object)
	if err != nil {
		t.Fatal(err)
	}
	return health
}

func wantHealth(t *testing.T, got argocdtest.Health, status string, says ...string) {
	t.Helper()
	if got.Status != status {
		t.Errorf("it is %s, not %s: %s", got.Status, status, got.Message)
	}
	for _, text := range says {
		if !strings.Contains(got.Message, text) {
			t.Errorf("%s says %q, without %q", got.Status, got.Message, text)
		}
	}
}

func TestArgoCDSeesTheHealthOfASync(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	health := func() argocdtest.Health {
		return argoHealth(s.ctx, t, s.client, v1alpha1.PoolSyncKind, s.ns, s.name)
	}
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	wantHealth(t, health(), "Healthy", "applied main@sha1:")
	s.git.Commit(fleetRepository, map[string]string{"clusters/dev/kustomization.yaml": "resources: [gone.yaml]\n"})
	s.poke()
	s.ready(v1alpha1.ReasonBuildFailed)
	wantHealth(t, health(), "Degraded", "BuildFailed: ", "gone.yaml", "cloop fleet check")
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Suspend, sync.Spec.SuspendReason = true, "nodes are drained" })
	s.ready(v1alpha1.ReasonSuspended)
	wantHealth(t, health(), "Suspended", "nodes are drained")
	// Nobody has looked at the newest spec.
	s.stop()
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Suspend, sync.Spec.SuspendReason = false, "" })
	wantHealth(t, health(), "Progressing", "not looked at this spec")
}

func TestArgoCDSeesTheHealthOfAHubPool(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	health := func() argocdtest.Health {
		return argoHealth(s.ctx, t, s.client, v1alpha1.HubPoolKind, s.ns, s.name)
	}
	s.pool()
	wantHealth(t, health(), "Progressing", "not looked at this spec")
	s.pass()
	wantHealth(t, health(), "Healthy", "the hub has the pool as ")
	s.token("no token at all")
	s.pass()
	wantHealth(t, health(), "Degraded", "TokenUnreadable: ", "cloop hub token create")
	s.edit(func(p *v1alpha1.HubPool) { p.Spec.Hub = nil })
	wantHealth(t, health(), "Healthy", "from Git itself")
}

func TestArgoCDSeesTheHealthOfAPool(t *testing.T) {
	s := newStage(t, 4)
	health := func() argocdtest.Health {
		return argoHealth(s.ctx, t, s.client, v1alpha1.ExecutorPoolKind, s.ns, "gpu")
	}
	s.pool()
	s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonServing)
	wantHealth(t, health(), "Healthy", "serving the hub pool")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu-pool-credential"}}
	if err := s.client.Delete(s.ctx, secret); err != nil {
		t.Fatal(err)
	}
	s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonCredentialUnreadable)
	wantHealth(t, health(), "Degraded", "CredentialUnreadable: ", "create the Secret")
	s.stop()
	p := &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu"}}
	if err := s.client.Patch(s.ctx, p, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"maxRunners":7}}`))); err != nil {
		t.Fatal(err)
	}
	wantHealth(t, health(), "Progressing", "not looked at this spec")
}
