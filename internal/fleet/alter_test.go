package fleet_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/kustomize"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/internal/fleet"
)

const fluxHead = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: eu, namespace: flux-system}\nspec:\n  path: ./clusters/eu\n"

// altered is a repository whose path is applied by a Kustomization with fields of its
// own.
func altered(spec string, more map[string]string) map[string]string {
	return with(map[string]string{"clusters/eu/kustomization.yaml": "resources: [gpu.yaml]\n", "clusters/eu/gpu.yaml": basePool, "flux/eu.yaml": fluxHead + spec}, more)
}

// What is wrong because of what Flux changes by itself is put where that is written.
func TestPlacesInWhatFluxChanges(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"operations in a line": {altered("  patches:\n  - target: {kind: ExecutorPool}\n    patch: '- {op: replace, path: /spec/maxRunners, value: lots}'\n", nil),
			[]string{"schema flux/eu.yaml:8:5 spec.maxRunners"}},
		"operations in a block": {altered("  patches:\n  - target: {kind: ExecutorPool}\n    patch: |\n      - op: replace\n        path: /spec/scaleDownDelay\n        value: 5m\n      - op: replace\n        path: /spec/maxRunners\n        value: lots\n", nil),
			[]string{"schema flux/eu.yaml:12:9 spec.maxRunners"}},
		"a merge in a block": {altered("  patches:\n  - patch: |-\n      apiVersion: cloop.dev/v1alpha1\n      kind: ExecutorPool\n      metadata:\n        name: gpu\n      spec:\n        maxRunners: lots\n", nil),
			[]string{"schema flux/eu.yaml:13:9 spec.maxRunners"}},
		"after the path's own": {altered("  patches:\n    - target: {kind: ExecutorPool}\n      patch: |\n          - {op: replace, path: /spec/maxRunners, value: lots}\n",
			map[string]string{"clusters/eu/kustomization.yaml": "# what eu has\nresources: [gpu.yaml]\n# more\npatches: [{target: {kind: ExecutorPool}, patch: '- {op: replace, path: /spec/maxRunners, value: 3}'}]\n"}),
			[]string{"schema flux/eu.yaml:9:13 spec.maxRunners"}},
		"the path's own": {altered("  targetNamespace: pools\n",
			map[string]string{"clusters/eu/kustomization.yaml": "# what eu has\nresources: [gpu.yaml]\n# more\npatches:\n- target: {kind: ExecutorPool}\n  # of eu\n  patch: |-\n      - op: replace\n        path: /spec/maxRunners\n        value: lots\n"}),
			[]string{"schema clusters/eu/kustomization.yaml:8:9 spec.maxRunners"}},
		"the path's own, in a flow": {altered("  targetNamespace: pools\n",
			map[string]string{"clusters/eu/kustomization.yaml": "{resources: [gpu.yaml],\n patches: [{target: {kind: ExecutorPool}, patch: '- {op: replace, path: /spec/maxRunners, value: lots}'}]}\n"}),
			[]string{"schema clusters/eu/kustomization.yaml:2:53 spec.maxRunners"}},
		"a namespace":    {altered("  targetNamespace: Pools\n", nil), []string{"metadata flux/eu.yaml:6:3 metadata.namespace"}},
		"a prefix":       {altered("  namePrefix: EU-\n", nil), []string{"metadata flux/eu.yaml:6:3 metadata.name"}},
		"metadata":       {altered("  commonMetadata:\n    labels:\n      team: a b\n", nil), []string{"metadata flux/eu.yaml:8:7 metadata.labels"}},
		"a component":    {altered("  components: [../../parts/more]\n", map[string]string{"parts/more/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches: [{target: {kind: ExecutorPool}, patch: '- {op: replace, path: /spec/maxRunners, value: lots}'}]\n"}), []string{"schema parts/more/kustomization.yaml:3:52 spec.maxRunners"}},
		"no component":   {altered("  components:\n  - ../../parts/more\n", nil), []string{"missing-reference flux/eu.yaml:7:5"}},
		"none is asked":  {altered("  components: [../../parts/more]\n  ignoreMissingComponents: true\n", nil), nil},
		"a remote one":   {altered("  components:\n  - https://example.com/parts\n", nil), []string{"remote-reference flux/eu.yaml:7:5"}},
		"no such object": {altered("  patches:\n  - patch: |-\n      apiVersion: cloop.dev/v1alpha1\n      kind: ExecutorPool\n      metadata:\n        name: other\n", nil), []string{"build flux/eu.yaml:11:9"}},
		"mended":         {altered("  patches:\n  - target: {kind: ExecutorPool}\n    patch: '- {op: replace, path: /spec/maxRunners, value: 8}'\n", map[string]string{"clusters/eu/gpu.yaml": strings.Replace(basePool, "maxRunners: 4", "maxRunners: lots", 1)}), nil},
		"an ignore in the path": {altered("  targetNamespace: pools\n", map[string]string{"hub/gpu.yaml": hubPool,
			"clusters/eu/kustomization.yaml": "# all of it\n\nresources: [gpu.yaml]\npatches:\n- target: {kind: ExecutorPool}\n  # cloop:ignore maximum-above-hub -- the hub is to follow\n  patch: '- {op: replace, path: /spec/maxRunners, value: 900}'\n"}), nil},
		"by a patch": {altered("  prune: true\n", map[string]string{"flux/kustomization.yaml": "resources: [eu.yaml]\npatches:\n- target: {kind: Kustomization}\n  patch: |\n    - {op: add, path: /spec/targetNamespace, value: Pools}\n"}),
			[]string{"metadata flux/kustomization.yaml:5:7 metadata.namespace"}},
		"of what it applies": {with(altered("  prune: true\n", map[string]string{"flux/kustomization.yaml": "resources: [eu.yaml]\n"}),
			map[string]string{"boot/all.yaml": strings.NewReplacer("name: eu", "name: all", "./clusters/eu", "./flux").Replace(fluxHead) + "  patches:\n  - target: {kind: Kustomization}\n    patch: |\n      - {op: add, path: /spec/targetNamespace, value: Pools}\n"}),
			[]string{"metadata boot/all.yaml:9:9 metadata.namespace"}},
		"beside what is no list": {altered("  patches:\n  - target: {kind: ExecutorPool}\n    patch: '- {op: replace, path: /spec/maxRunners, value: 8}'\n", map[string]string{"clusters/eu/kustomization.yaml": "resources: [gpu.yaml]\npatches: 3\n"}),
			[]string{"build clusters/eu/kustomization.yaml:2:10"}},
		"beside nothing": {altered("  patches:\n  - target: {kind: ExecutorPool}\n    patch: '- {op: replace, path: /spec/maxRunners, value: lots}'\n", map[string]string{"clusters/eu/kustomization.yaml": "resources: [gpu.yaml]\npatches:\n"}),
			[]string{"schema flux/eu.yaml:8:5 spec.maxRunners"}},
		"two ways": {altered("  targetNamespace: a\n", map[string]string{"other/us.yaml": strings.Replace(fluxHead, "name: eu", "name: us", 1) + "  targetNamespace: b\n  patches:\n  - target: {kind: ExecutorPool}\n    patch: '- {op: replace, path: /spec/maxRunners, value: lots}'\n"}),
			[]string{"schema other/us.yaml:9:5 spec.maxRunners"}},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, test.files)
			got := places(report)
			if !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("%q, want %q: %v", got, test.want, report.Problems)
			}
		})
	}
}

