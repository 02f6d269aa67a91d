package cli_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/cli"
)

// clonedFleet is a fleet repository that was pushed to a bare one, entered.
func clonedFleet(t *testing.T) (dir, bare string) {
	t.Helper()
	dir = fleetRepository(t)
	bare = filepath.Join(t.TempDir(), "fleet.git")
	gitIn(t, dir, "init", "--quiet", "--bare", "--initial-branch=main", bare)
	gitIn(t, dir, "remote", "add", "origin", bare)
	gitIn(t, dir, "push", "--quiet", "--set-upstream", "origin", "main")
	return dir, bare
}

func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	command := exec.Command("git", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com")
	printed, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, printed)
	}
	return strings.TrimSpace(string(printed))
}

// raise changes the maximum of the cluster's half; with a message it is committed.
func raise(t *testing.T, dir, from, to, message string) {
	t.Helper()
	name := filepath.Join(dir, "pools/gpu.yaml")
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	edit(t, name, strings.Replace(string(content), "maxRunners: "+from, "maxRunners: "+to, 1))
	if message != "" {
		gitIn(t, dir, "commit", "--quiet", "--all", "--message", message)
	}
}

// A commit that nobody else has is not on its way anywhere.
func TestDriftTellsWhatIsNotPushed(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *testing.T, dir, bare string, cluster *stubCluster)
		causes []string
		notes  []string
		none   []string
	}{
		"pushed and on its way": {func(t *testing.T, dir, _ string, _ *stubCluster) {
			raise(t, dir, "4", "6", "Raise")
			gitIn(t, dir, "push", "--quiet")
		}, []string{"/spec/maxRunners  6    -    4        Converging"}, nil, []string{"note:"}},
		"committed and not pushed": {func(t *testing.T, dir, _ string, _ *stubCluster) {
			raise(t, dir, "4", "6", "Raise")
		}, []string{"/spec/maxRunners  6    -    4        NotPushed", "NotPushed: commit it if it is not, and push it"}, []string{"is not pushed to origin/main"}, []string{"Converging"}},
		"not even committed": {func(t *testing.T, dir, _ string, _ *stubCluster) {
			raise(t, dir, "4", "6", "")
		}, []string{"NotPushed"}, []string{"changes that are not committed"}, []string{"ClusterEdited", "Converging", "is not pushed to"}},
		"not pushed, and the cluster was edited": {func(t *testing.T, dir, _ string, cluster *stubCluster) {
			edit(t, filepath.Join(dir, "pools/gpu.yaml"), strings.Replace(executorPoolYAML, "minRunners: 0", "minRunners: 1", 1))
			gitIn(t, dir, "commit", "--quiet", "--all", "--message", "Keep one")
			cluster.pools[0] = liveGPU(3)
		}, []string{"/spec/minRunners  1    -    0        NotPushed", "/spec/maxRunners  4    -    3        ClusterEdited"}, []string{"is not pushed to origin/main"}, nil},
		"an unrelated change": {func(t *testing.T, dir, _ string, cluster *stubCluster) {
			edit(t, filepath.Join(dir, "README.md"), "later\n")
			cluster.pools[0] = liveGPU(3)
		}, []string{"ClusterEdited"}, []string{"changes that are not committed"}, []string{"NotPushed"}},
		"the clone is behind": {func(t *testing.T, dir, bare string, cluster *stubCluster) {
			other := filepath.Join(t.TempDir(), "other")
			gitIn(t, dir, "clone", "--quiet", bare, other)
			raise(t, other, "4", "5", "Raise elsewhere")
			gitIn(t, other, "push", "--quiet")
			cluster.pools[0] = liveGPU(5)
			cluster.syncs[0].Status.LastAppliedRevision = "main@sha1:" + gitIn(t, other, "rev-parse", "HEAD")
		}, []string{"CloneBehind: run `git pull`"}, []string{"origin/main has commits that this clone has not"}, []string{"Converging", "not pushed"}},
		"a remote that is gone": {func(t *testing.T, dir, bare string, _ *stubCluster) {
			raise(t, dir, "4", "6", "Raise")
			if err := os.Rename(bare, bare+".moved"); err != nil {
				t.Fatal(err)
			}
		}, []string{"NotPushed"}, []string{"the remote could not be asked, so origin/main is as old as the last fetch"}, []string{"Converging"}},
		"a detached head": {func(t *testing.T, dir, _ string, _ *stubCluster) {
			raise(t, dir, "4", "6", "Raise")
			gitIn(t, dir, "checkout", "--quiet", "--detach")
		}, []string{"NotPushed"}, []string{"is not pushed to origin/main"}, nil},
		"no remote": {func(t *testing.T, dir, _ string, _ *stubCluster) {
			gitIn(t, dir, "remote", "remove", "origin")
			raise(t, dir, "4", "6", "Raise")
		}, []string{"/spec/maxRunners  6    -    4"}, []string{"follows no remote"}, nil},
		"an upstream that nothing was pushed to": {func(t *testing.T, dir, _ string, _ *stubCluster) {
			gitIn(t, dir, "config", "branch.main.merge", "refs/heads/release")
		}, nil, []string{"is not pushed to origin/release"}, []string{"Converging"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, bare := clonedFleet(t)
			cluster := &stubCluster{syncs: []v1alpha1.PoolSync{poolSync(metav1.ConditionTrue, "applied")}, pools: []v1alpha1.ExecutorPool{liveGPU(4)}}
			cluster.syncs[0].Status.LastAppliedRevision = "main@sha1:" + gitIn(t, dir, "rev-parse", "HEAD")
			noHub(t)
			cluster.serve(t)
			test.change(t, dir, bare, cluster)
			before := gitIn(t, dir, "for-each-ref")
			got := cloop(t, "fleet", "drift", "--cluster", "eu")
			if want := min(len(test.causes), 1); got.code != want {
				t.Errorf("exit code %d, want %d: %s", got.code, want, got.stderr)
			}
			for _, text := range append(test.causes, test.notes...) {
				if !strings.Contains(got.stdout, text) {
					t.Errorf("it does not say %q:\n%s%s", text, got.stdout, got.stderr)
				}
			}
			for _, text := range test.none {
				if strings.Contains(got.stdout, text) {
					t.Errorf("it says %q:\n%s", text, got.stdout)
				}
			}
			if after := gitIn(t, dir, "for-each-ref"); after != before {
				t.Errorf("the repository changed from\n%s\nto\n%s", before, after)
			}
		})
	}
}

// A remote that takes the connection and says nothing must not hang what is
// asked of hub and clusters.
func TestDriftDoesNotHangOnASilentRemote(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	t.Cleanup(cli.SetRemoteTimeout(300 * time.Millisecond))
	dir, _ := clonedFleet(t)
	gitIn(t, dir, "remote", "set-url", "origin", "http://"+silent.Addr().String()+"/fleet.git")
	cluster := &stubCluster{syncs: []v1alpha1.PoolSync{poolSync(metav1.ConditionTrue, "applied")}, pools: []v1alpha1.ExecutorPool{liveGPU(4)}}
	cluster.serve(t)
	stubHub(t, map[string]any{"GET /api/v1/syncs": hubv1.SyncList{}, "GET /api/v1/pools": hubv1.PoolList{}})
	got := cloop(t, "fleet", "drift", "--cluster", "eu")
	if !strings.Contains(got.stdout, "the remote could not be asked") || !strings.Contains(got.stdout, "no answer within 300ms") {
		t.Errorf("exit code %d:\n%s%s", got.code, got.stdout, got.stderr)
	}
}
