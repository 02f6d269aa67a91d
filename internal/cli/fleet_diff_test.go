package cli_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

// lowered is the repository of fleetRepository with a lower maximum of the
// cluster's half, not committed.
func lowered(t *testing.T) string {
	t.Helper()
	dir := fleetRepository(t)
	edit(t, filepath.Join(dir, "pools/gpu.yaml"), strings.Replace(executorPoolYAML, "maxRunners: 4", "maxRunners: 2", 1))
	return dir
}

const loweredText = "clusters/eu\n  ExecutorPool cloop-pools/gpu changed, lower\n    /spec/maxRunners  lower  4 → 2\n"

func TestFleetDiff(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	cloop(t, "fleet", "diff", "--base", "HEAD").want(t, 0, "2 roots: no difference\n", "")
	edit(t, filepath.Join(dir, "pools/gpu.yaml"), strings.Replace(executorPoolYAML, "maxRunners: 4", "maxRunners: 2", 1))
	want := loweredText + "\n1 of 2 roots differ: 1 changed (1 lower)\n"
	cloop(t, "fleet", "diff", "--base", "HEAD").want(t, 1, want, "")
	cloop(t, "fleet", "diff", "--base", "main", "--fail-on=destructive").want(t, 0, want, "")
	cloop(t, "fleet", "diff", "--base", "main", "--fail-on=none").want(t, 0, want, "")
	cloop(t, "fleet", "diff", "--base", "main", "hub").want(t, 0, "1 root: no difference\n", "")
	cloop(t, "fleet", "diff", "--base", "main", dir).want(t, 1, want, "")
	edit(t, filepath.Join(dir, "pools/gpu.yaml"), strings.Replace(executorPoolYAML, "hub.example.com", "other.example.com", 1))
	if got := cloop(t, "fleet", "diff", "--base", "HEAD", "--fail-on=destructive"); got.code != 1 || !strings.Contains(got.stdout, "1 destructive") {
		t.Errorf("exit code %d, %s", got.code, got.stdout)
	}
}

// From within the repository it is the whole one that is compared, as with git.
func TestFleetDiffFromASubdirectory(t *testing.T) {
	noHub(t)
	dir := lowered(t)
	t.Chdir(filepath.Join(dir, "hub"))
	if got := cloop(t, "fleet", "diff", "--base", "HEAD"); got.code != 1 || !strings.HasPrefix(got.stdout, loweredText) {
		t.Errorf("exit code %d, %s%s", got.code, got.stdout, got.stderr)
	}
	cloop(t, "fleet", "diff", "--base", "HEAD", ".").want(t, 0, "1 root: no difference\n", "")
	t.Chdir(t.TempDir())
	if got := cloop(t, "fleet", "diff", "--base", "HEAD"); got.code != 2 || !strings.Contains(got.stderr, "is in no Git repository: run the command in a clone of the fleet repository") {
		t.Errorf("exit code %d, %s", got.code, got.stderr)
	}
}

// The base has what the change takes away.
func TestFleetDiffOfAPathThatGoes(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	if err := os.RemoveAll(filepath.Join(dir, "clusters")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"clusters/eu"}, {"clusters"}, {"clusters/eu/"}, {"./hub/../clusters/eu"}, {filepath.Join(dir, "clusters/eu")}, {"clusters/eu", "hub"}} {
		got := cloop(t, append([]string{"fleet", "diff", "--base", "HEAD"}, args...)...)
		if got.code != 1 || !strings.HasPrefix(got.stdout, "clusters/eu\n  note: the path is gone") || got.stderr != "" {
			t.Errorf("of %v: exit code %d, %s%s", args, got.code, got.stdout, got.stderr)
		}
	}
	cloop(t, "fleet", "diff", "--base", "HEAD", "hub").want(t, 0, "1 root: no difference\n", "")
	t.Chdir(filepath.Join(dir, "hub"))
	if got := cloop(t, "fleet", "diff", "--base", "HEAD", "../clusters/eu"); got.code != 1 || !strings.Contains(got.stdout, "1 removed") {
		t.Errorf("exit code %d, %s%s", got.code, got.stdout, got.stderr)
	}
	if got := cloop(t, "fleet", "diff", "--base", "HEAD", ".", t.TempDir()); got.code != 2 || !strings.Contains(got.stderr, "compare one repository at a time") {
		t.Errorf("exit code %d, %s%s", got.code, got.stdout, got.stderr)
	}
}

