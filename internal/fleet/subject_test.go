package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
)

// A fault of a base is one problem, and each overlay that shows it says so.
func TestSubjectsSayWhereAProblemShows(t *testing.T) {
	report := check(t, with(sound(), map[string]string{
		"pools/base/gpu.yaml":                strings.Replace(basePool, "https://", "http://", 1),
		"clusters/us/kustomization.yaml":     "namespace: us\nresources: [../../pools/base]\n",
		"clusters/us-two/kustomization.yaml": "namespace: us\nresources: [../../pools/base]\npatches: [{path: p.yaml}]\n",
		"clusters/us-two/p.yaml":             "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: gpu}\nspec: {foo: 1}\n",
		"clusters/broken/kustomization.yaml": "resources: [nowhere.yaml]\n",
	}))
	var got []string
	for _, s := range report.Subjects {
		text := fmt.Sprintf("%s: %s (pool %s) at %s:%d:", s.Root, s.Object, s.Pool, s.File, s.Line)
		for _, i := range s.Problems {
			text += " " + report.Problems[i].Rule
		}
		got = append(got, text)
	}
	want := []string{
		"clusters/broken:  (pool ) at clusters/broken/kustomization.yaml:1: missing-reference",
		"clusters/eu: ExecutorPool cloop-gpu/gpu (pool gpu) at pools/base/gpu.yaml:2: cel",
		"clusters/us: ExecutorPool us/gpu (pool gpu) at pools/base/gpu.yaml:2: cel",
		"clusters/us-two: ExecutorPool us/gpu (pool gpu) at pools/base/gpu.yaml:2: unknown-field cel",
		"hub: HubPool fleet/gpu (pool gpu) at hub/gpu.yaml:1:",
	}
	if !slices.Equal(got, want) {
		t.Errorf("subjects\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(report.Problems) != 3 {
		t.Errorf("problems %v, want the base's once", report.Problems)
	}
}

// The same repository gives the same report, to the byte.
func TestCheckIsDeterministic(t *testing.T) {
	files := with(sound(), map[string]string{
		"hub/gpu.yaml":                   hubPool + "---\n" + strings.Replace(hubPool, "name: gpu", "name: cpu", 1) + "---\n" + strings.Replace(hubPool, "name: gpu", "name: tpu", 1),
		"pools/base/gpu.yaml":            strings.Replace(basePool, "https://", "http://", 1),
		"clusters/us/kustomization.yaml": "namespace: us\nresources: [../../pools/base]\n",
	})
	var first *fleet.Report
	for range 5 {
		report := check(t, files)
		if first == nil {
			first = report
		} else if fmt.Sprintf("%+v", report) != fmt.Sprintf("%+v", first) {
			t.Fatalf("reported\n%+v\nand then\n%+v", first, report)
		}
	}
}
