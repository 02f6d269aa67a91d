package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/schemas"
)

// newValidator is of all tests: each kind is compiled once.
var newValidator = sync.OnceValues(schemas.NewValidator)

func validator(t testing.TB) *schemas.Validator {
	t.Helper()
	v, err := newValidator()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func check(t *testing.T, files map[string]string, paths ...string) *fleet.Report {
	t.Helper()
	report, err := fleet.Check(t.Context(), validator(t), repo(t, files), paths...)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// places are the problems as "rule file:line:column path".
func places(report *fleet.Report) []string {
	got := []string{}
	for _, p := range report.Problems {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s:%d:%d %s", p.Rule, p.File, p.Line, p.Column, p.Path)))
	}
	return got
}

func TestCheckOfASoundRepository(t *testing.T) {
	report := check(t, sound())
	if report.Failed() || len(report.Problems) > 0 {
		t.Errorf("problems: %v", report.Problems)
	}
	want := []fleet.RootReport{{Path: "clusters/eu", Documents: 1, Judged: 1, Pools: 1}, {Path: "hub", Documents: 1, Judged: 1, Pools: 1}}
	if !slices.Equal(report.Roots, want) || report.Documents != 2 || report.Judged != 2 || report.Pools != 1 {
		t.Errorf("report is %+v, want one pool and roots %+v", report, want)
	}
}

// A pool is one thing, however many documents speak of it.
func TestCheckCountsAPoolOnce(t *testing.T) {
	report := check(t, with(sound(), map[string]string{
		"hub/gpu.yaml":                   hubPool + "---\n" + strings.Replace(hubPool, "name: gpu", "name: cpu", 1),
		"clusters/us/kustomization.yaml": "namespace: us\nnamePrefix: us-\nresources: [../../pools/base]\npatches: [{path: p.yaml}]\n",
		"clusters/us/p.yaml":             "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: gpu}\nspec: {hubPool: gpu}\n",
	}))
	if report.Documents != 4 || report.Pools != 2 {
		t.Errorf("%d documents are %d pools, want 4 and 2: %v", report.Documents, report.Pools, report.Problems)
	}
}

func TestCheckOfNothing(t *testing.T) {
	service := "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n"
	for name, test := range map[string]struct {
		files           map[string]string
		paths           []string
		unfound, places []string
		judged          int
	}{
		"an empty directory":           {nil, nil, []string{"."}, []string{}, 0},
		"no YAML":                      {map[string]string{"README.md": "x"}, nil, []string{"."}, []string{}, 0},
		"comments only":                {map[string]string{"a.yaml": "# later\n---\n"}, nil, []string{"."}, []string{}, 0},
		"one path of two":              {with(sound(), map[string]string{"docs/x.md": "x"}), []string{"clusters/eu", "docs"}, []string{"docs"}, []string{}, 1},
		"a file without a document":    {map[string]string{"a.yaml": "# later\n"}, []string{"a.yaml"}, []string{"a.yaml"}, []string{}, 0},
		"other documents only":         {map[string]string{"a.yaml": service}, nil, nil, []string{}, 0},
		"an emptied kustomization":     {with(sound(), map[string]string{"clusters/eu/kustomization.yaml": "resources: []\n"}), nil, nil, []string{"empty-root clusters/eu/kustomization.yaml:1:1"}, 2},
		"a kustomization without text": {map[string]string{"kustomization.yaml": "# later\n"}, nil, nil, []string{"empty-root kustomization.yaml:1:1"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, test.files, test.paths...)
			if got := places(report); !slices.Equal(got, test.places) || !slices.Equal(report.Unfound(), test.unfound) || report.Judged != test.judged {
				t.Errorf("problems %v, unfound %v, %d judged; want %v, %v, %d", got, report.Unfound(), report.Judged, test.places, test.unfound, test.judged)
			}
		})
	}
}

func TestCheckPutsProblemsAtTheirSource(t *testing.T) {
	overlay := func(rest string) string {
		return "namespace: cloop-gpu\nresources: [../../pools/base]\n" + rest
	}
	tests := []struct {
		name    string
		changes map[string]string
		want    []string
	}{
		{"in a base", map[string]string{"pools/base/gpu.yaml": strings.Replace(basePool, "https://", "http://", 1)},
			[]string{"cel pools/base/gpu.yaml:7:3 spec.hubURL"}},
		{"in a patch file", map[string]string{"clusters/eu/larger.yaml": "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: gpu}\nspec:\n  foo: 1\n"},
			[]string{"unknown-field clusters/eu/larger.yaml:5:3 spec.foo"}},
		{"in an inline patch", map[string]string{"clusters/eu/kustomization.yaml": overlay("patches:\n- patch: |-\n    apiVersion: cloop.dev/v1alpha1\n    kind: ExecutorPool\n    metadata:\n      name: gpu\n    spec:\n      foo: 1\n")},
			[]string{"unknown-field clusters/eu/kustomization.yaml:10:7 spec.foo"}},
		{"in an inline JSON patch", map[string]string{"clusters/eu/kustomization.yaml": overlay("patches:\n- target: {kind: ExecutorPool, name: g.*}\n  patch: |\n    - op: add\n      path: /spec/foo\n      value: 1\n")},
			[]string{"unknown-field clusters/eu/kustomization.yaml:6:7 spec.foo"}},
		{"in a JSON patch file", map[string]string{"clusters/eu/kustomization.yaml": overlay("patchesJson6902:\n- target: {group: cloop.dev, version: v1alpha1, kind: ExecutorPool, name: gpu}\n  path: p.json\n"), "clusters/eu/p.json": "[\n  {\"op\": \"add\", \"path\": \"/spec/template\", \"value\": {\n    \"imag\": \"x\"}}\n]\n"},
			[]string{"unknown-field clusters/eu/p.json:3:5 spec.template.imag"}},
		{"in patchesStrategicMerge", map[string]string{"clusters/eu/kustomization.yaml": overlay("patchesStrategicMerge: [larger.yaml]\n"), "clusters/eu/larger.yaml": "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: gpu}\nspec: {foo: 1}\n"},
			[]string{"unknown-field clusters/eu/larger.yaml:4:8 spec.foo"}},
		{"of the last patch that sets the field", map[string]string{"clusters/eu/kustomization.yaml": overlay("patches:\n- path: first.yaml\n- path: larger.yaml\n"), "clusters/eu/first.yaml": "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: gpu}\nspec: {minRunners: 5, maxRunners: 1, foo: 1}\n"},
			[]string{"unknown-field clusters/eu/first.yaml:4:38 spec.foo", "cel clusters/eu/larger.yaml:6:3 spec"}},
		{"removed by a patch", map[string]string{"clusters/eu/larger.yaml": "- op: remove\n  path: /spec/hubURL\n", "clusters/eu/kustomization.yaml": overlay("patches:\n- path: larger.yaml\n  target: {kind: ExecutorPool}\n")},
			[]string{"schema clusters/eu/larger.yaml:1:3 spec.hubURL"}},
		{"missing in the base", map[string]string{"pools/base/gpu.yaml": strings.Replace(basePool, "  hubURL: https://cloop.example.com\n", "", 1)},
			[]string{"schema pools/base/gpu.yaml:6:1 spec.hubURL"}},
		{"under a prefix", map[string]string{"clusters/eu/kustomization.yaml": overlay("namePrefix: eu-\npatches: [{path: larger.yaml}]\n"), "clusters/eu/larger.yaml": "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: gpu}\nspec:\n  hubPool: gpu\n  foo: 1\n"},
			[]string{"unknown-field clusters/eu/larger.yaml:6:3 spec.foo"}},
		{"in a component", map[string]string{"clusters/eu/kustomization.yaml": overlay("components: [../../small]\n"), "small/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches: [{path: p.yaml}]\n", "small/p.yaml": "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: gpu}\nspec:\n  foo: 1\n"},
			[]string{"unknown-field small/p.yaml:5:3 spec.foo"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			report := check(t, with(sound(), test.changes))
			if got := places(report); !slices.Equal(got, test.want) || !report.Failed() {
				t.Errorf("problems\n%v\nwant\n%v\n%v", got, test.want, report.Problems)
			}
		})
	}
}

func TestCheckRulesBetweenDocuments(t *testing.T) {
	second := strings.Replace(basePool, "name: gpu\n", "name: gpu2\n", 1) + "  hubPool: gpu\n"
	tests := []struct {
		name    string
		changes map[string]string
		want    []string
		failed  bool
	}{
		{"a pool without a hub pool", map[string]string{"hub/gpu.yaml": strings.Replace(hubPool, "name: gpu", "name: cpu", 1)},
			[]string{"hubpool-without-pool hub/gpu.yaml:4:3 metadata.name", "pool-without-hubpool pools/base/gpu.yaml:5:3 metadata.name"}, true},
		{"only the cluster's half", map[string]string{"hub/gpu.yaml": "", "hub/kustomization.yaml": ""}, nil, false},
		{"only the hub's half", map[string]string{"clusters/eu/kustomization.yaml": "", "clusters/eu/larger.yaml": "", "pools/base/kustomization.yaml": "", "pools/base/gpu.yaml": ""}, nil, false},
		{"two pools for one hub pool", map[string]string{"pools/base/gpu.yaml": basePool + "---\n" + second},
			[]string{"duplicate-pool pools/base/gpu.yaml:22:3 spec.hubPool"}, true},
		{"two clusters for one hub pool", map[string]string{"clusters/us/kustomization.yaml": "resources: [../../pools/base]\n"}, nil, false},
		{"maximum above the hub's", map[string]string{"clusters/eu/larger.yaml": strings.Replace(sound()["clusters/eu/larger.yaml"], "3", "40", 1)},
			[]string{"maximum-above-hub clusters/eu/larger.yaml:6:3 spec.maxRunners"}, false},
		{"labels that disagree", map[string]string{"pools/base/gpu.yaml": basePool + "  runnerLabels:\n    team: ml\n    gpu: \"false\"\n"},
			[]string{"labels-disagree pools/base/gpu.yaml:13:5 spec.runnerLabels[gpu]"}, false},
		{"one hub pool in two namespaces", map[string]string{"hub/gpu.yaml": hubPool + "---\n" + strings.Replace(hubPool, "namespace: fleet", "namespace: other", 1)},
			[]string{"duplicate-hubpool hub/gpu.yaml:14:3 metadata.name"}, true},
		{"read back from a cluster", map[string]string{"hub/gpu.yaml": strings.Replace(hubPool, "metadata:\n", "metadata:\n  uid: 6e0d\n  resourceVersion: \"1\"\n  managedFields: []\n", 1)},
			[]string{"metadata hub/gpu.yaml:4:3 metadata.uid", "metadata hub/gpu.yaml:5:3 metadata.resourceVersion", "metadata hub/gpu.yaml:6:3 metadata.managedFields"}, true},
		{"a generated name", map[string]string{"more/gpu.yaml": strings.Replace(basePool, "name: gpu\n", "generateName: gpu-\n", 1)},
			[]string{"metadata more/gpu.yaml:5:3 metadata.generateName"}, true},
		{"a kind that is not applied", map[string]string{"pools/base/gpu.yaml": basePool + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"},
			[]string{"kind-not-applied pools/base/gpu.yaml:13:1 kind"}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			report := check(t, with(sound(), test.changes))
			if got := places(report); !slices.Equal(got, test.want) {
				t.Errorf("problems\n%v\nwant\n%v\n%v", got, test.want, report.Problems)
			}
			if report.Failed() != test.failed {
				t.Errorf("failed is %t, want %t", report.Failed(), test.failed)
			}
			for _, p := range report.Problems {
				if p.Hint == "" || p.Object == "" {
					t.Errorf("problem %v has no hint or no object", p)
				}
			}
		})
	}
}

func TestCheckReportsAFaultOfABaseOnce(t *testing.T) {
	files := with(sound(), map[string]string{
		"pools/base/gpu.yaml":            strings.Replace(basePool, "https://", "http://", 1),
		"clusters/us/kustomization.yaml": "namespace: us\nresources: [../../pools/base]\n",
	})
	if got := places(check(t, files)); len(got) != 1 {
		t.Errorf("problems %v, want one", got)
	}
}

func TestBrokenOverlayHidesNoOther(t *testing.T) {
	report := check(t, with(sound(), map[string]string{
		"clusters/broken/kustomization.yaml": "resources: [nowhere.yaml]\n",
		"clusters/remote/kustomization.yaml": "resources:\n- https://example.com/pool.yaml\n",
		"clusters/syntax/kustomization.yaml": "resources: [pool.yaml]\n",
		"clusters/syntax/pool.yaml":          "apiVersion: v1\nkind: [\n",
		"clusters/eu/larger.yaml":            strings.Replace(sound()["clusters/eu/larger.yaml"], "3", "-1", 1),
	}))
	want := []string{
		"missing-reference clusters/broken/kustomization.yaml:1:13",
		"schema clusters/eu/larger.yaml:6:3 spec.maxRunners",
		"remote-reference clusters/remote/kustomization.yaml:2:3",
	}
	got := places(report)
	for _, place := range want {
		if !slices.Contains(got, place) {
			t.Errorf("problems %v lack %s", got, place)
		}
	}
	if !slices.ContainsFunc(got, func(p string) bool { return strings.HasPrefix(p, "syntax clusters/syntax/pool.yaml:") }) {
		t.Errorf("problems %v lack the syntax error", got)
	}
	failed := map[string]bool{}
	for _, root := range report.Roots {
		failed[root.Path] = root.Failed
	}
	for _, root := range []string{"clusters/broken", "clusters/remote", "clusters/syntax", "clusters/eu"} {
		if !failed[root] {
			t.Errorf("root %s did not fail", root)
		}
	}
	if failed["hub"] {
		t.Error("the hub's root failed")
	}
}

func TestCheckOfPathsAndPlainFiles(t *testing.T) {
	plain := map[string]string{"pools.yaml": basePool + "---\n" + basePool + "---\n" + hubPool, "deep/bad.yaml": strings.Replace(basePool, "name: gpu", "name: GPU", 1) + "  maxRunner: 1\n"}
	report := check(t, plain)
	want := []string{"metadata deep/bad.yaml:5:3 metadata.name", "unknown-field deep/bad.yaml:11:3 spec.maxRunner", "duplicate-object pools.yaml:16:3 metadata.name"}
	got := places(report)
	for _, place := range want {
		if !slices.Contains(got, place) {
			t.Errorf("problems %v lack %s", got, place)
		}
	}
	only := check(t, plain, "pools.yaml")
	if got := places(only); len(got) != 1 || only.Documents != 3 {
		t.Errorf("of one file: %d documents, problems %v", only.Documents, got)
	}
	_, err := fleet.Check(t.Context(), validator(t), repo(t, plain), "nowhere")
	if !errors.Is(err, fleet.ErrPathNotFound) {
		t.Errorf("error is %v, want ErrPathNotFound", err)
	}
}

func TestRulesAreDescribed(t *testing.T) {
	for _, rule := range fleet.Rules() {
		if rule.ID == "" || rule.Severity == "" || rule.Meaning == "" || rule.Remedy == "" {
			t.Errorf("rule %+v is not described", rule)
		}
	}
}

// FuzzCheck holds rendering and checking to an answer for whatever is committed.
func FuzzCheck(f *testing.F) {
	v := validator(f)
	f.Add("resources: [p.yaml]\npatches: [{path: q.yaml}]\n", basePool, "- {op: replace, path: /spec/maxRunners, value: 2}\n")
	f.Add("resources: [p.yaml]\npatches:\n- patch: |-\n    kind: ExecutorPool\n", basePool+"---\n"+hubPool, "")
	f.Add("buildMetadata: x\nnamePrefix: [\n", "a: &a [*a]\n", "[]")
	f.Add("resources: [p.yaml, q.yaml]\nreplacements: [{source: {kind: A}}]\n", "kind: List\nitems: [1]\n", "%")
	f.Fuzz(func(t *testing.T, kustomization, resource, patch string) {
		dir := t.TempDir()
		for name, content := range map[string]string{"kustomization.yaml": kustomization, "p.yaml": resource, "q.yaml": patch} {
			if strings.HasPrefix(content, "\x00") {
				t.Skip()
			}
			fleettest.WriteFiles(t, dir, map[string]string{name: content})
		}
		report, err := fleet.Check(t.Context(), v, dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range report.Problems {
			if p.File == "" || p.Line < 1 || p.Column < 1 || p.Message == "" {
				t.Errorf("problem without a place: %+v", p)
			}
			if strings.Contains(p.String(), dir) {
				t.Errorf("problem shows the directory: %s", p)
			}
		}
	})
}

// ending is a context that ends when a rule of the repository is about to be
// judged: everything before asks no more than a few times.
type ending struct {
	context.Context
	left atomic.Int64
}

func (c *ending) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// Whoever applies takes a report for a verdict: there is none where the context
// ended before all rules were applied, whenever that is.
func TestBuildCheckedHasNoVerdictOnceTheContextEnds(t *testing.T) {
	files := with(sound(), map[string]string{".cloop/rules.cue": "rules: never: {message: \"m\", expression: \"false\"}\n"})
	root, v := repo(t, files), validator(t)
	for asked := int64(0); ; asked++ {
		ctx := &ending{Context: t.Context()}
		ctx.left.Store(asked)
		_, report, err := fleet.BuildChecked(ctx, v, root, "clusters/eu", nil)
		if err == nil && !report.Failed() {
			t.Fatalf("after %d looks at the context it lets pass what it refuses", asked)
		}
		ctx.left.Store(asked)
		checked, checkErr := fleet.Check(ctx, v, root)
		if checkErr == nil && !checked.Failed() {
			t.Fatalf("after %d looks a check says that all is well", asked)
		}
		if err == nil {
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}

// What is applied and what is checked come from one rendering, and are what
// Build and Check say each by itself.
func TestBuildCheckedIsBuildAndCheckAtOnce(t *testing.T) {
	const broken = "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: gpu}\nspec: {minRunners: 5, foo: 1}\n"
	for name, files := range map[string]map[string]string{
		"sound":          sound(),
		"a broken rule":  with(sound(), map[string]string{"clusters/eu/larger.yaml": broken}),
		"not a document": with(sound(), map[string]string{"clusters/eu/larger.yaml": "a: b: c\n"}),
		"no such path":   {"hub/kustomization.yaml": "resources: []\n"},
	} {
		t.Run(name, func(t *testing.T) {
			const path = "clusters/eu"
			root, v := repo(t, files), validator(t)
			rendered, report, err := fleet.BuildChecked(t.Context(), v, root, path, nil)
			wantRendered, wantErr := fleet.Build(t.Context(), root, path)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("the error is %v, want %v", err, wantErr)
			}
			if err != nil {
				return
			}
			wantReport, err := fleet.Check(t.Context(), v, root, path)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(rendered, wantRendered) {
				t.Errorf("rendered %+v, want %+v", rendered, wantRendered)
			}
			if !reflect.DeepEqual(report, wantReport) {
				t.Errorf("the report is %+v, want %+v", report, wantReport)
			}
		})
	}
}
