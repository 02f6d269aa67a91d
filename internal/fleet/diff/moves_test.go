package diff_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet/diff"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// applies is a PoolSync called fleet, as each cluster has one.
func applies(path string) string {
	return "apiVersion: cloop.dev/v1alpha1\nkind: PoolSync\nmetadata: {name: fleet, namespace: fleet}\nspec: {interval: 1m, path: " + path +
		", source: {git: {url: https://git.example.com/fleet.git}}}\n"
}

func byFlux(path string) string {
	return "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: fleet, namespace: flux-system}\nspec: {path: " + path + ", prune: true}\n"
}

// What one object applies before and after, from whatever path, stays.
func TestAMovedPathRemovesNothing(t *testing.T) {
	t.Parallel()
	const overlay = "resources: [../../pools/base]\n"
	type files = map[string]string
	with := func(more files) files {
		all := fleetFiles()
		maps.Copy(all, more)
		return all
	}
	renamed := func(more files) files {
		all := files{"clusters/eu/kustomization.yaml": fleettest.Removed, "clusters/europe/kustomization.yaml": overlay}
		maps.Copy(all, more)
		return all
	}
	twoSyncs := with(files{"boot/eu.yaml": applies("./clusters/eu"), "boot2/us.yaml": applies("./clusters/us")})
	selfApplied := with(files{
		"clusters/eu/kustomization.yaml": "resources: [../../pools/base, sync.yaml]\n", "clusters/eu/sync.yaml": applies("./clusters/eu"),
		"clusters/us/kustomization.yaml": "resources: [../../pools/base, sync.yaml]\n", "clusters/us/sync.yaml": applies("./clusters/us"),
	})
	for _, test := range []struct {
		name          string
		before, after files
		paths         []string
		want          string
	}{
		{"with its PoolSync", with(files{"boot/eu.yaml": applies("./clusters/eu")}), renamed(files{"boot/eu.yaml": applies("clusters/europe")}), nil,
			"boot: PoolSync fleet changed neutral /spec/path"},
		{"asked for the new path", with(files{"boot/eu.yaml": applies("./clusters/eu")}), renamed(files{"boot/eu.yaml": applies("clusters/europe")}), []string{"clusters/europe"}, ""},
		{"asked for the old path", with(files{"boot/eu.yaml": applies("./clusters/eu")}), renamed(files{"boot/eu.yaml": applies("clusters/europe")}), []string{"clusters/eu"}, ""},
		{"and changed", with(files{"boot/eu.yaml": applies("./clusters/eu")}),
			renamed(files{"boot/eu.yaml": applies("clusters/europe"), "clusters/europe/kustomization.yaml": overlay + "patches: [{patch: '- {op: replace, path: /spec/maxRunners, value: 3}', target: {kind: ExecutorPool}}]\n"}), nil,
			"boot: PoolSync fleet changed neutral /spec/path; clusters/europe (clusters/eu): ExecutorPool gpu changed lower /spec/maxRunners"},
		{"and lacks a pool", with(files{"boot/eu.yaml": applies("./clusters/eu")}),
			renamed(files{"boot/eu.yaml": applies("clusters/europe"), "clusters/europe/kustomization.yaml": "resources: [cpu.yaml]\n", "clusters/europe/cpu.yaml": executorPool("cpu", "maxRunners: 1")}), nil,
			"boot: PoolSync fleet changed neutral /spec/path; clusters/europe (clusters/eu): ExecutorPool cpu added raise; clusters/europe (clusters/eu): ExecutorPool gpu removed destructive"},
		{"only the PoolSync's path", with(files{"boot/eu.yaml": applies("./clusters/eu")}), files{"boot/eu.yaml": applies("clusters/us")}, nil,
			"boot: PoolSync fleet changed neutral /spec/path"},
		{"Flux", with(files{"boot/eu.yaml": byFlux("./clusters/eu")}), renamed(files{"boot/eu.yaml": byFlux("./clusters/europe")}), nil,
			"boot/eu.yaml: Kustomization fleet changed neutral /spec/path"},
		{"one of two of one name", twoSyncs, renamed(files{"boot/eu.yaml": applies("./clusters/europe")}), nil, "boot: PoolSync fleet changed neutral /spec/path"},
		{"both of one name", twoSyncs, renamed(files{"boot/eu.yaml": applies("./clusters/europe"), "boot2/us.yaml": applies("./clusters/america"),
			"clusters/us/kustomization.yaml": fleettest.Removed, "clusters/america/kustomization.yaml": overlay}), nil,
			"boot2: PoolSync fleet changed neutral /spec/path; boot: PoolSync fleet changed neutral /spec/path"},
		{"of a cluster that applies itself", selfApplied, renamed(files{"clusters/eu/sync.yaml": fleettest.Removed,
			"clusters/europe/kustomization.yaml": "resources: [../../pools/base, sync.yaml]\n", "clusters/europe/sync.yaml": applies("./clusters/europe")}), nil,
			"clusters/europe (clusters/eu): PoolSync fleet changed neutral /spec/path"},
		{"all clusters", selfApplied, files{
			"clusters/eu/kustomization.yaml": fleettest.Removed, "clusters/eu/sync.yaml": fleettest.Removed, "clusters/us/kustomization.yaml": fleettest.Removed, "clusters/us/sync.yaml": fleettest.Removed,
			"fleet/eu/kustomization.yaml": "resources: [../../pools/base, sync.yaml]\n", "fleet/eu/sync.yaml": applies("./fleet/eu"),
			"fleet/us/kustomization.yaml": "resources: [../../pools/base, sync.yaml]\n", "fleet/us/sync.yaml": applies("./fleet/us"),
		}, nil, "fleet/eu (clusters/eu): PoolSync fleet changed neutral /spec/path; fleet/us (clusters/us): PoolSync fleet changed neutral /spec/path"},
		// The second one waits until the first has pruned.
		{"another PoolSync takes over", with(files{"boot/eu.yaml": applies("./clusters/eu")}),
			renamed(files{"boot/eu.yaml": strings.Replace(applies("clusters/europe"), "name: fleet", "name: other", 1)}), nil,
			"boot: PoolSync fleet removed destructive; boot: PoolSync other added raise; clusters/eu: ExecutorPool gpu removed destructive; clusters/europe: ExecutorPool gpu added raise"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t, test.before)
			r.write(test.after)
			report, err := r.compare("HEAD", test.paths...)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, overlay := range report.Overlays {
				if overlay.From != "" {
					overlay.Path += " (" + overlay.From + ")"
				}
				for _, o := range overlay.Objects {
					parts := []string{overlay.Path + ":", o.Kind, o.Name, o.Change, string(o.Class)}
					for _, f := range o.Fields {
						parts = append(parts, f.Path)
					}
					got = append(got, strings.Join(parts, " "))
				}
			}
			slices.Sort(got)
			if shown := strings.Join(got, "; "); shown != test.want {
				t.Errorf("%s\nwant %s", shown, test.want)
			}
			if text := everything(t, report); test.name != "another PoolSync takes over" && test.name != "only the PoolSync's path" && !strings.Contains(text, "in place of clusters/eu: what both have stays as it is") {
				t.Errorf("it does not say that the path has moved: %s", text)
			}
		})
	}
}

