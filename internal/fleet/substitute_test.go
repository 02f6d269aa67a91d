package fleet_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/kustomize"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

// varied is sound with variables in the base and the overlay, and a PoolSync
// with values in a directory of its own.
func varied(syncs string) map[string]string {
	return with(sound(), map[string]string{
		"pools/base/gpu.yaml":     strings.Replace(basePool, "cloop.example.com", "${REGION}.example.com", 1) + "  minRunners: ${MIN:=0}\n",
		"clusters/eu/larger.yaml": strings.Replace(sound()["clusters/eu/larger.yaml"], "3", "${MAX}", 1),
		"syncs/all.yaml":          syncs,
	})
}

func variables(t *testing.T, values ...map[string]string) *fleet.Variables {
	t.Helper()
	v, err := fleet.NewVariables(values...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// What replaces variables is what Flux replaces them with, to the type.
func TestVariablesAreReplacedAsFluxDoes(t *testing.T) {
	values := map[string]string{"REGION": "eu", "MAX": "3", "EMPTY": "", "LINES": "a\nb", "LONG": "abcdef", "TRUE": "true", "NULL": "null", "FLOW": "{a: b}"}
	texts := []string{
		"${REGION}", "a-${REGION}-b", "${MAX}", "$${REGION}", "${NONE:=x}", "${EMPTY:-x}", "${LINES}", "${LONG:1:3}", "${#LONG}", "${LONG^^}",
		"${LONG/bcd/X}", "${LONG##*c}", "${TRUE}", "${NULL}", "${FLOW}", "a $ b $$ c", "${NONE:-${REGION}}", "$REGION",
	}
	files := map[string]string{"eu/kustomization.yaml": "resources: [a.yaml]\n"}
	for i, text := range texts {
		files["eu/a.yaml"] += fmt.Sprintf("---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: a%d\n  namespace: n\nx:\n  y: '%s'\n", i, text)
	}
	dir := repo(t, files)
	rendered, err := fleet.BuildWith(t.Context(), dir, "eu", variables(t, values))
	if err != nil {
		t.Fatal(err)
	}
	resources, err := kustomize.SecureBuild(dir, filepath.Join(dir, "eu"), false)
	if err != nil {
		t.Fatal(err)
	}
	substitute := map[string]any{}
	for name, value := range values {
		substitute[name] = value
	}
	sync := unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"postBuild": map[string]any{"substitute": substitute}}}}
	for i, text := range texts {
		resource, err := kustomize.SubstituteVariables(t.Context(), nil, sync, resources.Resources()[i], kustomize.SubstituteWithDryRun(true), kustomize.SubstituteWithStrict(true))
		if err != nil {
			t.Fatal(err)
		}
		data, err := resource.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var want unstructured.Unstructured
		if err := want.UnmarshalJSON(data); err != nil {
			t.Fatal(err)
		}
		if got := rendered[i].Object.Object; !reflect.DeepEqual(got, want.Object) {
			t.Errorf("%s renders %v, Flux %v", text, got, want.Object)
		}
	}
}

