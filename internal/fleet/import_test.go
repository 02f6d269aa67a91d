package fleet_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet"
)

// What is imported differs in nothing from what is live, however the live object
// spells it and whatever an API server filled in.
func TestWhatIsImportedDiffersInNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live := respell(t, drawPool(t))
		live.SetNamespace("ml")
		live.SetName("gpu")
		before := live.DeepCopy()
		imported := fleet.ImportCluster("eu", []unstructured.Unstructured{*live})
		if len(imported.Documents) != 1 || !reflect.DeepEqual(before.Object, live.Object) {
			t.Fatalf("%d documents of one pool", len(imported.Documents))
		}
		if diffs := fleet.CompareSpecs(imported.Documents[0], live, nil); len(diffs) > 0 {
			t.Fatalf("it differs: %v", diffs)
		}
	})
}

func TestWhatAServerSaysIsNotImported(t *testing.T) {
	spec := func() map[string]any {
		return map[string]any{"hubURL": "https://hub.example.com", "maxRunners": int64(4), "minRunners": int64(0), "scaleDownDelay": "5m0s",
			"poolCredentialSecretRef": map[string]any{"name": "gpu-pool-credential", "key": "credential"}}
	}
	pool := func(change func(*unstructured.Unstructured)) unstructured.Unstructured {
		obj := unstructured.Unstructured{Object: map[string]any{"apiVersion": "cloop.dev/v1alpha1", "kind": "ExecutorPool", "spec": spec(), "status": map[string]any{"runners": int64(1)}}}
		obj.SetNamespace("ml")
		obj.SetName("gpu")
		obj.SetUID("1")
		obj.SetFinalizers([]string{"cloop.dev/executor-pool"})
		change(&obj)
		return obj
	}
	for name, test := range map[string]struct {
		live          unstructured.Unstructured
		metadata      map[string]any
		notes, secret string
	}{
		"nobody's": {pool(func(o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{"team": "ml"})
			o.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "cloop.dev/revision": "main@sha1:1", "note": "mine"})
		}), map[string]any{"labels": map[string]any{"team": "ml"}, "annotations": map[string]any{"note": "mine"}}, "", ""},
		"a PoolSync's": {pool(func(o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{"poolsync.cloop.dev/name": "fleet", "poolsync.cloop.dev/namespace": "cloop-fleet"})
		}), map[string]any{}, "PoolSync cloop-fleet/fleet applies 1 of the ExecutorPools of cluster eu: ", ""},
		"Flux's": {pool(func(o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"})
		}), map[string]any{}, "Flux Kustomization flux-system/apps applies 1 ", ""},
		"Argo CD's": {pool(func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{"argocd.argoproj.io/tracking-id": "pools:cloop.dev/ExecutorPool:ml/gpu"})
		}), map[string]any{}, "Argo CD Application pools applies 1 ", ""},
		"Helm's": {pool(func(o *unstructured.Unstructured) {
			o.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "Helm"})
			o.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "cloop", "meta.helm.sh/release-namespace": "ml"})
		}), map[string]any{}, "Helm release ml/cloop applies 1 ", ""},
		"with a credential": {pool(func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{"note": "ghp_0123456789abcdefghij"})
		}), map[string]any{"annotations": map[string]any{"note": "ghp_0123456789abcdefghij"}}, "", "ExecutorPool gpu: metadata.annotations.note"},
	} {
		t.Run(name, func(t *testing.T) {
			got := fleet.ImportCluster("eu", []unstructured.Unstructured{test.live})
			test.metadata["name"], test.metadata["namespace"] = "gpu", "ml"
			want := map[string]any{"apiVersion": "cloop.dev/v1alpha1", "kind": "ExecutorPool", "metadata": test.metadata, "spec": map[string]any{
				"hubURL": "https://hub.example.com", "maxRunners": int64(4), "poolCredentialSecretRef": map[string]any{"name": "gpu-pool-credential"},
			}}
			if len(got.Documents) != 1 || !reflect.DeepEqual(got.Documents[0].Object, want) {
				t.Errorf("it is %v, want %v", got.Documents[0].Object, want)
			}
			if notes := strings.Join(got.Notes, "\n"); !strings.HasPrefix(notes, test.notes) || test.notes == "" && notes != "" {
				t.Errorf("the notes are %q", notes)
			}
			if secrets := strings.Join(got.Secrets, "\n"); secrets != test.secret {
				t.Errorf("secrets are in %q", secrets)
			}
		})
	}
	leaving := pool(func(o *unstructured.Unstructured) { o.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)}) })
	if got := fleet.ImportCluster("eu", []unstructured.Unstructured{leaving}); len(got.Documents) > 0 || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "is being deleted and was left out") {
		t.Errorf("of one that is being deleted: %+v", got)
	}
}

func TestTheHubsHalfIsImported(t *testing.T) {
	named := func(name string, change func(*hubv1.Pool)) hubv1.Pool {
		pool := hubv1.Pool{Name: name, State: hubv1.PoolActive, PoolDefinition: hubv1.PoolDefinition{MaxRunners: 8, Harness: "command", DeletionPolicy: "Orphan"}}
		change(&pool)
		return pool
	}
	got := fleet.ImportHub([]hubv1.Pool{
		named("z", func(p *hubv1.Pool) { p.Audience, p.Owner = []string{"group:ml"}, "user:ada" }),
		named("cordoned", func(p *hubv1.Pool) { p.Cordon = &hubv1.Cordon{Reason: "upgrade"} }),
		named("git", func(p *hubv1.Pool) {
			p.Source = &hubv1.Provenance{Path: "hub/git.yaml", Repository: "https://git.example.com/fleet"}
		}),
		named("draining", func(p *hubv1.Pool) { p.State = hubv1.PoolDraining }),
		named("gone", func(p *hubv1.Pool) { p.State = hubv1.PoolRevoked }),
	})
	var names []string
	for _, document := range got.Documents {
		names = append(names, document.GetName())
	}
	if !slices.Equal(names, []string{"cordoned", "git", "z"}) {
		t.Errorf("the pools are %v", names)
	}
	want := map[string]any{"apiVersion": "cloop.dev/v1alpha1", "kind": "HubPool", "metadata": map[string]any{"name": "z"},
		"spec": map[string]any{"maxRunners": float64(8), "audience": []any{"group:ml"}, "owner": "user:ada"}}
	if !reflect.DeepEqual(got.Documents[2].Object, want) {
		t.Errorf("z is %#v", got.Documents[2].Object)
	}
	if len(got.Notes) != 3 || !strings.Contains(got.Notes[0], "cordoned, and stays so") || !strings.Contains(got.Notes[1], "draining is being revoked") ||
		!strings.Contains(got.Notes[2], "hub/git.yaml of https://git.example.com/fleet already") {
		t.Errorf("the notes are %q", got.Notes)
	}
}
