package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet/fleettest"
)

func syncing(name, path, url string) string {
	return fmt.Sprintf(`apiVersion: cloop.dev/v1alpha1
kind: PoolSync
metadata: {name: %s, namespace: cloop-fleet}
spec:
  path: %s
  source: {git: {url: %s}}
---
`, name, path, url)
}

func remote(url string) string {
	return "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = " + url + "\n[submodule \"x\"]\n\turl = https://git.example.com/other\n"
}

// What Flux applies to one cluster is held to the same as what PoolSyncs do.
func TestCheckOfSeveralKustomizations(t *testing.T) {
	flux := func(name, path, more string) string {
		return "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: " + name + ", namespace: flux-system}\nspec:\n  path: " + path + "\n  sourceRef: {kind: GitRepository, name: fleet}\n" + more + "---\n"
	}
	other := func(text string) string { return strings.Replace(text, "name: fleet}", "name: other}", 1) }
	in := func(namespace string) string {
		return strings.Replace(basePool, "name: gpu\n", "name: gpu\n  namespace: "+namespace+"\n", 1)
	}
	shared := "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shared}\n"
	for name, test := range map[string]struct {
		apps    string
		changes map[string]string
		want    []string
	}{
		"one hub pool":           {flux("a", "./apps/a", "") + flux("b", "./apps/b", ""), nil, []string{"duplicate-pool apps/b/gpu.yaml:5:3 metadata.name"}},
		"one object":             {flux("a", "./apps/a", "") + flux("b", "./apps/b", ""), map[string]string{"apps/b/gpu.yaml": in("a")}, []string{"object-in-two-syncs clusters/eu/apps.yaml:12:3 spec.path"}},
		"beside a suspended one": {flux("a", "./apps/a", "") + flux("b", "./apps/b", "  suspend: true\n"), map[string]string{"apps/b/gpu.yaml": in("a")}, nil},
		"one namespace":          {flux("a", "./apps/a", "") + flux("b", "./apps/b", ""), map[string]string{"apps/a/gpu.yaml": in("a") + shared, "apps/b/gpu.yaml": strings.TrimPrefix(shared, "---\n")}, nil},
		"one path, two places":   {flux("a", "./apps/a", "  targetNamespace: first\n") + flux("b", "./apps/a", "  targetNamespace: second\n"), map[string]string{"apps/b/gpu.yaml": fleettest.Removed}, []string{"duplicate-pool apps/a/gpu.yaml:5:3 metadata.name"}},
		"one path, two pools": {flux("a", "./apps/a", "  postBuild: {substitute: {POOL: gpu, NS: first}}\n") + flux("b", "./apps/a", "  postBuild: {substitute: {POOL: other, NS: second}}\n"),
			map[string]string{"apps/a/gpu.yaml": strings.Replace(in("${NS}"), "name: gpu\n", "name: ${POOL}\n", 1), "apps/b/gpu.yaml": fleettest.Removed, "hub/other.yaml": strings.Replace(hubPool, "name: gpu", "name: other", 1)}, nil},
		"one hub pool of a cluster that nothing applies": {"", map[string]string{"clusters/eu/flux-system/sync.yaml": fleettest.Removed, "clusters/eu/apps.yaml": fleettest.Removed,
			"clusters/us/apps.yaml": flux("a", "./apps/a", "") + flux("b", "./apps/b", "")}, []string{"duplicate-pool apps/b/gpu.yaml:5:3 metadata.name"}},
		"one hub pool in two files of it": {"", map[string]string{"clusters/eu/flux-system/sync.yaml": fleettest.Removed, "clusters/eu/apps.yaml": fleettest.Removed,
			"clusters/us/a.yaml": flux("a", "./apps/a", ""), "clusters/us/b.yaml": flux("b", "./apps/b", "")}, []string{"duplicate-pool apps/b/gpu.yaml:5:3 metadata.name"}},
		"one object in two files of it": {"", map[string]string{"clusters/eu/flux-system/sync.yaml": fleettest.Removed, "clusters/eu/apps.yaml": fleettest.Removed,
			"clusters/us/a.yaml": flux("a", "./apps/a", ""), "clusters/us/b.yaml": flux("b", "./apps/a", ""), "apps/b/gpu.yaml": fleettest.Removed}, []string{"object-in-two-syncs clusters/us/b.yaml:5:3 spec.path"}},
		"two clusters that nothing applies": {"", map[string]string{"clusters/eu/flux-system/sync.yaml": fleettest.Removed, "clusters/eu/apps.yaml": fleettest.Removed,
			"clusters/us/a.yaml": flux("a", "./apps/a", ""), "clusters/uk/a.yaml": flux("b", "./apps/b", "")}, nil},
		"a file for each cluster": {"", map[string]string{"clusters/eu/flux-system/sync.yaml": fleettest.Removed, "clusters/eu/apps.yaml": fleettest.Removed,
			"clusters/us.yaml": flux("a", "./apps/a", ""), "clusters/uk.yaml": flux("b", "./apps/b", "")}, nil},
		"another cluster":        {flux("a", "./apps/a", "") + flux("b", "./apps/b", "  kubeConfig: {secretRef: {name: us}}\n"), nil, nil},
		"another repository":     {flux("a", "./apps/a", "") + other(flux("b", "./apps/b", "")), nil, nil},
		"a path that is nowhere": {flux("a", "./apps/a", "") + flux("b", "./nowhere", ""), map[string]string{"apps/b/gpu.yaml": fleettest.Removed}, []string{"path-not-found clusters/eu/apps.yaml:12:3 spec.path"}},
		"nowhere in another one": {flux("a", "./apps/a", "") + other(flux("b", "./nowhere", "")), map[string]string{"apps/b/gpu.yaml": fleettest.Removed}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{
				"clusters/eu/flux-system/sync.yaml": flux("flux-system", "./clusters/eu", ""), "clusters/eu/apps.yaml": test.apps,
				"apps/a/gpu.yaml": in("a"), "apps/b/gpu.yaml": in("b"), "hub/gpu.yaml": hubPool,
			}
			for name, content := range test.changes {
				if files[name] = content; content == fleettest.Removed {
					delete(files, name)
				}
			}
			report := check(t, files)
			if got := places(report); !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("problems\n%v\nwant\n%v\n%v", got, test.want, report.Problems)
			}
		})
	}
}

