package fleet_test

import (
	"fmt"
	"slices"
	"testing"

	"cloop.dev/cloop/internal/fleet"
)

// What a Kustomization of Flux changes beside a path without a kustomization is not
// applied, and that is said where it is written.
func TestFieldsOfFluxThatAreNotApplied(t *testing.T) {
	const head = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: eu, namespace: flux-system}\nspec:\n  path: ./clusters/eu\n"
	files := func(spec string, more map[string]string) map[string]string {
		return with(map[string]string{"clusters/eu/gpu.yaml": basePool, "flux/eu.yaml": head + spec}, more)
	}
	patched := "  patches:\n  - target: {kind: ExecutorPool}\n    patch: '- {op: replace, path: /spec/maxRunners, value: lots}'\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"none":               {files("  prune: true\n", nil), nil},
		"of a kustomization": {files(patched, map[string]string{"clusters/eu/kustomization.yaml": "resources: [gpu.yaml]\n"}), nil},
		"patches":            {files(patched, nil), []string{"flux/eu.yaml:6: spec.patches"}},
		"several":            {files("  targetNamespace: a\n  namePrefix: b-\n  components: [../x]\n", nil), []string{"flux/eu.yaml:6: spec.targetNamespace", "flux/eu.yaml:7: spec.namePrefix", "flux/eu.yaml:8: spec.components"}},
		"empty":              {files("  patches: []\n  namePrefix: ''\n", nil), nil},
		"by a patch":         {files("  prune: true\n", map[string]string{"flux/kustomization.yaml": "resources: [eu.yaml]\npatches:\n- target: {kind: Kustomization}\n  patch: |\n    - {op: add, path: /spec/targetNamespace, value: a}\n"}), []string{"flux/kustomization.yaml:5: spec.targetNamespace"}},
		"another team's": {files(patched, map[string]string{"clusters/eu/gpu.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
			"hub/gpu.yaml": basePool}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := fleet.Check(t.Context(), validator(t), repo(t, test.files))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range report.Problems {
				if p.Rule == fleet.RuleUnrendered {
					got = append(got, fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Path))
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q: %v", got, test.want, report.Problems)
			}
		})
	}
}
