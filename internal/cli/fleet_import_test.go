package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// What a hub and an API server have is written as a repository that passes the check
// and differs from them in nothing.
func TestFleetImport(t *testing.T) {
	realHub(t, "0.0.8")
	ok(t, "executor", "pool", "create", "gpu", "--max-runners", "8", "--label", "tier=gpu", "--audience", "group:ml", "--capability", "kernelIsolated", "--credential-file", filepath.Join(t.TempDir(), "gpu"))
	ok(t, "executor", "pool", "create", "kustomization", "--max-runners", "2", "--credential-file", filepath.Join(t.TempDir(), "other"))
	cluster, namespace, admin := liveCluster(t)
	for _, document := range []string{
		executorPoolYAML,
		strings.NewReplacer("name: gpu\n", "name: kustomization\n  labels: {no: \"true\"}\n", "maxRunners: 4", "maxRunners: 2\n  template:\n    tolerations:\n      - key: gpu").Replace(executorPoolYAML),
	} {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		object.SetNamespace(namespace)
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "fleet")
	arguments := []string{"fleet", "import", dir, "--kubeconfig", cluster.Kubeconfig, "--namespace", namespace}
	said := ok(t, arguments...)
	if !strings.Contains(said, "cloop fleet check "+dir) {
		t.Errorf("it said\n%s", said)
	}
	cloop(t, "fleet", "check", dir).want(t, 0, "3 roots, 5 documents, 2 pools: all is well\n", "")
	differsInNothing(t, dir, namespace, admin, false)

	// Whoever wants to look first has it all compared alone.
	observed := filepath.Join(t.TempDir(), "observed")
	said = ok(t, "fleet", "import", observed, "--observe", "--kubeconfig", cluster.Kubeconfig, "--namespace", namespace)
	if !strings.Contains(said, "note: every pool is only compared") {
		t.Errorf("it said\n%s", said)
	}
	cloop(t, "fleet", "check", observed).want(t, 0, "3 roots, 5 documents, 2 pools: all is well\n", "")
	differsInNothing(t, observed, namespace, admin, true)

	// Nothing is written over, and not a part of it.
	before, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := cloop(t, arguments...); got.code != 1 || !strings.Contains(got.stderr, "there already; nothing was written") {
		t.Errorf("again: exit code %d, %s", got.code, got.stderr)
	}
	if after, err := os.ReadDir(dir); err != nil || len(after) != len(before) {
		t.Errorf("%d entries have become %d: %v", len(before), len(after), err)
	}

	// What looks like a credential does not get into Git.
	live := &unstructured.UnstructuredList{}
	live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.ExecutorPoolKind + "List"))
	if err := admin.List(t.Context(), live, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	pool := live.Items[0]
	pool.SetAnnotations(map[string]string{"note": "ghp_0123456789abcdefghij"})
	if err := admin.Update(t.Context(), &pool); err != nil {
		t.Fatal(err)
	}
	arguments[2] = filepath.Join(t.TempDir(), "second")
	got := cloop(t, arguments...)
	if got.code != 1 || !strings.Contains(got.stderr, "ExecutorPool gpu: metadata.annotations.note") || strings.Contains(got.stderr+got.stdout, "ghp_") {
		t.Errorf("exit code %d, %s%s", got.code, got.stdout, got.stderr)
	}
	if _, err := os.Stat(arguments[2]); !os.IsNotExist(err) {
		t.Errorf("something was written: %v", err)
	}
}

// differsInNothing fails unless a repository has the two pools of the hub and of the
// cluster as they are, to be compared alone where observed says so.
func differsInNothing(t *testing.T, dir, namespace string, admin client.Client, observed bool) {
	t.Helper()
	var input fleet.DriftInput
	folders, err := os.ReadDir(filepath.Join(dir, "clusters"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("clusters are %v: %v", folders, err)
	}
	surface := fleet.ClusterSurface{Name: folders[0].Name()}
	if surface.Git, err = fleet.Build(t.Context(), dir, "clusters/"+surface.Name); err != nil {
		t.Fatal(err)
	}
	live := &unstructured.UnstructuredList{}
	live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.ExecutorPoolKind + "List"))
	if err := admin.List(t.Context(), live, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	surface.Live = live.Items
	input.Clusters, input.Hub = []fleet.ClusterSurface{surface}, &fleet.HubSurface{Pools: hubPools(t)}
	if input.Hub.Git, err = fleet.Build(t.Context(), dir, "hub"); err != nil {
		t.Fatal(err)
	}
	report := fleet.Drift(input)
	if report.Any() || len(report.Pools) != 4 {
		t.Errorf("%d pools were compared:\n%s", len(report.Pools), report.Text())
	}
	for _, document := range append(slices.Clone(surface.Git), input.Hub.Git...) {
		if kind := document.Object.GetKind(); fleet.ToObserve(document.Object) != observed && (kind == v1alpha1.ExecutorPoolKind || kind == v1alpha1.HubPoolKind) {
			t.Errorf("%s %s is only compared: %v", kind, document.Object.GetName(), !observed)
		}
	}
}

// hubPools are the pools of the hub that the environment names.
func hubPools(t *testing.T) []hubv1.Pool {
	t.Helper()
	var list hubv1.PoolList
	if err := yaml.Unmarshal([]byte(ok(t, "executor", "pool", "list", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestFleetImportOfNothing(t *testing.T) {
	noHub(t)
	got := cloop(t, "fleet", "import", t.TempDir(), "--kubeconfig", writeFile(t, ""))
	if got.code != 2 || !strings.Contains(got.stderr, "no cluster") {
		t.Errorf("without hub and cluster: exit code %d, %s", got.code, got.stderr)
	}
	(&stubCluster{}).serve(t)
	got = cloop(t, "fleet", "import", t.TempDir())
	if got.code != 1 || !strings.Contains(got.stderr, "there is no pool to import; nothing was written: `cloop fleet init`") {
		t.Errorf("of an empty cluster: exit code %d, %s", got.code, got.stderr)
	}
}
