package fleet_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

// kustomizationOf is one of Flux, in flux-system.
func kustomizationOf(name, path, more string) string {
	return "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: " + name + ", namespace: flux-system}\nspec:\n  path: " + path + "\n  sourceRef: {kind: GitRepository, name: flux-system}\n" + more
}

// toKustomizations patches what a Kustomization applies, so that each has more.
func toKustomizations(more string) string {
	return "  patches:\n  - target: {kind: Kustomization}\n    patch: |\n      - {op: add, path: /spec/" + more + "}\n"
}

// gives is a Kustomization's value for MAX.
func gives(value string) string { return "  postBuild: {substitute: {MAX: \"" + value + "\"}}\n" }

// What applies an applier has a say in what that applies: its variables, and what it
// changes by fields of its own.
func TestAnAppliersParentsCount(t *testing.T) {
	pool := strings.Replace(basePool, "maxRunners: 4", "maxRunners: ${MAX}", 1)
	below := func(parent, child string) map[string]string {
		return map[string]string{"clusters/eu/flux-system/sync.yaml": kustomizationOf("flux-system", "./clusters/eu", parent), "clusters/eu/flux-system/kustomization.yaml": "resources: [sync.yaml]\n",
			"clusters/eu/apps.yaml": child, "apps/prod/gpu.yaml": pool, "apps/prod/kustomization.yaml": "resources: [gpu.yaml]\n"}
	}
	listed := map[string]string{"clusters/eu/kustomization.yaml": "resources: [flux-system, apps.yaml]\n"}
	give := "postBuild, value: {substitute: {MAX: '7'}}"
	// Each of three directories has the Kustomization of the next.
	chain := func(a, b, c string) map[string]string {
		files := map[string]string{a + "/k.yaml": kustomizationOf("root", "./"+a, strings.Replace(toKustomizations(`patches, value: [{target: {kind: Kustomization}, patch: "- {op: add, path: /spec/`+give+`}"}]`), "{kind: Kustomization}", "{kind: Kustomization, name: mid}", 1)) +
			"---\n" + kustomizationOf("mid", "./"+b, ""), b + "/k.yaml": kustomizationOf("leaf", "./"+c, ""), c + "/k.yaml": pool}
		for _, dir := range []string{a, b, c} {
			files[dir+"/kustomization.yaml"] = "resources: [k.yaml]\n"
		}
		return files
	}
	sync := func(name, path, vars string) string {
		return "apiVersion: cloop.dev/v1alpha1\nkind: PoolSync\nmetadata: {name: " + name + ", namespace: fleet}\nspec:\n  source: {git: {url: 'https://git.example.com/fleet.git'}}\n  path: " + path + "\n  substitute: {vars: {" + vars + "}}\n"
	}
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"a path":                       {below("  postBuild: {substitute: {ENV: prod}}\n", kustomizationOf("apps", "./apps/${ENV}", gives("7"))), nil},
		"a path, in a kustomization":   {with(below("  postBuild: {substitute: {ENV: prod}}\n", kustomizationOf("apps", "./apps/${ENV}", gives("7"))), listed), nil},
		"a path with a default":        {below("  postBuild: {}\n", kustomizationOf("apps", "./apps/${ENV:=prod}", gives("7"))), nil},
		"a value":                      {below("  postBuild: {substitute: {MOST: lots}}\n", kustomizationOf("apps", "./apps/prod", gives("${MOST}"))), []string{"schema clusters/eu/flux-system/sync.yaml:7:28 spec.maxRunners"}},
		"without variables of its own": {below("  prune: true\n", kustomizationOf("apps", "./apps/${ENV}", gives("7"))), []string{"unresolved-variable apps/prod/gpu.yaml:10:3 spec.maxRunners"}},
		"of nobody knows what":         {below("  postBuild: {substituteFrom: [{kind: ConfigMap, name: a}]}\n", kustomizationOf("apps", "./apps/${ENV}", gives("7"))), []string{"unresolved-variable apps/prod/gpu.yaml:10:3 spec.maxRunners"}},
		"patched, in a kustomization":  {with(below(toKustomizations(give), kustomizationOf("apps", "./apps/prod", "")), listed), nil},
		"patched, in a directory":      {below(toKustomizations(give), kustomizationOf("apps", "./apps/prod", "")), nil},
		"below a kustomization that lists something else": {with(below("  prune: true\n", kustomizationOf("apps", "./apps/prod", gives("lots"))), map[string]string{"kustomization.yaml": "resources: [hub]\n",
			"hub/kustomization.yaml": "resources: [gpu.yaml]\n", "hub/gpu.yaml": hubPool}), []string{"schema clusters/eu/apps.yaml:7:28 spec.maxRunners"}},
		"patched to something wrong": {below(toKustomizations(strings.Replace(give, "7", "lots", 1)), kustomizationOf("apps", "./apps/prod", "")), []string{"schema clusters/eu/flux-system/sync.yaml:10:63 spec.maxRunners"}},
		"one after another":          {chain("a", "b", "c"), nil},
		"one before another":         {chain("c", "b", "a"), nil},
		"two parents": {map[string]string{"boot/a.yaml": kustomizationOf("eu", "./clusters", toKustomizations(give)), "boot/b.yaml": kustomizationOf("us", "./clusters", toKustomizations(strings.Replace(give, "7", "lots", 1))),
			"clusters/kustomization.yaml": "resources: [k.yaml]\n", "clusters/k.yaml": kustomizationOf("leaf", "./apps/prod", ""), "apps/prod/gpu.yaml": pool, "apps/prod/kustomization.yaml": "resources: [gpu.yaml]\n"},
			[]string{"schema boot/b.yaml:10:63 spec.maxRunners"}},
		"a PoolSync": {map[string]string{"boot/all.yaml": sync("all", "./syncs", "ENV: prod"), "syncs/a.yaml": sync("a", "./apps/${ENV}", "MAX: lots"),
			"apps/prod/gpu.yaml": pool, "apps/prod/kustomization.yaml": "resources: [gpu.yaml]\n"}, []string{"schema syncs/a.yaml:7:23 spec.maxRunners"}},
		"two clusters of one base": {map[string]string{"base/apps.yaml": kustomizationOf("apps", "./apps/${ENV}", gives("${MOST}")), "base/kustomization.yaml": "resources: [apps.yaml]\n",
			"clusters/prod/kustomization.yaml": "resources: [../../base]\n", "clusters/test/kustomization.yaml": "resources: [../../base]\n",
			"boot/k.yaml":        kustomizationOf("prod", "./clusters/prod", "  postBuild: {substitute: {ENV: prod, MOST: '\"7\"'}}\n") + "---\n" + kustomizationOf("test", "./clusters/test", "  postBuild: {substitute: {ENV: test, MOST: lots}}\n"),
			"apps/prod/gpu.yaml": pool, "apps/prod/kustomization.yaml": "resources: [gpu.yaml]\n", "apps/test/gpu.yaml": strings.Replace(pool, "name: gpu", "name: other", 1), "apps/test/kustomization.yaml": "resources: [gpu.yaml]\n"},
			[]string{"schema boot/k.yaml:15:39 spec.maxRunners"}},
		"a remote base beside it": {with(below(toKustomizations(give), kustomizationOf("apps", "./apps/prod", "")), map[string]string{"clusters/eu/mon/kustomization.yaml": "resources: [https://example.com/a.yaml]\n"}), []string{"remote-reference clusters/eu/mon/kustomization.yaml:1:13"}},
		"a remote base of Flux's": {with(below("  prune: true\n", kustomizationOf("apps", "./apps/prod", gives("7"))), map[string]string{"clusters/eu/mon/kustomization.yaml": "resources: [https://example.com/a.yaml]\n"}), []string{"remote-reference clusters/eu/mon/kustomization.yaml:1:13"}},
		"metadata in common has no variables": {map[string]string{"flux/eu.yaml": kustomizationOf("eu", "./apps", "  commonMetadata: {annotations: {note: '${NONE}', kustomize.toolkit.fluxcd.io/substitute: disabled}}\n"+gives("lots")),
			"apps/gpu.yaml": pool, "apps/kustomization.yaml": "resources: [gpu.yaml]\n"}, []string{"schema flux/eu.yaml:8:28 spec.maxRunners"}},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, test.files)
			var got []string
			for _, place := range places(report) {
				// The PoolSyncs of this test have nothing to be told about.
				if !strings.HasPrefix(place, "cel ") && !strings.HasPrefix(place, "hubpool-without-pool") {
					got = append(got, place)
				}
			}
			if !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("%q, want %q: %v", got, test.want, report.Problems)
			}
			if strings.HasPrefix(name, "a remote") && report.Failed() {
				t.Errorf("it is an error: %v", report.Problems)
			}
		})
	}
	report := check(t, below("  postBuild: {substituteFrom: [{kind: ConfigMap, name: a}]}\n", kustomizationOf("apps", "./apps/${ENV}", gives("7"))))
	if at := slices.IndexFunc(report.Problems, func(p schemas.Problem) bool { return p.Rule == fleet.RuleUnresolvedVariable }); at < 0 ||
		!strings.HasSuffix(report.Problems[at].Hint, "Kustomization flux-system/apps at clusters/eu/apps.yaml:5 may apply this, but its path apps/${ENV} has a variable without a value") {
		t.Errorf("%+v", report.Problems)
	}
}

