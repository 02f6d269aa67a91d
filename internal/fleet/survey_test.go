package fleet_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
)

// rootsOf are the roots of a report, with what was found in them.
func rootsOf(report *fleet.Report) []string {
	roots := []string{}
	for _, root := range report.Roots {
		text := fmt.Sprintf("%s: %d", root.Path, root.Documents)
		if root.Failed {
			text += " failed"
		}
		roots = append(roots, text)
	}
	return roots
}

func named(name string) string {
	return strings.Replace(basePool, "name: gpu\n", "name: "+name+"\n", 1)
}

func poolSync(name, path, rest string) string {
	return "apiVersion: cloop.dev/v1alpha1\nkind: PoolSync\nmetadata: {name: " + name + ", namespace: fleet}\nspec:\n  interval: 1m\n" +
		"  source: {git: {url: \"https://git.example.com/fleet.git\"}}\n  path: " + path + "\n" + rest
}

// Every kustomization that no other refers to is a root by itself, whatever the
// path says from which it is found.
func TestRoots(t *testing.T) {
	two := with(sound(), map[string]string{
		"clusters/us/kustomization.yaml": "namespace: us\nresources: [../../pools/base]\n",
		"README.md":                      "text",
		".github/workflows/check.yaml":   "on: push\n",
		"values/helm.yaml":               "replicas: 3\n",
	})
	flat := map[string]string{"clusters/eu/gpu.yaml": basePool, "clusters/us/gpu.yaml": basePool}
	component := "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
	for name, test := range map[string]struct {
		files map[string]string
		paths []string
		want  []string
	}{
		"the whole repository":             {two, nil, []string{"clusters/eu: 1", "clusters/us: 1", "hub: 1"}},
		"a directory of overlays":          {two, []string{"clusters"}, []string{"clusters/eu: 1", "clusters/us: 1"}},
		"one of them":                      {two, []string{"clusters/us"}, []string{"clusters/us: 1"}},
		"a base that was asked for":        {two, []string{"pools"}, []string{"pools/base: 1"}},
		"paths that overlap":               {two, []string{"clusters/us", "clusters", "./clusters/us/"}, []string{"clusters/us: 1", "clusters/eu: 1"}},
		"a file":                           {two, []string{"pools/base/gpu.yaml", "hub"}, []string{"pools/base/gpu.yaml: 1", "hub: 1"}},
		"a component is none":              {with(sound(), map[string]string{"small/kustomization.yaml": component}), []string{"."}, []string{"clusters/eu: 1", "hub: 1"}},
		"a kustomization at the top":       {map[string]string{"kustomization.yaml": "resources: [a]\n", "a/kustomization.yaml": "resources: [p.yaml]\n", "a/p.yaml": basePool}, nil, []string{".: 1"}},
		"one broken":                       {with(maps.Clone(two), map[string]string{"clusters/ap/kustomization.yaml": "resources: [nowhere]\n"}), []string{"clusters"}, []string{"clusters/ap: 0 failed", "clusters/eu: 1", "clusters/us: 1"}},
		"a plain directory beside":         {with(sound(), map[string]string{"clusters/us/a/gpu.yaml": basePool, "clusters/us/b/cpu.yaml": named("cpu") + "  hubPool: gpu\n"}), nil, []string{"clusters/eu: 1", "hub: 1", "clusters/us/a: 1", "clusters/us/b: 1"}},
		"a file among overlays":            {with(sound(), map[string]string{"clusters/sync.yaml": poolSync("eu", "clusters/eu", "")}), []string{"clusters"}, []string{"clusters/eu: 1", "clusters: 1"}},
		"plain directories":                {with(maps.Clone(flat), map[string]string{"hub/p.yaml": hubPool}), nil, []string{"clusters/eu: 1", "clusters/us: 1", "hub: 1"}},
		"a directory of them":              {flat, []string{"clusters"}, []string{"clusters/eu: 1", "clusters/us: 1"}},
		"one with what lies below":         {with(maps.Clone(flat), map[string]string{"clusters/eu/a/b/gpu.yaml": basePool, "clusters/eu-a/gpu.yaml": basePool}), nil, []string{"clusters/eu: 2 failed", "clusters/eu-a: 1", "clusters/us: 1"}},
		"clusters with what lies below":    {with(maps.Clone(flat), map[string]string{"clusters/gpu.yaml": basePool}), nil, []string{"clusters: 1", "clusters/eu: 1", "clusters/us: 1"}},
		"the top with what lies beside":    {with(maps.Clone(flat), map[string]string{"gpu.yaml": basePool}), nil, []string{".: 1", "clusters/eu: 1", "clusters/us: 1"}},
		"plain files applied as one":       {with(maps.Clone(flat), map[string]string{"sync.yaml": poolSync("all", "./clusters", "")}), nil, []string{".: 1", "clusters: 2 failed"}},
		"a repository applied as one":      {with(maps.Clone(flat), map[string]string{"sync.yaml": poolSync("all", ".", "")}), nil, []string{".: 3 failed"}},
		"nothing of ours":                  {map[string]string{"values/helm.yaml": "replicas: 3\n"}, nil, []string{".: 0 failed"}},
		"unless they are applied apart":    {with(maps.Clone(flat), map[string]string{"sync.yaml": poolSync("eu", "./clusters/eu", "") + "---\n" + poolSync("us", "clusters/us/", "")}), nil, []string{".: 2", "clusters/eu: 1", "clusters/us: 1"}},
		"overlays that are applied as one": {with(sound(), map[string]string{"clusters/us/kustomization.yaml": "namespace: cloop-gpu\nresources: [../../pools/base]\n", "hub/sync.yaml": poolSync("all", "clusters", ""), "hub/kustomization.yaml": "resources: [gpu.yaml, sync.yaml]\n"}), nil, []string{"hub: 2", "clusters: 2 failed"}},
		"another repository within":        {with(sound(), map[string]string{"vendor/.git": "gitdir: ../.git/modules/vendor\n", "vendor/kustomization.yaml": "resources: [nowhere]\n"}), nil, []string{"clusters/eu: 1", "hub: 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, test.files, test.paths...)
			if got := rootsOf(report); !slices.Equal(got, test.want) {
				t.Errorf("roots %q, want %q: %v", got, test.want, report.Problems)
			}
		})
	}
}