func TestCheckOfSeveralPoolSyncs(t *testing.T) {
	const here, there = "https://git.example.com/fleet", "https://git.example.com/other"
	second := strings.Replace(basePool, "name: gpu\n", "name: gpu2\n", 1) + "  hubPool: gpu\n"
	twice := []string{"object-in-two-syncs bootstrap/syncs.yaml:12:3 spec.path"}
	for name, test := range map[string]struct {
		syncs   string
		changes map[string]string
		want    []string
	}{
		"one":                             {syncing("a", "./clusters/eu", here), nil, nil},
		"two paths":                       {syncing("a", "./clusters/eu", here) + syncing("b", "./extra", here), map[string]string{"extra/kustomization.yaml": "resources: [sa.yaml]\n", "extra/sa.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n"}, nil},
		"one path":                        {syncing("a", "./clusters/eu", here) + syncing("b", "clusters/eu/", here), nil, twice},
		"two repositories":                {syncing("a", "./clusters/eu", here) + syncing("b", "./clusters/eu", there), nil, nil},
		"a base of the other":             {syncing("a", "./clusters/eu", here) + syncing("b", "./pools/base", here), map[string]string{"clusters/eu/kustomization.yaml": "namespace: cloop-fleet\nresources: [../../pools/base]\n"}, twice},
		"a base, elsewhere":               {syncing("a", "./clusters/eu", here) + syncing("b", "./pools/base", here), nil, []string{"duplicate-pool pools/base/gpu.yaml:5:3 metadata.name"}},
		"a path that is nowhere":          {syncing("a", "./nowhere", here) + syncing("b", "./nowhere/else", here), map[string]string{".git/HEAD": "ref: refs/heads/main\n"}, []string{"path-not-found bootstrap/syncs.yaml:5:3 spec.path", "path-not-found bootstrap/syncs.yaml:12:3 spec.path"}},
		"a path of no clone":              {syncing("a", "./nowhere", here), nil, nil},
		"a path of another repository":    {syncing("a", "./clusters/eu", here) + syncing("b", "./nowhere", there), nil, nil},
		"a path beside one that is there": {syncing("a", "./clusters/eu", here) + syncing("b", "./clusters/uk", here), nil, []string{"path-not-found bootstrap/syncs.yaml:12:3 spec.path"}},
		"a path of the remote":            {syncing("a", "./nowhere", "https://git.example.com/Fleet.git/"), map[string]string{".git/config": remote("git@git.example.com:fleet.git")}, []string{"path-not-found bootstrap/syncs.yaml:5:3 spec.path"}},
		"a path with what Git ignores":    {syncing("a", "./clusters/eu", here) + syncing("b", "./extra", here), map[string]string{"extra/x.tmp": "x", ".gitignore": "*.tmp\n"}, []string{"path-not-found bootstrap/syncs.yaml:12:3 spec.path"}},
		"a path with a new file":          {syncing("a", "./clusters/eu", here) + syncing("b", "./extra", here), map[string]string{"extra/x.txt": "x", ".gitignore": "*.tmp\n"}, []string{"empty-root bootstrap/syncs.yaml:12:3 spec.path"}},
		"a path of no remote":             {syncing("a", "./nowhere", here) + syncing("b", "./nowhere", there), map[string]string{".git/config": remote("https://u:t@git.example.com/third")}, nil},
		"one hub pool": {syncing("a", "./clusters/eu", here) + syncing("b", "./extra", here), map[string]string{"extra/kustomization.yaml": "namespace: x\nresources: [gpu2.yaml]\n", "extra/gpu2.yaml": second},
			[]string{"duplicate-pool extra/gpu2.yaml:11:3 spec.hubPool"}},
		"a collection for several clusters": {syncing("a", "./clusters/eu", here) + syncing("b", "./clusters/eu", here), map[string]string{"bootstrap/kustomization.yaml": "", "bootstrap/others.yaml": syncing("c", "./clusters/eu", here)}, nil},
		"a cluster's that nothing applies": {syncing("a", "./clusters/eu", here), map[string]string{"bootstrap/kustomization.yaml": "", "clusters/uk/a.yaml": syncing("a", "./extra", here), "clusters/uk/b.yaml": syncing("b", "./extra", here),
			"extra/kustomization.yaml": "resources: [sa.yaml]\n", "extra/sa.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n"}, []string{"object-in-two-syncs clusters/uk/b.yaml:5:3 spec.path"}},
		"one hub pool of two clusters": {syncing("a", "./clusters/eu", here), map[string]string{"extra/kustomization.yaml": "namespace: x\nresources: [gpu2.yaml]\n", "extra/gpu2.yaml": second,
			"bootstrap2/kustomization.yaml": "resources: [s.yaml]\n", "bootstrap2/s.yaml": syncing("b", "./extra", here)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := with(sound(), map[string]string{"bootstrap/kustomization.yaml": "resources: [syncs.yaml]\n", "bootstrap/syncs.yaml": test.syncs})
			report := check(t, with(files, test.changes))
			if got := places(report); !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("problems\n%v\nwant\n%v\n%v", got, test.want, report.Problems)
			}
		})
	}
}

