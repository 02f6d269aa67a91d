package schemas_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster/clustertest"
	"cloop.dev/cloop/schemas"
	"cloop.dev/cloop/schemas/schemastest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// A real API server gives the same verdict, path for path and word for word, and
// fills in the same defaults, on every document of the corpus and on changes of
// each field of the whole manifests.
func TestVerdictIsTheServers(t *testing.T) {
	server := newBench(t)
	var trials []trial
	for _, one := range corpusAndChanges(t) {
		trials = append(trials, trial{name: one.File, object: one.Object})
	}
	server.compare(t, trials)
}

// corpusAndChanges are the documents of the corpus and the systematic changes to
// its whole manifests: a third of them at a time, because random documents are
// tried as well, and all of them with CLOOP_CASES.
func corpusAndChanges(t *testing.T) []schemastest.Case {
	t.Helper()
	all := schemastest.Corpus(t, "testdata")
	every := uint64(3)
	if times(t) > 1 {
		every = 1
	}
	first := newSeed(t) % every
	for i, one := range schemastest.Variants(t, "testdata") {
		if uint64(i)%every == first {
			all = append(all, schemastest.Case{File: fmt.Sprintf("change %d to %s", i, one.File), Object: one.Object})
		}
	}
	return all
}

// The manifests of the guide and the smallest ones apply as they stand, as
// `kubectl apply --server-side` does it, and come back with their values.
func TestWholeManifestsApply(t *testing.T) {
	server := newBench(t)
	files, err := filepath.Glob("testdata/documents/whole/good-*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d manifests, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			documents, problems := schemas.Decode(file, data)
			if len(documents) != 1 || len(problems) > 0 {
				t.Fatalf("%d documents, %v", len(documents), problems)
			}
			object := documents[0].Object
			object.SetNamespace(server.namespace)
			resource := server.client.Resource(v1alpha1.GroupVersion.WithResource(strings.ToLower(object.GetKind()) + "s")).Namespace(server.namespace)
			patch, err := object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			force := true
			have, err := resource.Patch(context.Background(), object.GetName(), types.ApplyPatchType, patch,
				metav1.PatchOptions{FieldManager: "test", Force: &force, FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Fatal(err)
			}
			if missing := lacks(object.Object["spec"], have.Object["spec"], "spec"); missing != "" {
				t.Errorf("%s did not come back as it was written: %v", missing, have.Object)
			}
		})
	}
}

// lacks names a field of want that have has not, or has otherwise.
func lacks(want, have any, path string) string {
	wanted, isObject := want.(map[string]any)
	if !isObject {
		if cmp.Equal(want, have) {
			return ""
		}
		return path
	}
	got, _ := have.(map[string]any)
	for name, value := range wanted {
		if missing := lacks(value, got[name], path+"."+name); missing != "" {
			return missing
		}
	}
	return ""
}
