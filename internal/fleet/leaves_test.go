package fleet_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/sourceignore"
	"github.com/fluxcd/pkg/sourceignore/gitignore"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/fleet/ignored"
	"cloop.dev/cloop/schemas"
)

const (
	cloudBuild = "steps:\n- name: gcr.io/cloud-builders/docker\n"
	fluxSource = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: flux-system, namespace: flux-system}\nspec:\n  interval: 1m\n  url: https://git.example.com/fleet.git\n"
)

// fluxSync is a Kustomization of Flux that applies a path from a kind of source.
func fluxSync(path, kind string) string {
	return "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: flux-system, namespace: flux-system}\nspec: {path: " + path + ", prune: true, interval: 10m, sourceRef: {kind: " + kind + ", name: flux-system}}\n"
}

// fluxed is a repository that Flux applies from its top, and what lies there for others.
func fluxed(more map[string]string) map[string]string {
	files := map[string]string{
		"flux/source.yaml": fluxSource, "flux/sync.yaml": fluxSync("./", "GitRepository"), "gpu.yaml": basePool, "hub.yaml": hubPool,
	}
	maps.Copy(files, more)
	maps.DeleteFunc(files, func(_, text string) bool { return text == "" })
	return files
}

func TestWhatFluxLeavesOut(t *testing.T) {
	ci := map[string]string{}
	for _, name := range []string{"cloudbuild.yaml", "appveyor.yml", "codeship-services.yml", "codeship-steps.yml", ".travis.yml", ".gitlab-ci.yml", ".drone.yml", ".goreleaser.yml", ".github/workflows/ci.yaml", ".circleci/config.yml"} {
		ci[name] = cloudBuild
	}
	const typeMeta = "cloudbuild.yaml:1:1 type-meta"
	apps := func(kustomization string, more map[string]string) map[string]string {
		return with(fluxed(map[string]string{"gpu.yaml": "", "hub.yaml": "", "flux/sync.yaml": fluxSync("./apps", "GitRepository"), "apps/kustomization.yaml": kustomization, "apps/gpu.yaml": basePool, "apps/hub.yaml": hubPool}), more)
	}
	argo := "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: apps, namespace: argocd}\nspec:\n  source: {repoURL: \"https://git.example.com/fleet.git\", path: ., directory: {recurse: true}}\n"
	for name, test := range map[string]struct {
		files map[string]string
		// want are the problems, each as FILE:LINE:COLUMN RULE.
		want []string
		// says is a part of the first.
		says string
	}{
		"what CI keeps there":                 {fluxed(ci), nil, ""},
		"at any depth":                        {fluxed(map[string]string{"apps/cloudbuild.yaml": "a: [", "apps/x.yaml": basePool, "gpu.yaml": ""}), nil, ""},
		"a pattern brings the defaults back":  {fluxed(map[string]string{"cloudbuild.yaml": cloudBuild, ".sourceignore": "/drafts\n"}), []string{typeMeta}, ""},
		"a pattern for it":                    {fluxed(map[string]string{"cloudbuild.yaml": cloudBuild, ".sourceignore": "/cloudbuild.yaml\n"}), nil, ""},
		"a pattern in a directory":            {fluxed(map[string]string{"apps/values.yaml": cloudBuild, "apps/.sourceignore": "values.yaml\n"}), nil, ""},
		"spec.ignore brings them back":        {fluxed(map[string]string{"cloudbuild.yaml": cloudBuild, "flux/source.yaml": fluxSource + "  ignore: |\n    /drafts\n"}), []string{typeMeta}, ""},
		"spec.ignore for it":                  {fluxed(map[string]string{"values.yaml": cloudBuild, "flux/source.yaml": fluxSource + "  ignore: |\n    # none\n    /values.yaml\n"}), nil, ""},
		"spec.ignore takes it in again":       {fluxed(map[string]string{"cloudbuild.yaml": cloudBuild, ".sourceignore": "/*.yaml\n!/gpu.yaml\n!/hub.yaml\n", "flux/source.yaml": fluxSource + "  ignore: \"!/cloudbuild.yaml\"\n"}), []string{typeMeta}, ""},
		"no source here":                      {fluxed(map[string]string{"cloudbuild.yaml": cloudBuild, "flux/source.yaml": ""}), nil, ""},
		"Argo CD takes all":                   {fluxed(map[string]string{"cloudbuild.yaml": "apiVersion: v1\nmetadata: {name: kind}\n", "flux/sync.yaml": argo, "flux/source.yaml": ""}), []string{typeMeta}, ""},
		"a PoolSync with a source of its own": {fluxed(map[string]string{"cloudbuild.yaml": cloudBuild, ".sourceignore": "/cloudbuild.yaml\n", "flux/source.yaml": "", "flux/sync.yaml": poolSync("a", ".", "")}), []string{typeMeta}, ""},
		"a PoolSync with Flux's": {fluxed(map[string]string{"cloudbuild.yaml": cloudBuild, "flux/source.yaml": "", "flux/sync.yaml": strings.Replace(poolSync("a", ".", ""),
			"source: {git: {url: \"https://git.example.com/fleet.git\"}}", "sourceRef: {kind: GitRepository, name: flux-system}", 1)}), nil, ""},
		"nobody, and no .sourceignore":    {map[string]string{"gpu.yaml": basePool, "hub.yaml": hubPool, "cloudbuild.yaml": cloudBuild}, []string{typeMeta}, ""},
		"nobody, and a .sourceignore":     {map[string]string{"gpu.yaml": basePool, "hub.yaml": hubPool, "cloudbuild.yaml": cloudBuild, ".sourceignore": "/cloudbuild.yaml\n"}, nil, ""},
		"nobody, and a pool in it":        {map[string]string{"gpu.yaml": basePool, "hub.yaml": hubPool, "old.yaml": strings.Replace(basePool, "maxRunners: 4", "maxRunner: 4", 1), ".sourceignore": "/old.yaml\n"}, []string{"old.yaml:5:3 duplicate-object", "old.yaml:6:1 schema", "old.yaml:10:3 unknown-field"}, ""},
		"nobody, and another's overlay":   {with(sound(), map[string]string{"clusters/test/kustomization.yaml": "resources: [none.yaml]\nnameprefix: a\n", ".sourceignore": "/clusters/test\n"}), nil, ""},
		"nobody, and an overlay of pools": {with(sound(), map[string]string{"clusters/test/kustomization.yaml": "resources: [../../pools/base, none.yaml]\n", ".sourceignore": "/clusters/test\n"}), []string{"clusters/test/kustomization.yaml:1:31 missing-reference"}, ""},
		"another source of Flux":          {fluxed(map[string]string{"cloudbuild.yaml": cloudBuild, "flux/sync.yaml": fluxSync("./", "OCIRepository"), ".sourceignore": "/cloudbuild.yaml\n/gpu.yaml\n"}), nil, ""},

		"a resource": {apps("resources: [gpu.yaml, hub.yaml]\n", map[string]string{".sourceignore": "\n# none\n/apps/gpu.yaml\n"}), []string{"apps/kustomization.yaml:1:13 missing-reference"},
			`gpu.yaml: Flux leaves it out of what it fetches, by "/apps/gpu.yaml" at .sourceignore:3 (remove the pattern, or write !/apps/gpu.yaml below it; or remove what refers to it)`},
		"a resource, by spec.ignore": {apps("resources: [gpu.yaml, hub.yaml]\n", map[string]string{"flux/source.yaml": fluxSource + "  ignore: |\n    gpu.yaml\n"}), []string{"apps/kustomization.yaml:1:13 missing-reference"},
			`by "gpu.yaml" of spec.ignore at flux/source.yaml:7 (take the pattern out of spec.ignore, or write !/apps/gpu.yaml below it`},
		"a resource, by default": {apps("resources: [gpu.yaml, hub.yaml]\nconfigMapGenerator:\n- {name: a, files: [a.zip]}\n", map[string]string{"apps/a.zip": "x"}), []string{"apps/kustomization.yaml:3:21 missing-reference"},
			`a.zip: Flux leaves it out of what it fetches, by its default exclusion "*.zip" (rename it, or take it in with a .sourceignore that has a pattern, such as !/apps/a.zip`},
		"a base": {apps("resources: [gpu.yaml, hub.yaml, ../base]\n", map[string]string{"base/kustomization.yaml": "resources: [sa.yaml]\n", "base/sa.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n", ".sourceignore": "/base\n"}), []string{"apps/kustomization.yaml:1:33 missing-reference"},
			`../base: Flux leaves it out of what it fetches, by "/base" at .sourceignore:1 (remove the pattern, or write !/base below it`},
		"a patch":                             {apps("resources: [gpu.yaml, hub.yaml]\npatches:\n- path: p.yaml\n", map[string]string{"apps/p.yaml": strings.Replace(basePool, "maxRunners: 4", "maxRunners: 3", 1), "apps/.sourceignore": "p.yaml\n"}), []string{"apps/kustomization.yaml:3:9 missing-reference"}, `by "p.yaml" at apps/.sourceignore:1 (remove the pattern, or write !/p.yaml below it`},
		"a plugin":                            {apps("resources: [gpu.yaml, hub.yaml]\ntransformers: [t.yaml]\n", map[string]string{"apps/t.yaml": "apiVersion: builtin\nkind: LabelTransformer\nmetadata: {name: a}\nlabels: {a: b}\n", ".sourceignore": "t.yaml\n"}), []string{"apps/kustomization.yaml:2:16 missing-reference"}, "t.yaml: Flux leaves it out"},
		"by the base":                         {apps("resources: [../base]\n", map[string]string{"apps/gpu.yaml": "", "apps/hub.yaml": "", "base/kustomization.yaml": "resources: [gpu.yaml, hub.yaml, more.yaml]\n", "base/gpu.yaml": basePool, "base/hub.yaml": hubPool, "base/more.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n", "base/.sourceignore": "more.yaml\n"}), []string{"base/kustomization.yaml:1:33 missing-reference"}, "more.yaml: Flux leaves it out"},
		"and it is mended by a pattern below": {apps("resources: [gpu.yaml, hub.yaml]\n", map[string]string{".sourceignore": "/*\n!/apps\n!/flux\n"}), nil, ""},
		"every file of a path": {fluxed(map[string]string{"gpu.yaml": "", "hub.yaml": "", "flux/sync.yaml": fluxSync("./apps", "GitRepository"), "apps/gpu.yaml": basePool, "apps/README.md": "pools\n", "hub/hub.yaml": hubPool, ".sourceignore": "/apps/*.yaml\n"}),
			[]string{"flux/sync.yaml:4:8 path-not-found"}, `apps: no YAML of it is left: of apps/gpu.yaml, for one: Flux leaves it out of what it fetches, by "/apps/*.yaml" at .sourceignore:1`},
		"what nothing refers to":                    {apps("resources: [gpu.yaml, hub.yaml]\n", map[string]string{"apps/drafts/old.yaml": strings.Replace(basePool, "name: gpu", "name: old", 1), ".sourceignore": "drafts/\n"}), nil, ""},
		"its kustomization, so that all is applied": {apps("resources: [gpu.yaml]\n", map[string]string{".sourceignore": "/apps/kustomization.yaml\n", "apps/more.yaml": cloudBuild}), []string{"apps/more.yaml:1:1 type-meta"}, ""},
		"a component": {apps("resources: [gpu.yaml, hub.yaml]\n", map[string]string{"flux/sync.yaml": strings.Replace(fluxSync("./apps", "GitRepository"), "prune: true", "prune: true, components: [../spot]", 1), "spot/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnamePrefix: a-\n", ".sourceignore": "/spot\n"}),
			[]string{"flux/sync.yaml:4:48 missing-reference"}, "../spot: Flux leaves it out"},
		"its path":                 {apps("resources: [gpu.yaml, hub.yaml]\n", map[string]string{".sourceignore": "/apps/\n"}), []string{"flux/sync.yaml:4:8 path-not-found"}, `spec.path: apps: Flux leaves it out of what it fetches, by "/apps/" at .sourceignore:1`},
		"its path, but for a file": {apps("resources: [gpu.yaml, hub.yaml]\n", map[string]string{".sourceignore": "/apps/\n!gpu.yaml\n!hub.yaml\n"}), nil, ""},
		"more than is looked at":   {fluxed(map[string]string{".sourceignore": strings.Repeat("a\n", 100_001)}), []string{".sourceignore:1:1 too-large"}, "more than 100000 patterns"},
		"a directory of the name":  {fluxed(map[string]string{".sourceignore/x": "", ".sourceignore/y": "a"}), nil, ""},
		"a link":                   {fluxed(map[string]string{"values.yaml": cloudBuild, "ignored": "/values.yaml\n", ".sourceignore": fleettest.Symlink("ignored")}), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := fleet.Check(t.Context(), validator(t), repo(t, test.files))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range report.Problems {
				got = append(got, fmt.Sprintf("%s:%d:%d %s", p.File, p.Line, p.Column, p.Rule))
			}
			// It has neither apiVersion nor kind.
			if got = slices.Compact(got); !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q: %v", got, test.want, report.Problems)
			} else if len(got) > 0 && !strings.Contains(report.Problems[0].String(), test.says) {
				t.Errorf("%v, want it to say %s", report.Problems[0], test.says)
			}
		})
	}
}

