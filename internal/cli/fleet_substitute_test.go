package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// A variable without a value is neither right nor wrong: exit code 2, until a
// file or a PoolSync has the value.
func TestFleetCheckSubstitutes(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	edit(t, filepath.Join(dir, "pools/gpu.yaml"), strings.Replace(executorPoolYAML, "minRunners: 0", "minRunners: ${MIN}", 1))
	cloop(t, "fleet", "check", "-o", "json=report.json").want(t, 2, "", "cloop: not everything was checked: 1 variable without a value; set what is missing in the PoolSync, or give --substitute FILE\n")
	if report := read(t, "report.json"); !strings.Contains(report, `"verdict": "unanswered"`) || !strings.Contains(report, `"rule": "unresolved-variable"`) {
		t.Errorf("the report is %s", report)
	}
	edit(t, "vars.yaml", "MIN: 0\n")
	edit(t, "more.yaml", "MIN: -1\n")
	cloop(t, "fleet", "check", "--substitute", "vars.yaml", "-o", "json=report.json").want(t, 0, "", "")
	got := cloop(t, "fleet", "check", "--substitute", "vars.yaml", "--substitute", "more.yaml")
	if got.code != 1 || !strings.Contains(got.stdout, "more.yaml:1:1: ExecutorPool") {
		t.Errorf("exit code %d, stdout %s, stderr %s", got.code, got.stdout, got.stderr)
	}
	// One overlay's values, over those of all.
	if got := cloop(t, "fleet", "check", "--substitute", "clusters/eu=more.yaml", "--substitute", "vars.yaml"); got.code != 1 || !strings.Contains(got.stdout, "more.yaml:1:1: ExecutorPool") {
		t.Errorf("exit code %d, stdout %s, stderr %s", got.code, got.stdout, got.stderr)
	}
	cloop(t, "fleet", "check", "--substitute", "hub=more.yaml", "--substitute", "vars.yaml", "-o", "json=report.json").want(t, 0, "", "")
	for file, want := range map[string]string{"clusters/us=vars.yaml": "clusters/us is no directory", "clusters/eu=no.yaml": "no such file", "nowhere.yaml": "--substitute nowhere.yaml: no such file", "pools": "--substitute pools: is a directory", "hub/kustomization.yaml": "the value of resources is no text"} {
		if got := cloop(t, "fleet", "check", "--substitute", file); got.code != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("of %s: exit code %d, %s", file, got.code, got.stderr)
		}
	}
}

// Drift compares with what a PoolSync makes of the variables, with values from
// its spec.
func TestFleetDriftSubstitutes(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	edit(t, filepath.Join(dir, "pools/gpu.yaml"), strings.Replace(executorPoolYAML, "maxRunners: 4", "maxRunners: ${MAX}", 1))
	sync := poolSync(metav1.ConditionTrue, "applied")
	sync.Spec.Substitute = &v1alpha1.Substitution{Vars: map[string]string{"MAX": "4"}}
	cluster := &stubCluster{syncs: []v1alpha1.PoolSync{sync}, pools: []v1alpha1.ExecutorPool{liveGPU(4)}}
	cluster.serve(t)
	if got := cloop(t, "fleet", "drift", "--cluster", "eu"); got.code != 0 {
		t.Errorf("exit code %d without drift: %s%s", got.code, got.stdout, got.stderr)
	}
	cluster.pools[0] = liveGPU(3)
	if got := cloop(t, "fleet", "drift", "--cluster", "eu"); got.code != 1 || !strings.Contains(got.stdout, "maxRunners") {
		t.Errorf("exit code %d with drift: %s%s", got.code, got.stdout, got.stderr)
	}
}

// Values of a pull request's own file stay within the repository, and are a file.
func TestValuesAreOfAFile(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "key")
	fleettest.WriteFiles(t, dir, map[string]string{"clusters/eu/gpu.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n", ".git/HEAD": "ref: refs/heads/main\n"})
	if err := os.WriteFile(secret, []byte("KEY: hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for link, to := range map[string]string{"out.yaml": secret, "zero.yaml": "/dev/zero"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
		got := cloop(t, "fleet", "check", "--substitute", link)
		if got.code != 2 || !strings.Contains(got.stderr, "it is a link that leads out of the repository") || strings.Contains(got.stdout+got.stderr, "hunter2") {
			t.Errorf("%s: exit code %d: %s", link, got.code, got.stderr)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := cloop(t, "fleet", "check", "--substitute", "pipe.yaml"); got.code != 2 || !strings.Contains(got.stderr, "it is no file") {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}
