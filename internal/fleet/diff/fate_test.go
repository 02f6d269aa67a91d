package diff_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet/diff"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// shown is what a report says of each object: where, what becomes of it, and its class.
func shown(report *diff.Report) string {
	var got []string
	for i := range report.Overlays {
		o := &report.Overlays[i]
		where := o.Path
		if o.From != "" {
			where = o.From + " to " + o.Path
		}
		if o.In != "" {
			where += " in " + o.In
		}
		for _, object := range o.Objects {
			got = append(got, where+": "+object.Name+" "+object.Change+" "+string(object.Class))
		}
		for _, f := range o.Failures {
			got = append(got, where+": not compared at "+f.Revision)
		}
	}
	slices.Sort(got)
	return strings.Join(got, "; ")
}

// byArgo is an Application that takes along what it has applied.
func byArgo(name, source string) string {
	return "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: " + name + ", namespace: argocd, finalizers: [resources-finalizer.argocd.argoproj.io]}\nspec: {" + source + "}\n"
}

func sourceAt(path string) string {
	return "{repoURL: https://git.example.com/fleet.git, path: " + path + "}"
}

// sourcesOf is an Application with several sources.
func sourcesOf(paths ...string) string {
	all := make([]string, len(paths))
	for i, path := range paths {
		all[i] = sourceAt(path)
	}
	return byArgo("fleet", "sources: ["+strings.Join(all, ", ")+"]")
}

func named(name, applier string) string {
	return strings.Replace(applier, "name: fleet", "name: "+name, 1)
}

func unpruned(applier string) string {
	if strings.Contains(applier, "prune: true") {
		return strings.Replace(applier, "prune: true", "prune: false", 1)
	}
	return strings.Replace(applier, "interval: 1m", "interval: 1m, prune: false", 1)
}

func suspended(applier string) string {
	return strings.Replace(strings.Replace(applier, "interval: 1m", "interval: 1m, suspend: true", 1), "prune: true", "prune: true, suspend: true", 1)
}

// spared is a pool that whoever prunes is to leave alone.
func spared(pool string) string {
	return strings.Replace(pool, "metadata:\n", "metadata:\n  annotations: {kustomize.toolkit.fluxcd.io/prune: disabled}\n", 1)
}

