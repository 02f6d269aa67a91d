package fleet_test

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/kustomize"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/internal/fleet"
)

// quietly runs and returns what was written to the process's standard error.
func quietly(t *testing.T, run func()) string {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan string)
	go func() {
		data, _ := io.ReadAll(read)
		said <- string(data)
	}()
	defer func(stderr *os.File) { os.Stderr = stderr }(os.Stderr)
	os.Stderr = write
	run()
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	return <-said
}

// Fields that kustomize deprecates render what Flux renders, and kustomize does
// not say so on the standard error of hub and controllers.
func TestDeprecatedFieldsAreRenderedQuietly(t *testing.T) {
	base := func(lines ...string) map[string]string {
		return with(patched(3), map[string]string{
			"eu/kustomization.yaml": kustomization(lines...),
			"eu/both.yaml":          patched(3)["eu/pool-0001.yaml"] + "---\n" + patched(3)["eu/pool-0002.yaml"],
			"eu/p.json":             `[{"op": "add", "path": "/spec/minRunners", "value": 2}, {"op": "add", "path": "/metadata/labels/x", "value": "y"}]`,
		})
	}
	const target = "target: {group: cloop.dev, version: v1alpha1, kind: ExecutorPool, name: "
	for name, test := range map[string]struct {
		files map[string]string
		loud  bool
	}{
		"bases":                      {base("bases: [../base]"), false},
		"common labels":              {base("resources: [../base]", "labels: [{pairs: {c: d}}]", "commonLabels: {a: b}"), false},
		"strategic merge":            {base("resources: [../base]", "namespace: eu", "namePrefix: x-", "patches: [{path: pool-0001.yaml}]", "patchesStrategicMerge:", "- both.yaml", "- '{\"apiVersion\": \"cloop.dev/v1alpha1\", \"kind\": \"ExecutorPool\", \"metadata\": {\"name\": \"pool-0000\"}, \"spec\": {\"minRunners\": 1}}'"), false},
		"JSON patches":               {base("resources: [../base]", "namespace: eu", "namePrefix: x-", "commonLabels: {a: b}", "patchesJson6902:", "- {"+target+"pool-0000}, path: p.json}", "- {"+target+"pool-0001}, patch: '[{\"op\": \"add\", \"path\": \"/spec/minRunners\", \"value\": 1}]'}"), false},
		"image tags":                 {base("resources: [../base]", "imageTags: [{name: a, newTag: b}]"), false},
		"a label twice":              {base("resources: [../base]", "labels: [{pairs: {a: c}}]", "commonLabels: {a: b}"), true},
		"a patch that deletes":       {base("resources: [../base]", "patchesStrategicMerge:", "- '{\"apiVersion\": \"cloop.dev/v1alpha1\", \"kind\": \"ExecutorPool\", \"metadata\": {\"name\": \"pool-0000\"}, \"$patch\": \"delete\"}'"), true},
		"JSON patches before images": {base("resources: [../base]", "images: [{name: a, newTag: b}]", "commonLabels: {a: b}", "patchesJson6902:", "- {"+target+"pool-0000}, path: p.json}"), true},
		"an error":                   {base("resources: [../base]", "patchesStrategicMerge:", "- '{\"apiVersion\": \"cloop.dev/v1alpha1\", \"kind\": \"ExecutorPool\", \"metadata\": {\"name\": \"nobody\"}}'"), true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repo(t, test.files)
			var rendered []fleet.Rendered
			var err error
			said := quietly(t, func() { rendered, err = fleet.Build(t.Context(), dir, "eu") })
			if strings.Contains(said, "deprecated") != test.loud {
				t.Errorf("it says on standard error: %q", said)
			}
			var want []map[string]any
			_ = quietly(t, func() { want = asFlux(t, dir) })
			if (err != nil) != (want == nil) {
				t.Fatalf("the error is %v, Flux renders %v", err, want)
			}
			var got []map[string]any
			for _, r := range rendered {
				got = append(got, r.Object.Object)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("rendered\n%v\nFlux\n%v", got, want)
			}
		})
	}
}

// asFlux is what Flux renders of eu; nil where it refuses to.
func asFlux(t *testing.T, dir string) (objects []map[string]any) {
	t.Helper()
	resources, err := kustomize.SecureBuild(dir, filepath.Join(dir, "eu"), false)
	if err != nil {
		return nil
	}
	for _, resource := range resources.Resources() {
		data, err := resource.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var obj unstructured.Unstructured
		if err := obj.UnmarshalJSON(data); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, obj.Object)
	}
	return objects
}
