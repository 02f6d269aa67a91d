package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// What a replacement takes is put where it was written last, whether it goes to a text
// or to a number, which kustomize refuses.
func TestWhatAReplacementTakesIsPutWhereItIsWrittenLast(t *testing.T) {
	const local = "  options: {annotations: {config.kubernetes.io/local-config: 'true'}}\n"
	replacement := func(source, field string) string {
		return "replacements:\n- " + source + "\n  targets: [{select: {kind: ExecutorPool, name: gpu}, fieldPaths: [" + field + "]}]\n"
	}
	const annotation, entry = "source: {kind: ExecutorPool, name: other, fieldPath: metadata.annotations.max}", "source: {kind: ConfigMap, name: s, fieldPath: data.m}"
	const merged = "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata:\n  name: other\n  annotations:\n    max: 3q\n"
	over := func(resource, more string) string { return "resources: [" + resource + "]\n" + more }
	for name, test := range map[string]struct {
		// overlay is the kustomization's text before the replacement.
		overlay, source string
		changes         map[string]string
		want            string
	}{
		"the base":              {over("../../base", ""), annotation, map[string]string{"base/other.yaml": "3q"}, "base/other.yaml:7:5"},
		"a JSON patch":          {over("../../base", "patches:\n- target: {name: other}\n  patch: |-\n    - op: replace\n      path: /metadata/annotations/max\n      value: 3q\n"), annotation, nil, "clusters/eu/kustomization.yaml:5:7"},
		"a merge patch":         {over("../../base", "patches: [{path: p.yaml}]\n"), annotation, map[string]string{"clusters/eu/p.yaml": merged}, "clusters/eu/p.yaml:6:5"},
		"an annotation it adds": {over("../../base", "patches: [{path: p.yaml}]\n"), strings.Replace(annotation, "annotations.max", "annotations.new", 1), map[string]string{"clusters/eu/p.yaml": strings.Replace(merged, "max:", "new:", 1)}, "clusters/eu/p.yaml:6:5"},
		"an overlay between":    {over("../../middle", ""), annotation, map[string]string{"middle/kustomization.yaml": over("../base", "patches: [{path: p.yaml}]\n"), "middle/p.yaml": merged}, "middle/p.yaml:6:5"},
		"a component": {over("../../base", "components: [../../c]\n"), annotation, map[string]string{"c/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches: [{path: p.yaml}]\n", "c/p.yaml": merged},
			"c/p.yaml:6:5"},
		"all annotations": {over("../../base", "commonAnnotations:\n  max: 3q\n"), annotation, nil, "clusters/eu/kustomization.yaml:3:3"},
		"another replacement": {over("../../base", "replacements:\n- source: {kind: ExecutorPool, name: other, fieldPath: metadata.annotations.first}\n  targets: [{select: {name: other}, fieldPaths: [metadata.annotations.max]}]\n"),
			annotation, map[string]string{"base/other.yaml": "'3'\n    first: 3q"}, "base/other.yaml:8:5"},
		"a value of its own":     {over("../../base", ""), "sourceValue: 3q", nil, "clusters/eu/kustomization.yaml:3:16"},
		"a literal":              {over("../../base", "configMapGenerator:\n- name: s\n  literals: [m=3q]\n"+local), entry, nil, "clusters/eu/kustomization.yaml:4:14"},
		"a file":                 {over("../../base", "configMapGenerator:\n- name: s\n  files: [m=m.txt]\n"+local), entry, map[string]string{"clusters/eu/m.txt": "3q"}, "clusters/eu/m.txt:1:1"},
		"a line of a file":       {over("../../base", "configMapGenerator:\n- name: s\n  envs: [m.env]\n"+local), entry, map[string]string{"clusters/eu/m.env": "# m=4\na=b\n  m=3q\n"}, "clusters/eu/m.env:3:3"},
		"a literal over another": {over("../../generated", "configMapGenerator:\n- name: s\n  behavior: merge\n  literals: [m=3q]\n"), entry, nil, "clusters/eu/kustomization.yaml:5:14"},
		"a literal beside another": {over("../../generated", "configMapGenerator:\n- name: s\n  behavior: merge\n  literals: [m=3q]\n"), strings.Replace(entry, "data.m", "data.n", 1), map[string]string{"generated/kustomization.yaml": over("../base", "configMapGenerator:\n- name: s\n  literals: [m=4, n=3q]\n"+local)},
			"generated/kustomization.yaml:4:19"},
		"a literal that is merged in": {over("../../generated", "configMapGenerator:\n- name: s\n  behavior: merge\n  literals: [n=3q]\n"), strings.Replace(entry, "data.m", "data.n", 1), nil, "clusters/eu/kustomization.yaml:5:14"},
	} {
		for _, field := range []string{"spec.maxRunners", "spec.scaleDownDelay"} {
			t.Run(name+" into "+field, func(t *testing.T) {
				files := with(map[string]string{
					"base/kustomization.yaml": "resources: [gpu.yaml, other.yaml]\n", "base/gpu.yaml": basePool + "  scaleDownDelay: 5m\n",
					"generated/kustomization.yaml": over("../base", "configMapGenerator:\n- name: s\n  literals: [m=4]\n"+local),
					"hub/gpu.yaml":                 hubPool + "---\n" + strings.Replace(hubPool, "name: gpu", "name: other", 1),
				}, test.changes)
				value, changed := test.changes["base/other.yaml"]
				if !changed {
					value = "'3'"
				}
				files["base/other.yaml"] = strings.Replace(basePool, "metadata:\n  name: gpu\n", "metadata:\n  name: other\n  annotations:\n    max: "+value+"\n", 1)
				text := replacement(test.source, field)
				if strings.Contains(test.overlay, "replacements:") {
					text = strings.TrimPrefix(text, "replacements:\n")
				}
				files["clusters/eu/kustomization.yaml"] = test.overlay + text
				if !strings.HasPrefix(test.overlay, "resources: [../../generated") {
					delete(files, "generated/kustomization.yaml")
				}
				var got []string
				report := check(t, files)
				for _, p := range report.Problems {
					got = append(got, fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column))
				}
				if !slices.Equal(got, []string{test.want}) {
					t.Errorf("%v, want %s: %v", got, test.want, report.Problems)
				}
			})
		}
	}
}