// What an object applied goes, stays or comes as that object, and what becomes of it, has
// it.
func TestWhatBecomesOfWhatIsApplied(t *testing.T) {
	t.Parallel()
	type files = map[string]string
	const gone = fleettest.Removed
	pools := func(appliers files, more ...files) files {
		all := files{"pools/a.yaml": executorPool("a", "maxRunners: 3"), "hub/a.yaml": hubPool("a", "maxRunners: 8")}
		for _, some := range append(more, appliers) {
			maps.Copy(all, some)
		}
		return all
	}
	both := func(applier string) files {
		return files{"clusters/eu/k.yaml": applier, "clusters/us/k.yaml": applier}
	}
	app := byArgo("fleet", "source: "+sourceAt("pools"))
	recursive := func(path string) string {
		return byArgo("fleet", "source: {repoURL: https://git.example.com/fleet.git, path: "+path+", directory: {recurse: true}}")
	}
	versions := func(applier string) files {
		return files{"v1/a.yaml": executorPool("a", "maxRunners: 3"), "v1/b.yaml": executorPool("b", "maxRunners: 3"), "v2/a.yaml": executorPool("a", "maxRunners: 4"),
			"v3/a.yaml": executorPool("a", "maxRunners: 5"), "v3/c.yaml": executorPool("c", "maxRunners: 3"),
			"clusters/eu/k.yaml": strings.Replace(applier, "./pools", "./v1", 1), "clusters/us/k.yaml": strings.Replace(applier, "./pools", "./v2", 1)}
	}
	shared := files{"clusters/eu/kustomization.yaml": "resources: [../../common]\n", "clusters/us/kustomization.yaml": "resources: [../../common]\n", "common/kustomization.yaml": "resources: [m.yaml]\n",
		"common/m.yaml": named("mid", byFlux("./mid")), "mid/k.yaml": byFlux("./v1")}
	maps.Copy(shared, versions(byFlux("./pools")))
	delete(shared, "clusters/eu/k.yaml")
	delete(shared, "clusters/us/k.yaml")
	below := files{"pools/k/b.yaml": executorPool("b", "maxRunners: 3"), "hub/b.yaml": hubPool("b", "maxRunners: 8")}
	flux, sync := byFlux("./pools"), applies("./pools")
	repository := func(name, url string) string {
		return "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: " + name + ", namespace: flux-system}\nspec: {url: " + url + "}\n"
	}
	from := func(source string) string {
		return strings.Replace(flux, "prune: true", "prune: true, sourceRef: {kind: GitRepository, name: "+source+"}", 1)
	}
	sources := files{"clusters/eu/flux-system/s.yaml": repository("here", "https://git.example.com/fleet.git") + "---\n" + repository("there", "https://git.example.com/other.git") + "---\n" +
		named("flux-system", strings.Replace(byFlux("./clusters/eu"), "prune: true", "prune: true, sourceRef: {kind: GitRepository, name: here}", 1))}
	const j = `{"apiVersion":"cloop.dev/v1alpha1","kind":"ExecutorPool","metadata":{"name":"j","namespace":"cloop-pools"},"spec":{"hubURL":"https://hub.example.com","poolCredentialSecretRef":{"name":"j"},"maxRunners":MAX}}`
	for name, test := range map[string]struct {
		before, after files
		want          string
	}{
		"Flux, namesakes, the path is gone":            {pools(both(flux)), files{"pools/a.yaml": gone}, "pools in clusters/eu/k.yaml: a removed neutral; pools in clusters/us/k.yaml: a removed neutral"},
		"PoolSyncs, namesakes, the path is gone":       {pools(both(sync)), files{"pools/a.yaml": gone}, "pools in clusters/eu/k.yaml: a removed neutral; pools in clusters/us/k.yaml: a removed neutral"},
		"Applications, namesakes, the path is gone":    {pools(both(app)), files{"pools/a.yaml": gone}, "pools in clusters/eu/k.yaml: a removed neutral; pools in clusters/us/k.yaml: a removed neutral"},
		"two names, the path is gone":                  {pools(files{"clusters/eu/k.yaml": named("eu", flux), "clusters/us/k.yaml": named("us", flux)}), files{"pools/a.yaml": gone}, "pools: a removed neutral; pools: a removed neutral"},
		"Flux, one of two to a path that is nowhere":   {pools(both(flux)), files{"clusters/eu/k.yaml": byFlux("./poolz")}, "clusters/eu/k.yaml: fleet changed neutral; pools in clusters/eu/k.yaml: a removed neutral"},
		"a PoolSync to a path that is nowhere":         {pools(files{"boot/k.yaml": sync}), files{"boot/k.yaml": applies("./poolz")}, "boot: fleet changed neutral; pools: a removed neutral"},
		"an Application to a path that is nowhere":     {pools(files{"boot/k.yaml": app}), files{"boot/k.yaml": byArgo("fleet", "source: "+sourceAt("poolz"))}, "boot/k.yaml: fleet changed neutral; pools: a removed neutral"},
		"back from there":                              {pools(files{"boot/k.yaml": applies("./poolz")}), files{"boot/k.yaml": sync}, "boot: fleet changed neutral; poolz to pools: a added raise"},
		"Flux goes":                                    {pools(files{"boot/k.yaml": flux}), files{"boot/k.yaml": gone}, "boot/k.yaml: fleet removed destructive; pools: a removed destructive"},
		"Flux that does not prune goes":                {pools(files{"boot/k.yaml": unpruned(flux)}), files{"boot/k.yaml": gone, "pools/a.yaml": gone}, "boot/k.yaml: fleet removed neutral; pools: a removed neutral"},
		"a PoolSync that does not prune goes":          {pools(files{"boot/k.yaml": unpruned(sync)}), files{"boot/k.yaml": gone, "pools/a.yaml": gone}, "boot: fleet removed neutral; pools: a removed neutral"},
		"one of two that do not prune goes":            {pools(both(unpruned(sync))), files{"clusters/eu/k.yaml": gone}, "clusters/eu: fleet removed neutral; pools in clusters/eu/k.yaml: a removed neutral"},
		"a pool goes, and nothing prunes":              {pools(files{"boot/k.yaml": unpruned(flux)}, below), files{"pools/k/b.yaml": gone}, "pools: b removed neutral"},
		"a pool goes":                                  {pools(files{"boot/k.yaml": flux}, below), files{"pools/k/b.yaml": gone}, "pools: b removed destructive"},
		"the applier of an applier does not prune":     {pools(files{"apps/k.yaml": flux, "boot/k.yaml": named("apps", unpruned(byFlux("./apps")))}, files{"apps/x.yaml": hubPool("x", "maxRunners: 1")}), files{"apps/k.yaml": gone}, "apps: fleet removed neutral; pools: a removed neutral"},
		"the path of an applier is gone":               {pools(files{"apps/k.yaml": flux, "boot/k.yaml": named("apps", byFlux("./apps"))}), files{"apps/k.yaml": gone}, "apps: fleet removed neutral; pools: a removed neutral"},
		"all appliers go":                              {pools(both(flux)), files{"clusters/eu/k.yaml": gone, "clusters/us/k.yaml": gone}, "clusters/eu/k.yaml: fleet removed destructive; clusters/us/k.yaml: fleet removed destructive; pools in clusters/eu/k.yaml: a removed destructive; pools in clusters/us/k.yaml: a removed destructive"},
		"the first appliers come":                      {pools(nil), both(flux), "clusters/eu/k.yaml: fleet added neutral; clusters/us/k.yaml: fleet added neutral; pools in clusters/eu/k.yaml: a added raise; pools in clusters/us/k.yaml: a added raise"},
		"another applier comes":                        {pools(files{"boot/k.yaml": flux}), files{"boot/us.yaml": named("us", flux)}, "boot/us.yaml: us added neutral; pools: a added raise"},
		"an applier has another name":                  {pools(files{"boot/k.yaml": flux}), files{"boot/k.yaml": named("us", flux)}, "boot/k.yaml: fleet removed destructive; boot/k.yaml: us added neutral; pools: a added raise; pools: a removed destructive"},
		"another applies a part":                       {pools(files{"boot/k.yaml": flux}, below), files{"boot/us.yaml": named("us", byFlux("./pools/k"))}, "boot/us.yaml: us added neutral; pools/k: b added raise"},
		"an applier of an applier's file goes":         {pools(files{"apps/k.yaml": flux, "boot/k.yaml": named("apps", byFlux("./apps"))}), files{"boot/k.yaml": gone}, "apps: fleet removed destructive; boot/k.yaml: apps removed destructive"},
		"a suspended PoolSync goes":                    {pools(files{"boot/k.yaml": suspended(sync)}), files{"boot/k.yaml": gone}, "boot: fleet removed neutral; pools: a removed neutral"},
		"one that was suspended until a time goes":     {pools(files{"boot/k.yaml": strings.Replace(suspended(sync), "suspend: true", "suspend: true, suspendUntil: \"2026-01-01T00:00:00Z\"", 1)}), files{"boot/k.yaml": gone}, "boot: fleet removed destructive; pools: a removed destructive"},
		"suspended, Flux goes":                         {pools(files{"boot/k.yaml": suspended(flux)}), files{"boot/k.yaml": gone}, "boot/k.yaml: fleet removed neutral; pools: a removed neutral"},
		"Flux goes, and a pool says that it stays":     {pools(files{"boot/k.yaml": flux, "pools/b.yaml": spared(executorPool("b", "maxRunners: 3"))}), files{"boot/k.yaml": gone}, "boot/k.yaml: fleet removed destructive; pools: a removed destructive; pools: b removed neutral"},
		"two clusters swap their paths":                {versions(flux), files{"clusters/eu/k.yaml": byFlux("./v2"), "clusters/us/k.yaml": byFlux("./v1")}, "clusters/eu/k.yaml: fleet changed neutral; clusters/us/k.yaml: fleet changed neutral; v1 to v2: a changed raise; v1 to v2: b removed destructive; v2 to v1: a changed lower; v2 to v1: b added raise"},
		"one follows the other":                        {versions(flux), files{"clusters/eu/k.yaml": byFlux("./v2"), "clusters/us/k.yaml": byFlux("./v3")}, "clusters/eu/k.yaml: fleet changed neutral; clusters/us/k.yaml: fleet changed neutral; v1 to v2: a changed raise; v1 to v2: b removed destructive; v2 to v3: a changed raise; v2 to v3: c added raise"},
		"one follows the other, which goes":            {versions(flux), files{"clusters/eu/k.yaml": byFlux("./v2"), "clusters/us/k.yaml": gone}, "clusters/eu/k.yaml: fleet changed neutral; clusters/us/k.yaml: fleet removed destructive; v1 to v2: a changed raise; v1 to v2: b removed destructive; v2: a removed destructive"},
		"a new one where the other was":                {versions(sync), files{"clusters/eu/k.yaml": applies("./v3"), "clusters/jp/k.yaml": applies("./v1")}, "clusters/eu: fleet changed neutral; clusters/jp: fleet added raise; v1 to v3: a changed raise; v1 to v3: b removed destructive; v1 to v3: c added raise; v1: a added raise; v1: b added raise"},
		"defined once, and another path in one":        {shared, files{"clusters/us/kustomization.yaml": "resources: [../../common]\npatches:\n- target: {kind: Kustomization, name: mid}\n  patch: '[{\"op\": \"replace\", \"path\": \"/spec/path\", \"value\": \"./mid-us\"}]'\n", "mid-us/k.yaml": byFlux("./v2")}, "clusters/us: mid changed neutral; mid to mid-us: fleet changed neutral; v1 to v2: a changed raise; v1 to v2: b removed destructive"},
		"narrowed, Flux":                               {pools(files{"boot/k.yaml": flux}, below), files{"boot/k.yaml": byFlux("./pools/k")}, "boot/k.yaml: fleet changed neutral; pools to pools/k: a removed destructive"},
		"narrowed, a PoolSync":                         {pools(files{"boot/k.yaml": sync}, below), files{"boot/k.yaml": applies("./pools/k")}, "boot: fleet changed neutral; pools to pools/k: a removed destructive"},
		"narrowed, Argo CD":                            {pools(files{"boot/k.yaml": recursive("pools")}, below), files{"boot/k.yaml": recursive("pools/k")}, "boot/k.yaml: fleet changed neutral; pools to pools/k: a removed destructive"},
		"widened":                                      {pools(files{"boot/k.yaml": byFlux("./pools/k")}, below), files{"boot/k.yaml": flux}, "boot/k.yaml: fleet changed neutral; pools/k to pools: a added raise"},
		"narrowed from what has no file of its own":    {files{"cp/eu/b.yaml": executorPool("b", "maxRunners: 3"), "cp/us/a.yaml": executorPool("a", "maxRunners: 3"), "boot/k.yaml": byFlux("./cp")}, files{"boot/k.yaml": byFlux("./cp/eu")}, "boot/k.yaml: fleet changed neutral; cp to cp/eu: a removed destructive"},
		"one of two sources":                           {pools(files{"boot/k.yaml": sourcesOf("pools", "more"), "more/b.yaml": executorPool("b", "maxRunners: 3")}), files{"boot/k.yaml": sourcesOf("pools")}, "boot/k.yaml: fleet changed neutral; more: b removed destructive"},
		"from one source to the other":                 {files{"boot/k.yaml": sourcesOf("p1", "p2"), "p1/a.yaml": executorPool("a", "maxRunners: 3"), "p1/b.yaml": executorPool("b", "maxRunners: 3"), "p2/c.yaml": executorPool("c", "maxRunners: 3")}, files{"p1/b.yaml": gone, "p2/b.yaml": executorPool("b", "maxRunners: 4")}, "p2: b changed raise"},
		"two sources become one":                       {files{"boot/k.yaml": sourcesOf("p1", "p2"), "p1/a.yaml": executorPool("a", "maxRunners: 3"), "p2/c.yaml": executorPool("c", "maxRunners: 3")}, files{"boot/k.yaml": sourcesOf("p1"), "p2/c.yaml": gone, "p1/c.yaml": executorPool("c", "maxRunners: 3")}, "boot/k.yaml: fleet changed neutral"},
		"one source becomes two":                       {files{"boot/k.yaml": sourcesOf("p1"), "p1/a.yaml": executorPool("a", "maxRunners: 3"), "p1/c.yaml": executorPool("c", "maxRunners: 3")}, files{"boot/k.yaml": sourcesOf("p1", "p2"), "p1/c.yaml": gone, "p2/c.yaml": executorPool("c", "maxRunners: 3")}, "boot/k.yaml: fleet changed neutral"},
		"Flux applies another repository":              {pools(files{"clusters/eu/k.yaml": from("here")}, sources), files{"clusters/eu/k.yaml": from("there")}, "clusters/eu: fleet changed neutral; pools: a removed destructive"},
		"Flux does so, and does not prune":             {pools(files{"clusters/eu/k.yaml": from("here")}, sources), files{"clusters/eu/k.yaml": unpruned(from("there"))}, "clusters/eu: fleet changed neutral; pools: a removed neutral"},
		"defined once, with values that become one":    {pools(files{"mid/k.yaml": valued("pools", "./pools", "${T1}"), "clusters/eu/k.yaml": valued("mid", "./mid", "ml"), "clusters/us/k.yaml": valued("mid", "./mid", "web")}, files{"pools/a.yaml": executorPool("a", "maxRunners: 3\n  runnerLabels: {team: \"${T1}\"}")}), files{"clusters/eu/k.yaml": valued("mid", "./mid", "web")}, "clusters/eu/k.yaml: mid changed neutral; mid in clusters/eu/k.yaml: pools changed neutral; pools: a changed neutral"},
		"JSON of Argo CD":                              {pools(files{"boot/k.yaml": app, "pools/j.json": strings.Replace(j, "MAX", "3", 1)}), files{"pools/j.json": strings.Replace(j, "MAX", "9", 1)}, "pools: j changed raise"},
		"JSON of Argo CD goes":                         {pools(files{"boot/k.yaml": app, "pools/j.json": strings.Replace(j, "MAX", "3", 1)}), files{"pools/j.json": gone}, "pools: j removed destructive"},
		"a loose file goes to another cluster":         {pools(files{"clusters/eu/k.yaml": flux, "clusters/us/x.yaml": named("x", byFlux("./x")), "clusters/eu/y.yaml": named("y", byFlux("./x")), "x/b.yaml": executorPool("b", "maxRunners: 3")}), files{"clusters/eu/k.yaml": gone, "clusters/us/k.yaml": flux}, "clusters/eu/k.yaml: fleet removed destructive; clusters/us/k.yaml: fleet added neutral"},
		"a loose file goes elsewhere in its cluster":   {pools(files{"clusters/eu/k.yaml": flux}), files{"clusters/eu/k.yaml": gone, "clusters/eu/apps/k.yaml": flux}, ""},
		"the directory of a cluster has another name":  {pools(files{"clusters/eu/k.yaml": flux}), files{"clusters/eu/k.yaml": gone, "clusters/europe/k.yaml": flux}, ""},
		"an Application renders nothing any more":      {pools(files{"boot/k.yaml": app, "pools/kustomization.yaml": "resources: [a.yaml]\n"}), files{"pools/kustomization.yaml": "resources: []\n"}, "pools: a removed neutral"},
		"one that may be empty renders nothing":        {pools(files{"boot/k.yaml": byArgo("fleet", "syncPolicy: {automated: {prune: true, allowEmpty: true}}, source: "+sourceAt("pools")), "pools/kustomization.yaml": "resources: [a.yaml]\n"}), files{"pools/kustomization.yaml": "resources: []\n"}, "pools: a removed destructive"},
		"who applies it may be in what cannot be read": {pools(files{"boot/k.yaml": flux}), files{"boot/k.yaml": flux + "---\nx: [\n"}, "boot/k.yaml: not compared at head"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t, test.before)
			r.git("remote", "add", "origin", "https://git.example.com/fleet.git")
			r.write(test.after)
			for file, text := range test.after {
				if text == gone {
					r.git("rm", "-qf", "--cached", "--ignore-unmatch", file)
				}
			}
			report, err := r.compare("HEAD")
			if err != nil {
				t.Fatal(err)
			}
			if got := shown(report); got != test.want {
				t.Errorf("%s\nwant %s\n%s", got, test.want, everything(t, report))
			}
		})
	}
}