// A path that Flux and Argo CD apply is checked as it comes to each.
func TestEachGetsWhatComesToIt(t *testing.T) {
	files := map[string]string{
		"flux/source.yaml": fluxSource, "flux/sync.yaml": fluxSync("./apps", "GitRepository"), "apps/kustomization.yaml": "resources: [gpu.yaml, hub.yaml]\n", "apps/gpu.yaml": basePool, "apps/hub.yaml": hubPool,
		"argo/app.yaml": "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: apps, namespace: argocd}\nspec: {source: {repoURL: \"https://git.example.com/fleet.git\", path: apps}}\n",
		".sourceignore": "/apps/hub.yaml\n",
	}
	report, err := fleet.Check(t.Context(), validator(t), repo(t, files))
	if err != nil {
		t.Fatal(err)
	}
	failed := map[string]bool{}
	for _, r := range report.Roots {
		failed[r.Path] = r.Failed
	}
	if want := map[string]bool{"apps (Kustomization flux-system/flux-system)": true, "apps (Application argocd/apps)": false}; failed["apps (Kustomization flux-system/flux-system)"] != true || failed["apps (Application argocd/apps)"] != false || len(failed) < len(want) {
		t.Errorf("roots that failed: %v, want among them %v", failed, want)
	}
}

// Of several sources of one name the one beside the Kustomization is its own.
func TestSourcesOfClusters(t *testing.T) {
	files := map[string]string{
		"clusters/a/flux/source.yaml": fluxSource + "  ignore: \"/clusters/a/values.yaml\"\n", "clusters/a/flux/sync.yaml": fluxSync("./clusters/a", "GitRepository"), "clusters/a/gpu.yaml": basePool, "clusters/a/values.yaml": cloudBuild,
		"clusters/b/flux/source.yaml": fluxSource + "  ignore: \"/clusters/b/values.yaml\"\n", "clusters/b/flux/sync.yaml": fluxSync("./clusters/b", "GitRepository"), "clusters/b/gpu.yaml": basePool, "clusters/b/values.yaml": cloudBuild,
		"hub/hub.yaml": hubPool,
	}
	report, err := fleet.Check(t.Context(), validator(t), repo(t, files))
	if err != nil {
		t.Fatal(err)
	}
	if report.Failed() {
		t.Errorf("%v", report.Problems)
	}
}