// The cluster still applies the path that the base has.
func TestImpactOfAMovedPath(t *testing.T) {
	t.Parallel()
	files := fleetFiles()
	files["boot/eu.yaml"] = applies("./clusters/eu")
	r := newRepo(t, files)
	r.write(map[string]string{"boot/eu.yaml": applies("./clusters/europe"), "clusters/eu/kustomization.yaml": fleettest.Removed,
		"clusters/europe/kustomization.yaml": "resources: [../../pools/base]\n", "pools/base/gpu.yaml": executorPool("gpu", "maxRunners: 1")})
	report, err := r.compare("HEAD", "clusters/europe")
	if err != nil {
		t.Fatal(err)
	}
	cluster := inCluster(t, "eu", "{minRunners: 4, maxRunners: 4}", 4, 0)
	cluster.Pools[0].Namespace = "cloop-pools"
	report.AddImpact(diff.Live{Clusters: []diff.LiveCluster{cluster}, Hub: fullyRead(4)})
	if got := impacts(report); !slices.Equal(got, []string{"eu: retires 4 idle runners, touches 0 busy"}) {
		t.Errorf("%q %q", got, report.Notes)
	}
}

// What Argo CD alone would change of a path without a kustomization is not compared, and
// that is said.
func TestFieldsOfArgoCDAreNoted(t *testing.T) {
	t.Parallel()
	files := fleetFiles()
	files["plain/eu/gpu.yaml"] = executorPool("gpu", "maxRunners: 1")
	application := "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: fleet, namespace: argocd}\nspec: {source: {repoURL: https://git.example.com/fleet.git, path: plain/eu}}\n"
	files["boot/eu.yaml"] = application
	r := newRepo(t, files)
	altered := strings.Replace(application, "path: plain/eu", "path: plain/eu, kustomize: {namespace: a}", 1)
	const note = "boot/eu.yaml:4: spec.source.kustomize.namespace of Application argocd/fleet is not applied to what is compared: what it changes is not shown"
	check := func(name string, files map[string]string, want ...string) {
		t.Helper()
		r.write(files)
		report, err := r.compare("HEAD")
		if err != nil || !slices.Equal(report.Notes, want) {
			t.Errorf("%s: %v %q, want %q", name, err, report.Notes, want)
		}
	}
	check("it comes", map[string]string{"boot/eu.yaml": altered}, note)
	r.commit("Alter", nil)
	check("nothing changes", nil)
	check("the path changes", map[string]string{"plain/eu/gpu.yaml": executorPool("gpu", "maxRunners: 2")}, note)
	r.commit("Raise", nil)
	check("it goes", map[string]string{"boot/eu.yaml": application},
		"Application argocd/fleet had fields that are not applied to what is compared, and has none now: what that changes is not shown")
}

