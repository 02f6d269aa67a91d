package fleet_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

// mistake is something that kustomize refuses, or a check finds, in a fleet of an
// overlay eu, its base team and a component spot: entries of their kustomizations by
// field, and files.
type mistake struct {
	eu, team, spot map[string]string
	files          map[string]string
	// says is in the messages, one for each problem, at texts that begin with at.
	says, at []string
	// hides: what it may have meant is not known, so that others of which that may
	// be the cause, those that are doubtful, need not be told.
	hides, doubtful bool
}

func newPool(name, maximum string) string {
	return fmt.Sprintf("apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata:\n  name: %s\nspec:\n  hubURL: https://cloop.example.com\n  poolCredentialSecretRef: {name: c}\n  maxRunners: %s\n", name, maximum)
}

func newHubPool(name, maximum string) string {
	return fmt.Sprintf("apiVersion: cloop.dev/v1alpha1\nkind: HubPool\nmetadata: {name: %s, namespace: fleet}\nspec: {maxRunners: %s}\n", name, maximum)
}

// jsonPatch is an entry of patches for a pool.
func jsonPatch(name, operations string) string {
	return fmt.Sprintf("- target: {kind: ExecutorPool, name: %s}\n  patch: '%s'\n", name, operations)
}

// mergePatch is one that names its pool.
func mergePatch(name, spec string) string {
	return fmt.Sprintf("- patch: |-\n    apiVersion: cloop.dev/v1alpha1\n    kind: ExecutorPool\n    metadata:\n      name: %s\n    spec: %s\n", name, spec)
}