// What is compared is what Flux's own code makes of a path and its Kustomization.
func TestRendersWhatFluxRenders(t *testing.T) {
	own := "resources: [gpu.yaml]\nnamePrefix: own-\nnamespace: own\nimages: [{name: example.com/runner, newTag: '1', digest: 'sha256:aa'}]\npatches: [{target: {kind: ExecutorPool}, patch: '- {op: replace, path: /spec/maxRunners, value: 3}'}]\n"
	deployment := "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {containers: [{name: c, image: example.com/runner}]}}}\n"
	component := "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches: [{target: {kind: ExecutorPool}, patch: '- {op: add, path: /spec/minRunners, value: 1}'}]\n"
	for _, kustomization := range []string{"resources: [gpu.yaml]\n", own, "Resources: [gpu.yaml]\n", "resources:\n- gpu.yaml # all\ncommonLabels: {a: b}\npatches: []\n", "resources: [gpu.yaml]\n---\n", ""} {
		for _, spec := range []string{
			"  targetNamespace: pools\n", "  namePrefix: eu-\n  nameSuffix: -x\n",
			"  patches:\n  - target: {kind: ExecutorPool, name: gpu}\n    patch: |\n      - {op: replace, path: /spec/maxRunners, value: 8}\n  - patch: |\n      apiVersion: cloop.dev/v1alpha1\n      kind: ExecutorPool\n      metadata: {name: gpu}\n      spec: {minRunners: 1}\n",
			"  patchesJson6902:\n  - target: {group: cloop.dev, version: v1alpha1, kind: ExecutorPool, name: gpu}\n    patch: [{op: replace, path: /spec/maxRunners, value: 8}]\n",
			"  patchesStrategicMerge:\n  - {apiVersion: cloop.dev/v1alpha1, kind: ExecutorPool, metadata: {name: gpu}, spec: {maxRunners: 8}}\n",
			"  components: [../../parts/more]\n", "  components: [../../parts/none]\n  ignoreMissingComponents: true\n",
			"  images: [{name: example.com/runner, newTag: '2'}, {name: other, newName: another}]\n", "  images: [{name: example.com/runner, newName: example.com/r}]\n",
			"  images: [{name: example.com/runner, digest: 'sha256:0123456789012345678901234567890123456789012345678901234567890123'}]\n",
		} {
			if kustomization == "resources: [gpu.yaml]\n---\n" && !strings.Contains(spec, "target") {
				continue // as without the line
			}
			files := altered(spec, map[string]string{"clusters/eu/kustomization.yaml": kustomization, "clusters/eu/gpu.yaml": basePool + deployment, "parts/more/kustomization.yaml": component,
				// What Flux lists where there is no kustomization.
				"clusters/eu/b/cpu.yml": named("cpu"), "clusters/eu/a/kustomization.yaml": "namePrefix: a-\nresources: [a.yaml]\n", "clusters/eu/a/a.yaml": named("a"), "clusters/eu/a.json": "{}"})
			if kustomization == "" {
				delete(files, "clusters/eu/kustomization.yaml")
			}
			dir := repo(t, files)
			renderer, err := fleet.NewRenderer(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer renderer.Close()
			if _, err := renderer.Roots(t.Context()); err != nil {
				t.Fatal(err)
			}
			ways, err := renderer.Ways(t.Context(), "clusters/eu")
			if err != nil || len(ways) != 1 {
				t.Fatal(ways, err)
			}
			rendered, err := renderer.Render(t.Context(), "clusters/eu", ways)
			if err != nil || len(rendered[0].Problems) > 0 {
				t.Fatal(rendered, err)
			}
			var got []string
			for _, o := range rendered[0].Objects {
				got = append(got, asText(t, o.Object))
			}
			if want := byFlux(t, dir, fluxHead+spec); !slices.Equal(got, want) {
				t.Errorf("with %q over %q it renders\n%s\nand Flux\n%s", spec, kustomization, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
}

func byFlux(t *testing.T, dir, text string) (objects []string) {
	t.Helper()
	var k unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &k.Object); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "clusters/eu")
	if _, err := kustomize.NewGenerator(dir, k).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	out, err := kustomize.SecureBuild(dir, path, false)
	if err != nil {
		data, _ := os.ReadFile(filepath.Join(path, "kustomization.yaml"))
		t.Fatalf("%v of\n%s", err, data)
	}
	for _, resource := range out.Resources() {
		data, err := resource.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var object unstructured.Unstructured
		if err := object.UnmarshalJSON(data); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, asText(t, &object))
	}
	return objects
}

func asText(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	text, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
