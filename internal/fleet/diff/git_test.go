package diff_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet/diff"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// repo is a repository made with git in a temporary directory.
type repo struct {
	t   testing.TB
	dir string
}

// fleetFiles are a hub half and two clusters that share a base.
func fleetFiles() map[string]string {
	return map[string]string{
		"hub/kustomization.yaml":         "resources: [gpu.yaml]\n",
		"hub/gpu.yaml":                   hubPool("gpu", "maxRunners: 8"),
		"pools/base/kustomization.yaml":  "resources: [gpu.yaml]\n",
		"pools/base/gpu.yaml":            executorPool("gpu", "maxRunners: 4"),
		"clusters/eu/kustomization.yaml": "resources: [../../pools/base]\n",
		"clusters/us/kustomization.yaml": "resources: [../../pools/base]\n",
		"README.md":                      "A fleet.\n",
	}
}

func hubPool(name, spec string) string {
	return "apiVersion: cloop.dev/v1alpha1\nkind: HubPool\nmetadata:\n  name: " + name + "\n  namespace: fleet\nspec:\n  " + spec + "\n"
}

func executorPool(name, spec string) string {
	return "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata:\n  name: " + name + "\n  namespace: cloop-pools\nspec:\n" +
		"  hubURL: https://hub.example.com\n  poolCredentialSecretRef: {name: " + name + "-credential}\n  " + spec + "\n"
}

func newRepo(t testing.TB, files map[string]string, options ...string) *repo {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &repo{t, dir}
	r.git(append([]string{"init", "-q", "-b", "main"}, options...)...)
	if files != nil {
		r.commit("Begin", files)
	}
	return r
}

