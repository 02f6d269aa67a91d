package fleet_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/schemas"
)

// outcome is all that a build says, as a text.
func outcome(objects []fleet.Rendered, report *fleet.Report, err error, dir string) string {
	var b strings.Builder
	for i := range objects {
		text, failure := json.Marshal(objects[i].Object)
		_, _ = fmt.Fprintln(&b, objects[i].SourcePath, objects[i].Line, string(text), failure)
	}
	text, failure := json.MarshalIndent(report, "", " ")
	_, _ = fmt.Fprintln(&b, string(text), failure, err)
	return strings.ReplaceAll(b.String(), dir, "DIR")
}

// wholeBuild is what a build says that remembers nothing and renders at once.
func wholeBuild(t *testing.T, v *schemas.Validator, dir string, variables *fleet.Variables) string {
	t.Helper()
	defer fleet.SetBatches(1, 1<<30)()
	objects, report, err := fleet.BuildChecked(t.Context(), v, dir, "eu", variables)
	return outcome(objects, report, err, dir)
}

// sameAsWhole builds what is in files with a builder that remembers, in a directory
// of its own, and fails unless that says what a whole build says.
func sameAsWhole(t *testing.T, v *schemas.Validator, builder *fleet.Builder, files map[string]string, variables *fleet.Variables) *fleet.Built {
	t.Helper()
	dir := repo(t, files)
	want := wholeBuild(t, v, dir, variables)
	built, err := builder.Build(t.Context(), dir, "eu", variables)
	var got string
	if err != nil {
		got = outcome(nil, nil, err, dir)
	} else {
		got = outcome(built.Objects, built.Report, nil, dir)
	}
	if got != want {
		t.Errorf("the builder says\n%s\na whole build\n%s\nof %s", got, want, strings.Join(slices.Sorted(maps.Keys(files)), " "))
	}
	return built
}

// What no commit changed is not rendered again.
func TestBuilderRendersWhatChanged(t *testing.T) {
	t.Cleanup(fleet.SetBatches(4, 4))
	v, files := validator(t), wide(40, 10)
	builder := fleet.NewBuilder(v)
	count := func(want int, why string) {
		t.Helper()
		built := sameAsWhole(t, v, builder, files, nil)
		if built.Rendered != want || built.Reused+built.Rendered != len(built.Objects) {
			t.Errorf("%s: %d were rendered and %d reused, want %d rendered", why, built.Rendered, built.Reused, want)
		}
	}
	count(40, "at first")
	count(0, "nothing changed")
	files["README.md"] = "# What this is\n"
	count(0, "another file")
	files["eu/pools-001.yaml"] = strings.Replace(files["eu/pools-001.yaml"], "maxRunners: 4", "maxRunners: 5", 1)
	count(10, "one pool")
	files["eu/more.yaml"] = strings.Replace(basePool, "name: gpu", "name: more", 1)
	files["eu/kustomization.yaml"] += "- more.yaml\n"
	count(1, "another file, with a batch of its own")
	files["eu/kustomization.yaml"] = strings.Replace(files["eu/kustomization.yaml"], "team: platform", "team: other", 1)
	count(41, "a label of all")
}

// Whatever is committed, one commit after another, a builder says what a whole build
// says.
func TestBuilderIsAsAWholeBuildAfterRandomCommits(t *testing.T) {
	t.Cleanup(fleet.SetBatches(3, 4))
	v := validator(t)
	const rounds, commits = 16, 8
	reused, failed, refused := 0, 0, 0
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 7))
		builder, values, log := fleet.NewBuilder(v), map[string]string{"SIZE": "3"}, []string{}
		files := smallFleet()
		var sound map[string]string
		for range commits {
			variables, err := fleet.NewVariables(values)
			if err != nil {
				t.Fatal(err)
			}
			built := sameAsWhole(t, v, builder, files, variables)
			switch {
			case built == nil:
				failed++
				// The author mends it, some day.
				files = maps.Clone(sound)
			case len(built.Errors()) > 0:
				refused++
			}
			if built != nil {
				reused += built.Reused
				sound = maps.Clone(files)
			}
			for range 1 + r.IntN(2) {
				log = append(log, commit(r, files, values))
			}
			if t.Failed() {
				t.Fatalf("with seed %d after %s", seed, strings.Join(log, "\n"))
			}
		}
	}
	t.Logf("%d objects were reused, %d builds failed, %d were refused", reused, failed, refused)
	if reused < 200 || failed == 0 || refused == 0 {
		t.Error("too little of it happened")
	}
}

