package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
)

const away = "the fleet controller does not run: pod-1, which holds its Lease in namespace cloop-fleet, gave the last sign at "

func TestStatusSaysThatTheFleetControllerDoesNotRun(t *testing.T) {
	noHub(t)
	cluster := &stubCluster{syncs: []v1alpha1.PoolSync{poolSync(metav1.ConditionTrue, "applied")}, renewed: time.Now()}
	cluster.serve(t)
	if got := cloop(t, "fleet", "status"); got.code != 0 || strings.Contains(got.stdout, "does not run") {
		t.Errorf("while it runs: exit code %d: %s", got.code, got.stdout)
	}
	cluster.renewed = time.Now().Add(-5 * time.Minute)
	got := cloop(t, "fleet", "status")
	if got.code != 1 || !strings.Contains(got.stdout, away) || !strings.Contains(got.stdout, "look at its Pods; before that: applied") {
		t.Errorf("while it does not: exit code %d: %s", got.code, got.stdout)
	}
	if got := cloop(t, "fleet", "status", "-o", "json"); !strings.Contains(got.stdout, `"unserved": "`+away) || !strings.Contains(got.stdout, `"healthy": false`) {
		t.Errorf("as JSON: %s", got.stdout)
	}
}

// Nobody waits for a commit that nobody is there to apply.
func TestDriftSaysThatTheFleetControllerDoesNotRun(t *testing.T) {
	dir, _ := clonedFleet(t)
	noHub(t)
	cluster := &stubCluster{
		syncs: []v1alpha1.PoolSync{poolSync(metav1.ConditionTrue, "applied")}, pools: []v1alpha1.ExecutorPool{liveGPU(4)}, renewed: time.Now(),
	}
	cluster.syncs[0].Status.LastAppliedRevision = "main@sha1:" + gitIn(t, dir, "rev-parse", "HEAD")
	cluster.serve(t)
	raise(t, dir, "4", "6", "Raise")
	gitIn(t, dir, "push", "--quiet")
	if got := cloop(t, "fleet", "drift"); got.code != 1 || !strings.Contains(got.stdout, "Converging") || strings.Contains(got.stdout, "does not run") {
		t.Errorf("while it runs: exit code %d: %s", got.code, got.stdout)
	}
	cluster.renewed = time.Now().Add(-5 * time.Minute)
	got := cloop(t, "fleet", "drift")
	if got.code != 1 || strings.Contains(got.stdout, "Converging") || !strings.Contains(got.stdout, "Unserved: start the fleet controller") || !strings.Contains(got.stdout, away) {
		t.Errorf("while it does not: exit code %d: %s", got.code, got.stdout)
	}
}

func TestDriftInAnotherRepositoryNamesTheOne(t *testing.T) {
	dir, _ := clonedFleet(t)
	noHub(t)
	cluster := &stubCluster{syncs: []v1alpha1.PoolSync{poolSync(metav1.ConditionTrue, "applied")}}
	cluster.serve(t)
	if err := os.RemoveAll(filepath.Join(dir, "clusters")); err != nil {
		t.Fatal(err)
	}
	got := cloop(t, "fleet", "drift")
	note := "note: PoolSync cloop-fleet/fleet of cluster eu applies ./clusters/eu of https://git.example.com/fleet.git, which is not in this repository"
	want := "nothing that the hub and the clusters follow is of this repository: run this in a clone of one that the notes name, or name one with --repo PATH"
	if got.code != 2 || !strings.Contains(got.stdout, note) || !strings.Contains(got.stderr, want) {
		t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
	empty := t.TempDir()
	gitIn(t, empty, "init", "--quiet")
	if got := cloop(t, "fleet", "drift", "--repo", empty); got.code != 2 || !strings.Contains(got.stderr, "has no commit yet") {
		t.Errorf("without a commit: exit code %d: %s", got.code, got.stderr)
	}
}
