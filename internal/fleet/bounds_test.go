package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/internal/fleet"
)

// pools are so many ExecutorPools in one file.
func pools(count int) string {
	var b strings.Builder
	for i := range count {
		b.WriteString("---\n" + strings.ReplaceAll(basePool, "name: gpu\n", fmt.Sprintf("name: gpu-%d\n", i)))
	}
	return b.String()
}

const (
	selfReference = `{"definitions":{"X":{"$ref":"#/definitions/X"},"Z":{"type":"object","properties":{"spec":{"$ref":"#/definitions/X"}},` + poolKind + `}}}`
	pairReference = `{"definitions":{"X":{"$ref":"#/definitions/Y"},"Y":{"$ref":"#/definitions/X"},"Z":{"type":"object","properties":{"spec":{"$ref":"#/definitions/X"}},` + poolKind + `}}}`
	// deepReference refers to itself over a field, as Kubernetes' own document does.
	deepReference = `{"definitions":{"X":{"type":"object","properties":{"x":{"$ref":"#/definitions/X"}}},"Z":{"type":"object","properties":{"spec":{"$ref":"#/definitions/X"}},` + poolKind + `}}}`
	poolKind      = `"x-kubernetes-group-version-kind":[{"group":"cloop.dev","version":"v1alpha1","kind":"ExecutorPool"}]`
	patchOfArgs   = "patches: [{target: {kind: ExecutorPool}, patch: \"apiVersion: cloop.dev/v1alpha1\\nkind: ExecutorPool\\nmetadata: {name: gpu}\\nspec: {maxRunners: 5}\\n\"}]"
)

// aKind describes a kind of custom resources of which a field is another.
func aKind(name, of string) string {
	return fmt.Sprintf(`%q:{"Schema":{"properties":{"kind":{},"apiVersion":{},"metadata":{},"spec":{"$ref":%q}}}}`, name, of)
}