func TestCheckTakesVariablesFromTheRepository(t *testing.T) {
	substitute := "  substitute:\n    vars:\n      REGION: eu\n      MAX: \"3\"\n"
	flux := "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: eu, namespace: flux-system}\nspec:\n  path: ./clusters/eu\n  postBuild:\n    substitute: {REGION: eu, MAX: \"3\"}\n"
	patched := varied("")
	with(patched, map[string]string{
		"syncs/kustomization.yaml": "resources: [all.yaml]\npatches:\n- patch: |\n    apiVersion: cloop.dev/v1alpha1\n    kind: PoolSync\n    metadata: {name: eu, namespace: fleet}\n    spec:\n      substitute: {vars: {REGION: eu, MAX: \"-1\"}}\n",
		"syncs/all.yaml":           poolSync("eu", "clusters/eu", ""),
	})
	given := map[string]string{"REGION": "us", "MAX": "2"}
	for name, test := range map[string]struct {
		files map[string]string
		given map[string]string
		want  []string
	}{
		"of its PoolSync":                        {varied(poolSync("eu", "./clusters/eu", substitute)), nil, nil},
		"of a Kustomization of Flux":             {varied(flux), nil, nil},
		"a wrong value is where it is given":     {varied(poolSync("eu", "clusters/eu", strings.Replace(substitute, `"3"`, `"-1"`, 1))), nil, []string{"cel syncs/all.yaml:11:7 spec", "schema syncs/all.yaml:11:7 spec.maxRunners"}},
		"as the PoolSync is patched":             {patched, nil, []string{"cel syncs/kustomization.yaml:8:39 spec", "schema syncs/kustomization.yaml:8:39 spec.maxRunners"}},
		"a wrong text is where it is written":    {varied(poolSync("eu", "clusters/eu", strings.Replace(substitute, "REGION: eu", "REGION: \"x y\"", 1))), nil, []string{"cel pools/base/gpu.yaml:7:3 spec.hubURL"}},
		"each of several PoolSyncs":              {varied(poolSync("eu", "clusters/eu", substitute) + "---\n" + poolSync("us", "clusters/eu", strings.Replace(substitute, `"3"`, `"-2"`, 1))), nil, []string{"cel syncs/all.yaml:23:7 spec", "schema syncs/all.yaml:23:7 spec.maxRunners"}},
		"given where nothing applies it":         {varied(""), given, nil},
		"of the PoolSync before those given":     {varied(poolSync("eu", "clusters/eu", substitute)), map[string]string{"REGION": "x y", "MAX": "-1"}, nil},
		"given for what the cluster has":         {varied(poolSync("eu", "clusters/eu", "  substitute: {from: [{kind: ConfigMap, name: cluster}]}\n")), given, nil},
		"none that a PoolSync does not ask for":  {varied(poolSync("eu", "clusters/eu", "")), given, []string{"schema clusters/eu/larger.yaml:6:3 spec.maxRunners", "schema pools/base/gpu.yaml:11:3 spec.minRunners"}},
		"unresolved":                             {varied(""), nil, []string{"unresolved-variable clusters/eu/larger.yaml:6:3 spec.maxRunners", "unresolved-variable pools/base/gpu.yaml:7:3 spec.hubURL"}},
		"unresolved though a PoolSync asks":      {varied(poolSync("eu", "clusters/eu", strings.Replace(substitute, "MAX", "MOST", 1))), nil, []string{"unresolved-variable clusters/eu/larger.yaml:6:3 spec.maxRunners"}},
		"an object that is left alone":           {with(varied(""), map[string]string{"clusters/eu/kustomization.yaml": "resources: [a.yaml]\n", "clusters/eu/a.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: a\n  annotations: {cloop.dev/substitute: disabled, text: \"${HOME}\"}\n", "pools/base/gpu.yaml": basePool, "clusters/eu/larger.yaml": ""}), nil, nil},
		"of a kind that passes through":          {with(sound(), map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../pools/base, a.yaml]\n", "clusters/eu/larger.yaml": "", "clusters/eu/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {run: \"echo ${HOME}\"}\n"}), nil, []string{"kind-not-applied clusters/eu/a.yaml:2:1 kind"}},
		"in plain files":                         {map[string]string{"a.yaml": strings.Replace(basePool, "maxRunners: 4", "maxRunners: ${MAX}", 1), "b.yaml": named("b")}, map[string]string{"MAX": "-1"}, []string{"cel a.yaml:6:1 spec", "schema a.yaml:10:3 spec.maxRunners"}},
		"text that is none":                      {map[string]string{"a.yaml": strings.Replace(basePool, "cloop.example.com", "${A B}", 1)}, nil, []string{"substitution a.yaml:7:3 spec.hubURL"}},
		"what makes no object of it":             {map[string]string{"a.yaml": strings.Replace(basePool, "cloop.example.com", "${A}", 1)}, map[string]string{"A": "a: b: ["}, []string{"substitution a.yaml:7:3 spec.hubURL"}},
		"an index in the path of the unresolved": {map[string]string{"a.yaml": basePool + "  template:\n    env:\n    - {name: A, value: a}\n    - {name: B, value: \"${B}\"}\n"}, nil, []string{"unresolved-variable a.yaml:14:17 spec.template.env[1].value"}},
	} {
		t.Run(name, func(t *testing.T) {
			checking := fleet.Checking{Validator: validator(t)}
			if test.given != nil {
				checking.Variables = variables(t, test.given)
			}
			report, err := checking.Check(t.Context(), repo(t, with(test.files, nil)))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, place := range places(report) {
				// The PoolSyncs of this test have nothing to be told about.
				if !strings.HasPrefix(place, "hubpool-without-pool") {
					got = append(got, place)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("problems\n%v\nwant\n%v\n%v", got, test.want, report.Problems)
			}
			unresolved := strings.Contains(strings.Join(test.want, " "), "unresolved")
			if report.Unresolved() > 0 != unresolved || unresolved && report.Failed() {
				t.Errorf("%d unresolved, failed %t", report.Unresolved(), report.Failed())
			}
		})
	}
}