// smallFleet is a base and an overlay, with a file for each pool and one for several.
func smallFleet() map[string]string {
	files, lists := map[string]string{}, map[string]string{}
	for i := range 14 {
		in := []string{"base", "eu"}[i/10]
		name := fmt.Sprintf("f%d.yaml", i-i%9/8)
		if files[in+"/"+name] != "" {
			files[in+"/"+name] += "---\n"
		} else {
			lists[in] += "- " + name + "\n"
		}
		files[in+"/"+name] += strings.Replace(basePool, "name: gpu\n", fmt.Sprintf("name: p%d\n", i), 1)
	}
	files["base/kustomization.yaml"] = "labels: [{pairs: {a: b}}]\nresources:\n" + lists["base"]
	files["eu/kustomization.yaml"] = "namespace: eu\nresources:\n- ../base\n" + lists["eu"]
	return files
}

// commit changes something of a repository, and says what.
func commit(r *rand.Rand, files, values map[string]string) string {
	pick := func(matches func(name string) bool) string {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if matches(name) {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			return ""
		}
		return names[r.IntN(len(names))]
	}
	pool := pick(func(name string) bool { return strings.Contains(name, "/f") })
	of := []string{"base/kustomization.yaml", "eu/kustomization.yaml"}[r.IntN(2)]
	add := func(text string) string {
		if files[of] != "" {
			files[of] += text
		}
		return "add to " + of + ": " + text
	}
	replace := func(old, now string) string {
		files[pool] = strings.Replace(files[pool], old, now, 1)
		return pool + ": " + now
	}
	n := r.IntN(100)
	list := func(file, text string) string {
		name := []string{"base", "eu"}[r.IntN(2)]
		files[name+"/kustomization.yaml"] = strings.Replace(files[name+"/kustomization.yaml"], "resources:\n", "resources:\n- "+file+"\n", 1)
		files[name+"/"+file] = text
		return "new " + name + "/" + file
	}
	switch r.IntN(26) {
	case 0, 1, 2, 3, 4:
		return replace("maxRunners: 4", fmt.Sprintf("maxRunners: %d", n))
	case 5:
		return replace("hubURL: https", "hubURL: http")
	case 6:
		return replace("maxRunners: 4", "maxRunners: ${SIZE}")
	case 7:
		values["SIZE"] = fmt.Sprint(n)
		return "SIZE"
	case 8, 9:
		return list(fmt.Sprintf("f%d.yaml", 20+n), strings.Replace(basePool, "name: gpu\n", fmt.Sprintf("name: q%d\n", n%40), 1))
	case 10:
		return list(fmt.Sprintf("f%d.yaml", 20+n), fleettest.Symlink("../"+pool))
	case 11:
		delete(files, pool)
		return "remove " + pool
	case 12:
		other := pick(func(name string) bool { return strings.HasPrefix(name, "base/f") })
		if files[pool] = fleettest.Symlink("../" + other); pool == other || pool == "" {
			delete(files, pool)
		}
		return "link " + pool + " to " + other
	case 13:
		files["base/kustomization.yml"] = files["base/kustomization.yaml"]
		delete(files, "base/kustomization.yaml")
		return "rename the kustomization"
	case 14:
		files["base/Kustomization"] = "resources: []\n"
		return "two kustomizations"
	case 15:
		return add(fmt.Sprintf("commonLabels: {n: \"%d\"}\n", n))
	case 16:
		return add(fmt.Sprintf("commonAnnotations: {n: \"%d\"}\n", n))
	case 17:
		return add(fmt.Sprintf("configMapGenerator: [{name: c, literals: [a=%d]}]\n", n))
	case 18:
		return add("replacements: [{source: {kind: ExecutorPool, name: p1}, targets: [{select: {kind: ExecutorPool, name: p2}, fieldPaths: [spec.hubPool], options: {create: true}}]}]\n")
	case 19:
		files["eu/c.yaml"] = fmt.Sprintf("nameReference:\n- kind: ExecutorPool\n  fieldSpecs: [{kind: ExecutorPool, path: spec/hub%d}]\n", n)
		of = "eu/kustomization.yaml"
		return add("configurations: [c.yaml]\n")
	case 20:
		files["eu/o.json"] = fmt.Sprintf(`{"definitions": {"n%d": {}}}`, n)
		of = "eu/kustomization.yaml"
		return add("openapi: {path: o.json}\n")
	case 21:
		files[".cloop/rules.cue"] = fmt.Sprintf("rules: small: {\n\texpression: \"object.kind != 'ExecutorPool' || object.spec.maxRunners != %d\"\n\tmessage: \"not so many\"\n\tat: \"spec.maxRunners\"\n}\n", []int{4, n}[r.IntN(2)])
		return ".cloop/rules.cue"
	case 22:
		files[".cloop/config.yaml"] = fmt.Sprintf("severities: {duplicate-pool: warning, small: %s}\n", []string{"warning", "error"}[r.IntN(2)])
		return ".cloop/config.yaml"
	case 23:
		files["eu/patch.yaml"] = fmt.Sprintf("- {op: add, path: /spec/minRunners, value: %d}\n", n%5)
		of = "eu/kustomization.yaml"
		return add("patches: [{path: patch.yaml, target: {kind: ExecutorPool}}]\n")
	case 24:
		return replace("spec:\n", "spec: [\n")
	default:
		return replace("kind: ExecutorPool", "kind: HubPool")
	}
}