// Syncs that apply each other make no more of themselves than is bounded.
func TestSyncsThatApplyEachOther(t *testing.T) {
	var many strings.Builder
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		many.WriteString(kustomizationOf(name, "./syncs", "  postBuild: {substitute: {X: \"${X:=}"+name+"\", MAX: \"${X:=}${X:=}\"}}\n") + "---\n")
	}
	report := check(t, map[string]string{"syncs/k.yaml": many.String(), "pools/gpu.yaml": basePool})
	if got := places(report); !slices.Equal(got, []string{"too-large syncs/k.yaml:1:1"}) || !strings.Contains(report.Problems[0].Message, "syncs that apply each other make more than 2005 of themselves") {
		t.Errorf("%v", report.Problems)
	}
	double := "  postBuild: {substitute: {X: \"x${X:=}${X:=}${X:=}${X:=}\"}}\n"
	if report := check(t, map[string]string{"syncs/k.yaml": kustomizationOf("a", "./syncs", double), "pools/gpu.yaml": basePool}); len(report.Problems) > 0 {
		t.Errorf("%v", report.Problems)
	}
}

// What reads another repository applies another path of the name.
func TestAnApplierOfAnotherRepository(t *testing.T) {
	const remote = "[remote \"origin\"]\n\turl = git@git.example.com:platform/fleet.git\n"
	pool := strings.Replace(basePool, "maxRunners: 4", "maxRunners: ${MAX}", 1)
	files := func(more map[string]string) map[string]string {
		return with(map[string]string{".git/config": remote, ".git/HEAD": "ref: refs/heads/main\n", "pools/kustomization.yaml": "resources: [gpu.yaml]\n", "pools/gpu.yaml": pool}, more)
	}
	source := func(name, url string) string {
		return "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: " + name + ", namespace: flux-system}\nspec: {url: '" + url + "'}\n---\n"
	}
	team := strings.Replace(kustomizationOf("team", "./pools", gives("lots")), "name: flux-system}\n  post", "name: team}\n  post", 1)
	argo := func(url string) string {
		return "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: docs, namespace: argocd}\nspec:\n  source: {repoURL: '" + url + "', path: docs}\n"
	}
	wrong := "schema syncs/b.yaml:7:28 spec.maxRunners"
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"a source of Flux":                    {files(map[string]string{"syncs/a.yaml": source("flux-system", "https://git.example.com/platform/fleet") + kustomizationOf("pools", "./pools", gives("7")), "syncs/b.yaml": team, "more/s.yaml": source("team", "https://git.example.com/team.git")}), nil},
		"a mirror":                            {files(map[string]string{"syncs/b.yaml": team, "more/s.yaml": source("team", "https://mirror.example.com/fleet.git")}), []string{wrong}},
		"one that nobody knows":               {files(map[string]string{"syncs/b.yaml": team}), []string{wrong}},
		"two of a name":                       {files(map[string]string{"syncs/b.yaml": team, "more/a.yaml": source("team", "https://git.example.com/team.git"), "more/b.yaml": source("team", "https://git.example.com/other.git")}), []string{"unresolved-variable pools/gpu.yaml:10:3 spec.maxRunners"}},
		"two of a name, of which one is this": {files(map[string]string{"syncs/b.yaml": team, "more/a.yaml": source("team", "https://git.example.com/other.git"), "more/b.yaml": source("team", "https://git.example.com/fleet.git")}), []string{wrong}},
		"a fork called otherwise": {with(files(nil), map[string]string{"clusters/eu/kustomization.yaml": "resources: [k.yaml]\n",
			"clusters/eu/k.yaml": source("flux-system", "https://git.example.com/renamed.git") + kustomizationOf("flux-system", "./clusters/eu", "") + "---\n" + kustomizationOf("pools", "./pools", gives("7"))}), nil},
		"an artifact of another source": {with(files(nil), map[string]string{"clusters/eu/kustomization.yaml": "resources: [k.yaml]\n",
			"clusters/eu/k.yaml": kustomizationOf("flux-system", "./clusters/eu", "") + "---\n" + kustomizationOf("pools", "./pools", gives("7")) + "---\n" + strings.Replace(strings.Replace(team, "GitRepository", "OCIRepository", 1), "name: team}", "name: web}", 1)}), nil},
		"a directory is its remote": {files(map[string]string{".git/config": "[remote \"origin\"]\n\turl = /srv/copy\n", "syncs/b.yaml": team, "more/s.yaml": source("team", "https://git.example.com/fleet.git")}), []string{wrong}},
		"no clone": {with(files(nil), map[string]string{".git/config": "", "clusters/eu/kustomization.yaml": "resources: [k.yaml]\n",
			"clusters/eu/k.yaml": source("flux-system", "https://git.example.com/fleet.git") + kustomizationOf("flux-system", "./clusters/eu", "") + "---\n" + kustomizationOf("pools", "./pools", gives("7")) + "---\n" + source("team", "https://git.example.com/team.git") + team}), nil},
		"an Application":         {files(map[string]string{"docs/a.yaml": "kind: [\n", "argo/a.yaml": argo("https://git.example.com/docs.git"), "syncs/a.yaml": kustomizationOf("pools", "./pools", gives("7"))}), nil},
		"an Application of this": {files(map[string]string{"docs/a.yaml": "apiVersion: v1\nkind: [\nmetadata: {}\n", "argo/a.yaml": argo("https://git.example.com/platform/fleet.git"), "syncs/a.yaml": kustomizationOf("pools", "./pools", gives("7"))}), []string{"syntax docs/a.yaml:2:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, test.files)
			if got := places(report); !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("%q, want %q: %v", got, test.want, report.Problems)
			}
		})
	}
	report := check(t, files(map[string]string{"syncs/b.yaml": team, "more/s.yaml": source("team", "https://git.example.com/team.git")}))
	if len(report.Problems) != 1 || !strings.HasSuffix(report.Problems[0].Hint, "; Kustomization flux-system/team in syncs/b.yaml applies pools of another repository, https://git.example.com/team.git: if this is a fork of it or it has another name now, `git remote add upstream` with that address says so") {
		t.Errorf("%+v", report.Problems)
	}
}