// What Flux alone changes of a path is compared as Flux builds it, also where nothing
// else differs.
func TestFieldsOfFluxAreCompared(t *testing.T) {
	t.Parallel()
	files := fleetFiles()
	with := func(fields string) string {
		return strings.Replace(byFlux("./clusters/eu"), "prune: true", "prune: true, "+fields, 1)
	}
	patched := func(maximum string) string {
		return with("patches: [{target: {kind: ExecutorPool}, patch: '- {op: replace, path: /spec/maxRunners, value: " + maximum + "}'}]")
	}
	component := func(maximum string) string {
		return "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches: [{target: {kind: ExecutorPool}, patch: '- {op: replace, path: /spec/maxRunners, value: " + maximum + "}'}]\n"
	}
	files["boot/eu.yaml"] = patched("5")
	r := newRepo(t, files)
	check := func(name string, files map[string]string, want string) {
		t.Helper()
		r.write(files)
		report, err := r.compare("HEAD", "clusters/eu")
		if err != nil {
			t.Fatal(err)
		}
		if text := everything(t, report); !strings.Contains(text, want) || len(report.Notes) > 0 {
			t.Errorf("%s: %s", name, text)
		}
		r.commit(name, nil)
	}
	check("nothing changes", nil, "1 root: no difference")
	check("its patch changes", map[string]string{"boot/eu.yaml": patched("7")}, "/spec/maxRunners  raise  5 → 7")
	check("a component takes its place", map[string]string{"boot/eu.yaml": with("components: [../../parts/small]"), "parts/small/kustomization.yaml": component("3")}, "/spec/maxRunners  lower  7 → 3")
	check("the component changes", map[string]string{"parts/small/kustomization.yaml": component("2")}, "/spec/maxRunners  lower  3 → 2")
}

// An Application that reads other files of a directory applies other pools.
func TestADirectoryIsReadOtherwise(t *testing.T) {
	t.Parallel()
	files := fleetFiles()
	application := "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: fleet, namespace: argocd}\nspec: {source: {repoURL: https://git.example.com/fleet.git, path: plain/eu, directory: {include: 'a*'}}}\n"
	files["boot/eu.yaml"], files["plain/eu/a.yaml"], files["plain/eu/b.yaml"] = application, executorPool("a", "maxRunners: 1"), executorPool("b", "maxRunners: 1")
	r := newRepo(t, files)
	r.write(map[string]string{"boot/eu.yaml": strings.Replace(application, "'a*'", "'b*'", 1)})
	if text := r.summary("HEAD", "plain/eu"); text != "1 of 1 root differs: 1 added, 1 removed (1 destructive, 1 raise)" {
		t.Errorf("it says %s", text)
	}
}