func (r *repo) git(args ...string) string {
	r.t.Helper()
	out, err := r.try(args...)
	if err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (r *repo) try(args ...string) (string, error) {
	command := exec.Command("git", args...)
	command.Dir = r.dir
	command.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_ALLOW_PROTOCOL=file",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com")
	out, err := command.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (r *repo) write(files map[string]string) {
	r.t.Helper()
	fleettest.WriteFiles(r.t, r.dir, files)
}

func (r *repo) commit(subject string, files map[string]string) string {
	r.t.Helper()
	r.write(files)
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", subject)
	return r.git("rev-parse", "HEAD")
}

// clean takes back what no commit has.
func (r *repo) clean() {
	r.t.Helper()
	r.git("reset", "-q", "--hard")
	r.git("clean", "-qfd")
}

// clone is of the repository, over the way that knows depth and filters.
func (r *repo) clone(options ...string) *repo {
	r.t.Helper()
	dir, err := filepath.EvalSymlinks(r.t.TempDir())
	if err != nil {
		r.t.Fatal(err)
	}
	c := &repo{r.t, dir}
	c.git(append(append([]string{"clone", "-q"}, options...), "file://"+r.dir, dir)...)
	return c
}

func (r *repo) compare(base string, paths ...string) (*diff.Report, error) {
	r.t.Helper()
	report, err := diff.Compare(context.Background(), diff.Options{Dir: r.dir, Base: base, Paths: paths})
	if err == nil {
		report.Judge(diff.FailOnAny)
	}
	return report, err
}

// summary is the answer on one line; why there is none otherwise.
func (r *repo) summary(base string, paths ...string) string {
	r.t.Helper()
	report, err := r.compare(base, paths...)
	if err != nil {
		return "error: " + strings.ReplaceAll(err.Error(), r.dir, "DIR")
	}
	return report.Summary
}

func (r *repo) want(base, want string) {
	r.t.Helper()
	if got := r.summary(base); got != want {
		r.t.Errorf("against %s: %s\nwant %s", base, got, want)
	}
}

const (
	noDifference = "3 roots: no difference"
	oneChanged   = "1 of 3 roots differ: 1 changed (1 raise)"
)

// more raises the hub's maximum.
var more = map[string]string{"hub/gpu.yaml": hubPool("gpu", "maxRunners: 9")}

func TestTheWorkTreeIsComparedAsItIs(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	r.want("HEAD", noDifference)
	r.write(more)
	r.want("HEAD", oneChanged)
	r.git("add", "-A")
	r.want("HEAD", oneChanged)
	r.write(map[string]string{"clusters/us/kustomization.yaml": fleettest.Removed,
		"clusters/asia/kustomization.yaml": "resources: [../../pools/base]\n"})
	r.want("HEAD", "3 of 4 roots differ: 1 added, 1 removed, 1 changed (2 raise, 1 neutral)")
}

// Neither the index nor anything else of the repository is written to, and
// nothing of the base gets into the work tree.
func TestNothingIsWritten(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	r.commit("More", more)
	r.write(map[string]string{"clusters/eu/new.yaml": executorPool("cpu", "maxRunners: 1"), "hub/gpu.yaml": fleettest.Removed})
	before := snapshot(t, r.dir)
	r.summary("HEAD~1")
	if after := snapshot(t, r.dir); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// snapshot is every file below a directory with its size and time.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		b.WriteString(name + " " + info.ModTime().String() + " " + info.Mode().String() + "\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestNamesOfTheBase(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	first := r.git("rev-parse", "HEAD")
	r.git("tag", "light")
	r.git("tag", "-a", "-m", "annotated", "v1.0.0")
	r.git("tag", "-a", "-m", "of a tag", "v1", "v1.0.0")
	r.git("branch", "release/1.x")
	r.git("checkout", "-q", "-b", "side")
	r.commit("Side", map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../pools/base]\nnamePrefix: x-\n"})
	r.git("checkout", "-q", "main")
	r.commit("More", more)
	r.git("merge", "-q", "--no-ff", "-m", "Merge", "side")
	r.git("branch", "-q", "--set-upstream-to=side", "main")
	merge := "1 of 3 roots differ: 1 added, 1 removed (1 destructive, 1 raise)"
	whole := "2 of 3 roots differ: 1 added, 1 removed, 1 changed (1 destructive, 2 raise)"
	for base, want := range map[string]string{
		"HEAD": noDifference, "@": noDifference, "main": noDifference, "refs/heads/main": noDifference, "heads/main": noDifference,
		"HEAD~1": merge, "HEAD^": merge, "HEAD^1": merge, "main~": merge, "HEAD^0": noDifference,
		"HEAD^2": oneChanged, "side": oneChanged, "@{upstream}": oneChanged, ":/Side": oneChanged,
		"HEAD~2": whole, "HEAD^2~1": whole, "HEAD^2^": whole, first: whole, first[:7]: whole, first[:8]: whole,
		"light": whole, "v1.0.0": whole, "v1": whole, "tags/v1": whole, "release/1.x": whole, "v1.0.0^{}": whole,
	} {
		r.want(base, want)
	}
	// Packed, and after the loose objects are gone.
	r.git("gc", "-q", "--prune=now")
	r.want("HEAD^2~1", whole)
	r.want("v1", whole)
	r.want(first[:9], whole)
	// A merge commit as the base is that commit, not where the lines part.
	r.git("checkout", "-q", "side")
	r.want("main", "1 of 3 roots differ: 1 changed (1 lower)")
}

func TestABaseThatIsNotHere(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	r.git("remote", "add", "origin", "https://git.example.com/fleet.git")
	r.git("update-ref", "refs/remotes/origin/release", "HEAD")
	blob := r.git("rev-parse", "HEAD:README.md")
	for base, want := range map[string]string{
		"nowhere":               "error: there is no revision nowhere here: correct --base, or run `git fetch origin` where the remote has it",
		"release":               "error: there is no revision release here: did you mean --base origin/release?",
		"HEAD~7":                "error: there is no revision HEAD~7 here: correct --base, or run `git fetch origin` where the remote has it",
		"HEAD^3":                "error: there is no revision HEAD^3 here: correct --base, or run `git fetch origin` where the remote has it",
		"--help":                "error: there is no revision --help here: correct --base, which is a branch, a tag or a commit",
		"~1":                    "error: there is no revision ~1 here: correct --base, which is a branch, a tag or a commit",
		"main~99999999999":      "error: there is no revision main~99999999999 here: correct --base, or run `git fetch origin` where the remote has it",
		"../main":               "error: there is no revision ../main here: correct --base, which is a branch, a tag or a commit",
		blob:                    "error: " + blob + " is a blob and no commit: correct --base, which is a branch, a tag or a commit",
		"HEAD:hub":              "error: HEAD:hub is a tree and no commit: correct --base, which is a branch, a tag or a commit",
		strings.Repeat("0", 40): "error: there is no revision " + strings.Repeat("0", 40) + " here: correct --base, or run `git fetch origin` where the remote has it",
		"":                      "error: no revision to compare with: name one with --base, such as origin/main",
		"FETCH_HEAD":            "error: there is no revision FETCH_HEAD here: correct --base, or run `git fetch origin` where the remote has it",
		"origin/nowhere":        "error: there is no revision origin/nowhere here: correct --base, or run `git fetch origin` where the remote has it",
	} {
		r.want(base, want)
	}
}

// What a message says to run is run, and then there is an answer.
func TestShallowClone(t *testing.T) {
	t.Parallel()
	origin := newRepo(t, fleetFiles())
	first := origin.git("rev-parse", "HEAD")
	origin.git("branch", "release")
	origin.git("config", "uploadpack.allowReachableSHA1InWant", "true")
	origin.commit("More", more)
	for base, steps := range map[string]struct{ says, base string }{
		"origin/release": {"run `git fetch --depth=1 origin release`, and compare with --base FETCH_HEAD", "FETCH_HEAD"},
		"release":        {"run `git fetch --depth=1 origin release`, and compare with --base FETCH_HEAD", "FETCH_HEAD"},
		first:            {"run `git fetch --depth=1 origin " + first + "`, and compare again", first},
		"HEAD~1":         {"run `git fetch --deepen=10 origin`, or have the job check out with fetch-depth: 2, and compare again", "HEAD~1"},
		"HEAD^":          {"run `git fetch --deepen=10 origin`, or have the job check out with fetch-depth: 2, and compare again", "HEAD^"},
		"HEAD^1":         {"run `git fetch --deepen=10 origin`, or have the job check out with fetch-depth: 2, and compare again", "HEAD^1"},
	} {
		t.Run(base, func(t *testing.T) {
			clone := origin.clone("--depth=1")
			clone.t = t
			clone.want("HEAD", noDifference)
			clone.want("origin/main", noDifference)
			clone.want(base, "error: "+base+" is not in this clone, which is shallow: "+steps.says)
			command := regexp.MustCompile("`git ([^`]*)`").FindStringSubmatch(steps.says)[1]
			clone.git(strings.Fields(command)...)
			clone.want(steps.base, oneChanged)
		})
	}
}

// Nothing that cannot work is advised.
func TestABaseThatNoFetchBrings(t *testing.T) {
	t.Parallel()
	origin := newRepo(t, fleetFiles())
	tree := origin.git("rev-parse", "HEAD:")
	origin.commit("More", more)
	clone := origin.clone("--depth=1")
	const correct = "correct --base, which is a branch, a tag or a commit"
	for base, want := range map[string]string{
		"--all":               "there is no revision --all here: " + correct,
		"HEAD~1:hub":          "there is no revision HEAD~1:hub here: " + correct,
		"release@{yesterday}": "there is no revision release@{yesterday} here: " + correct,
		"a b":                 "there is no revision a b here: " + correct,
		"HEAD:hub":            "HEAD:hub is a tree and no commit: " + correct,
		tree[:12]:             tree[:12] + " is not in this clone, which is shallow, and a remote finds no commit by a part of its name: give all of it",
	} {
		clone.want(base, "error: "+want)
	}
	here := clone.git("rev-parse", "HEAD:")
	clone.want(here, "error: "+here+" is a tree and no commit: "+correct)
}

func TestFork(t *testing.T) {
	t.Parallel()
	upstream := newRepo(t, fleetFiles())
	fork := upstream.clone()
	fork.git("remote", "add", "upstream", "file://"+upstream.dir)
	fork.commit("More", more)
	upstream.commit("Elsewhere", map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../pools/base]\nnamePrefix: x-\n"})
	fork.want("upstream/main", "error: there is no revision upstream/main here: correct --base, or run `git fetch upstream` where the remote has it")
	fork.git("fetch", "-q", "upstream")
	fork.want("origin/main", oneChanged)
	// Exactly that commit, so what only it has counts as taken back.
	fork.want("upstream/main", "2 of 3 roots differ: 1 added, 1 removed, 1 changed (1 destructive, 2 raise)")
	fork.want(fork.git("merge-base", "HEAD", "upstream/main"), oneChanged)
	shallow := upstream.clone("--depth=1")
	shallow.git("remote", "add", "fork", "file://"+fork.dir)
	shallow.want("fork/main", "error: fork/main is not in this clone, which is shallow: run `git fetch --depth=1 fork main`, and compare with --base FETCH_HEAD")
}

func TestSecondWorkTree(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	r.commit("More", more)
	dir := filepath.Join(r.dir, "..", "second")
	r.git("worktree", "add", "-q", "-b", "topic", dir, "HEAD~1")
	second := &repo{t, filepath.Clean(dir)}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	second.want("HEAD", noDifference)
	second.want("main", "1 of 3 roots differ: 1 changed (1 lower)")
	second.git("config", "extensions.worktreeConfig", "true")
	second.want("main", "1 of 3 roots differ: 1 changed (1 lower)")
	if err := os.RemoveAll(filepath.Join(r.dir, ".git", "worktrees")); err != nil {
		t.Fatal(err)
	}
	if got := second.summary("main"); !strings.Contains(got, "is not there: run `git worktree repair` in the main work tree") {
		t.Error(got)
	}
}

func TestWithoutAWorkTree(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	bare := &repo{t, filepath.Join(t.TempDir(), "bare.git")}
	r.git("clone", "-q", "--bare", r.dir, bare.dir)
	bare.want("main", "error: DIR is a bare repository, without a work tree to compare: make one with `git worktree add DIR` and run the command there")
	none := &repo{t, t.TempDir()}
	none.want("main", "error: DIR is in no Git repository: run the command in a clone of the fleet repository")
	empty := newRepo(t, nil)
	empty.write(fleetFiles())
	empty.want("main", "error: main is not there: the repository has no commit yet: commit first, and compare the next change")
	empty.git("commit", "-q", "--allow-empty", "-m", "Nothing")
	empty.want("main", "3 of 3 roots differ: 3 added (3 raise)")
}

// go-git reads no such repository; the git program does.
func TestSHA256Repository(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles(), "--object-format=sha256")
	r.commit("More", more)
	r.want("HEAD", noDifference)
	r.want("HEAD~1", oneChanged)
	r.want("nowhere", "error: there is no revision nowhere here: correct --base, or run `git fetch origin` where the remote has it")
	r.write(map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../pools/base]\nnamePrefix: x-\n"})
	r.want("HEAD", "1 of 3 roots differ: 1 added, 1 removed (1 destructive, 1 raise)")
}