// Argo CD applies a path by what lies there and by what the Application says.
func TestWhatAnApplicationApplies(t *testing.T) {
	application := func(more string) string {
		return "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: eu, namespace: argocd}\nspec:\n  source:\n    repoURL: https://git.example.com/fleet.git\n    path: apps/eu\n" + more
	}
	wrong := strings.Replace(named("other"), "maxRunners: 4", "maxRunners: lots", 1)
	values := map[string]string{"apps/eu/values.yaml": "a: b\n", "apps/eu/gpu.yaml": basePool}
	overlay := func(name string) map[string]string {
		return map[string]string{"apps/eu/gpu.yaml": basePool, "apps/eu/kustomization.yaml": "resources: [gpu.yaml]\n", "hub/gpu.yaml": strings.Replace(hubPool, "name: gpu", "name: "+name, 1)}
	}
	for name, test := range map[string]struct {
		application string
		files       map[string]string
		want        []string
	}{
		"a chart":                 {"", map[string]string{"apps/eu/Chart.yaml": "name: web\n", "apps/eu/values.yaml": "a: b\n", "apps/eu/templates/a.yaml": "{{ if }}\n", "gpu/gpu.yaml": basePool}, nil},
		"a chart by its settings": {"    helm: {valueFiles: [values.yaml]}\n", map[string]string{"apps/eu/templates/a.yaml": "apiVersion: v1\nkind: {{ . }}\nmetadata: {}\n", "gpu/gpu.yaml": basePool}, nil},
		"what is excluded":        {"", map[string]string{"apps/eu/a.yaml": wrong, ".cloop/config.yaml": "exclude:\n- paths: [apps]\n  reason: another team's\n"}, nil},
		"what is no document":     {"", values, nil},
		"what lies below":         {"", map[string]string{"apps/eu/gpu.yaml": basePool, "apps/eu/below/a.yaml": wrong}, []string{"schema apps/eu/below/a.yaml:10:3 spec.maxRunners"}},
		"what lies below, asked":  {"    directory: {recurse: true}\n", map[string]string{"apps/eu/gpu.yaml": basePool, "apps/eu/below/a.yaml": wrong}, []string{"schema apps/eu/below/a.yaml:10:3 spec.maxRunners"}},
		"an excluded file":        {"    directory: {recurse: true, exclude: '{*.skip.yaml,x.yaml}'}\n", map[string]string{"apps/eu/gpu.yaml": basePool, "apps/eu/below/a.skip.yaml": wrong, "apps/eu/x.yaml": wrong}, nil},
		"included files":          {"    directory: {include: 'g*.yaml'}\n", map[string]string{"apps/eu/gpu.yaml": basePool, "apps/eu/a.yaml": wrong}, nil},
		"overlays below":          {"", map[string]string{"apps/eu/app.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "apps/eu/a/gpu.yaml": wrong, "apps/eu/a/kustomization.yaml": "resources: [gpu.yaml]\n"}, []string{"schema apps/eu/a/gpu.yaml:10:3 spec.maxRunners"}},
		"a file of JSON":          {"", map[string]string{"apps/eu/gpu.json": `{"apiVersion": "cloop.dev/v1alpha1", "kind": "ExecutorPool", "metadata": {"name": "gpu"}, "spec": {"hubURL": "https://cloop.example.com", "poolCredentialSecretRef": {"name": "a"}, "maxRunners": "lots"}}`}, []string{"schema apps/eu/gpu.json:1:181 spec.maxRunners"}},
		"a kind that is misspelt": {"", map[string]string{"apps/eu/gpu.yaml": strings.Replace(basePool, "kind:", "kid:", 1)}, []string{"type-meta apps/eu/gpu.yaml:2:1 kind"}},
		"an app of apps, which takes no overlay below": {"    directory: {recurse: true, include: '*/app.yaml'}\n", map[string]string{
			"apps/eu/gpu/app.yaml":      strings.NewReplacer("name: eu", "name: gpu", "apps/eu", "apps/eu/gpu/overlay").Replace(application("")),
			"apps/eu/gpu/base/gpu.yaml": wrong, "apps/eu/gpu/base/kustomization.yaml": "resources: [gpu.yaml]\n",
			"apps/eu/gpu/overlay/kustomization.yaml": "resources: [../base]\n"}, []string{"schema apps/eu/gpu/base/gpu.yaml:10:3 spec.maxRunners"}},
		"files that are left to others": {"    directory: {recurse: true, exclude: 'other/*'}\n", map[string]string{"apps/eu/other/a.yaml": wrong, "apps/eu/more/b.yaml": strings.Replace(wrong, "name: other", "name: b", 1)},
			[]string{"schema apps/eu/more/b.yaml:10:3 spec.maxRunners", "schema apps/eu/other/a.yaml:10:3 spec.maxRunners"}},
		"jsonnet alone":     {"", map[string]string{"apps/eu/a.jsonnet": "{}\n"}, nil},
		"a patch in a file": {"    kustomize:\n      patches:\n      - path: more.yaml\n        target: {kind: ExecutorPool}\n", with(overlay("gpu"), map[string]string{"apps/eu/more.yaml": "- {op: replace, path: /spec/maxRunners, value: lots}\n"}), []string{"schema apps/eu/more.yaml:1:3 spec.maxRunners"}},
		"an ApplicationSet": {"", with(overlay("eu-gpu"), map[string]string{"sync.yaml": "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: eu, namespace: argocd}\nspec:\n  generators: [{clusters: {}}]\n  template:\n    spec:\n      source:\n        repoURL: https://git.example.com/fleet.git\n        path: apps/eu\n        kustomize:\n          namePrefix: '{{.name}}-'\n"}),
			[]string{"unrendered sync.yaml:12:11 spec.template.spec.source.kustomize.namePrefix"}},
		"two that share a directory": {"    directory: {include: 'eu*'}\n", map[string]string{"apps/eu/eu.yaml": basePool, "apps/eu/us.yaml": strings.Replace(basePool, "maxRunners: 4", "maxRunners: lots", 1),
			"us.yaml": strings.Replace(application("    directory: {include: 'us*'}\n"), "name: eu", "name: us", 1)}, []string{"schema apps/eu/us.yaml:10:3 spec.maxRunners"}},
		"a prefix":                   {"    kustomize: {namePrefix: eu-}\n", overlay("eu-gpu"), nil},
		"a namespace":                {"    kustomize:\n      namespace: Pools\n", overlay("gpu"), []string{"metadata sync.yaml:9:7 metadata.namespace"}},
		"labels":                     {"    kustomize:\n      commonLabels:\n        team: a b\n", overlay("gpu"), []string{"metadata sync.yaml:10:9 metadata.labels"}},
		"a patch":                    {"    kustomize:\n      patches:\n      - target: {kind: ExecutorPool}\n        patch: '- {op: replace, path: /spec/maxRunners, value: lots}'\n", overlay("gpu"), []string{"schema sync.yaml:11:9 spec.maxRunners"}},
		"a patch of several sources": {"", with(overlay("gpu"), map[string]string{"sync.yaml": "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: eu, namespace: argocd}\nspec:\n  sources:\n  - repoURL: https://git.example.com/fleet.git\n    path: apps/eu\n    kustomize: {nameSuffix: _x}\n"}), []string{"metadata sync.yaml:8:17 metadata.name"}},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, with(map[string]string{"sync.yaml": application(test.application)}, test.files))
			var got []string
			for _, place := range places(report) {
				if !strings.HasPrefix(place, "cel ") && !strings.Contains(place, "without") {
					got = append(got, place)
				}
			}
			if !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("%q, want %q: %v", got, test.want, report.Problems)
			}
			if name == "a prefix" && len(places(report)) > 0 {
				t.Errorf("%v", report.Problems)
			}
		})
	}
}