// What applies pools may lie by itself, in a directory that nothing applies and that has
// no document of ours.
func TestWhatAppliesPoolsGoes(t *testing.T) {
	t.Parallel()
	application := "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: fleet, namespace: argocd, finalizers: [resources-finalizer.argocd.argoproj.io]}\nspec: {source: {repoURL: https://git.example.com/fleet.git, path: clusters/eu}}\n"
	for name, test := range map[string]struct{ was, now, want string }{
		"a Kustomization":       {byFlux("./clusters/eu"), "", "2 of 5 roots differ: 2 removed (2 destructive)"},
		"an Application":        {application, "", "2 of 5 roots differ: 2 removed (2 destructive)"},
		"of nothing of ours":    {byFlux("./web"), "", "4 roots: no difference"},
		"one that is suspended": {byFlux("./clusters/eu"), strings.Replace(byFlux("./clusters/eu"), "prune: true", "prune: true, suspend: true", 1), "1 of 5 roots differ: 1 changed (1 neutral)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := fleetFiles()
			files["flux/eu.yaml"] = test.was
			files["web/kustomization.yaml"], files["web/web.yaml"] = "resources: [web.yaml]\n", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n"
			r := newRepo(t, files)
			r.write(map[string]string{"flux/eu.yaml": test.now})
			r.want("HEAD", test.want)
			if test.now == "" {
				r.git("rm", "-q", "-f", "flux/eu.yaml")
				r.want("HEAD", test.want)
			}
		})
	}
}

// What applies only what applies pools counts, and so does a set whose paths are made of
// what is found.
func TestWhatAppliesAppliersGoes(t *testing.T) {
	t.Parallel()
	application := func(name, path string) string {
		return "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: " + name + ", namespace: argocd, finalizers: [resources-finalizer.argocd.argoproj.io]}\nspec: {source: {repoURL: https://git.example.com/fleet.git, path: " + path + "}}\n"
	}
	set := "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: all, namespace: argocd}\nspec:\n  generators: [{git: {directories: [{path: clusters/*}]}}]\n  template: {spec: {source: {repoURL: https://git.example.com/fleet.git, path: '{{.path.path}}'}}}\n"
	flux := strings.Replace(byFlux("./apps"), "name: fleet", "name: apps", 1)
	for name, test := range map[string]struct {
		files map[string]string
		gone  string
		want  string
	}{
		"an app of apps":                     {map[string]string{"root.yaml": application("root", "apps"), "apps/eu.yaml": application("eu", "clusters/eu")}, "root.yaml", "2 of 5 roots differ: 2 removed (2 destructive)"},
		"a Kustomization of Kustomizations":  {map[string]string{"flux/apps.yaml": flux, "apps/eu.yaml": byFlux("./clusters/eu")}, "flux/apps.yaml", "2 of 5 roots differ: 2 removed (2 destructive)"},
		"a Kustomization of a kustomization": {map[string]string{"flux/apps.yaml": flux, "apps/kustomization.yaml": "resources: [eu.yaml]\n", "apps/eu.yaml": byFlux("./clusters/eu")}, "flux/apps.yaml", "2 of 5 roots differ: 2 removed (2 destructive)"},
		"a set":                              {map[string]string{"apps/all.yaml": set}, "apps/all.yaml", "3 of 4 roots differ: 3 removed (3 destructive)"},
		"a PoolSync":                         {map[string]string{"boot/eu/s.yaml": applies("./clusters/eu")}, "boot/eu/s.yaml", "2 of 4 roots differ: 2 removed (2 destructive)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := fleetFiles()
			maps.Copy(files, test.files)
			r := newRepo(t, files)
			r.write(map[string]string{test.gone: fleettest.Removed})
			r.want("HEAD", test.want)
		})
	}
}

// One of several clusters whose objects have one name may get a path of its own.
func TestOneOfSeveralMoves(t *testing.T) {
	t.Parallel()
	for name, sync := range map[string]func(string) string{"Flux": byFlux, "PoolSyncs": applies} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := fleetFiles()
			files["apps/gpu.yaml"], files["apps/kustomization.yaml"] = executorPool("gpu", "maxRunners: 3"), "resources: [gpu.yaml]\n"
			files["boot/eu/k.yaml"], files["boot/us/k.yaml"] = sync("./apps"), sync("./apps")
			r := newRepo(t, files)
			r.write(map[string]string{"boot/us/k.yaml": sync("./apps-us"), "apps-us/gpu.yaml": executorPool("gpu", "maxRunners: 2"), "apps-us/kustomization.yaml": "resources: [gpu.yaml]\n"})
			report, err := r.compare("HEAD", "apps", "apps-us")
			if err != nil {
				t.Fatal(err)
			}
			if text := everything(t, report); !strings.Contains(text, "applies it in place of apps: what both have stays as it is") || !strings.Contains(text, "/spec/maxRunners  lower  3 → 2") || strings.Contains(text, "removed, destructive") || strings.Contains(text, "added, raise") {
				t.Error(text)
			}
		})
	}
}