// packed is a copy of a directory with what source-controller takes into an artifact, as
// its SourceIgnoreFilter says with Flux's own library.
func packed(t rapid.TB, from, to string, spec *string) {
	t.Helper()
	domain := strings.Split(from, string(filepath.Separator))
	patterns, err := sourceignore.LoadIgnorePatterns(from, domain)
	if err != nil {
		t.Fatal(err)
	}
	if spec != nil {
		patterns = append(patterns, sourceignore.ReadPatterns(strings.NewReader(*spec), domain)...)
	}
	var matcher gitignore.Matcher
	if matcher = sourceignore.NewDefaultMatcher(patterns, domain); len(patterns) > 0 {
		matcher = sourceignore.NewMatcher(append(sourceignore.VCSPatterns(domain), patterns...))
	}
	err = filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || matcher.Match(strings.Split(name, string(filepath.Separator)), false) || entry.Name() == sourceignore.IgnoreFile {
			return err
		}
		relative, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, relative)), 0o700); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, relative), data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// One cluster may get a kustomization, and another all that lies beside it.
func TestAKustomizationThatOneClusterLacks(t *testing.T) {
	files := map[string]string{"apps/kustomization.yaml": "nameSuffix: -eu\nresources: [gpu.yaml]\n", "apps/gpu.yaml": basePool,
		"hub/hub.yaml":       strings.Replace(hubPool, "name: gpu", "name: gpu-eu", 1) + "---\n" + hubPool,
		"clusters/eu/k.yaml": fluxSource + "---\n" + fluxSync("./apps", "GitRepository"),
		"clusters/us/k.yaml": fluxSource + "  ignore: kustomization.yaml\n---\n" + fluxSync("./apps", "GitRepository"),
	}
	report := check(t, files)
	pools := map[string]bool{}
	for _, subject := range report.Subjects {
		pools[subject.Pool] = true
	}
	if len(report.Problems) > 0 || !pools["gpu"] || !pools["gpu-eu"] {
		t.Errorf("pools %v: %+v", pools, report.Problems)
	}
}

