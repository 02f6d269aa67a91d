package scaffold_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/scaffold"
	"cloop.dev/cloop/schemas"
)

const (
	goodPin     = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	certificate = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
)

func options(change func(*scaffold.Options)) scaffold.Options {
	o := scaffold.Options{
		HubURL: "https://cloop.example.com:8443", HubCAPin: goodPin, Clusters: []string{"eu", "us"},
		Repository: "https://git.example.com/platform/fleet.git", Branch: "main",
	}
	if change != nil {
		change(&o)
	}
	return o
}

func written(t *testing.T, o scaffold.Options) string {
	t.Helper()
	files, err := scaffold.Files(o)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "fleet")
	if _, _, err := scaffold.Write(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTheRepositoryPassesItsCheckWithoutAWarning(t *testing.T) {
	validator, err := schemas.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]scaffold.Options{
		"two clusters":   options(nil),
		"one, no pin":    options(func(o *scaffold.Options) { o.Clusters, o.HubCAPin = []string{"only"}, "" }),
		"a odd branch":   options(func(o *scaffold.Options) { o.Branch = "release/1.0" }),
		"over ssh":       options(func(o *scaffold.Options) { o.Repository = "ssh://git@git.example.com:2222/platform/fleet.git" }),
		"a branch of 7s": options(func(o *scaffold.Options) { o.Clusters, o.Branch = []string{"1", "2e3", "null"}, "777" }),
	} {
		t.Run(name, func(t *testing.T) {
			dir := written(t, o)
			report, err := fleet.Check(t.Context(), validator, dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Problems) > 0 {
				t.Errorf("problems: %v", report.Problems)
			}
			if want := 1 + 2*len(o.Clusters); len(report.Roots) != want {
				t.Errorf("%d roots, want %d", len(report.Roots), want)
			}
			for _, cluster := range o.Clusters {
				rendered, err := fleet.Build(t.Context(), dir, "clusters/"+cluster)
				if err != nil {
					t.Fatal(err)
				}
				var labelled bool
				for _, r := range rendered {
					if labels, _ := r.Object.Object["spec"].(map[string]any)["runnerLabels"].(map[string]any); labels["cluster"] == cluster {
						labelled = r.Object.GetNamespace() == "cloop-pools"
					}
				}
				if !labelled {
					t.Errorf("cluster %s renders no pool with its label", cluster)
				}
			}
		})
	}
}

// Rules that look at changes need the base.
func TestTheJobsCheckAgainstTheBase(t *testing.T) {
	files, err := scaffold.Files(options(nil))
	if err != nil {
		t.Fatal(err)
	}
	for name, base := range map[string]string{
		".github/workflows/fleet.yaml": "'--base HEAD^1'",
		".gitlab-ci.yml":               `--base "$CI_MERGE_REQUEST_DIFF_BASE_SHA"`,
	} {
		checked := false
		for line := range strings.Lines(string(files[name])) {
			if strings.Contains(line, "cloop fleet check") {
				checked = true
				if !strings.Contains(line, base) {
					t.Errorf("%s checks without a base: %s", name, line)
				}
			}
		}
		var parsed map[string]any
		if err := yaml.Unmarshal(files[name], &parsed); err != nil || !checked {
			t.Errorf("%s: checked %t: %v", name, checked, err)
		}
	}
}

func TestOnlyCertificatesOfABundleAreWritten(t *testing.T) {
	key := "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n"
	files, err := scaffold.Files(options(func(o *scaffold.Options) { o.HubCABundle = "of the hub\n" + key + certificate + "\r\n\t{{ x" }))
	if err != nil {
		t.Fatal(err)
	}
	pool := string(files["pools/base/agents.yaml"])
	if !strings.Contains(pool, "  hubCABundle: |\n    -----BEGIN CERTIFICATE-----\n    MAA=\n    -----END CERTIFICATE-----\n") ||
		strings.Contains(pool, "PRIVATE") || strings.Contains(pool, "of the hub") {
		t.Errorf("the pool is\n%s", pool)
	}
}

func TestEveryProblemOfTheOptionsIsNamed(t *testing.T) {
	_, err := scaffold.Files(scaffold.Options{
		HubURL: "http://hub", HubCAPin: "sha256:short", HubCABundle: "no PEM", Repository: "https://u:secret-word@git.example.com/x", Branch: "a b",
		Clusters: []string{"Upper", "../x", "hub", "eu", "eu"},
	})
	for _, want := range []string{"the hub's URL", "the hub's pin", "not PEM", "no other user information", `"a b"`, `"Upper"`, `"../x"`, "called hub", "cluster eu is named twice"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "secret-word") {
		t.Error("a password is quoted")
	}
	for _, url := range []string{"https://a b", "https://a/\"b", "https://a/{{.}}", "https://a/#x", "https://a?x", "https://[::1/x"} {
		if _, err := scaffold.Files(options(func(o *scaffold.Options) { o.HubURL = url })); err == nil {
			t.Errorf("%q is taken for a hub", url)
		}
	}
	if _, err := scaffold.Files(options(func(o *scaffold.Options) { o.Clusters = nil })); err == nil {
		t.Error("no cluster is enough")
	}
}