func TestFleetDiffWritesEveryOutput(t *testing.T) {
	noHub(t)
	dir := lowered(t)
	t.Chdir(t.TempDir())
	outputs := []string{"-o", "text", "-o", "json=report.json", "-o", "yaml=report.yaml", "-o", "markdown=comment.md", dir}
	got := cloop(t, append([]string{"fleet", "diff", "--base", "HEAD"}, outputs...)...)
	if got.code != 1 || !strings.HasPrefix(got.stdout, loweredText) || got.stderr != "" {
		t.Errorf("exit code %d, %s%s", got.code, got.stdout, got.stderr)
	}
	for name, want := range map[string]string{"report.json": `"verdict": "differs"`, "report.yaml": "verdict: differs", "comment.md": "🔽 `/spec/maxRunners` `4` → `2` (lower)"} {
		if content := read(t, name); !strings.Contains(content, want) {
			t.Errorf("%s does not say %s: %s", name, want, content)
		}
	}
	// What collects the files finds the reason in them, not those of a run before.
	got = cloop(t, append([]string{"fleet", "diff", "--base", "nowhere"}, outputs...)...)
	if got.code != 2 || got.stdout != "" || !strings.HasPrefix(got.stderr, "cloop: there is no revision nowhere here") {
		t.Errorf("exit code %d, %s%s", got.code, got.stdout, got.stderr)
	}
	for name, want := range map[string]string{"report.json": `"verdict": "unanswered"`, "report.yaml": "verdict: unanswered", "comment.md": "❓ Fleet diff: no answer"} {
		if content := read(t, name); !strings.Contains(content, want) || !strings.Contains(strings.ReplaceAll(content, "`", ""), "there is no revision nowhere here") {
			t.Errorf("%s does not say %s: %s", name, want, content)
		}
	}
}

func TestFleetDiffUsage(t *testing.T) {
	noHub(t)
	fleetRepository(t)
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{}, "name the revision to compare with, such as --base origin/main (see `cloop fleet diff --help`)"},
		{[]string{"--base", "HEAD", "--fail-on=raise"}, "--fail-on raise: use any, destructive or none (see `cloop fleet diff --help`)"},
		{[]string{"--base", "HEAD", "-o", "sarif"}, "-o sarif: no such format: use text, json, yaml or markdown"},
		{[]string{"--base", "HEAD", "nowhere"}, "nothing to compare in nowhere: neither revision has a root there; name a directory with a kustomization, or with pools"},
		{[]string{"--base", "HEAD", "pools/gpu.yaml"}, "nothing to compare in pools/gpu.yaml by itself: it is a part of other roots, such as clusters/eu; name one of those, or no path for all"},
	} {
		cloop(t, append([]string{"fleet", "diff"}, test.args...)...).want(t, 2, "", "cloop: "+test.says+"\n")
	}
}

// servedGPU is what hub and cluster have of the pool.
func servedGPU(t *testing.T) (*stubCluster, *calls) {
	t.Helper()
	pool := v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Namespace: "cloop-pools"}}
	pool.Spec.MinRunners, pool.Spec.MaxRunners = 4, 4
	pool.Status = v1alpha1.ExecutorPoolStatus{Runners: 4, Idle: 3, Busy: 1, Hub: &v1alpha1.HubPoolReference{ID: "p1", Name: "gpu", MaxRunners: 4}}
	cluster := &stubCluster{pools: []v1alpha1.ExecutorPool{pool}, syncs: []v1alpha1.PoolSync{{
		ObjectMeta: metav1.ObjectMeta{Name: "fleet", Namespace: "cloop-fleet"}, Spec: v1alpha1.PoolSyncSpec{Path: "./clusters/eu"},
	}}}
	cluster.serve(t)
	seen := stubHub(t, map[string]any{"GET /api/v1/pools": hubv1.PoolList{Items: []hubv1.Pool{{
		ID: "p1", Name: "gpu", State: hubv1.PoolActive, PoolDefinition: hubv1.PoolDefinition{MaxRunners: 4}, Runners: hubv1.RunnerCounts{Idle: 3, Busy: 1},
	}}}})
	return cluster, seen
}

func TestFleetDiffSaysTheImpact(t *testing.T) {
	noHub(t)
	lowered(t)
	cluster, seen := servedGPU(t)
	got := cloop(t, "fleet", "diff", "--base", "HEAD", "--cluster", "eu")
	if want := loweredText + "    in cluster eu: retires 3 idle runners, touches 0 of 1 busy\n"; got.code != 1 || !strings.HasPrefix(got.stdout, want) || strings.Contains(got.stdout, "note:") {
		t.Errorf("exit code %d, %s%s", got.code, got.stdout, got.stderr)
	}
	for _, method := range cluster.methods {
		if method != http.MethodGet {
			t.Errorf("the cluster was asked to %s", method)
		}
	}
	if !slices.Equal(*seen, []string{"GET /api/v1/pools"}) {
		t.Errorf("the hub was asked for %v", *seen)
	}
	// Without being asked no cluster is looked at, nor the hub when the flag says so.
	cloop(t, "fleet", "diff", "--base", "HEAD", "--hub", "").want(t, 1, loweredText+"\n1 of 2 roots differ: 1 changed (1 lower)\n", "")
}

// What cannot be read is said beside the answer that Git gives.
func TestFleetDiffWithoutRightsOrReach(t *testing.T) {
	noHub(t)
	lowered(t)
	got := cloop(t, "fleet", "diff", "--base", "HEAD", "--hub", "https://127.0.0.1:1", "--cluster", "nowhere")
	for _, want := range []string{
		loweredText, "note: the hub could not be read, so the impact there is not known: no token for the hub: name a file with --token-file",
		"note: cluster nowhere could not be read, so the impact there is not known: find the cluster of context nowhere",
	} {
		if got.code != 1 || !strings.Contains(got.stdout, want) {
			t.Errorf("exit code %d, it does not say %s: %s%s", got.code, want, got.stdout, got.stderr)
		}
	}
}
