package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

// An object of another kind is worth a warning where a PoolSync is what applies
// it, as far as the repository tells.
func TestKindsAreThoseOfWhoAppliesThem(t *testing.T) {
	const (
		settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n"
		flux     = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: eu, namespace: flux-system}\nspec: {path: ./clusters/eu, prune: true, interval: 10m, sourceRef: {kind: GitRepository, name: fleet}}\n"
		source   = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: fleet, namespace: flux-system}\nspec: {url: \"https://git.example.com/fleet.git\"}\n"
	)
	sync := poolSync("eu", "clusters/eu", "")
	eu := func() map[string]string {
		return map[string]string{"clusters/eu/kustomization.yaml": "resources: [gpu.yaml, settings.yaml]\n", "clusters/eu/gpu.yaml": basePool, "clusters/eu/settings.yaml": settings}
	}
	for name, test := range map[string]struct {
		files map[string]string
		// want: files with a warning.
		want []string
	}{
		"nothing says who":           {eu(), []string{"clusters/eu/settings.yaml"}},
		"a PoolSync":                 {with(eu(), map[string]string{"syncs/eu.yaml": sync}), []string{"clusters/eu/settings.yaml"}},
		"Flux":                       {with(eu(), map[string]string{"flux/eu.yaml": flux, "flux/source.yaml": source}), nil},
		"both":                       {with(eu(), map[string]string{"syncs/eu.yaml": sync, "flux/eu.yaml": flux}), []string{"clusters/eu/settings.yaml"}},
		"by hand, beside a PoolSync": {with(eu(), map[string]string{"bootstrap/kustomization.yaml": "resources: [sync.yaml, settings.yaml]\n", "bootstrap/sync.yaml": sync, "bootstrap/settings.yaml": settings}), []string{"clusters/eu/settings.yaml"}},
		"Flux's own by a PoolSync":   {with(eu(), map[string]string{"syncs/eu.yaml": sync, "clusters/eu/settings.yaml": source}), []string{"clusters/eu/settings.yaml"}},
		"Flux's own":                 {with(eu(), map[string]string{"clusters/eu/settings.yaml": source}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := fleet.Check(t.Context(), validator(t), repo(t, test.files))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range report.Problems {
				if p.Rule == fleet.RuleKindNotApplied {
					got = append(got, p.File)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("warnings in %v, want %v: %v", got, test.want, report.Problems)
			}
		})
	}
}