// A PoolSync applies nothing of which it does not know what it is.
func TestBuildRefusesVariablesWithoutAValue(t *testing.T) {
	dir := repo(t, varied(""))
	_, err := fleet.BuildWith(t.Context(), dir, "clusters/eu", variables(t, map[string]string{"MAX": "1"}))
	if !errors.Is(err, fleet.ErrBuild) || !strings.Contains(err.Error(), "pools/base/gpu.yaml:7:3: ExecutorPool cloop-gpu/gpu: spec.hubURL: ${REGION} has no value") {
		t.Errorf("the error is %v", err)
	}
	rendered, err := fleet.Build(t.Context(), dir, "clusters/eu")
	if err != nil || !strings.Contains(fmt.Sprint(rendered[0].Object.Object), "${REGION}") {
		t.Errorf("without variables it renders %v, %v", rendered, err)
	}
}

func TestVariablesOfAPoolSync(t *testing.T) {
	maps := map[string]map[string]string{"one": {"A": "1", "B": "1"}, "two": {"B": "2", "C": "2"}}
	read := func(r v1alpha1.SubstituteReference) (map[string]string, error) { return maps[r.Name], nil }
	from := func(names ...string) (references []v1alpha1.SubstituteReference) {
		for _, name := range names {
			references = append(references, v1alpha1.SubstituteReference{Kind: "ConfigMap", Name: strings.TrimSuffix(name, "?"), Optional: strings.HasSuffix(name, "?")})
		}
		return references
	}
	for name, test := range map[string]struct {
		spec *v1alpha1.Substitution
		want map[string]string
		err  string
	}{
		"a later object wins, and vars win over all": {&v1alpha1.Substitution{From: from("one", "two", "none?"), Vars: map[string]string{"C": "3"}}, map[string]string{"A": "1", "B": "2", "C": "3"}, ""},
		"an object that must be there":               {&v1alpha1.Substitution{From: from("none")}, nil, "ConfigMap none: it does not exist"},
		"no name":                                    {&v1alpha1.Substitution{Vars: map[string]string{"a-b": ""}}, nil, `"a-b" is no name of a variable`},
		"a long value":                               {&v1alpha1.Substitution{Vars: map[string]string{"A": strings.Repeat("x", 5000)}}, nil, "longer than 4096 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fleet.VariablesOf(test.spec, read)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("the error is %v, want %s", err, test.err)
				}
				return
			}
			if err != nil || got.Digest() != variables(t, test.want).Digest() {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	if v, err := fleet.VariablesOf(nil, read); v != nil || err != nil || v.Digest() != "" {
		t.Errorf("without a substitution: %v, %v", v, err)
	}
}

// Little text must not become much, nor take long.
func TestSubstitutionIsBounded(t *testing.T) {
	long := strings.Repeat("a", 4096)
	for name, text := range map[string]string{
		"many":        strings.Repeat("${A}", 15_000),
		"more":        strings.Repeat("${A}", 400_000),
		"replaced":    "${A//a/" + strings.Repeat("b", 100_000) + "}",
		"nested":      "${A//a/${A//a/${A//a/b}}}",
		"matched":     strings.Repeat("${A##*b*c*d}", 15_000),
		"deep":        strings.Repeat("${N:-", 19_000) + strings.Repeat("}", 19_000),
		"not closed":  strings.Repeat("${A:-", 19_000),
		"an alias":    "${B}",
		"upside down": strings.Repeat("}${", 10_000),
	} {
		t.Run(name, func(t *testing.T) {
			dir := repo(t, map[string]string{"a.yaml": basePool + "  x: '" + text + "'\n"})
			keepsTo(t, 256<<20, 20*time.Second, func() {
				rendered, err := fleet.BuildWith(t.Context(), dir, ".", variables(t, map[string]string{"A": long, "B": "&x [*x]"}))
				if err == nil && name != "deep" {
					t.Errorf("it renders %d objects", len(rendered))
				}
			})
		})
	}
}

func TestReadVariables(t *testing.T) {
	for name, test := range map[string]struct{ text, err string }{
		"a map":            {"A: eu\nB: 3 # three\nC: \"x y\"\n", ""},
		"JSON":             {`{"A": "eu", "B": 3, "C": "x y"}`, ""},
		"a ConfigMap":      {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  A: eu\n  B: '3'\n  C: x y\n", ""},
		"a list":           {"- A=eu\n", "no map of name to value"},
		"a text":           {"A=eu\n", "no map of name to value"},
		"a value too deep": {"A: {b: c}\n", "line 1: the value of A is no text"},
		"a wrong name":     {"A-B: c\n", `"A-B" is no name of a variable`},
		"an alias bomb":    {bomb(), "aliases"},
		"no YAML":          {"a: [", "read the variables"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fleet.ReadVariables("vars.yaml", []byte(test.text))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("the error is %v, want %s", err, test.err)
				}
				return
			}
			if want := variables(t, map[string]string{"A": "eu", "B": "3", "C": "x y"}); err != nil || got.Digest() != want.Digest() {
				t.Errorf("read %v, %v", got, err)
			}
		})
	}
}