// What other teams keep in a repository is nobody's pools, whatever it speaks of, and no
// error; what is meant to be a pool is one.
func TestWhatOtherTeamsKeep(t *testing.T) {
	deployment := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
	pools := func(more map[string]string) map[string]string {
		return with(map[string]string{"platform/eu/gpu.yaml": basePool, "platform/eu/kustomization.yaml": "resources: [gpu.yaml]\n"}, more)
	}
	typo := strings.Replace(basePool, "cloop.dev/v1alpha1", "cloop.io/v1alpha1", 1)
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
		fails bool
	}{
		"what a job fills in":            {map[string]string{"svc/a/kustomization.yaml": "resources: [d.yaml]\nsecretGenerator: [{name: a, envs: [.env.local]}]\n", "svc/a/d.yaml": deployment}, []string{"missing-reference svc/a/kustomization.yaml:2:36"}, false},
		"a plugin":                       {map[string]string{"svc/a/kustomization.yaml": "generators: [g.yaml]\n", "svc/a/g.yaml": "apiVersion: viaduct.ai/v1\nkind: ksops\nmetadata: {name: a}\n"}, []string{"build svc/a/kustomization.yaml:1:14"}, false},
		"what lacks a part":              {map[string]string{"svc/a/kustomization.yaml": "resources: [gone.yaml]\n"}, []string{"missing-reference svc/a/kustomization.yaml:1:13"}, true},
		"what is applied by somebody":    {map[string]string{"svc/a/kustomization.yaml": "resources: [d.yaml]\n", "svc/a/d.yaml": deployment}, nil, false},
		"settings of tools":              {map[string]string{"platform/us/a.yaml": named("a"), "platform/us/.sops.yaml": "creation_rules: []\n", "platform/us/.gitlab-ci.yml": "check: {script: [make]}\n"}, nil, false},
		"a chart below pools":            {map[string]string{"platform/us/a.yaml": named("a"), "platform/us/charts/x/Chart.yaml": "name: x\n", "platform/us/charts/x/templates/a.yaml": "{{ if }}\n"}, nil, false},
		"a script that speaks of a pool": {map[string]string{"docs/a.yaml": "steps:\n- run: |\n    cat <<E\n    apiVersion: cloop.dev/v1alpha1\n    kind: ExecutorPool\n    E\n", "docs/b.yaml": "a: b\n"}, nil, false},
		"a list of pools":                {map[string]string{"more/a.yaml": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: cloop.dev/v1alpha1\n  kind: ExecutorPool\n  metadata: {name: x}\n  spec: {hubURL: 'https://cloop.example.com', poolCredentialSecretRef: {name: a}, maxRunners: lots}\n"}, []string{"schema more/a.yaml:7:83 spec.maxRunners"}, true},
		"another group by mistake":       {map[string]string{"platform/eu/gpu.yaml": typo}, []string{"unknown-kind platform/eu/gpu.yaml:2:1 apiVersion"}, true},
		"a misnamed kustomization":       {map[string]string{"platform/us/a.yaml": named("a"), "platform/us/kustomisation.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n"}, []string{"build platform/us/kustomisation.yaml:2:1 kind"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, pools(test.files))
			var got []string
			for _, place := range places(report) {
				if !strings.HasPrefix(place, "cel ") {
					got = append(got, place)
				}
			}
			if !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 || report.Failed() != test.fails {
				t.Errorf("%q, want %q, failed %t: %v", got, test.want, report.Failed(), report.Problems)
			}
		})
	}
	// A sync without variables replaces none, whatever the others do.
	files := varied(poolSync("eu", "clusters/eu", "  substitute:\n    vars:\n      REGION: eu\n      MAX: \"3\"\n") + "---\n" + poolSync("us", "clusters/eu", ""))
	report := check(t, files)
	if !slices.ContainsFunc(report.Problems, func(p schemas.Problem) bool {
		return p.Path == "spec.maxRunners" && p.Hint == "${MAX} is not replaced, since PoolSync fleet/us has no spec.substitute: give it one, with the value"
	}) {
		t.Errorf("%+v", report.Problems)
	}
}

