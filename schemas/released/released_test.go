package released_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/schemas"
	"cloop.dev/cloop/schemas/released"
)

// exception is a break that was decided on.
type exception struct {
	// Break is released.Break's ID.
	Break string `json:"break"`
	// Reason says why nobody is hurt, or what they have to do.
	Reason string `json:"reason"`
}

// What was good with the last release's definitions is good with these, means
// the same and keeps every field, but for what exceptions.yaml gives a reason for.
func TestNothingReleasedBreaks(t *testing.T) {
	folder := newest(t)
	current, err := schemas.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	exceptions := readExceptions(t)
	used := map[string]bool{}
	for _, one := range released.Breaks(readDefinitions(t, folder), current) {
		if _, ok := exceptions[one.ID()]; ok {
			used[one.ID()] = true
			continue
		}
		t.Errorf("since %s: %s\n\tundo it, serve it in a new version, or give a reason in schemas/released/exceptions.yaml (CONTRIBUTING.md)", folder, one)
	}
	for id := range exceptions {
		if !used[id] {
			t.Errorf("exceptions.yaml excuses %q, which is no break of %s: remove it", id, folder)
		}
	}
}

func readExceptions(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("exceptions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []exception
	if err := yaml.UnmarshalStrict(data, &all); err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for _, one := range all {
		if one.Break == "" || one.Reason == "" {
			t.Errorf("exceptions.yaml: %+v needs both its words", one)
		}
		reasons[one.Break] = one.Reason
	}
	return reasons
}

// newest is the folder of the last release.
func newest(t *testing.T) string {
	t.Helper()
	folders, err := filepath.Glob("v*")
	if err != nil || len(folders) == 0 {
		t.Fatalf("no release is kept: %v", err)
	}
	return slices.MaxFunc(folders, func(a, b string) int {
		order, err := version.MustParseSemantic(a).Compare(b)
		if err != nil {
			t.Fatal(err)
		}
		return order
	})
}

func readDefinitions(t *testing.T, folder string) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions in %s: %v", folder, err)
	}
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, definition); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, definition)
	}
	return all
}
