package fleet_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// hubPoolAt is a HubPool that a controller pushes to a hub.
func hubPoolAt(url, maximum string) string {
	return strings.Replace(hubPool, "maxRunners: 4", "maxRunners: "+maximum, 1) + "  hub: {url: \"" + url + "\", tokenSecretRef: {name: t}}\n"
}

// What an object of the repository has applied is a root, whoever else refers to it.
func TestWhatIsAppliedIsARoot(t *testing.T) {
	files := with(sound(), map[string]string{
		"bootstrap/kustomization.yaml": "resources: [eu.yaml]\n", "bootstrap/eu.yaml": poolSync("eu", "./clusters/eu", ""),
		"clusters/canary/kustomization.yaml": "resources: [../eu]\npatches: [{path: fewer.yaml}]\n",
		"clusters/canary/fewer.yaml":         "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: gpu, namespace: cloop-gpu}\nspec: {maxRunners: 2}\n",
		"clusters/eu/larger.yaml":            strings.Replace(sound()["clusters/eu/larger.yaml"], "maxRunners: 3", "maxRunners: x", 1),
	})
	if got, want := places(check(t, files)), []string{"schema clusters/eu/larger.yaml:6:3 spec.maxRunners"}; !slices.Equal(got, want) {
		t.Errorf("problems %q, want %q", got, want)
	}
}

// Two hubs in one repository each have their own halves.
func TestPoolsAreHeldToTheirOwnHub(t *testing.T) {
	const prod, staging = "https://prod.example.com", "https://staging.example.com"
	at := func(url, maximum string) string {
		return strings.NewReplacer("https://cloop.example.com", url, "maxRunners: 4", "maxRunners: "+maximum).Replace(basePool)
	}
	pushed := map[string]string{
		"hubs/prod/gpu.yaml": hubPoolAt(prod, "9"), "hubs/staging/gpu.yaml": hubPoolAt(staging, "2"),
		"clusters/prod/gpu.yaml": at(prod, "9"), "clusters/staging/gpu.yaml": at(staging+":443", "2"),
	}
	read := with(map[string]string{}, pushed)
	for name, maximum := range map[string]string{"hubs/prod/gpu.yaml": "9", "hubs/staging/gpu.yaml": "2"} {
		read[name] = strings.Replace(hubPool, "maxRunners: 4", "maxRunners: "+maximum, 1)
	}
	clone := func(files, changes map[string]string) map[string]string {
		return with(with(map[string]string{}, files), changes)
	}
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"pushed":               {pushed, nil},
		"read":                 {read, nil},
		"above its own":        {clone(pushed, map[string]string{"clusters/staging/gpu.yaml": at(staging, "3")}), []string{"maximum-above-hub clusters/staging/gpu.yaml:10:3 spec.maxRunners"}},
		"above all":            {clone(read, map[string]string{"clusters/prod/gpu.yaml": at(prod, "10")}), []string{"maximum-above-hub clusters/prod/gpu.yaml:10:3 spec.maxRunners"}},
		"of no hub":            {clone(pushed, map[string]string{"clusters/staging/gpu.yaml": at("https://third.example.com", "2")}), []string{"hub-url-disagrees clusters/staging/gpu.yaml:7:3 spec.hubURL", "hubpool-without-pool hubs/staging/gpu.yaml:4:3 metadata.name"}},
		"one hub, spelt twice": {clone(pushed, map[string]string{"clusters/prod/more.yaml": strings.Replace(at(strings.ToUpper(prod[:5])+prod[5:]+":443", "1"), "name: gpu", "name: other", 1) + "  hubPool: gpu\n"}), []string{"duplicate-pool clusters/prod/more.yaml:11:3 spec.hubPool"}},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, test.files)
			if got := places(report); !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("problems %q, want %q: %v", got, test.want, report.Problems)
			}
		})
	}
}