// A path that is not there is told of an Application, and where nothing of the
// repository applies who names it.
func TestAnAbsentPathOfWhoeverAppliesIt(t *testing.T) {
	pools := map[string]string{"pools/kustomization.yaml": "resources: [gpu.yaml]\n", "pools/gpu.yaml": basePool, ".git/config": "[remote \"origin\"]\n\turl = https://git.example.com/fleet.git\n", ".git/HEAD": "ref: refs/heads/main\n"}
	application := "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: pools, namespace: argocd}\nspec:\n  source:\n    repoURL: https://git.example.com/fleet.git\n    path: poolz\n"
	for name, test := range map[string]struct{ file, text, want string }{
		"an Application":                      {"argo/a.yaml", application, "path-not-found argo/a.yaml:7:5 spec.source.path"},
		"an Application of another":           {"argo/a.yaml", strings.Replace(application, "fleet.git", "other.git", 1), ""},
		"a Kustomization that nobody applies": {"clusters/eu/a.yaml", kustomizationOf("pools", "./poolz", ""), "path-not-found clusters/eu/a.yaml:5:3 spec.path"},
	} {
		report := check(t, with(maps.Clone(pools), map[string]string{test.file: test.text}))
		if got := strings.Join(places(report), ", "); got != test.want || report.Failed() {
			t.Errorf("%s: %q, want %q: %v", name, got, test.want, report.Problems)
		}
	}
	// Without remotes a clone is taken for what it is to have been all along.
	report := check(t, map[string]string{"hub/gpu.yaml": hubPool, ".git/HEAD": "ref: refs/heads/main\n", "argo/a.yaml": application})
	if got := places(report); !slices.Equal(got, []string{"path-not-found argo/a.yaml:7:5 spec.source.path"}) {
		t.Errorf("%q", got)
	}
}