// A file that nothing applies may be renamed, or cut in two.
func TestWhatAppliesPoolsIsElsewhere(t *testing.T) {
	t.Parallel()
	other := strings.Replace(byFlux("./clusters/us"), "name: fleet", "name: us", 1)
	files := fleetFiles()
	files["flux/all.yaml"] = byFlux("./clusters/eu") + "---\n" + other
	r := newRepo(t, files)
	r.git("mv", "flux/all.yaml", "flux/both.yaml")
	r.want("HEAD", "5 roots: no difference")
	r.write(map[string]string{"flux/both.yaml": other, "flux/eu.yaml": byFlux("./clusters/eu")})
	r.want("HEAD", "6 roots: no difference")
	r.write(map[string]string{"flux/eu.yaml": strings.Replace(byFlux("./clusters/eu"), "prune: true", "prune: false", 1)})
	if report, err := r.compare("HEAD"); err != nil || report.Summary != "1 of 6 roots differ: 1 changed (1 neutral)" || strings.Contains(everything(t, report), "the path is new") {
		t.Errorf("%v %s", err, everything(t, report))
	}
	r.write(map[string]string{"flux/eu.yaml": fleettest.Removed, "flux/both.yaml": fleettest.Removed})
	r.want("HEAD", "3 of 4 roots differ: 4 removed (4 destructive)")
	// What they applied goes with them, also where the path is still there.
	r.write(map[string]string{"plain/.keep": "", "plain/gpu.yaml": executorPool("gpu", "maxRunners: 1"), "flux/plain.yaml": byFlux("./plain")})
	r.commit("Plain", nil)
	r.write(map[string]string{"flux/plain.yaml": fleettest.Removed, "plain/gpu.yaml": fleettest.Removed})
	r.want("HEAD", "2 of 5 roots differ: 2 removed (2 destructive)")
}

// Objects of several clusters may have one name: what each applies is compared with what
// it applied, and what reads another repository applies nothing of this one.
func TestAppliersOfOneName(t *testing.T) {
	t.Parallel()
	files := fleetFiles()
	files["apps/gpu.yaml"], files["apps/kustomization.yaml"] = executorPool("gpu", "maxRunners: ${M}"), "resources: [gpu.yaml]\n"
	gives := func(most string) string {
		return strings.Replace(byFlux("./apps"), "prune: true", "prune: true, postBuild: {substitute: {M: \""+most+"\"}}", 1)
	}
	// The value may be the parent's.
	parent := func(cluster, most string) string {
		return strings.Replace(strings.Replace(byFlux("./clusters/"+cluster+"/syncs"), "name: fleet", "name: "+cluster, 1), "prune: true", "prune: true, postBuild: {substitute: {MOST: '\""+most+"\"'}}", 1)
	}
	files["clusters/prod/apps.yaml"], files["clusters/test/apps.yaml"] = gives("20"), gives("10")
	files["clusters/jp/syncs/apps.yaml"], files["boot/us.yaml"] = strings.Replace(gives("${MOST}"), "name: fleet", "name: us-fleet", 1), parent("jp", "5")
	files["boot/other.yaml"] = strings.Replace(applies("./apps"), "fleet.git", "other.git", 1)
	r := newRepo(t, files)
	r.git("remote", "add", "origin", "https://git.example.com/fleet.git")
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"nothing":           {nil, nil},
		"one of two":        {map[string]string{"clusters/prod/apps.yaml": gives("2")}, []string{"apps (Kustomization flux-system/fleet in clusters/prod/apps.yaml): gpu changed lower"}},
		"the other":         {map[string]string{"clusters/test/apps.yaml": gives("30")}, []string{"apps (Kustomization flux-system/fleet in clusters/test/apps.yaml): gpu changed raise"}},
		"what a parent has": {map[string]string{"boot/us.yaml": parent("jp", "9")}, []string{"apps (Kustomization flux-system/us-fleet): gpu changed raise"}},
	} {
		r.git("checkout", "-q", ".")
		r.write(test.files)
		report, err := r.compare("HEAD", "apps")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range report.Overlays {
			for _, o := range report.Overlays[i].Objects {
				title := report.Overlays[i].Path + " (" + report.Overlays[i].By
				if in := report.Overlays[i].In; in != "" {
					title += " in " + in
				}
				got = append(got, title+"): "+o.Name+" "+o.Change+" "+string(o.Class))
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q; notes %q", name, got, test.want, report.Notes)
		}
	}
}