// Texts that only speak of cloop.dev make no fleet of the directory that they are
// in; a document whose fields are misspelt does.
func TestWhatOnlySpeaksOfUsIsNoFleet(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		ours bool
	}{
		"values of a chart": {"nodeSelector:\n  cloop.dev/pool: gpu\n", false},
		"a compose file":    {"services:\n  a:\n    labels: [\"cloop.dev/project=web\"]\n", false},
		"in a comment":      {"# see https://cloop.dev/docs\na: b\n", false},
		"a document":        {"apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\n", true},
		"in quotes":         {"{\"apiVersion\": \"cloop.dev/v1alpha1\"}", true},
		"of another case":   {"apiversion: cloop.dev/v1alpha1\n", true},
		"without a version": {"kind: ExecutorPool\nmetadata: {name: x}\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			files := with(sound(), map[string]string{"apps/web/values.yaml": test.file, "apps/web/other.yaml": "a: b\n"})
			if report := check(t, files); report.Failed() != test.ours {
				t.Errorf("problems %v", report.Problems)
			}
		})
	}
}

// What Git keeps for itself is in no build, however it is named.
func TestGitsOwnDirectoryIsNotRead(t *testing.T) {
	const generated = "resources: [../../pools/base]\nconfigMapGenerator:\n- name: c\n  files: [c=%]\n  options: {annotations: {config.kubernetes.io/local-config: \"true\"}}\n" +
		"replacements:\n- source: {kind: ConfigMap, name: c, fieldPath: data.c}\n  targets: [{select: {kind: ExecutorPool}, fieldPaths: [spec.hubURL]}]\n"
	for name, file := range map[string]string{"by its path": "../../.git/config", "in capitals": "../../.GIT/config", "as a resource": ""} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(generated, "%", file, 1)
			if file == "" {
				text = "resources: [../../.git/config]\n"
			}
			files := with(sound(), map[string]string{
				".git/config": "extraheader: basic c2VjcmV0\n", ".GIT/config": "extraheader: basic c2VjcmV0\n", "clusters/eu/kustomization.yaml": text,
			})
			report := check(t, files)
			if !report.Failed() {
				t.Error("it was read")
			}
			for _, problem := range report.Problems {
				if strings.Contains(problem.String(), "c2VjcmV0") {
					t.Errorf("shown: %s", problem)
				}
			}
		})
	}
}

// What kustomize would need minutes for is refused at once.
func TestDeepDocumentsAreRefused(t *testing.T) {
	deep := func(levels int) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: deep}\ndata: " + strings.Repeat("{a: ", levels) + "b" + strings.Repeat("}", levels) + "\n"
	}
	block := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: deep}\ndata:\n"
	for i := range 600 {
		block += strings.Repeat(" ", i+1) + "a:\n"
	}
	for name, text := range map[string]string{"flow": deep(9000), "block": block, "patch": ""} {
		t.Run(name, func(t *testing.T) {
			files := with(sound(), map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../pools/base, deep.yaml]\n", "clusters/eu/deep.yaml": text})
			if text == "" {
				files["clusters/eu/kustomization.yaml"] = "resources: [../../pools/base]\npatches:\n- patch: |\n    " + strings.ReplaceAll(strings.TrimSpace(deep(9000)), "\n", "\n    ") + "\n"
			}
			report := check(t, files)
			if len(report.Problems) != 1 || report.Problems[0].Rule != fleet.RuleTooLarge || !strings.Contains(report.Problems[0].Message, "nested more than 500 levels") {
				t.Errorf("problems %v", report.Problems)
			}
		})
	}
	files := with(sound(), map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../pools/base, deep.yaml]\n", "clusters/eu/deep.yaml": deep(100)})
	if report := check(t, files); slices.ContainsFunc(places(report), func(p string) bool { return strings.HasPrefix(p, fleet.RuleTooLarge) }) {
		t.Errorf("a hundred levels: %v", report.Problems)
	}
}