func TestNothingIsOverwritten(t *testing.T) {
	files, err := scaffold.Files(options(nil))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.WriteFile(filepath.Join(dir, "README.md"), []byte("mine\n"), 0o600))
	check(os.WriteFile(filepath.Join(dir, ".gitlab-ci.yml"), []byte("mine\n"), 0o600))
	check(os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("mine\n"), 0o600))
	check(os.Mkdir(filepath.Join(dir, "hub"), 0o755))
	check(os.WriteFile(filepath.Join(dir, "hub/agents.yaml"), []byte("mine\n"), 0o600))
	var occupied *scaffold.OccupiedError
	if _, _, err = scaffold.Write(dir, files); !errors.As(err, &occupied) || !slices.Equal(occupied.Paths, []string{"hub/agents.yaml"}) {
		t.Fatalf("written over a file: %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 4 {
		t.Errorf("a part was written: %v", entries)
	}

	check(os.Remove(filepath.Join(dir, "hub/agents.yaml")))
	written, beside, err := scaffold.Write(dir, files)
	check(err)
	if len(written) != len(files) || !maps.Equal(beside, map[string]string{"README.md": "FLEET.md", ".gitlab-ci.yml": ".gitlab/cloop.yml"}) {
		t.Errorf("wrote %d of %d, beside %v", len(written), len(files), beside)
	}
	if ours, _ := os.ReadFile(filepath.Join(dir, ".gitlab/cloop.yml")); string(ours) != string(files[".gitlab-ci.yml"]) {
		t.Errorf("the jobs are %q", ours)
	}
	if mine, _ := os.ReadFile(filepath.Join(dir, "README.md")); string(mine) != "mine\n" {
		t.Errorf("README.md has %q", mine)
	}
}

// A hook that only says "not found" is turned off, not mended.
func TestTheHookSaysThatItNeedsCloop(t *testing.T) {
	hook := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join(written(t, options(nil)), ".githooks/pre-commit"))
	hook.Env = []string{"PATH=" + t.TempDir()}
	if said, err := hook.CombinedOutput(); err == nil || !strings.Contains(string(said), "cloop is not on the PATH") || strings.Contains(string(said), "not found") {
		t.Errorf("%v: %s", err, said)
	}
}

func TestALinkLeadsNothingOutOfTheDirectory(t *testing.T) {
	files, err := scaffold.Files(options(nil))
	if err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	for _, name := range []string{"hub", "pools", "kinds"} {
		dir := t.TempDir()
		if err := os.Symlink(outside, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := scaffold.Write(dir, files); err == nil {
			t.Errorf("written through a link at %s", name)
		}
		entries, _ := os.ReadDir(dir)
		if len(entries) != 1 {
			t.Errorf("a part was left: %v", entries)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) > 0 {
		t.Errorf("written outside: %v", entries)
	}
}

func TestWhatWasWrittenGoesWhenTheRestCannotBe(t *testing.T) {
	files, err := scaffold.Files(options(nil))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// Longer than a name may be: the last of all cannot be made.
	files["z/"+strings.Repeat("z", 300)] = nil
	if _, _, err := scaffold.Write(dir, maps.Clone(files)); err == nil {
		t.Fatal("written")
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// TestTheHookChecksWhatIsCommitted has a stand-in for cloop that says what it
// finds.
func TestTheHookChecksWhatIsCommitted(t *testing.T) {
	dir, bin := written(t, options(nil)), t.TempDir()
	stub := "#!/bin/sh\n[ \"$1 $2\" = 'fleet check' ] && ! grep -rqs BROKEN hub && cat hub/agents.yaml >> " + bin + "/seen\n"
	if err := os.WriteFile(filepath.Join(bin, "cloop"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) error {
		command := exec.CommandContext(t.Context(), "git", args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "PATH="+bin+":"+os.Getenv("PATH"), "TMPDIR="+t.TempDir(),
			"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com")
		printed, err := command.CombinedOutput()
		t.Logf("git %v: %s", args, printed)
		return err
	}
	change := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "hub/agents.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"config", "core.hooksPath", ".githooks"}, {"add", "-A"}, {"commit", "-q", "-m", "Begin"}} {
		if err := git(args...); err != nil {
			t.Fatal(err)
		}
	}
	// What is staged is good, what lies there is not.
	change("staged\n")
	if err := git("add", "-A"); err != nil {
		t.Fatal(err)
	}
	change("BROKEN\n")
	if err := git("commit", "-q", "-m", "Staged"); err != nil {
		t.Error("what is not committed counts")
	}
	if err := git("commit", "-q", "-a", "-m", "Broken"); err == nil {
		t.Error("a broken commit passes")
	}
	if err := git("commit", "-q", "-m", "Broken", "hub/agents.yaml"); err == nil {
		t.Error("a broken commit of one path passes")
	}
	if seen, _ := os.ReadFile(filepath.Join(bin, "seen")); !strings.HasSuffix(string(seen), "staged\n") {
		t.Errorf("checked %s", seen)
	}
}