func TestPartialClone(t *testing.T) {
	t.Parallel()
	origin := newRepo(t, fleetFiles())
	origin.git("config", "uploadpack.allowFilter", "true")
	origin.commit("More", more)
	clone := origin.clone("--filter=blob:none")
	clone.want("HEAD~1", "error: read HEAD~1: this clone is partial and lacks some of it: run `git archive HEAD~1 >/dev/null`, which fetches that, and compare again")
	clone.git("archive", "-o", os.DevNull, "--format=tar", "HEAD~1")
	clone.want("HEAD~1", oneChanged)
}

func TestSparseCheckoutIsSaid(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	r.git("sparse-checkout", "set", "hub", "pools", "clusters/eu")
	report, err := r.compare("HEAD")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(report.Notes, "\n"), "run `git sparse-checkout disable`") || report.Counts.Removed != 1 {
		t.Errorf("%s, notes: %v", report.Summary, report.Notes)
	}
}

// No sync fetches a submodule, so what lies in one is of no overlay.
func TestSubmodule(t *testing.T) {
	t.Parallel()
	library := newRepo(t, map[string]string{"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": executorPool("shared", "maxRunners: 1")})
	r := newRepo(t, fleetFiles())
	r.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", "file://"+library.dir, "vendor/pools")
	r.git("commit", "-q", "-m", "Add a submodule")
	r.want("HEAD~1", noDifference)
	r.want("HEAD", noDifference)
	r.write(map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../vendor/pools]\n"})
	report, err := r.compare("HEAD")
	if err != nil {
		t.Fatal(err)
	}
	text := everything(t, report)
	if report.Summary != "3 roots: no difference in 2, 1 not compared" ||
		!strings.Contains(text, "vendor/pools: it is another repository, such as a submodule, whose files no sync fetches (copy what the root needs of it into this repository)") {
		t.Error(text)
	}
}