// What a little text stands for many times is refused before anybody makes it, and
// what kustomize would never come to an end with before it sees it: at its place, and
// for little time and memory.
func TestWhatTextIsMultipliedToIsBounded(t *testing.T) {
	const memory, patience = 160 << 20, 8 * time.Second
	v := validator(t)
	long := strings.Repeat("y", 1<<20)
	lines := func(count int, line string) string {
		var b strings.Builder
		for i := range count {
			b.WriteString(strings.ReplaceAll(line, "#", fmt.Sprint(i)) + "\n")
		}
		return b.String()
	}
	root := func(files map[string]string, lines ...string) map[string]string {
		return with(map[string]string{"eu/p.yaml": basePool, "eu/kustomization.yaml": kustomization(append([]string{"resources: [p.yaml]"}, lines...)...)}, files)
	}
	file := map[string]string{"eu/big.txt": long}
	const passed = "together larger than 32 MiB"
	for name, test := range map[string]struct {
		files map[string]string
		// says is the beginning of the only error, and a part of it; none: all is well.
		at, says string
	}{
		"aliases of one long text": {map[string]string{"eu/p.yaml": basePool + "  runnerLabels: {a: &x " + long + strings.Repeat(", b: *x", 200) + "}\n"}, "eu/p.yaml:", "more than 8 MiB of text"},
		"aliases in a kustomization's file": {root(map[string]string{"eu/p.yaml": basePool + "  runnerLabels:\n    a: &x " + long[:100_000] + "\n" + lines(500, "    b#: *x")}),
			"eu/p.yaml:", "more than 8 MiB of text"},
		"literals by aliases":            {root(nil, "configMapGenerator:", "- name: a", "  literals: [&x 'a="+long+"'"+strings.Repeat(", *x", 100)+"]"), "eu/kustomization.yaml:4:", "more than 8 MiB of text"},
		"aliases in a patch of one line": {root(nil, "patches: [{target: {kind: ExecutorPool}, patch: '{spec: {runnerLabels: {a: &x "+long[:100_000]+strings.Repeat(", b: *x", 200)+"}}}'}]"), "eu/kustomization.yaml:2:", "more than 8 MiB of text"},
		"one generator":                  {root(file, "configMapGenerator:", "- name: a", "  files:", lines(100, "  - a#=big.txt")), "eu/kustomization.yaml:36:5", passed},
		"one generator of secrets":       {root(file, "secretGenerator:", "- name: a", "  files:", lines(100, "  - a#=big.txt")), "eu/kustomization.yaml:36:5", passed},
		"many generators":                {root(file, "configMapGenerator:", lines(100, "- {name: a#, files: [big.txt]}")), "eu/kustomization.yaml:34:", passed},
		"environments":                   {root(map[string]string{"eu/e.env": "A=" + long}, "configMapGenerator:", "- name: a", "  envs: [e.env"+strings.Repeat(", e.env", 99)+"]"), "eu/kustomization.yaml:4:", passed},
		"environments of many lines":     {root(map[string]string{"eu/e.env": lines(40_000, "A#=")}, "configMapGenerator: [{name: a, envs: [e.env]}]"), "eu/kustomization.yaml:2:", "more than 30000 entries"},
		"a generator with a file":        {root(with(file, map[string]string{"eu/g.yaml": "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: a}\nfiles:\n" + lines(100, "- a#=big.txt")}), "generators: [g.yaml]"), "eu/g.yaml:36:3", passed},
		"a generator by other names":     {root(file, "ConfigMapGenerator:", "- Name: a", "  Files:", lines(100, "  - a#=big.txt")), "eu/kustomization.yaml:36:5", passed},
		"a generator that is merged":     {root(file, "<<:", "  configMapGenerator:", "  - name: a", "    files:", lines(100, "    - a#=big.txt")), "eu/kustomization.yaml:37:7", passed},
		"a generator by an alias":        {root(file, "configMapGenerator: &g", "- name: a", "  files:", lines(20, "  - a#=big.txt"), "secretGenerator: *g"), "eu/kustomization.yaml:", passed},
		"a long prefix":                  {root(map[string]string{"eu/p.yaml": pools(100)}, "namePrefix: "+long), "eu/kustomization.yaml:2:13", "longer than the 253 characters"},
		"a long namespace":               {root(map[string]string{"eu/p.yaml": pools(100)}, "namespace: "+long), "eu/kustomization.yaml:2:12", "longer than the 253 characters"},
		"a long name by a patch":         {root(nil, "patches:", "- target: {kind: ExecutorPool}", "  options: {allowNameChange: true}", "  patch: '[{op: replace, path: /metadata/name, value: "+long[:300]+"}]'"), "eu/kustomization.yaml:5:", "more than the 253 characters"},
		"a long annotation":              {root(map[string]string{"eu/p.yaml": pools(100)}, "commonAnnotations: {a: "+long+"}"), "eu/kustomization.yaml:2:1", "more than 64 MiB"},
		"a label at many places": {root(map[string]string{"eu/p.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {topologySpreadConstraints:\n" + "[" + strings.Repeat("{labelSelector: {matchLabels: {}}},", 2000) + "]}}}\n"}, "commonLabels: {a: "+long[:100_000]+"}"),
			"eu/kustomization.yaml:2:1", "more than 64 MiB"},
		"a label at places of its own": {root(nil, "labels:", "- pairs: {a: "+long[:100_000]+"}", "  fields:", lines(2000, "  - {path: spec/a#, create: true}")), "eu/kustomization.yaml:2:1", "more than 64 MiB"},
		"many places":                  {root(map[string]string{"eu/p.yaml": pools(50), "eu/c.yaml": "namePrefix:\n" + lines(20_000, "- {path: spec/a#/b/c, create: true}")}, "namePrefix: a-", "configurations: [c.yaml]"), "eu/kustomization.yaml:", "more than 64 MiB"},
		"places of names":              {root(map[string]string{"eu/c.yaml": "nameReference:\n- kind: Secret\n  fieldSpecs:\n" + lines(40_000, "  - {path: spec/a#}")}, "configurations: [c.yaml]"), "eu/c.yaml:1:1", "for minutes"},
		"a transformer with a file": {root(map[string]string{"eu/t.yaml": "apiVersion: builtin\nkind: AnnotationsTransformer\nmetadata: {name: a}\nannotations: {a: " + long[:100_000] + "}\nfieldSpecs:\n" + lines(2000, "- {path: spec/a#, create: true}")}, "transformers: [t.yaml]"),
			"eu/t.yaml:1:1", "more than 64 MiB"},
		"a patch of all":                 {root(map[string]string{"eu/p.yaml": pools(100), "eu/q.yaml": "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: a, annotations: {a: " + long + "}}\n"}, "patches: [{path: q.yaml, target: {kind: ExecutorPool}}]"), "eu/kustomization.yaml:2:18", "more than 64 MiB"},
		"a patch of a large mapping":     {root(map[string]string{"eu/p.yaml": basePool + "  runnerLabels:\n" + lines(40_000, "    a#: b")}, patchOfArgs), "eu/kustomization.yaml:", "the keys of mappings"},
		"a reference to itself":          {root(map[string]string{"eu/o.json": selfReference}, "openapi: {path: o.json}", patchOfArgs), "eu/o.json:1:29", "leads back to itself"},
		"references in a circle":         {root(map[string]string{"eu/o.json": pairReference}, "OpenAPI: {path: o.json}", patchOfArgs), "eu/o.json:1:", "leads back to itself"},
		"a kind within itself":           {root(map[string]string{"eu/o.json": deepReference}, "openapi: {path: o.json}", patchOfArgs), "", ""},
		"kinds that refer to each other": {root(map[string]string{"eu/c.json": "{" + aKind("A", "B") + "," + aKind("B", "A") + "}"}, "crds: [c.json]"), "eu/c.json:1:", "refers to itself"},
		"kinds that refer to a third":    {root(map[string]string{"eu/c.json": "{" + aKind("A", "C") + "," + aKind("B", "C") + `,"C":{"Schema":{}}}`}, "crds: [c.json]"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			dir := repo(t, test.files)
			var report *fleet.Report
			var err error
			keepsTo(t, memory, patience, func() { report, err = fleet.Check(ctx, v, dir, "eu") })
			if err != nil {
				t.Fatal(err)
			}
			found := report.Errors()
			if test.says == "" {
				if len(found) > 0 {
					t.Errorf("problems %.1000v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Rule != fleet.RuleTooLarge || !strings.HasPrefix(found[0].String(), test.at) || !strings.Contains(found[0].Message, test.says) || found[0].Hint == "" {
				t.Errorf("problems %.1000v, want one at %s: %s", found, test.at, test.says)
			}
		})
	}
}

// prefixed are so many of one base.
func prefixed(count int) map[string]string {
	files := map[string]string{}
	for i := range count {
		files[fmt.Sprintf("eu/o%d/kustomization.yaml", i)] = fmt.Sprintf("resources: [../../base]\nnamePrefix: o%d-\n", i)
	}
	return files
}

// A base counts as often as it is read.
func TestTheValuesOfARootAreBounded(t *testing.T) {
	defer fleet.SetRootValues(1000)()
	files := map[string]string{"base/kustomization.yaml": "resources: [p.yaml]\n", "base/p.yaml": basePool}
	for count, want := range map[int]string{10: "", 100: "eu/kustomization.yaml:1:1: beyond the bounds: what is read for this root has together more than 1000 values"} {
		var list []string
		for i := range count {
			list = append(list, fmt.Sprintf("o%d", i))
		}
		files["eu/kustomization.yaml"] = "resources: [" + strings.Join(list, ", ") + "]\n"
		report, err := fleet.Check(t.Context(), validator(t), repo(t, with(files, prefixed(count))), "eu")
		if err != nil {
			t.Fatal(err)
		}
		if found := fmt.Sprint(report.Errors()); want == "" && report.Failed() && strings.Contains(found, "bounds") || !strings.Contains(found, want) {
			t.Errorf("%d overlays: problems %s, want %q", count, found, want)
		}
	}
}

// kustomize reads names in any case. What the scan did not know for a reference was
// not looked at, and fetched where it is not in the repository.
func TestKustomizationsAreReadInEverySpelling(t *testing.T) {
	for name, text := range map[string]string{
		"another case": "Resources: [p.yaml, dev.azure.com/a/b/_git/c]\n",
		"a merge":      "<<: {resources: [p.yaml, dev.azure.com/a/b/_git/c]}\n",
		"an alias":     "resources: &r [p.yaml, dev.azure.com/a/b/_git/c]\ncrds: *r\n",
	} {
		report, err := fleet.Check(t.Context(), validator(t), repo(t, map[string]string{"eu/p.yaml": basePool, "eu/kustomization.yaml": text}), "eu")
		if err != nil {
			t.Fatal(err)
		}
		found := report.Errors()
		if len(found) == 0 || found[0].Rule != fleet.RuleMissingReference || !strings.HasPrefix(found[0].String(), "eu/kustomization.yaml:1:") {
			t.Errorf("%s: problems %v, want the entry that is missing at its place", name, found)
		}
	}
}

// Kustomize cannot be interrupted. A run that does not end keeps nobody who waits for
// it or behind it from ending, and after a while the others are told.
func TestARunThatDoesNotEndHoldsNobody(t *testing.T) {
	dir := repo(t, map[string]string{"p.yaml": basePool, "kustomization.yaml": "resources: [p.yaml]\n"})
	defer fleet.HoldKustomize()()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := fleet.Build(ctx, dir, "."); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a build that is told to end says %v", err)
	}
	defer fleet.SetTurn(time.Millisecond)()
	if _, err := fleet.Build(t.Context(), dir, "."); err == nil || !strings.Contains(err.Error(), "kustomize does not come to an end") {
		t.Errorf("a build that waits in vain says %v", err)
	}
}

// A text with & and * may have aliases, and is mostly only a text.
func TestTextsAreLookedIntoOnce(t *testing.T) {
	var nested strings.Builder
	for level := range 1000 {
		nested.WriteString(strings.Repeat(" ", level) + "a: |\n")
	}
	nested.WriteString(strings.Repeat(" ", 1000) + "a & *b\n")
	for name, text := range map[string]string{
		"one line": "a: \"x & *\"\n", "quoted twice": "a: \"'x & *'\"\n", "lines": "a: |\n  x &\n  *y\n", "a text alone": "x & *\n", "a text in a text": nested.String(),
	} {
		t.Run(name, func(t *testing.T) {
			began := processorTime()
			report := check(t, with(sound(), map[string]string{"notes/a.yaml": "# cloop.dev PoolSync\n" + text, "clusters/eu/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"}))
			if took := processorTime() - began; took > 10*time.Second || report.Documents < 2 {
				t.Errorf("it took %s: %v", took, report.Problems)
			}
		})
	}
}