// mistakes: name → one that is independent of all others.
func mistakes() map[string]mistake {
	return map[string]mistake{
		"patch of no object":       {doubtful: true, eu: map[string]string{"patches": mergePatch("gpv", "{hubCAPin: x}")}, says: []string{"it patches ExecutorPool gpv, which is not among"}, at: []string{"name: gpv"}},
		"patch of no object below": {doubtful: true, team: map[string]string{"patches": mergePatch("cpv", "{hubCAPin: x}")}, says: []string{"it patches ExecutorPool cpv, which is not among"}, at: []string{"name: cpv"}},
		"patch of a component":     {doubtful: true, spot: map[string]string{"patches": mergePatch("spit", "{hubCAPin: x}")}, says: []string{"it patches ExecutorPool spit"}, at: []string{"name: spit"}},
		"patch in another namespace": {doubtful: true, eu: map[string]string{"patches": "- patch: '{apiVersion: cloop.dev/v1alpha1, kind: ExecutorPool, metadata: {name: a, namespace: no}, spec: {maxRunners: 3}}'\n"},
			says: []string{"it patches ExecutorPool no/a"}, at: []string{"name: a, namespace"}},
		"operation without a path": {doubtful: true, eu: map[string]string{"patches": jsonPatch("a", `[{"op": "remove", "path": "/spec/scaleDownDelay"}]`)}, says: []string{"no /spec/scaleDownDelay to remove"}, at: []string{`{"op": "remove"`}},
		"operation of a list": {doubtful: true, team: map[string]string{"patches": jsonPatch("b", `[{"op": "add", "path": "/spec/template", "value": {"tolerations": []}}, {"op": "remove", "path": "/spec/template/tolerations/3"}]`)},
			says: []string{"no /spec/template/tolerations/3 to remove"}, at: []string{`{"op": "remove"`}},
		"two operations": {doubtful: true, spot: map[string]string{"patches": jsonPatch("b", `[{"op": "replace", "path": "/spec/scaleDownDelay", "value": "1m"}, {"op": "increase", "path": "/spec/hubCAPin"}]`)},
			says: []string{"no /spec/scaleDownDelay to replace", `there is no operation "increase"`}, at: []string{`{"op": "replace"`, `{"op": "increase"`}},
		"flow that is no JSON":     {spot: map[string]string{"patches": jsonPatch("b", `[{op: add, path: /spec/hubCAPin, value: a}]`)}, says: []string{"kustomize reads a patch that begins with [ as JSON"}, at: []string{"{op: add"}},
		"operation without a name": {spot: map[string]string{"patches": jsonPatch("c", `[{"op": "increase", "path": "/spec/hubCAPin"}]`)}, says: []string{`there is no operation "increase"`}, at: []string{`{"op": "increase"`}},
		"test that fails":          {doubtful: true, eu: map[string]string{"patches": jsonPatch("b", `[{"op": "test", "path": "/spec/maxRunners", "value": 77}]`)}, says: []string{"/spec/maxRunners is not what the operation test expects"}, at: []string{`{"op": "test"`}},
		"patch and path":           {eu: map[string]string{"patches": "- {patch: 'a: b', path: patch.yaml}\n"}, files: map[string]string{"eu/patch.yaml": newPool("a", "3")}, says: []string{"both a patch and a path"}, at: []string{"{patch: 'a: b'"}},
		"neither":                  {hides: true, team: map[string]string{"patches": "- target: {kind: HubPool}\n"}, says: []string{"neither a patch nor a path"}, at: []string{"target: {kind: HubPool}"}},
		"no target":                {hides: true, team: map[string]string{"patches": "- patch: '[{\"op\": \"remove\", \"path\": \"/spec/maxRunners\"}]'\n"}, says: []string{"does not say what it patches"}, at: []string{"patch: '[{"}},
		"selector":                 {hides: true, eu: map[string]string{"patches": "- target: {kind: ExecutorPool, labelSelector: 'tier in (a'}\n  patch: '[{\"op\": \"remove\", \"path\": \"/spec/maxRunners\"}]'\n"}, says: []string{"the selector cannot be read"}, at: []string{"labelSelector"}},
		"no regular expression":    {hides: true, eu: map[string]string{"patches": "- target: {kind: ExecutorPool, name: (x}\n  patch: '[{\"op\": \"remove\", \"path\": \"/spec/maxRunners\"}]'\n"}, says: []string{"the target is no regular expression"}, at: []string{"name: (x}"}},
		"missing file":             {hides: true, eu: map[string]string{"resources": "- gone.yaml\n"}, says: []string{"gone.yaml: no such file"}, at: []string{"gone.yaml"}},
		"missing base":             {hides: true, team: map[string]string{"resources": "- ../gone\n"}, says: []string{"../gone: no such file"}, at: []string{"../gone"}},
		"remote base":              {hides: true, eu: map[string]string{"resources": "- https://example.com/base.yaml\n"}, says: []string{`"https://example.com/base.yaml" is not in`}, at: []string{"https://"}},
		"missing patch":            {hides: true, eu: map[string]string{"patches": "- path: patch-gone.yaml\n"}, says: []string{"patch-gone.yaml: no such file"}, at: []string{"patch-gone.yaml"}},
		"missing component":        {hides: true, eu: map[string]string{"components": "- ../component-gone\n"}, says: []string{"../component-gone: no such file"}, at: []string{"../component-gone"}},
		"component in resources":   {hides: true, eu: map[string]string{"resources": "- ../extra\n"}, files: map[string]string{"extra/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnamePrefix: ''\n"}, says: []string{"../extra is a Component"}, at: []string{"../extra"}},
		"no component":             {hides: true, eu: map[string]string{"components": "- ../plain\n"}, files: map[string]string{"plain/kustomization.yaml": "resources: []\n"}, says: []string{"../plain is no Component"}, at: []string{"../plain"}},
		"base that is no YAML":     {hides: true, team: map[string]string{"resources": "- ../torn\n"}, files: map[string]string{"torn/kustomization.yaml": "resources: [a\n"}, says: []string{"did not find expected"}, at: []string{"resources: [a"}},
		"file that is no YAML":     {hides: true, team: map[string]string{"resources": "- torn.yaml\n"}, files: map[string]string{"team/torn.yaml": "a: [b\n"}, says: []string{"did not find expected"}, at: []string{"a: [b"}},
		"document without a kind":  {hides: true, team: map[string]string{"resources": "- two.yaml\n"}, files: map[string]string{"team/two.yaml": newPool("two", "3") + "---\napiVersion: cloop.dev/v1alpha1\nmetadata: {name: three}\n", "hub/two.yaml": newHubPool("two", "4")}, says: []string{"Required value"}, at: []string{"apiVersion: cloop"}},
		"object twice":             {team: map[string]string{"resources": "- again.yaml\n"}, files: map[string]string{"team/again.yaml": newPool("again", "3") + "---\n" + newPool("c", "3"), "hub/again.yaml": newHubPool("again", "4")}, says: []string{"also defined at team/c.yaml:1"}, at: []string{"name: c"}},
		"literal":                  {eu: map[string]string{"configMapGenerator": "- {name: settings, literals: [hub]}\n"}, says: []string{`the literal "hub" has no value`}, at: []string{"literals: [hub]"}},
		"generator's file":         {team: map[string]string{"secretGenerator": "- {name: secrets, files: [key.txt]}\n"}, says: []string{"key.txt: no such file"}, at: []string{"key.txt"}},
		"replacement's source":     {doubtful: true, eu: map[string]string{"replacements": "- source: {kind: ServiceAccount, name: none, fieldPath: metadata.name}\n  targets: [{select: {kind: ExecutorPool, name: c}, fieldPaths: [spec.hubPool]}]\n"}, says: []string{"the source of the replacement, ServiceAccount none"}, at: []string{"source: {kind: ServiceAccount"}},
		"replacement's source field": {doubtful: true, team: map[string]string{"replacements": "- source: {kind: ExecutorPool, name: c, fieldPath: spec.owner}\n  targets: [{select: {kind: ExecutorPool, name: c}, fieldPaths: [spec.hubPool]}]\n"},
			says: []string{"has no field spec.owner"}, at: []string{"fieldPath: spec.owner"}},
		"replacement's target":    {doubtful: true, spot: map[string]string{"replacements": "- source: {kind: ExecutorPool, name: c, fieldPath: metadata.name}\n  targets: [{select: {kind: ExecutorPool, name: c}, fieldPaths: [spec.nothing.here]}]\n"}, says: []string{"has no field spec.nothing.here"}, at: []string{"spec.nothing.here"}},
		"field that there is not": {hides: true, team: map[string]string{"patchs": "- {path: x.yaml}\n"}, says: []string{"kustomize has no field patchs"}, at: []string{"patchs"}},
		"wrong type":              {hides: true, eu: map[string]string{"commonAnnotations": "  tier: 1\n"}, says: []string{"commonAnnotations.tier has to be a text"}, at: []string{"1"}},
		"twice in an entry":       {hides: true, eu: map[string]string{"patches": "- target: {kind: ExecutorPool, kind: HubPool}\n  patch: 'a: b'\n"}, says: []string{`duplicate field "patches[`}, at: []string{"kind: HubPool}"}},
		"another kustomization":   {hides: true, team: map[string]string{"resources": "- ../both\n"}, files: map[string]string{"both/kustomization.yaml": "resources: []\n", "both/kustomization.yml": "resources: []\n"}, says: []string{"the directory has another kustomization"}, at: []string{"resources: []"}},
		"a value":                 {files: map[string]string{"team/a.yaml": newPool("a", "3") + "  minRunners: x\n"}, says: []string{"must be of type integer"}, at: []string{"minRunners: x"}},
		"a rule":                  {doubtful: true, files: map[string]string{"team/b.yaml": newPool("b", "3") + "  minRunners: 4\n"}, says: []string{"minRunners"}, at: []string{"minRunners: 4"}},
		"a field":                 {files: map[string]string{"hub/d.yaml": newHubPool("d", "4, foo: 1")}, says: []string{`unknown field "spec.foo"`}, at: []string{"foo: 1"}},
		"a maximum":               {doubtful: true, files: map[string]string{"team/d.yaml": newPool("d", "9")}, says: []string{"9 is above the hub pool's maxRunners 4"}, at: []string{"maxRunners: 9"}},
		"a pool served twice":     {doubtful: true, team: map[string]string{"resources": "- e.yaml\n"}, files: map[string]string{"team/e.yaml": newPool("e", "3") + "  hubPool: d\n"}, says: []string{"hub pool d is served by ExecutorPool d already"}, at: []string{"hubPool: d"}},
	}
}