func TestObjectsElsewhere(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	r.commit("More", more)
	shared := &repo{t, filepath.Join(t.TempDir(), "shared")}
	r.git("clone", "-q", "--shared", r.dir, shared.dir)
	shared.want("HEAD~1", oneChanged)
}

// An overlay that one revision cannot render hides no other.
func TestARevisionThatDoesNotBuild(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	r.commit("Break", map[string]string{"clusters/eu/kustomization.yaml": "resources: [nowhere.yaml]\n"})
	r.want("HEAD", noDifference)
	r.write(more)
	report, err := r.compare("HEAD~1")
	if err != nil {
		t.Fatal(err)
	}
	if got := everything(t, report); report.Summary != oneChanged+"; 1 root not compared" || report.ExitCode() != 1 ||
		!strings.Contains(got, "clusters/eu\n  not compared: the work tree cannot be rendered, `cloop fleet check` shows all\n    clusters/eu/kustomization.yaml:1:13: nowhere.yaml: no such file or directory") {
		t.Error(got)
	}
	r.write(fleetFiles())
	report, err = r.compare("HEAD")
	if err != nil {
		t.Fatal(err)
	}
	if got := everything(t, report); report.ExitCode() != 2 || report.Verdict != diff.Unanswered || !strings.Contains(got, "the base cannot be rendered") {
		t.Error(report.Verdict, report.ExitCode(), got)
	}
}
