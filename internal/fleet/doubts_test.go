package fleet_test

import (
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
)

// What cannot be read may give a variable its value. Where nothing tells of that, the
// variable is told, with what cannot be read.
func TestUnresolvedVariablesBesideWhatCannotBeRead(t *testing.T) {
	const template = "{% for c in clusters %}\napiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: {{ c }}}\n{% endfor %}\n"
	sync := strings.TrimSuffix(syncing("a", "./clusters/eu", "https://git.example.com/fleet"), "---\n") + "  substitute: {vars: {W: x}}\n"
	broken := syncing("b", "./clusters/us", "https://git.example.com/fleet") + sync + "  x: : y\n"
	unread := "clusters/eu/gpu.yaml: unresolved-variable "
	for name, test := range map[string]struct {
		changes map[string]string
		paths   []string
		want    []string
	}{
		"nothing unread":               {nil, nil, []string{unread}},
		"a template":                   {map[string]string{"templates/cluster.yaml": template}, nil, []string{unread + "templates/cluster.yaml:1"}},
		"a template and one that is":   {map[string]string{"templates/cluster.yaml": template, "b/sync.yaml": sync}, nil, []string{unread + "templates/cluster.yaml:1"}},
		"a comment in what is no YAML": {map[string]string{"docs/a.yaml": "# cloop.dev PoolSync\na: : b\n"}, nil, []string{unread + "docs/a.yaml:2"}},
		"a key that is none":           {map[string]string{"flux/a.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a}\nspec: {path: ./clusters/eu, postBuild: {substitute: {null: x}}}\n"}, nil, []string{"flux/a.yaml: syntax "}},
		"a Kustomization":              {map[string]string{"flux/a.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a}\nspec: {path: ./clusters/eu}\nx: [\n"}, nil, []string{"flux/a.yaml: syntax "}},
		"an Application of a template": {map[string]string{"argo/a.yaml": "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: {{ name }}: a}\n"}, nil, []string{unread + "argo/a.yaml:3"}},
		"a PoolSync that is told of":   {map[string]string{"b/sync.yaml": broken}, nil, []string{"b/sync.yaml: syntax "}},
		"a PoolSync of another path":   {map[string]string{"b/sync.yaml": broken}, []string{"clusters/eu"}, []string{unread + "b/sync.yaml:15"}},
		"a kustomization":              {map[string]string{"b/kustomization.yaml": "resources: [sync.yaml, none.yaml]\n", "b/sync.yaml": sync}, nil, []string{"b/kustomization.yaml: missing-reference "}},
		"a kustomization of another path": {map[string]string{"b/kustomization.yaml": "resources: [sync.yaml, none.yaml]\n", "b/sync.yaml": sync}, []string{"clusters/eu"},
			[]string{unread + "b/kustomization.yaml:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repo(t, with(map[string]string{
				"hub/gpu.yaml": hubPool, "clusters/eu/gpu.yaml": strings.Replace(basePool, "maxRunners: 4", "maxRunners: ${M}", 1),
			}, test.changes))
			report, err := fleet.Checking{Validator: validator(t), Variables: &fleet.Variables{}}.Check(t.Context(), dir, test.paths...)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range report.Problems {
				_, doubt, _ := strings.Cut(p.Hint, "the text itself; ")
				doubt, _, _ = strings.Cut(doubt, " ")
				got = append(got, p.File+": "+p.Rule+" "+doubt)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q: %v", got, test.want, report.Problems)
			}
			if slices.ContainsFunc(report.Roots, func(r fleet.RootReport) bool {
				return r.Path == "clusters/eu" && r.Failed != strings.HasPrefix(test.want[0], unread)
			}) {
				t.Errorf("the roots are %+v", report.Roots)
			}
		})
	}
}