func TestCheckComparesHubs(t *testing.T) {
	pushed := func(url string) string { return hubPool + "  hub: {url: " + url + ", tokenSecretRef: {name: t}}\n" }
	us := map[string]string{
		"clusters/us/kustomization.yaml": "resources: [../../pools/base]\npatches: [{path: p.yaml}]\n",
		"clusters/us/p.yaml":             "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: gpu}\nspec:\n  hubURL: https://cloop.example.org\n",
	}
	for name, test := range map[string]struct {
		changes map[string]string
		want    []string
	}{
		"the same":            {map[string]string{"hub/gpu.yaml": pushed("https://cloop.example.com")}, nil},
		"spelt otherwise":     {map[string]string{"hub/gpu.yaml": pushed("https://Cloop.example.com:443/")}, nil},
		"another":             {map[string]string{"hub/gpu.yaml": pushed("https://hub.example.com")}, []string{"hub-url-disagrees pools/base/gpu.yaml:7:3 spec.hubURL"}},
		"of one cluster":      {with(map[string]string{"hub/gpu.yaml": pushed("https://cloop.example.com")}, us), []string{"hub-url-disagrees clusters/us/p.yaml:5:3 spec.hubURL"}},
		"two clusters differ": {us, []string{"hub-urls-differ clusters/us/p.yaml:5:3 spec.hubURL"}},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, with(sound(), test.changes))
			if got := places(report); !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("problems\n%v\nwant\n%v\n%v", got, test.want, report.Problems)
			}
		})
	}
}