// fleetWith is a sound fleet with mistakes.
func fleetWith(made ...mistake) map[string]string {
	files := map[string]string{}
	kustomizations := map[string]map[string]string{
		"eu":   {"resources": "- ../team\n", "components": "- ../spot\n"},
		"team": {"resources": "- a.yaml\n- b.yaml\n- c.yaml\n- d.yaml\n"},
		"spot": {"patches": mergePatch("c", "{maxRunners: 2}")},
		"hub":  {},
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		files["team/"+name+".yaml"], files["hub/"+name+".yaml"] = newPool(name, "3"), newHubPool(name, "4")
	}
	for _, m := range made {
		for dir, fields := range map[string]map[string]string{"eu": m.eu, "team": m.team, "spot": m.spot} {
			for field, entry := range fields {
				kustomizations[dir][field] += entry
			}
		}
		maps.Copy(files, m.files)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasPrefix(name, "hub/") {
			kustomizations["hub"]["resources"] += "- " + strings.TrimPrefix(name, "hub/") + "\n"
		}
	}
	for dir, fields := range kustomizations {
		var b strings.Builder
		if dir == "spot" {
			b.WriteString("apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n")
		}
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			b.WriteString(field + ":\n" + fields[field])
		}
		files[dir+"/kustomization.yaml"] = b.String()
	}
	return files
}

