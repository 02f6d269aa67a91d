package fleet_test

import (
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
)

// A value that speaks of a variable which nobody gives is none: what it is put into has
// no value either.
func TestAValueWithoutAValue(t *testing.T) {
	files := map[string]string{
		"flux/apps.yaml":          kustomizationOf("apps", "./apps", "  postBuild: {substitute: {OTHER: '\"1\"'}}\n"),
		"apps/pools.yaml":         kustomizationOf("pools", "./pools", "  postBuild:\n    substitute:\n      MAX: ${MOST}\n"),
		"pools/gpu.yaml":          strings.Replace(basePool, "maxRunners: 4", "maxRunners: ${MAX}", 1),
		"hub/gpu.yaml":            hubPool,
		"apps/kustomization.yaml": "resources: [pools.yaml]\n",
	}
	report := check(t, files)
	if len(report.Problems) != 1 || report.Problems[0].Rule != fleet.RuleUnresolvedVariable ||
		report.Problems[0].Message != "${MAX} has no value: MAX in spec.postBuild.substitute of Kustomization flux-system/pools has ${MOST}, which nothing replaces here (apps/pools.yaml:9)" ||
		report.Problems[0].Hint != "give MOST a value where that is applied, or write the value itself" {
		t.Errorf("%+v", report.Problems)
	}
	files["flux/apps.yaml"] = strings.Replace(files["flux/apps.yaml"], "OTHER", "MOST", 1)
	if report := check(t, files); len(report.Problems) > 0 {
		t.Errorf("with a value: %+v", report.Problems)
	}
	// A default counts where variables are replaced.
	files["apps/pools.yaml"] = strings.Replace(files["apps/pools.yaml"], "${MOST}", "'${MOST:=3}'", 1)
	files["flux/apps.yaml"] = kustomizationOf("apps", "./apps", "")
	report = check(t, files)
	if len(report.Problems) != 1 || !strings.Contains(report.Problems[0].Message, "has ${MOST:=3}, which nothing replaces here") ||
		report.Problems[0].Hint != "have whatever applies that replace variables, if only by their defaults, or write the value itself" {
		t.Errorf("with a default: %+v", report.Problems)
	}
}

// What applies pools may be wrong by itself, and lie in a file that is.
func TestAWrongFileOfWhatAppliesPools(t *testing.T) {
	files := with(sound(), map[string]string{"flux/eu.yaml": kustomizationOf("eu", "./clusters/eu", "") + "---\nx: [\n"})
	if got := places(check(t, files)); len(got) != 1 || !strings.HasPrefix(got[0], "syntax flux/eu.yaml:") {
		t.Errorf("%q", got)
	}
}

// A fork is called otherwise than what its syncs read: whoever has one is told what to do.
func TestAForkIsToldOfUpstream(t *testing.T) {
	files := varied(poolSync("eu", "clusters/eu", "  substitute:\n    vars:\n      REGION: eu\n      MAX: \"3\"\n"))
	files[".git/HEAD"] = "ref: refs/heads/main\n"
	files[".git/config"] = "[remote \"origin\"]\n\turl = https://git.example.com/me/my-fleet.git\n"
	report := check(t, files)
	const hint = "of another repository, https://git.example.com/fleet.git: if this is a fork of it or it has another name now, `git remote add upstream` with that address says so"
	if len(report.Problems) == 0 || !strings.HasSuffix(report.Problems[0].Hint, hint) {
		t.Errorf("%+v", report.Problems)
	}
	files[".git/config"] += "[remote \"upstream\"]\n\turl = https://git.example.com/fleet.git\n"
	if report := check(t, files); len(report.Problems) > 0 {
		t.Errorf("with the remote: %+v", report.Problems)
	}
}

