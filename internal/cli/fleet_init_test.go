package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFleetInitWritesARepositoryThatPassesItsCheck(t *testing.T) {
	noHub(t)
	t.Chdir(t.TempDir())
	got := cloop(t, "fleet", "init", "my fleet", "--hub", "https://hub.example.com", "--cluster", "north", "--cluster", "south", "--repository", "https://git.example.com/a/fleet")
	if got.code != 0 || !strings.HasPrefix(got.stdout, "Wrote ") || !strings.Contains(got.stdout, "1. unless a public authority signed the hub's certificate, set hubCAPin in pools/base/agents.yaml") ||
		!strings.Contains(got.stdout, "2. git -C 'my fleet' init --initial-branch main\n") ||
		!strings.Contains(got.stdout, "push it to https://git.example.com/a/fleet") || strings.Contains(got.stdout, "replace") {
		t.Fatalf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
	cloop(t, "fleet", "check", "my fleet").want(t, 0, "5 roots, 7 documents, 1 pool: all is well\n", "")
	pool, err := os.ReadFile("my fleet/pools/base/agents.yaml")
	if err != nil || !strings.Contains(string(pool), "hubURL: https://hub.example.com\n") {
		t.Errorf("the pool is %s: %v", pool, err)
	}

	again := cloop(t, "fleet", "init", "my fleet")
	if again.code != 1 || !strings.Contains(again.stderr, "are there already; nothing was written") {
		t.Errorf("a second time: exit code %d: %s%s", again.code, again.stdout, again.stderr)
	}
}

func TestFleetInitSaysWhatToReplace(t *testing.T) {
	noHub(t)
	dir := t.TempDir()
	t.Chdir(dir)
	edit(t, filepath.Join(dir, "README.md"), "mine\n")
	got := cloop(t, "fleet", "init", "-o", "json")
	var shown struct{ Files, Kept, Next []string }
	if err := json.Unmarshal([]byte(got.stdout), &shown); err != nil {
		t.Fatalf("exit code %d: %v: %s%s", got.code, err, got.stdout, got.stderr)
	}
	next := strings.Join(shown.Next, "\n")
	if len(shown.Kept) != 1 || !strings.Contains(next, "replace https://cloop.example.com:8443") || !strings.Contains(next, "replace https://git.example.com/platform/fleet.git") {
		t.Errorf("shown %+v", shown)
	}
}

// The clone says what it can; what is there stays, and the guide is beside it.
func TestFleetInitInAClone(t *testing.T) {
	noHub(t)
	for origin, want := range map[string]string{
		"git@git.example.com:a/fleet.git":            "https://git.example.com/a/fleet.git",
		"ssh://git@git.example.com:2222/a/fleet.git": "https://git.example.com/a/fleet.git",
	} {
		dir := t.TempDir()
		gitIn(t, dir, "init", "--quiet", "--initial-branch", "trunk")
		gitIn(t, dir, "remote", "add", "origin", origin)
		edit(t, filepath.Join(dir, "README.md"), "mine\n")
		edit(t, filepath.Join(dir, ".gitlab-ci.yml"), "mine: {}\n")
		got := cloop(t, "fleet", "init", dir, "--cluster", "only")
		for _, says := range []string{"have .gitlab-ci.yml run ours: `include: [{local: .gitlab/cloop.yml}]`", "Kept .gitlab-ci.yml as it was", "see that hub and clusters can fetch " + want, filepath.Join(dir, "FLEET.md") + " says how"} {
			if got.code != 0 || !strings.Contains(got.stdout, says) {
				t.Errorf("exit code %d, it does not say %s: %s%s", got.code, says, got.stdout, got.stderr)
			}
		}
		sync, guide := read(t, filepath.Join(dir, "bootstrap/only/poolsync.yaml")), read(t, filepath.Join(dir, "FLEET.md"))
		if !strings.Contains(sync, "url: "+want+"\n") || !strings.Contains(sync, "branch: trunk") || !strings.Contains(guide, "## To begin") || read(t, filepath.Join(dir, "README.md")) != "mine\n" {
			t.Errorf("%s\n%s", sync, guide)
		}
	}
}

// A file that stands in the way of a directory is named, and nothing is written
// around it.
func TestFleetInitWhereADirectoryIsAFile(t *testing.T) {
	noHub(t)
	for _, test := range []struct {
		files []string
		says  string
	}{
		{[]string{"hub"}, "hub is there and no directory, which a fleet repository needs there; nothing was written: rename it, or name another directory"},
		{[]string{"hub", "clusters"}, "clusters, hub are there and no directory, which a fleet repository needs there; nothing was written: rename them"},
		{[]string{".github"}, ".github is there and no directory"},
	} {
		dir := t.TempDir()
		for _, name := range test.files {
			edit(t, filepath.Join(dir, name), "mine\n")
		}
		got := cloop(t, "fleet", "init", dir)
		if got.code != 1 || !strings.Contains(got.stderr, test.says) {
			t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
		}
		there, err := os.ReadDir(dir)
		if err != nil || len(there) != len(test.files) {
			t.Errorf("it wrote %v: %v", there, err)
		}
		file := filepath.Join(dir, test.files[0])
		if got := cloop(t, "fleet", "init", file); got.code == 0 || !strings.Contains(got.stderr, file+" is a file: name a directory") {
			t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
		}
	}
}

// A repository in a repository is followed by nobody.
func TestFleetInitWithinARepository(t *testing.T) {
	noHub(t)
	dir := t.TempDir()
	gitIn(t, dir, "init", "--quiet")
	for _, within := range []string{"infra/fleet", "."} {
		t.Chdir(dir)
		if within == "." {
			if err := os.Mkdir("there", 0o755); err != nil {
				t.Fatal(err)
			}
			t.Chdir(filepath.Join(dir, "there"))
		}
		got := cloop(t, "fleet", "init", within)
		if got.code != 1 || !strings.Contains(got.stderr, "nothing was written: name a directory outside of it") {
			t.Errorf("%s: exit code %d: %s%s", within, got.code, got.stdout, got.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "infra")); err == nil {
		t.Error("something was written")
	}
}

func TestFleetInitTakesTheCloneAndTheEnvironment(t *testing.T) {
	noHub(t)
	dir := t.TempDir()
	gitIn(t, dir, "init", "--quiet")
	gitIn(t, dir, "remote", "add", "origin", "https://bot:of-the-clone@git.example.com/a/fleet.git")
	t.Setenv("CLOOP_HUB", "https://hub.example.com:8443")
	t.Setenv("CLOOP_HUB_PIN", "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	got := cloop(t, "fleet", "init", dir, "--cluster", "only")
	if got.code != 0 || strings.Contains(got.stdout, "replace") || strings.Contains(got.stdout, "init --initial-branch") || strings.Contains(got.stdout, "set hubCAPin") {
		t.Fatalf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
	for name, want := range map[string]string{
		"pools/base/agents.yaml":       "hubCAPin: sha256:AAAA",
		"bootstrap/only/poolsync.yaml": "url: https://git.example.com/a/fleet.git\n",
	} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(data), want) || strings.Contains(string(data), "of-the-clone") {
			t.Errorf("%s is %s: %v", name, data, err)
		}
	}
	bad := cloop(t, "fleet", "init", t.TempDir(), "--cluster", "No", "--hub", "ftp://x")
	if bad.code != 2 || !strings.Contains(bad.stderr, `"No" is no name`) || !strings.Contains(bad.stderr, "the hub's URL must be https") {
		t.Errorf("exit code %d: %s%s", bad.code, bad.stdout, bad.stderr)
	}
}