// What only gathers clusters to render them all is no cluster: nothing applies it.
func TestWhatGathersClustersIsNone(t *testing.T) {
	clusters := map[string]string{
		"clusters/eu/kustomization.yaml": "resources: [gpu.yaml]\n", "clusters/eu/gpu.yaml": basePool,
		"clusters/us/kustomization.yaml": "resources: [gpu.yaml]\n", "clusters/us/gpu.yaml": basePool,
		"hub/kustomization.yaml": "resources: [gpu.yaml]\n", "hub/gpu.yaml": hubPool,
	}
	both := []string{"clusters/eu: 1", "clusters/us: 1", "hub: 1"}
	syncs := map[string]string{"boot/eu/sync.yaml": poolSync("fleet", "./clusters/eu", ""), "boot/us/sync.yaml": poolSync("fleet", "./clusters/us", "")}
	flux := "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: %s, namespace: flux-system}\nspec: {path: ./clusters/%s}\n---\n"
	for name, test := range map[string]struct {
		more map[string]string
		want []string
	}{
		"at the top, applied by hand": {with(map[string]string{"kustomization.yaml": "resources: [clusters/eu, clusters/us, hub]\n"}, syncs), append(slices.Clone(both), "boot/eu: 1", "boot/us: 1")},
		"in the folder":               {with(map[string]string{"clusters/kustomization.yaml": "resources: [eu, us]\n"}, syncs), append(slices.Clone(both), "boot/eu: 1", "boot/us: 1")},
		"two above each other":        {with(map[string]string{"clusters/kustomization.yaml": "resources: [eu, us]\n", "kustomization.yaml": "resources: [clusters, hub]\n"}, syncs), append(slices.Clone(both), "boot/eu: 1", "boot/us: 1")},
		"applied by Flux": {map[string]string{"kustomization.yaml": "resources: [clusters/eu, clusters/us, hub]\n",
			"flux.yaml": fmt.Sprintf(flux, "eu", "eu") + fmt.Sprintf(flux, "us", "us")}, append(slices.Clone(both), "flux.yaml: 2")},
		"nobody is known": {map[string]string{"kustomization.yaml": "resources: [clusters/eu, clusters/us, hub]\n"}, both},
		"is applied itself": {map[string]string{"clusters/kustomization.yaml": "resources: [eu, us]\n", "boot/sync.yaml": poolSync("all", "./clusters", ""),
			"boot/eu.yaml": poolSync("eu", "./clusters/eu", ""), "boot/us.yaml": poolSync("us", "./clusters/us", "")}, []string{"clusters: 1 failed", "hub: 1", "boot: 3", "clusters/us: 1", "clusters/eu: 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, with(maps.Clone(clusters), test.more))
			got := rootsOf(report)
			slices.Sort(got)
			slices.Sort(test.want)
			if !slices.Equal(got, test.want) {
				t.Errorf("roots %q, want %q: %v", got, test.want, report.Problems)
			}
		})
	}
}

// A build follows a symbolic link in the path of a PoolSync, and so does a check.
func TestRootsOverLinks(t *testing.T) {
	for name, test := range map[string]struct {
		path  string
		files map[string]string
		want  []string
	}{
		"a kustomization":   {"./clusters/us", sound(), []string{"hub: 1", ".: 1", "clusters/us: 1"}},
		"a plain directory": {"./clusters/us", map[string]string{"hub/p.yaml": hubPool, "clusters/eu/gpu.yaml": basePool}, []string{".: 1", "hub: 1", "clusters/us: 1"}},
		"below a link":      {"all/eu", with(sound(), map[string]string{"clusters/eu/sa.yaml": "# nothing\n"}), []string{"hub: 1", ".: 1", "all/eu: 1"}},
		"a link to nothing": {"clusters/gone", sound(), []string{"clusters/eu: 1", "hub: 1", ".: 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repo(t, with(test.files, map[string]string{"sync.yaml": poolSync("us", test.path, "")}))
			for link, to := range map[string]string{"clusters/us": "eu", "all": "clusters", "clusters/gone": "nowhere"} {
				if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			report, err := fleet.Check(t.Context(), validator(t), dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := rootsOf(report); !slices.Equal(got, test.want) {
				t.Errorf("roots %q, want %q: %v", got, test.want, report.Problems)
			}
		})
	}
}