// told are the errors and warnings of a check: each as its message, and the text
// that it is put at.
func told(t *testing.T, files map[string]string) (all []string, report *fleet.Report) {
	t.Helper()
	dir := repo(t, files)
	report, err := fleet.Check(t.Context(), validator(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		if p.Rule == "kind-not-applied" || strings.Contains(p.Message, "some validation rules were not checked") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, p.File))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(data), "\n")
		all = append(all, fmt.Sprintf("%s %s: %s @ %s", p.Rule, p.File, p.Message, lines[p.Line-1][p.Column-1:]))
	}
	return all, report
}

// judge holds what a check tells to what the mistakes are.
func judgeMistakes(t *testing.T, made ...mistake) {
	t.Helper()
	all, report := told(t, fleetWith(made...))
	left := slices.Clone(all)
	for _, m := range made {
		for i := range m.says {
			at := slices.IndexFunc(left, func(text string) bool {
				message, place, _ := strings.Cut(text, " @ ")
				return strings.Contains(message, m.says[i]) && strings.HasPrefix(place, m.at[i])
			})
			if at < 0 && m.doubtful && slices.ContainsFunc(made, func(other mistake) bool { return other.hides }) {
				continue
			}
			if at < 0 {
				t.Errorf("it does not say %q at %q:\n%s", m.says[i], m.at[i], strings.Join(all, ""))
				continue
			}
			left = slices.Delete(left, at, at+1)
		}
	}
	if len(left) > 0 {
		t.Errorf("it says what is not so:\n%s", strings.Join(left, ""))
	}
	if len(made) > 0 && !report.Failed() && !slices.ContainsFunc(report.Problems, func(p schemas.Problem) bool { return p.Severity == "warning" }) {
		t.Error("all is well")
	}
}

// What is wrong with a root is told in one run: each mistake by itself, two of
// different kinds, and many tell what they are, where they are, and nothing that only
// follows. CLOOP_CASES=32 has it try every two.
func TestMistakesInOneRoot(t *testing.T) {
	cases := mistakes()
	names := slices.Sorted(maps.Keys(cases))
	every := 32
	if n, err := strconv.Atoi(os.Getenv("CLOOP_CASES")); err == nil {
		every = max(every/max(n, 1), 1)
	}
	judgeMistakes(t)
	var many []mistake
	for i, name := range names {
		t.Run(name, func(t *testing.T) { judgeMistakes(t, cases[name]) })
		for j, other := range names[:i] {
			if (7*i+j)%every == 0 {
				t.Run(other+", "+name, func(t *testing.T) { judgeMistakes(t, cases[other], cases[name]) })
			}
		}
		if !cases[name].hides {
			many = append(many, cases[name])
		}
	}
	t.Run("many", func(t *testing.T) { judgeMistakes(t, many...) })
	t.Run("all", func(t *testing.T) { judgeMistakes(t, slices.Collect(maps.Values(cases))...) })
}