// valued is a Kustomization that gives a variable a value.
func valued(name, path, value string) string {
	return named(name, strings.Replace(byFlux(path), "prune: true", "prune: true, postBuild: {substitute: {T1: '"+value+"'}}", 1))
}

// What an ApplicationSet makes no Application for any more goes, unless it says otherwise.
func TestWhatAnApplicationSetMakes(t *testing.T) {
	t.Parallel()
	set := func(generator, path, policy string) string {
		return "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: s, namespace: argocd}\nspec:\n  generators: [" + generator + "]\n  syncPolicy: {" + policy + "}\n" +
			"  template: {metadata: {name: '{{.c}}'}, spec: {source: {repoURL: https://git.example.com/fleet.git, path: '" + path + "'}}}\n"
	}
	const list, directories, files = "{list: {elements: [{c: eu, most: '3'}, {c: us}]}}", "{git: {directories: [{path: clusters/*}]}}", "{git: {files: [{path: clusters/*/c.yaml}]}}"
	for name, test := range map[string]struct {
		generator, path, policy string
		after                   map[string]string
		want                    string
	}{
		"an element goes":                  {list, "clusters/{{.c}}", "", map[string]string{"apps/s.yaml": set("{list: {elements: [{c: eu}]}}", "clusters/{{.c}}", "")}, "apps/s.yaml: s changed destructive"},
		"an element comes":                 {list, "clusters/{{.c}}", "", map[string]string{"apps/s.yaml": set("{list: {elements: [{c: ap}, {c: us}, {c: eu, most: '3'}]}}", "clusters/{{.c}}", "")}, "apps/s.yaml: s changed neutral"},
		"an element has another value":     {list, "clusters/{{.c}}", "", map[string]string{"apps/s.yaml": set("{list: {elements: [{c: eu, most: '4'}, {c: us}]}}", "clusters/{{.c}}", "")}, "apps/s.yaml: s changed neutral"},
		"an element goes and all stays":    {list, "clusters/{{.c}}", "preserveResourcesOnDeletion: true", map[string]string{"apps/s.yaml": set("{list: {elements: [{c: eu}]}}", "clusters/{{.c}}", "preserveResourcesOnDeletion: true")}, "apps/s.yaml: s changed neutral"},
		"an element goes and nothing else": {list, "clusters/{{.c}}", "applicationsSync: create-update", map[string]string{"apps/s.yaml": set("{list: {elements: [{c: eu}]}}", "clusters/{{.c}}", "applicationsSync: create-update")}, "apps/s.yaml: s changed neutral"},
		"a directory is excluded":          {directories, "{{.path.path}}", "", map[string]string{"apps/s.yaml": set("{git: {directories: [{path: clusters/*}, {path: clusters/us, exclude: true}]}}", "{{.path.path}}", "")}, "apps/s.yaml: s changed destructive; clusters/us: a removed destructive"},
		"a directory goes":                 {directories, "{{.path.path}}", "", map[string]string{"clusters/us/a.yaml": fleettest.Removed, "clusters/us/c.yaml": fleettest.Removed}, "clusters/us: a removed destructive"},
		"another directory goes":           {directories, "{{.path.path}}", "", map[string]string{"hub/a.yaml": fleettest.Removed}, "hub: a removed neutral"},
		"a directory of a file goes":       {files, "{{path}}", "", map[string]string{"clusters/us/a.yaml": fleettest.Removed, "clusters/us/c.yaml": fleettest.Removed}, "clusters/us: a removed destructive"},
		"a directory goes and all stays":   {directories, "{{.path.path}}", "preserveResourcesOnDeletion: true", map[string]string{"clusters/us/a.yaml": fleettest.Removed, "clusters/us/c.yaml": fleettest.Removed}, "clusters/us: a removed neutral"},
		"a file goes":                      {files, "{{path}}", "", map[string]string{"clusters/us/c.yaml": fleettest.Removed}, "clusters/us: a removed destructive"},
		"a directory of a list goes":       {list, "clusters/{{.c}}", "", map[string]string{"clusters/us/a.yaml": fleettest.Removed, "clusters/us/c.yaml": fleettest.Removed}, "clusters/us: a removed destructive"},
		"a pool goes":                      {directories, "{{.path.path}}", "", map[string]string{"clusters/us/b.yaml": fleettest.Removed}, "clusters/us: b removed destructive"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t, map[string]string{"apps/s.yaml": set(test.generator, test.path, test.policy), "hub/a.yaml": hubPool("a", "maxRunners: 8"),
				"clusters/eu/a.yaml": executorPool("a", "maxRunners: 3"), "clusters/us/a.yaml": executorPool("a", "maxRunners: 3"), "clusters/eu/c.yaml": "c: eu\n", "clusters/us/c.yaml": "c: us\n"})
			if name == "a pool goes" {
				r.commit("Another", map[string]string{"clusters/us/b.yaml": executorPool("b", "maxRunners: 3")})
			}
			r.write(test.after)
			for file, text := range test.after {
				if text == fleettest.Removed {
					r.git("rm", "-qf", "--cached", "--ignore-unmatch", file)
				}
			}
			report, err := r.compare("HEAD")
			if err != nil {
				t.Fatal(err)
			}
			if got := shown(report); got != test.want {
				t.Errorf("%s\nwant %s\n%s", got, test.want, everything(t, report))
			}
		})
	}
}