// A half that is not judged, for want of a variable's value, may be the one that
// another lacks.
func TestHalvesThatAreNotJudgedAreNotMissed(t *testing.T) {
	pool := func(name, maximum string) string {
		return strings.NewReplacer("name: gpu\n", "name: "+name+"\n", "maxRunners: 4", "maxRunners: "+maximum).Replace(basePool)
	}
	hub := func(name string) string { return strings.Replace(hubPool, "name: gpu", "name: "+name, 1) }
	for name, test := range map[string]struct {
		pools, hubs string
		want        []string
	}{
		"a pool":                 {pool("gpu", "${X}") + "---\n" + pool("cpu", "4"), hub("gpu") + "---\n" + hub("cpu") + "---\n" + hub("none"), []string{"HubPool fleet/none: no ExecutorPool serves hub pool none"}},
		"a pool of some name":    {pool(`"${X}"`, "4") + "---\n" + pool("cpu", "4"), hub("gpu") + "---\n" + hub("cpu") + "---\n" + hub("none"), nil},
		"a HubPool":              {pool("gpu", "4") + "---\n" + pool("cpu", "4") + "---\n" + pool("none", "4"), strings.Replace(hub("gpu"), "maxRunners: 4", "maxRunners: ${X}", 1) + "---\n" + hub("cpu"), []string{"ExecutorPool none: no HubPool defines hub pool none"}},
		"a HubPool of some name": {pool("gpu", "4") + "---\n" + pool("cpu", "4"), hub(`"${X}"`) + "---\n" + hub("cpu"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repo(t, map[string]string{"clusters/eu/a.yaml": test.pools, "hub/a.yaml": test.hubs})
			report, err := fleet.Checking{Validator: validator(t), Variables: &fleet.Variables{}}.Check(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range report.Problems {
				if p.Rule != fleet.RuleUnresolvedVariable {
					got = append(got, p.Object+": "+p.Message)
				}
			}
			if !slices.Equal(got, test.want) || report.Unresolved() != 1 {
				t.Errorf("%q, want %q: %v", got, test.want, report.Problems)
			}
		})
	}
}

// What somebody meant to give and what is no value is told where it is missed.
func TestAVariableWithoutAValueSaysWhatWasGiven(t *testing.T) {
	flux := func(values string) string {
		return "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: eu, namespace: flux-system}\nspec:\n  path: ./clusters/eu\n  postBuild:\n    substitute:\n" + values
	}
	long := strings.Repeat("1", 5_000)
	for name, test := range map[string]struct {
		name, sync    string
		message, hint string
	}{
		"a number":              {"MAX", flux("      REGION: eu\n      MAX: 3\n"), "${MAX} has no value: MAX in spec.postBuild.substitute of Kustomization flux-system/eu is no text (syncs/all.yaml:9)", "write it in quotes"},
		"a word that YAML has":  {"YES", flux("      REGION: eu\n      YES: a\n"), "${YES} has no value", `write the name in quotes where it is set, "YES": …`},
		"longer than a sync's":  {"MAX", poolSync("eu", "clusters/eu", "  substitute: {vars: {REGION: eu, MAX: \""+long+"\"}}\n"), "${MAX} has no value: the value of MAX is longer than 4096 bytes: shorten it", "correct it at syncs/all.yaml:"},
		"as long in Flux's own": {"MAX", flux("      REGION: eu\n      MAX: \"" + long + "\"\n"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			files := varied(test.sync)
			files["clusters/eu/larger.yaml"] = strings.Replace(files["clusters/eu/larger.yaml"], "${MAX}", "${"+test.name+"}", 1)
			report, err := fleet.Checking{Validator: validator(t)}.Check(t.Context(), repo(t, files))
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(report.Problems, func(p schemas.Problem) bool { return p.Rule == fleet.RuleUnresolvedVariable })
			switch {
			case test.message == "" && at >= 0:
				t.Errorf("%+v", report.Problems[at])
			case test.message != "" && (at < 0 || report.Problems[at].Message != test.message || !strings.HasPrefix(report.Problems[at].Hint, test.hint)):
				t.Errorf("%+v\nwant %q, %q", report.Problems, test.message, test.hint)
			}
		})
	}
}