// A job may keep a credential beside the repository, which no pull request is to
// show.
func TestOnlyWhatGitTracksIsRead(t *testing.T) {
	dir := repo(t, with(sound(), map[string]string{
		"clusters/eu/kustomization.yaml": "resources: [../../pools/base]\nconfigMapGenerator:\n- name: c\n  files: [c=../../key.json]\n  options: {annotations: {config.kubernetes.io/local-config: \"true\"}}\n" +
			"replacements:\n- source: {kind: ConfigMap, name: c, fieldPath: data.c}\n  targets: [{select: {kind: ExecutorPool}, fieldPaths: [spec.hubURL]}]\n",
	}))
	git := func(args ...string) {
		t.Helper()
		command := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	git("init", "-q")
	git("add", "-A")
	fleettest.WriteFiles(t, dir, map[string]string{"key.json": "c2VjcmV0", "pools/base/more.yaml": named("more"), "new/gpu.yaml": "apiVersion: cloop.dev/v1alpha1\nkind: Nonsense\n"})
	// Nor does what is tracked lead to it.
	if err := os.Mkdir(filepath.Join(dir, ".cloop"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{".cloop/rules.cue": "../key.json", ".cloop/config.yaml": "../.git/config"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	git("add", ".cloop")
	fleettest.WriteFiles(t, dir, map[string]string{"dist/kustomization.yaml": "resources: [nowhere.yaml]\n"})
	for _, version := range []string{"2", "4"} {
		git("update-index", "--index-version", version)
		tracked, err := fleet.ReadTracked(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		report, err := fleet.Checking{Validator: validator(t), Tracked: tracked}.Check(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(report.Problems)
		if strings.Contains(text, "c2VjcmV0") || strings.Contains(text, "Nonsense") || strings.Contains(text, "dist/") || strings.Contains(text, "repositoryformatversion") ||
			!strings.Contains(text, "Git does not track it") || !strings.Contains(text, ".cloop/rules.cue:1:1: the file cannot be read") {
			t.Errorf("problems %s", text)
		}
	}
	if _, err := fleet.ReadTracked(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "--untracked") {
		t.Errorf("no repository: %v", err)
	}
}

// What another team has applied by Flux may be remote; what a PoolSync applies, or may,
// may not.
func TestRemoteBasesOfOthersAreBorne(t *testing.T) {
	const remote = "resources: [\"https://example.com/base?ref=v1\"]\n"
	flux := "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: web, namespace: flux-system}\nspec: {path: ./apps/web}\n"
	argo := func(path string) string {
		return "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: web, namespace: argocd}\nspec: {source: {path: " + path + "}}\n"
	}
	for name, test := range map[string]struct {
		files  map[string]string
		failed bool
	}{
		"by Flux":               {map[string]string{"apps/web/kustomization.yaml": remote, "flux/web.yaml": flux}, false},
		"a chart":               {map[string]string{"apps/web/kustomization.yaml": "helmCharts: [{name: web, repo: https://example.com}]\n", "flux/web.yaml": flux}, false},
		"nobody knows by whom":  {map[string]string{"apps/web/kustomization.yaml": remote}, false},
		"beside clusters":       {map[string]string{"clusters/web/kustomization.yaml": remote}, true},
		"by Argo CD":            {map[string]string{"apps/web/kustomization.yaml": remote, "clusters/web.yaml": argo("apps/web")}, false},
		"by a PoolSync":         {map[string]string{"apps/web/kustomization.yaml": remote, "flux/web.yaml": poolSync("web", "./apps/web", "")}, true},
		"with a pool":           {map[string]string{"apps/web/kustomization.yaml": remote + "patches: [{target: {kind: ExecutorPool}, patch: \"[{op: add, path: /spec/minRunners, value: 1}]\"}]\n", "flux/web.yaml": flux}, true},
		"with one of our files": {map[string]string{"apps/web/kustomization.yaml": "resources: [\"https://example.com/base?ref=v1\", gpu.yaml]\n", "apps/web/gpu.yaml": basePool, "flux/web.yaml": flux}, true},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, with(sound(), test.files))
			if report.Failed() != test.failed || len(report.Problems) == 0 || len(report.Unfound()) > 0 {
				t.Errorf("failed: %t, not found: %v, problems %v", report.Failed(), report.Unfound(), report.Problems)
			}
		})
	}
}

// A hook names files: that of a kustomization stands for the kustomization.
func TestAKustomizationsFileStandsForIt(t *testing.T) {
	report := check(t, sound(), "clusters/eu/kustomization.yaml")
	if got, want := rootsOf(report), []string{"clusters/eu: 1"}; !slices.Equal(got, want) || len(report.Problems) > 0 {
		t.Errorf("roots %q, problems %v", got, report.Problems)
	}
}