// Beside pools of an ApplicationSet may lie the files that its git generator finds: Argo CD
// passes over what is no resource.
func TestFilesOfAGenerator(t *testing.T) {
	set := "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: s, namespace: argocd}\nspec:\n  generators: [{git: {files: [{path: clusters/*/config.yaml}]}}]\n" +
		"  template: {metadata: {name: '{{.c}}'}, spec: {source: {repoURL: https://git.example.com/fleet.git, path: '{{.path.path}}'}}}\n"
	files := map[string]string{"apps/s.yaml": set, "hub/gpu.yaml": hubPool, "clusters/eu/gpu.yaml": basePool, "clusters/eu/config.yaml": "c: eu\n", "other/config.yaml": "c: eu\n", "other/hub.yaml": strings.ReplaceAll(hubPool, "gpu", "cpu")}
	want := []string{"type-meta other/config.yaml:1:1", "type-meta other/config.yaml:1:1"}
	got := places(check(t, files))
	for i := range got {
		got[i], _, _ = strings.Cut(got[i], " apiVersion")
		got[i], _, _ = strings.Cut(got[i], " kind")
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// What looks like a resource is one.
	delete(files, "other/config.yaml")
	files["clusters/eu/config.yaml"] = "kind: x\nmetadata: {}\n# apiVersion: none\n"
	if got := places(check(t, files)); len(got) == 0 {
		t.Error("it passes over a resource")
	}
}

// Who applies one path sees it alone: the other half of a pool may lie in another, which
// the hub reads.
func TestAPathAloneAsksForNoOtherHalf(t *testing.T) {
	files := map[string]string{"clusters/eu/kustomization.yaml": "resources: [gpu.yaml, hub.yaml]\n", "clusters/eu/gpu.yaml": basePool,
		"clusters/eu/hub.yaml": strings.Replace(hubPool, "name: gpu", "name: other", 1)}
	dir := repo(t, files)
	_, report, err := fleet.BuildChecked(t.Context(), validator(t), dir, "clusters/eu", nil)
	if err != nil || report.Failed() {
		t.Errorf("%v: %+v", err, report)
	}
	if got := places(check(t, files)); !slices.Contains(got, "pool-without-hubpool clusters/eu/gpu.yaml:5:3 metadata.name") {
		t.Errorf("of the whole repository: %q", got)
	}
}
