package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
)

// What changes what a path renders, and is not applied here, is told where it is written.
func TestFieldsThatAreNotApplied(t *testing.T) {
	patched := "  patches:\n  - target: {kind: ExecutorPool}\n    patch: '- {op: replace, path: /spec/maxRunners, value: lots}'\n"
	whole := strings.Replace(fluxHead, "./clusters/eu", "./", 1)
	argo := "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: eu, namespace: argocd}\nspec:\n  source:\n    repoURL: https://git.example.com/fleet.git\n    path: clusters/eu\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"none":               {altered("  prune: true\n", nil), nil},
		"of a kustomization": {altered(patched, nil), nil},
		"of a directory":     {map[string]string{"clusters/eu/gpu.yaml": basePool, "flux/eu.yaml": fluxHead + patched}, nil},
		"of the whole repository": {map[string]string{"gpu.yaml": basePool, "eu.yaml": whole + patched + "  namePrefix: b-\n"},
			[]string{"eu.yaml:6: spec.patches", "eu.yaml:9: spec.namePrefix"}},
		"of an Application, which Argo CD refuses": {map[string]string{"clusters/eu/gpu.yaml": basePool, "argo/eu.yaml": argo + "    kustomize: {namePrefix: a-,\n      images: [a=b]}\n"},
			[]string{"argo/eu.yaml:8: spec.source.kustomize.namePrefix", "argo/eu.yaml:9: spec.source.kustomize.images"}},
		"of an Application": {altered("", map[string]string{"flux/eu.yaml": argo + "    kustomize: {namePrefix: a-}\n"}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, test.files)
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