// A message says what to do about what it names.
func TestRemediesFit(t *testing.T) {
	root := func(kustomization string, more map[string]string) map[string]string {
		return with(map[string]string{"clusters/eu/kustomization.yaml": kustomization, "clusters/eu/gpu.yaml": basePool}, more)
	}
	varied := func(from, to, vars string) map[string]string {
		return root("resources: [gpu.yaml]\n", map[string]string{"clusters/eu/gpu.yaml": strings.Replace(basePool, from, to, 1),
			"syncs/eu.yaml": poolSync("eu", "clusters/eu", "  substitute:\n    vars:\n"+vars)})
	}
	for name, test := range map[string]struct {
		files map[string]string
		paths []string
		want  string
	}{
		"a path of Windows":    {root("resources: [gpu.yaml, pools\\more.yaml]\n", nil), nil, `clusters/eu/kustomization.yaml:1:23: pools\more.yaml: no such file or directory (write the path with /, relative to the kustomization: pools/more.yaml)`},
		"a key that is true":   {root("resources: [gpu.yaml]\nlabels:\n- pairs: {no: x}\n", nil), nil, `clusters/eu/kustomization.yaml:3:11: labels[0].pairs: the key no has to be a text, and kustomize reads it as true or false (put it in quotes: "no")`},
		"no name of an object": {root("resources: [gpu.yaml]\n", map[string]string{"clusters/eu/gpu.yaml": strings.Replace(basePool, "name: gpu\n", "generateName: gpu-\n", 1)}), nil, "clusters/eu/gpu.yaml:5:3: an object of kind ExecutorPool has no metadata.name (give it a name that stays"},
		"a number for a label": {root("resources: [gpu.yaml]\nreplacements:\n- source: {kind: ExecutorPool, fieldPath: metadata.name}\n  targets:\n  - select: {kind: ExecutorPool}\n    fieldPaths: [spec.runnerLabels.r]\n", map[string]string{"clusters/eu/gpu.yaml": basePool + "  runnerLabels: {r: 1}\n"}), nil,
			"into spec.runnerLabels.r, where there is a whole number (put the value that is there in quotes"},
		"a file for a generator": {root("resources: [gpu.yaml]\nconfigMapGenerator:\n- name: a\n  files: [large]\n", map[string]string{"clusters/eu/large": strings.Repeat("x", 5<<20)}), nil, "clusters/eu/kustomization.yaml:4:11: beyond the bounds: large is larger than 4 MiB (take less in"},
		"more objects than that": {root("resources: [gpu.yaml]\nconfigMapGenerator: [{name: a, literals: [a=b]}]\n", map[string]string{"clusters/eu/gpu.yaml": manyServiceAccounts(3_600)}), nil, "kustomize compares each of 3601 objects with all others, which would take it minutes; divide them among overlays"},
		"an absolute path":       {root("resources: [gpu.yaml, /more.yaml]\n", nil), nil, "(write the path relative to the kustomization)"},
		"outside":                {root("resources: [gpu.yaml, ../../../more.yaml]\n", nil), nil, "it leads out of the repository (copy what it refers to into the repository"},
		"a pointer of Git LFS":   {root("resources: [gpu.yaml]\n", map[string]string{"clusters/eu/gpu.yaml": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"}), nil, "clusters/eu/gpu.yaml:1:1: the file is a pointer of Git LFS, not the text (commit the text itself"},
		"a component":            {root("resources: [gpu.yaml]\n", map[string]string{"spot/kustomization.yaml": "kind: Component\nnamePrefix: a-\n"}), []string{"spot"}, "it is a Component, which by itself has nothing to apply (check the overlay"},
		"a default of a shell":   {varied("maxRunners: 4", "maxRunners: ${B-eu}", "      A: a\n"), nil, `"${B-eu}" cannot be replaced: a default stands behind := or :-, and a name has no dash (in ${B-eu}) (write ${B:=eu} for a default, or ${B_eu} where it is all a name; $${B-eu} is the text itself)`},
		"an operator of a shell": {varied("maxRunners: 4", "maxRunners: ${B?none}", "      A: a\n"), nil, "there is no operator ? (in ${B?none}) (write ${B:=none} for a default"},
		"a brace that is open":   {varied("maxRunners: 4", "maxRunners: ${B", "      A: a\n"), nil, "there is neither a brace nor an operator (close the brace behind the name, or write a default as ${NAME:=value}"},
		"no name":                {varied("maxRunners: 4", "maxRunners: ${}", "      A: a\n"), nil, "there is no name behind ${ (write a name of letters"},
		"half an operator":       {varied("maxRunners: 4", "maxRunners: ${B/x}", "      A: a\n"), nil, "(write ${NAME}, or ${NAME:=value} with a default"},
		"a value that is none":   {varied("maxRunners: 4", "maxRunners: ${B}", "      B: \"4\\nx: [\"\n"), nil, "syncs/eu.yaml:10:7: ExecutorPool gpu: spec.maxRunners: with its variables replaced it is no YAML: \"4x: [\" (give the value quotes of its own"},
		"a number for a text":    {varied("name: gpu-pool-credential", "name: \"${B}\"", "      B: \"12\"\n"), nil, "(a variable's value is read as YAML, without the quotes around the variable"},
		"a byte that is none":    {root("resources: [gpu.yaml]\n", map[string]string{"clusters/eu/gpu.yaml": basePool + strings.Repeat("# long enough to be read ahead of it\n", 900) + "# caf\xe9\n"}), nil, "clusters/eu/gpu.yaml:911:6: the byte 0xe9 is not UTF-8 (save the file as UTF-8)"},
		"a control character":    {root("resources: [gpu.yaml]\n", map[string]string{"clusters/eu/gpu.yaml": strings.ReplaceAll(basePool, "\n", "\r\n") + strings.Repeat("# é\r\n", 900) + "# é\x01\r\n"}), nil, `:911:4: the character U+0001 may not be in YAML (remove it, or write it as "\u0001" within double quotes)`},
		"one in a kustomization": {root("resources: [gpu.yaml]\n# caf\xe9\n", nil), nil, "clusters/eu/kustomization.yaml:2:6: the byte 0xe9 is not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := fleet.Check(t.Context(), validator(t), repo(t, test.files), test.paths...)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(report.Problems, func(p schemas.Problem) bool { return strings.Contains(p.String(), test.want) }) {
				t.Errorf("it says %v, want %s", report.Problems, test.want)
			}
		})
	}
}

func manyServiceAccounts(count int) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a%d}\n", i)
	}
	return b.String()
}
