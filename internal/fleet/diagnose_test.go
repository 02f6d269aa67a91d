package fleet_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
)

// What kustomize refuses is said in words that tell what to do. The places are
// TestSources'.
func TestRefusals(t *testing.T) {
	for name, want := range map[string]string{
		"refused-operation":                "an object that it patches has no /spec/minRunners to remove (correct the path",
		"refused-operation-file":           `there is no operation "replaces" (write add,`,
		"refused-strategic":                "it patches ExecutorPool gpv, which is not among the objects here (correct the name",
		"refused-json-target":              "a JSON patch does not say what it patches (add a target",
		"refused-selector":                 "the selector cannot be read: ",
		"refused-both":                     "the entry has both a patch and a path (remove one",
		"refused-flow":                     "kustomize reads a patch that begins with [ as JSON, and this is none (put names",
		"refused-field":                    "kustomize has no field patchs (did you mean patches?)",
		"refused-type":                     `commonAnnotations.tier has to be a text, and 1 is none (put it in quotes: "1")`,
		"refused-empty":                    "the kustomization is empty, which kustomize refuses (write what",
		"refused-kind":                     "../spot is a Component (list it in components)",
		"refused-two-kustomizations":       "the directory has another kustomization, kustomization.yaml (remove one",
		"refused-replacement-source":       "the source of the replacement, ServiceAccount settings, is not among the objects here (correct the source",
		"refused-replacement-field":        "a target of the replacement has no field spec.template.image (correct it",
		"refused-replacement-source-field": "has no field spec.minRunners (correct fieldPath",
		"refused-replaced-type":            `the replacement at teams/ml/kustomization.yaml:8 puts "lots" from ServiceAccount settings metadata.annotations.max into spec.maxRunners, which has to be a whole number (write`,
		"refused-generator-file":           "hub=hub.txt: no such file or directory (commit it",
		"refused-literal":                  `the literal "hub" has no value (write NAME=VALUE)`,
		"twice-in-two-files":               "also defined at base/gpu.yaml:1 (remove one",
		"twice-over-two-bases":             "../b brings it in a second time, of base/gpu.yaml:1 (remove one",
	} {
		t.Run(name, func(t *testing.T) {
			report, err := fleet.Check(t.Context(), validator(t), filepath.Join("testdata/sources", name))
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(report.Problems); !strings.Contains(got, want) || strings.Contains(got, "accumulat") {
				t.Errorf("it says %s, want %s", got, want)
			}
		})
	}
}

// One mistake in a base is one problem, however many overlays show it, and is
// searched for once.
func TestOneMistakeOfManyOverlays(t *testing.T) {
	files := map[string]string{
		"base/kustomization.yaml": "resources: [gpu.yaml]\npatches:\n- target: {kind: ExecutorPool}\n  patch: |\n    - op: remove\n      path: /spec/nothing\n",
		"base/gpu.yaml":           basePool,
	}
	for i := range 60 {
		files[fmt.Sprintf("clusters/c%d/kustomization.yaml", i)] = fmt.Sprintf("namePrefix: c%d-\nresources: [../../base]\n", i)
	}
	report, err := fleet.Check(t.Context(), validator(t), repo(t, files))
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) != 1 || report.Problems[0].File != "base/kustomization.yaml" || report.Problems[0].Line != 5 {
		t.Fatalf("problems %v", report.Problems)
	}
	shown := slices.DeleteFunc(slices.Clone(report.Subjects), func(s fleet.Subject) bool { return len(s.Problems) == 0 })
	if len(shown) != 60 {
		t.Errorf("%d overlays show it", len(shown))
	}
}
