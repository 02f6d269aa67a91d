package examples

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/cli"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/kustomize"
)

// repository is a copy of an example in a repository of its own.
func repository(t *testing.T, example string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), example)
	if err := os.CopyFS(dir, os.DirFS(example)); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "init", "-q", "-b", "main")
	commit(t, dir)
	return dir
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com")
	if printed, err := command.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, printed)
	}
}

func commit(t *testing.T, dir string) {
	t.Helper()
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "Change")
}

// cloop runs a command line in a directory.
func cloop(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	for _, name := range []string{"CLOOP_HUB", "CLOOP_HUB_PIN", "CLOOP_HUB_CA_FILE"} {
		t.Setenv(name, "")
	}
	t.Chdir(dir)
	var out, problems bytes.Buffer
	code = cli.Main(t.Context(), args, strings.NewReader(""), &out, &problems)
	return code, out.String(), problems.String()
}

func TestTheFleetPassesItsCheckWithoutAWarning(t *testing.T) {
	code, stdout, stderr := cloop(t, repository(t, "fleet"), "fleet", "check")
	if code != 0 || stdout != "7 roots, 11 documents, 2 pools: all is well\n" {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestWhatAChangeOfTheFleetDoes(t *testing.T) {
	dir := repository(t, "fleet")
	if code, stdout, stderr := cloop(t, dir, "fleet", "diff", "--base", "HEAD"); code != 0 {
		t.Errorf("nothing is changed: exit code %d: %s%s", code, stdout, stderr)
	}
	for file, change := range map[string][2]string{
		"pools/base/agents.yaml":     {"maxRunners: 8", "maxRunners: 9"},
		"hub/gpu.yaml":               {"maxRunners: 6", "maxRunners: 5"},
		"bootstrap/us/poolsync.yaml": {"us-east-1", "us-west-2"},
	} {
		name := filepath.Join(dir, file)
		data, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(data, []byte(change[0])) {
			t.Fatalf("%s is %s: %v", file, data, err)
		}
		if err := os.WriteFile(name, bytes.Replace(data, []byte(change[0]), []byte(change[1]), 1), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, dir)
	code, stdout, stderr := cloop(t, dir, "fleet", "diff", "--base", "HEAD~1")
	for _, want := range []string{
		// Only us takes the base's maximum, and the variable.
		"clusters/us ExecutorPool", "/spec/maxRunners raise 8 → 9", "us-east-1 → us-west-2",
		"hub HubPool gpu changed, lower",
	} {
		if !strings.Contains(strings.Join(strings.Fields(stdout), " "), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if code != 1 || strings.Contains(stdout, "clusters/eu") || strings.Contains(stdout, "clusters/lab") || t.Failed() {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestWhatEachClusterOfTheFleetServes(t *testing.T) {
	want := map[string]string{
		"eu":  "agents 1-12 tolerates example.com/batch example.com/spot, gpu 0-2 tolerates example.com/accelerator",
		"us":  "agents 1-8 tolerates example.com/spot, gpu 1-4 tolerates example.com/accelerator",
		"lab": "agents 0-2 tolerates",
	}
	for cluster, pools := range want {
		rendered, err := fleet.Build(context.Background(), "fleet", "clusters/"+cluster)
		if err != nil {
			t.Fatal(err)
		}
		var served []string
		for _, r := range rendered {
			if r.Object.GetKind() == "ExecutorPool" {
				served = append(served, told(r))
			}
		}
		slices.Sort(served)
		if got := strings.Join(served, ", "); got != pools {
			t.Errorf("%s serves %s, want %s", cluster, got, pools)
		}
	}
}

// told is an ExecutorPool in a few words.
func told(r fleet.Rendered) string {
	spec, _ := r.Object.Object["spec"].(map[string]any)
	template, _ := spec["template"].(map[string]any)
	tolerations, _ := template["tolerations"].([]any)
	least := spec["minRunners"]
	if least == nil {
		least = 0
	}
	var keys []string
	for _, each := range tolerations {
		toleration, _ := each.(map[string]any)
		keys = append(keys, " "+fmt.Sprint(toleration["key"]))
	}
	slices.Sort(keys)
	return fmt.Sprintf("%s %v-%v tolerates%s", r.Object.GetName(), least, spec["maxRunners"], strings.Join(keys, ""))
}

func TestTheFleetKnowsTheKinds(t *testing.T) {
	for _, example := range []string{"fleet", "flux", "argocd"} {
		knowsTheKinds(t, example)
	}
}

func knowsTheKinds(t *testing.T, example string) {
	t.Helper()
	err := fs.WalkDir(kustomize.Kinds(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, err := fs.ReadFile(kustomize.Kinds(), name)
		if err != nil {
			return err
		}
		if got, err := os.ReadFile(filepath.Join(example, "kinds", name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("examples/%s/kinds/%s is not that of kustomize/components/kinds: copy it again (%v)", example, name, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheHubsConfigurationIsRead(t *testing.T) {
	data, err := os.ReadFile("hub/hub.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config, err := hub.ParseConfig("hub/hub.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	if s := config.Syncs[0]; s.Status == nil || s.Webhook == nil || s.Path != "hub" {
		t.Errorf("read %+v", s)
	}
}