// FuzzBuilder gives a builder a repository, another, and the first again.
func FuzzBuilder(f *testing.F) {
	v := validator(f)
	f.Add("resources: [base]\nnamePrefix: a-\n", "resources: [a.yaml]\n", basePool, basePool)
	f.Add("resources: [../base, ../base/a.yaml]\ncommonLabels: {a: b}\n", "resources: [a.yaml, b.yaml]\n", basePool+"---\n"+account, "link")
	f.Add("components: [../base]\nopenapi: {path: ../base/b.yaml}\n", "kind: Component\n", basePool, "{}")
	f.Add("resources: [../base]\npatches: [{path: ../base/b.yaml}]\nlabels: [{pairs: {a: b}, includeTemplates: true}]\n", "resources: [a.yaml]\nreplacements: [{path: b.yaml}]\n", basePool, "- op: test\n")
	f.Fuzz(func(t *testing.T, overlay, base, a, b string) {
		defer fleet.SetBatches(3, 4)()
		first := patched(8)
		delete(first, "eu/pool-0003.yaml")
		first["eu/kustomization.yaml"] = strings.Replace(first["eu/kustomization.yaml"], "- path: pool-0003.yaml\n", "", 1)
		second := maps.Clone(first)
		for name, text := range map[string]string{"eu/kustomization.yaml": overlay, "base/kustomization.yaml": base, "base/a.yaml": a, "base/b.yaml": b} {
			switch {
			case strings.HasPrefix(text, "\x00"):
				t.Skip()
			case text == "":
			case text == "link":
				second[name] = fleettest.Symlink("a.yaml")
			default:
				second[name] = text
			}
		}
		builder := fleet.NewBuilder(v)
		sameAsWhole(t, v, builder, first, nil)
		sameAsWhole(t, v, builder, second, nil)
		sameAsWhole(t, v, builder, first, nil)
		sameAsWhole(t, v, builder, second, nil)
	})
}

// Of what is wrong with some objects the others know nothing.
func TestBuilderHoldsBackWhatIsWrong(t *testing.T) {
	v := validator(t)
	const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"
	for name, test := range map[string]struct {
		changes map[string]string
		// held: object → rules. refused: rules of what no object has.
		held    map[string][]string
		refused []string
	}{
		"nothing":               {nil, map[string][]string{}, nil},
		"a value":               {map[string]string{"eu/a.yaml": strings.Replace(basePool, "https", "http", 1)}, map[string][]string{"cloop.dev|ExecutorPool||gpu": {"cel"}}, nil},
		"another kind":          {map[string]string{"eu/b.yaml": settings}, map[string][]string{"|ConfigMap||settings": {"kind-not-applied"}}, nil},
		"another kind, borne":   {map[string]string{"eu/b.yaml": "# cloop:ignore kind-not-applied by hand\n" + settings}, map[string][]string{"|ConfigMap||settings": {"kind-not-applied"}}, nil},
		"no name":               {map[string]string{"eu/b.yaml": "apiVersion: v1\nkind: LimitRange\nspec: {limits: []}\n"}, map[string][]string{"|LimitRange||": {"metadata"}}, nil},
		"one pool served twice": {map[string]string{"eu/b.yaml": strings.Replace(basePool, "name: gpu\n", "name: other\n", 1) + "  hubPool: gpu\n"}, map[string][]string{"cloop.dev|ExecutorPool||other": {"duplicate-pool"}}, nil},
		"an object twice":       {map[string]string{"eu/b.yaml": basePool}, map[string][]string{}, []string{"duplicate-object"}},
		"rules":                 {map[string]string{".cloop/rules.cue": "rules: x: 1\n"}, map[string][]string{}, []string{"config"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repo(t, with(map[string]string{"eu/a.yaml": basePool}, test.changes))
			built, err := fleet.NewBuilder(v).Build(t.Context(), dir, "eu", nil)
			if err != nil {
				t.Fatal(err)
			}
			held := map[string][]string{}
			for id, problems := range built.HeldBack {
				held[id] = rulesOf(problems)
			}
			if fmt.Sprint(held) != fmt.Sprint(test.held) || !slices.Equal(rulesOf(built.Refused), test.refused) {
				t.Errorf("held back %v, refused %v; want %v, %v", held, built.Refused, test.held, test.refused)
			}
			if n := len(test.held) + len(test.refused); (len(built.Errors()) > 0) != (n > 0) {
				t.Errorf("errors %v", built.Errors())
			}
		})
	}
}

func rulesOf(problems []schemas.Problem) (ids []string) {
	for i := range problems {
		ids = append(ids, problems[i].Rule)
	}
	return ids
}