// What is rendered of a path that Flux applies is what is rendered of the artifact.
func TestRendersWhatTheArtifactHas(t *testing.T) {
	account := func(name string) string {
		return "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: " + name + "}\n"
	}
	names := []string{"apps/a.yaml", "apps/b.yaml", "apps/cloudbuild.yaml", "apps/sub/c.yaml", "apps/sub/appveyor.yml", "apps/sub/deep/d.yaml", "apps/team/e.yaml", "apps/team/f.yaml"}
	line := rapid.SampledFrom([]string{"a.yaml", "/apps/b.yaml", "sub/", "/apps/sub", "**/deep", "*.yaml", "!*.yaml", "!/apps/sub/deep/d.yaml", "team", "e.yaml", "kustomization.yaml", "!apps/team", "apps/*/*.yaml", "# none", "", "/*", "!/apps", "deep/**", "c.y?ml"})
	text := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(line, 0, 4).Draw(t, "lines"), "\n") })
	rapid.Check(t, func(rt *rapid.T) {
		files := map[string]string{}
		for i, name := range names {
			files[name] = account(fmt.Sprintf("of-%d", i))
		}
		if rapid.Bool().Draw(rt, "kustomization") {
			files["apps/team/kustomization.yaml"] = "namePrefix: team-\nresources: [e.yaml, f.yaml]\n"
		}
		for _, dir := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "apps/", "apps/sub/", "apps/team/"}), 0, 2, func(s string) string { return s }).Draw(rt, "in") {
			files[dir+".sourceignore"] = text.Draw(rt, "text")
		}
		source := fluxSource
		var spec *string
		if rapid.Bool().Draw(rt, "spec") {
			said := text.Draw(rt, "ignore")
			spec = &said
			source += fmt.Sprintf("  ignore: %q\n", said)
		}
		here, there := t.TempDir(), t.TempDir()
		fleettest.WriteFiles(t, here, files)
		packed(rt, here, there, spec)
		// Whatever the patterns say of it, somebody has applied it. Nothing is packed twice.
		fleettest.WriteFiles(t, there, map[string]string{"flux/source.yaml": fluxSource + "  ignore: /nothing\n"})
		for _, dir := range []string{here, there} {
			fleettest.WriteFiles(t, dir, map[string]string{"flux/sync.yaml": fluxSync("./apps", "GitRepository")})
		}
		fleettest.WriteFiles(t, here, map[string]string{"flux/source.yaml": source})
		got, gotWrong := renderedBy(t, here)
		want, wrong := renderedBy(t, there)
		if !slices.Equal(got, want) || gotWrong != wrong {
			rt.Fatalf("it renders %q, wrong: %v; of the artifact %q, wrong: %v", got, gotWrong, want, wrong)
		}
	})
}

