package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

// Where hub and cluster also take something of another repository, that is noted, and
// what is of this one is compared, whatever the paths are called.
func TestDriftOfOneOfSeveralRepositories(t *testing.T) {
	dir, bare := clonedFleet(t)
	const here, elsewhere = "https://git.example.com/fleet.git", "https://git.example.com/two.git"
	gitIn(t, dir, "remote", "set-url", "origin", here)
	gitIn(t, dir, "config", "url."+bare+".insteadOf", here)

	definition := hubv1.PoolDefinition{MaxRunners: 4, Harness: "command", DeletionPolicy: "Orphan"}
	two := hubSync(hubv1.SyncReady)
	two.Name, two.Repository = "two", elsewhere
	theirs := hubv1.Pool{ID: "p2", Name: "theirs", State: hubv1.PoolActive, PoolDefinition: definition, Source: &hubv1.Provenance{Sync: "two", Path: "hub/theirs.yaml", Revision: strings.Repeat("ef", 20)}}
	syncs, pools := hubv1.SyncList{Items: []hubv1.Sync{hubSync(hubv1.SyncReady), two}}, hubv1.PoolList{Items: []hubv1.Pool{{ID: "p1", Name: "gpu", State: hubv1.PoolActive, PoolDefinition: definition}, theirs}}
	stubHub(t, map[string]any{"GET /api/v1/syncs": syncs, "GET /api/v1/pools": pools})

	other := poolSync(metav1.ConditionTrue, "applied")
	other.Name, other.Spec.Source.Git.URL = "src", elsewhere
	pool := liveGPU(4)
	pool.Name, pool.Labels = "theirs", map[string]string{v1alpha1.LabelPoolSyncName: "src", v1alpha1.LabelPoolSyncNamespace: "cloop-fleet"}
	cluster := &stubCluster{syncs: []v1alpha1.PoolSync{poolSync(metav1.ConditionTrue, "applied"), other}, pools: []v1alpha1.ExecutorPool{liveGPU(4), pool}}
	cluster.serve(t)

	got := cloop(t, "fleet", "drift", "--cluster", "eu")
	if got.code != 0 || !strings.HasPrefix(got.stdout, "No drift: 2 pools compared.\n") {
		t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
	for _, note := range []string{
		"note: PoolSync cloop-fleet/src of cluster eu applies ./clusters/eu of another repository, https://git.example.com/two.git, so what it has there was not compared with Git\n",
		"note: sync two of the hub applies hub of another repository, https://git.example.com/two.git, so what it has there was not compared with Git\n",
	} {
		if !strings.Contains(got.stdout, note) {
			t.Errorf("it does not say %q: %s", note, got.stdout)
		}
	}
	cluster.pools[0] = liveGPU(3)
	if got := cloop(t, "fleet", "drift", "--cluster", "eu"); got.code != 1 || !strings.Contains(got.stdout, "maxRunners") || strings.Contains(got.stdout, "(whole object)") {
		t.Errorf("with drift of this one: exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}

	// A path that is not here says it of a source whose address nobody knows.
	cluster.pools[0] = liveGPU(4)
	cluster.syncs[1].Spec.Source, cluster.syncs[1].Spec.SourceRef, cluster.syncs[1].Spec.Path = v1alpha1.PoolSyncSource{}, &v1alpha1.SourceReference{Kind: v1alpha1.SourceGitRepository, Name: "two"}, "./elsewhere"
	if got := cloop(t, "fleet", "drift", "--cluster", "eu"); got.code != 0 || !strings.Contains(got.stdout, "applies ./elsewhere of GitRepository cloop-fleet/two, which is not in this repository, so what it has there was not compared") {
		t.Errorf("of a source of Flux: exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}

	// In a clone of neither there is nothing to compare.
	gitIn(t, dir, "remote", "set-url", "origin", "https://git.example.com/three.git")
	gitIn(t, dir, "config", "url."+bare+".insteadOf", "https://git.example.com/three.git")
	if got := cloop(t, "fleet", "drift", "--cluster", "eu", "--repo", filepath.Clean(dir)); got.code != 2 || !strings.Contains(got.stderr, "is of this repository: run this in a clone of one that the notes name, or name one with --repo PATH") {
		t.Errorf("in another clone: exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
}