// Two overlays show what is wrong with their base, which is told once, where it
// stands, beside what is wrong with each.
func TestMistakesOfASharedBase(t *testing.T) {
	cases := mistakes()
	files := fleetWith(cases["operation of a list"], cases["no target"], cases["literal"], cases["a value"])
	files["us/kustomization.yaml"] = "resources:\n- ../team\npatches:\n" + mergePatch("gpw", "{hubCAPin: x}")
	all, report := told(t, files)
	for _, want := range []string{"tolerations/3 to remove", "does not say what it patches", `the literal "hub"`, "must be of type integer", "it patches ExecutorPool gpw"} {
		if n := strings.Count(strings.Join(all, ""), want); n != 1 {
			t.Errorf("it says %q %d times", want, n)
		}
	}
	if len(all) != 5 {
		t.Errorf("it says\n%s", strings.Join(all, ""))
	}
	for i, p := range report.Problems {
		var roots []string
		for _, s := range report.Subjects {
			if slices.Contains(s.Problems, i) {
				roots = append(roots, s.Root)
			}
		}
		shared := strings.HasPrefix(p.File, "team/")
		if want := map[bool]string{true: "[eu us]", false: "[" + strings.Split(p.File, "/")[0] + "]"}[shared]; fmt.Sprint(roots) != want {
			t.Errorf("%s is shown in %v, want %s", p, roots, want)
		}
	}
	for _, root := range report.Roots {
		if root.Failed != (root.Path != "hub") {
			t.Errorf("root %+v", root)
		}
	}
}