// renderedBy is what Flux applies of the path apps, and whether there is an error.
func renderedBy(t *testing.T, dir string) (all []string, wrong bool) {
	t.Helper()
	r, err := fleet.NewRenderer(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := os.Stat(filepath.Join(dir, "apps")); err != nil {
		return nil, false
	}
	if _, err := r.Roots(t.Context()); err != nil {
		t.Fatal(err)
	}
	ways, err := r.Ways(t.Context(), "apps")
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := r.Render(t.Context(), "apps", ways)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range rendered {
		for _, o := range one.Objects {
			all = append(all, o.Object.GetName()+" of "+o.SourcePath)
		}
		wrong = wrong || slices.ContainsFunc(one.Problems, func(p schemas.Problem) bool { return p.Severity == schemas.SeverityError })
	}
	return all, wrong
}

// What a cluster takes by a source of Flux is built as it comes there.
func TestBuildsWhatIsFetched(t *testing.T) {
	dir := repo(t, map[string]string{"plain/gpu.yaml": basePool, "plain/values.yaml": cloudBuild, "plain/.sourceignore": "values.yaml\n", "all/kustomization.yaml": "resources: [gpu.yaml, ../plain/values.yaml]\n", "all/gpu.yaml": basePool})
	flux := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(fluxSync("./plain", "GitRepository")), &flux.Object); err != nil {
		t.Fatal(err)
	}
	foreign := fleet.ForeignSyncOf(flux)
	for name, test := range map[string]struct {
		build func() ([]fleet.Rendered, error)
		// wrong is a part of the error.
		wrong string
	}{
		"a Kustomization": {func() ([]fleet.Rendered, error) { return foreign.Build(t.Context(), dir, nil) }, ""},
		"a PoolSync with Flux's": {func() ([]fleet.Rendered, error) {
			return fleet.BuildFetched(t.Context(), dir, "./plain", &v1alpha1.SourceReference{Kind: "GitRepository", Name: "fleet", Namespace: "flux-system"}, nil)
		}, ""},
		"an overlay": {func() ([]fleet.Rendered, error) {
			return fleet.BuildFetched(t.Context(), dir, "./all", &v1alpha1.SourceReference{Kind: "GitRepository", Name: "fleet", Namespace: "flux-system"}, nil)
		}, "../plain/values.yaml: Flux leaves it out"},
		"a PoolSync with its own": {func() ([]fleet.Rendered, error) { return fleet.BuildFetched(t.Context(), dir, "./plain", nil, nil) }, "plain/values.yaml:1:1: apiVersion"},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := test.build()
			if test.wrong == "" && (err != nil || len(rendered) != 1) || test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)) {
				t.Errorf("%d objects, %v; want %q", len(rendered), err, test.wrong)
			}
		})
	}
}

// Many patterns for many files take seconds at most, and what that leaves undone is said.
func TestManyPatternsAreBounded(t *testing.T) {
	defer func(most int64) { ignored.MaxWork = most }(ignored.MaxWork)
	ignored.MaxWork = 500_000_000
	files := fluxed(nil)
	for i := range 1_000 {
		files[fmt.Sprintf("apps/app-%d/account.yaml", i)] = fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a%d}\n", i)
	}
	const most = time.Minute // on a busy machine; alone it takes two seconds
	for name, pattern := range map[string]string{"paths": "/apps/app-%d/draft.yaml\n", "wildcards": "*draft*%d?.yaml\n"} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			for i := range 100_000 {
				fmt.Fprintf(&text, pattern, i)
			}
			files[".sourceignore"] = text.String()
			dir := repo(t, files)
			began := time.Now()
			report, err := fleet.Check(t.Context(), validator(t), dir)
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			t.Logf("in %v: %v", took, report.Problems)
			if took > most || report.Failed() != (name == "wildcards") {
				t.Errorf("in %v: %v", took, report.Problems)
			}
		})
	}
}