// Kustomizations that refer to each other in a circle are told of, whatever else there is.
func TestACircleBesideRoots(t *testing.T) {
	files := map[string]string{
		"hub/kustomization.yaml": "resources: [gpu.yaml]\n", "hub/gpu.yaml": hubPool,
		"eu/kustomization.yaml":   "resources: [../base]\n",
		"base/kustomization.yaml": "resources: [gpu.yaml, ../eu]\n", "base/gpu.yaml": basePool,
		// What a component that nobody uses refers to is no root.
		"part/kustomization.yaml":  "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [../spare]\n",
		"spare/kustomization.yaml": "resources: [x.yaml]\n", "spare/x.yaml": strings.Replace(named("x"), "4", "lots", 1),
	}
	report := check(t, files)
	if got := places(report); len(got) == 0 || got[0] != "build eu/kustomization.yaml:1:13" || !strings.Contains(report.Problems[0].Message, "in a circle") || strings.Contains(strings.Join(got, " "), "spare") {
		t.Errorf("%q: %+v", got, report.Problems)
	}
}

// What each cluster gets is told apart where objects of several have one name.
func TestSyncsOfOneNameInSeveralClusters(t *testing.T) {
	syncs := func(pool, extra string) string {
		return kustomizationOf("pools", "./pools", "  postBuild: {substitute: {HUB: "+pool+"}}\n") + "---\n" + kustomizationOf("extra", "./extra", "  postBuild: {substitute: {HUB: "+extra+"}}\n")
	}
	files := map[string]string{
		"pools/a.yaml":                   strings.Replace(named("a"), "maxRunners: 4", "maxRunners: 4\n  hubPool: ${HUB}", 1),
		"extra/b.yaml":                   strings.Replace(named("b"), "maxRunners: 4", "maxRunners: 4\n  hubPool: ${HUB}", 1),
		"hub/h.yaml":                     strings.Replace(hubPool, "name: gpu", "name: h1", 1) + "---\n" + strings.Replace(hubPool, "name: gpu", "name: h2", 1),
		"clusters/eu/kustomization.yaml": "resources: [all.yaml]\n", "clusters/us/kustomization.yaml": "resources: [all.yaml]\n",
		"clusters/eu/all.yaml": syncs("h1", "h2"), "clusters/us/all.yaml": syncs("h2", "h1"),
	}
	if report := check(t, files); len(report.Problems) > 0 {
		t.Errorf("each pool once: %+v", report.Problems)
	}
	files["clusters/eu/all.yaml"] = syncs("h1", "h1")
	report := check(t, files)
	if got := places(report); len(got) != 1 || !strings.HasPrefix(got[0], "duplicate-pool ") {
		t.Errorf("%q: %+v", got, report.Problems)
	}
	roots := map[string]bool{}
	for _, root := range report.Roots {
		roots[root.Path] = true
	}
	if !roots["pools (Kustomization flux-system/pools in clusters/eu)"] || !roots["pools (Kustomization flux-system/pools in clusters/us)"] {
		t.Errorf("roots %v", roots)
	}
}

// A path without YAML is told of the PoolSync that has it; a cluster of Flux may be empty.
func TestAnEmptyPath(t *testing.T) {
	files := with(sound(), map[string]string{"syncs/all.yaml": poolSync("jp", "clusters/jp", ""), "clusters/jp/README.md": "later\n"})
	report := check(t, files)
	if got := places(report); len(got) != 1 || got[0] != "empty-root syncs/all.yaml:7:3 spec.path" || len(report.Unfound()) > 0 {
		t.Errorf("%q, without documents %q: %+v", got, report.Unfound(), report.Problems)
	}
	files["syncs/all.yaml"] = kustomizationOf("jp", "./clusters/jp", "")
	if report := check(t, files); len(report.Problems) > 0 {
		t.Errorf("of Flux: %+v", report.Problems)
	}
}

// The hub's half is never another team's: emptied, it is an error.
func TestAnEmptiedHub(t *testing.T) {
	syncs := map[string]string{"syncs/all.yaml": poolSync("eu", "clusters/eu", "")}
	for name, text := range map[string]string{"a list without entries": "resources:\n", "an empty list": "resources: []\n", "no text": "# later\n"} {
		report := check(t, with(with(sound(), syncs), map[string]string{"hub/kustomization.yaml": text, "hub/gpu.yaml": ""}))
		if got := places(report); !report.Failed() || len(got) != 1 || !strings.HasSuffix(got[0], " hub/kustomization.yaml:1:1") {
			t.Errorf("%s: %q: %+v", name, got, report.Problems)
		}
	}
}