// What is left out to tell the rest is left out of nothing that is applied: hub and
// PoolSync refuse the whole.
func TestWhatIsLeftOutIsNotApplied(t *testing.T) {
	for name, m := range mistakes() {
		if m.eu == nil && m.team == nil && m.spot == nil || strings.HasPrefix(name, "a ") {
			continue
		}
		dir := repo(t, fleetWith(m))
		rendered, err := fleet.Build(t.Context(), dir, "eu")
		if !errors.Is(err, fleet.ErrBuild) || len(rendered) > 0 {
			t.Errorf("%s: %d objects, %v", name, len(rendered), err)
		}
		if _, report, err := fleet.BuildChecked(t.Context(), validator(t), dir, "eu", nil); !errors.Is(err, fleet.ErrBuild) || report != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Thousands of mistakes that stand there to be seen are told without a rendering for
// each, and others in a bounded number of them, with a word that there may be more.
func TestThousandsOfMistakes(t *testing.T) {
	const memory, patience = 250 << 20, 60 * time.Second
	for name, test := range map[string]struct {
		count int
		entry func(i int) string
		all   bool
	}{
		"of no object": {3_000, func(i int) string {
			return fmt.Sprintf("- patch: '{apiVersion: cloop.dev/v1alpha1, kind: ExecutorPool, metadata: {name: no%d}}'\n", i)
		}, true},
		"without a path": {1_000, func(i int) string {
			return jsonPatch(fmt.Sprintf("p%d", i%20), fmt.Sprintf(`[{"op": "remove", "path": "/spec/no%d"}]`, i))
		}, true},
		"tests that fail": {60, func(i int) string {
			return jsonPatch(fmt.Sprintf("p%d", i%20), `[{"op": "test", "path": "/spec/maxRunners", "value": 77}]`)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString("resources: [pools.yaml]\npatches:\n")
			for i := range test.count {
				b.WriteString(test.entry(i))
			}
			pools := ""
			for i := range 20 {
				pools += newPool(fmt.Sprintf("p%d", i), "3") + "---\n"
			}
			if !test.all {
				t.Cleanup(fleet.SetTries(30))
			}
			dir := repo(t, map[string]string{"eu/kustomization.yaml": b.String(), "eu/pools.yaml": pools + newPool("q", "x")})
			var report *fleet.Report
			var err error
			keepsTo(t, memory, patience, func() { report, err = fleet.Check(t.Context(), validator(t), dir) })
			if err != nil {
				t.Fatal(err)
			}
			if !report.Failed() || test.all && len(report.Problems) < test.count+1 {
				t.Errorf("%d problems, the first %v", len(report.Problems), report.Problems[:min(len(report.Problems), 3)])
			}
			more := slices.ContainsFunc(report.Problems, func(p schemas.Problem) bool { return strings.Contains(p.Hint, "the search for what else") })
			if more == test.all || !test.all && len(report.Problems) < 20 {
				t.Errorf("%d problems, more: %t", len(report.Problems), more)
			}
		})
	}
}

// Beside something that kustomize refuses, nothing is called refused that it takes:
// patches by names and namespaces that objects had or got, of what other changes
// have brought, and of what generators make.
func TestWhatIsSoundIsNotRefused(t *testing.T) {
	files := fleetWith()
	files["team/kustomization.yaml"] += "namePrefix: team-\nnamespace: pools\nlabels:\n- pairs: {tier: gpu}\ncommonAnnotations: {owner: ml}\n" +
		"configMapGenerator:\n- {name: settings, literals: [\"max=3\", \"url=a=b\", \"none=\"]}\n"
	files["spot/kustomization.yaml"] = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [own.yaml]\nnameSuffix: -x\npatches:\n" +
		mergePatch("own", "{template: {env: [{name: A, value: b}]}}") + jsonPatch("own", `[{"op": "replace", "path": "/spec/template/env/0/value", "value": "c"}]`)
	files["spot/own.yaml"] = newPool("own", "3")
	files["hub/own.yaml"] = newHubPool("own", "4")
	inNamespace := func(name, spec string) string {
		return strings.Replace(mergePatch(name, spec), "      name: "+name+"\n", "      name: "+name+"\n      namespace: pools\n", 1)
	}
	files["eu/kustomization.yaml"] += "patches:\n" +
		mergePatch("a", "{template: {image: x}}") + mergePatch("b", "{hubPool: b}") +
		inNamespace("team-c-x", "{minRunners: 1}") +
		jsonPatch("a", `[{"op": "replace", "path": "/spec/template/image", "value": "y"}]`) +
		jsonPatch("team-a-x", `[{"op": "replace", "path": "/metadata/labels/tier", "value": "cpu"}]`) +
		jsonPatch("team-.*", `[{"op": "replace", "path": "/metadata/annotations/owner", "value": "web"}]`) +
		jsonPatch("team-b-x", `[{"op": "add", "path": "/spec/runnerLabels", "value": {}}, {"op": "add", "path": "/spec/runnerLabels/a", "value": "b"}, {"op": "copy", "from": "/spec/runnerLabels/a", "path": "/spec/runnerLabels/c"}, {"op": "move", "from": "/spec/runnerLabels/c", "path": "/spec/runnerLabels/d"}, {"op": "test", "path": "/spec/runnerLabels/d", "value": "b"}, {"op": "remove", "path": "/spec/runnerLabels/d"}]`) +
		jsonPatch("nobody", `[{"op": "remove", "path": "/spec/nothing"}]`) +
		"- target: {kind: ExecutorPool, labelSelector: tier=none}\n  patch: '[{\"op\": \"remove\", \"path\": \"/spec/nothing\"}]'\n" +
		"- target: {kind: ExecutorPool, namespace: elsewhere}\n  patch: '[{\"op\": \"remove\", \"path\": \"/spec/nothing\"}]'\n" +
		"- patch: |-\n    apiVersion: v1\n    kind: ConfigMap\n    metadata: {name: settings}\n    data: {more: a}\n" +
		"- patch: '[{\"op\": \"remove\", \"path\": \"/spec/nowhere\"}]'\n" +
		"replacements:\n- source: {kind: ConfigMap, name: settings, fieldPath: data.url}\n  targets: [{select: {kind: ExecutorPool, name: a}, fieldPaths: [metadata.annotations.made], options: {create: true}}]\n"
	refusals := func() (refused []string, report *fleet.Report) {
		all, report := told(t, files)
		return slices.DeleteFunc(all, func(text string) bool { return !strings.HasPrefix(text, "build ") }), report
	}
	all, report := refusals()
	if len(all) != 1 || !strings.Contains(all[0], "a JSON patch does not say what it patches") {
		t.Errorf("it says\n%s", strings.Join(all, ""))
	}
	if report.Documents < 10 {
		t.Errorf("%d documents", report.Documents)
	}
	// Without it kustomize takes all of this.
	files["eu/kustomization.yaml"] = strings.Replace(files["eu/kustomization.yaml"], "- patch: '[{\"op\": \"remove\", \"path\": \"/spec/nowhere\"}]'\n", "", 1)
	if all, report := refusals(); len(all) > 0 || report.Documents < 10 {
		t.Errorf("it is refused:\n%s", strings.Join(all, ""))
	}
}