// Each hub has a root, and each root may define a pool only once.
func TestCheckOfTwoHubs(t *testing.T) {
	report := check(t, with(sound(), map[string]string{
		"hub2/kustomization.yaml": "resources: [gpu.yaml]\n",
		"hub2/gpu.yaml":           hubPool + "---\n" + strings.Replace(hubPool, "namespace: fleet", "namespace: other", 1),
	}))
	// The error is between two roots; the one that it is shown in has failed.
	for _, root := range report.Roots {
		if failed := root.Path == "hub2"; root.Failed != failed {
			t.Errorf("root %s: failed is %t", root.Path, root.Failed)
		}
	}
	if got, want := places(report), []string{"duplicate-hubpool hub2/gpu.yaml:14:3 metadata.name"}; !slices.Equal(got, want) {
		t.Errorf("problems %v, want %v", got, want)
	}
}

// What the schema says of an audience stands at the entry.
func TestCheckOfAnAudience(t *testing.T) {
	for entry, want := range map[string]bool{
		"user:alice@example.com": true, "group:ml-team": true, "role:admin": true,
		"alice": false, "user:": false, "user: alice": false, "users:alice": false, "group:a b": false, "": false, "User:alice": false,
	} {
		report := check(t, with(sound(), map[string]string{"hub/gpu.yaml": hubPool + "  audience:\n  - group:ml\n  - \"" + entry + "\"\n"}))
		if got := places(report); want != (len(got) == 0) || !want && got[0] != "schema hub/gpu.yaml:12:5 spec.audience[1]" {
			t.Errorf("of %q: %v", entry, got)
		}
	}
	for entry, want := range map[string]bool{
		"user:a+b_c@d-e.org": true, "role:fleet-admin": true, "group:a": true, "group:" + strings.Repeat("a", 128): true,
		"group:a,group:b": false, "group:a:b": false, "user:-a": false, "role:Admin": false, "group:" + strings.Repeat("a", 129): false,
	} {
		report := check(t, with(sound(), map[string]string{"hub/gpu.yaml": hubPool + "  owner: \"" + entry + "\"\n  audience:\n  - group:ml\n  - \"" + entry + "\"\n"}))
		wrong := []string{"principal-name hub/gpu.yaml:10:3 spec.owner", "principal-name hub/gpu.yaml:13:5 spec.audience[1]"}
		if want {
			wrong = nil
		}
		if got := places(report); !slices.Equal(got, wrong) {
			t.Errorf("of %q: %v", entry, got)
		}
	}
	plain := hubPool + "  owner: \"group:a:b\"\n"
	if got := places(check(t, map[string]string{"a.yaml": plain, "b.yaml": strings.Replace(plain, "name: gpu", "name: other", 1)})); !slices.Equal(got, []string{"principal-name a.yaml:10:3 spec.owner", "principal-name b.yaml:10:3 spec.owner"}) {
		t.Errorf("in plain files: %v", got)
	}
	report := check(t, with(sound(), map[string]string{"hub/gpu.yaml": hubPool + "  audience:\n  - group:ml\n  - group:ml\n"}))
	if got := places(report); len(got) != 1 || got[0] != "schema hub/gpu.yaml:12:5 spec.audience[1]" {
		t.Errorf("of one entry twice: %v", got)
	}
}

// Each sync that applies what others do is told of once for the first of those.
func TestManySyncsOfOnePath(t *testing.T) {
	var syncs strings.Builder
	const count = 6
	for i := range count {
		fmt.Fprintf(&syncs, "apiVersion: cloop.dev/v1alpha1\nkind: PoolSync\nmetadata: {name: s%d, namespace: fleet}\nspec:\n  interval: 1m\n  path: ./clusters/eu\n  source: {git: {url: https://git.example.com/fleet.git}}\n---\n", i)
	}
	report := check(t, with(sound(), map[string]string{"boot/kustomization.yaml": "resources: [syncs.yaml]\n", "boot/syncs.yaml": syncs.String()}))
	if len(report.Problems) != count-1 {
		t.Errorf("%d problems: %v", len(report.Problems), report.Problems)
	}
	for _, p := range report.Problems {
		if p.Rule != "object-in-two-syncs" || !strings.Contains(p.Message, "is applied by PoolSync fleet/s0 (boot/syncs.yaml:1) too") {
			t.Error(p)
		}
	}
}
