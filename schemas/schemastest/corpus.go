package schemastest

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

// Case is an object of the corpus, or one made of it.
type Case struct {
	// File that the object is in, or was made from.
	File   string
	Object *unstructured.Unstructured
}

// Corpus reads the objects of the cloop.dev kinds that lie under folder, which
// is schemas/testdata as the test sees it. Documents that no object comes of
// are left out.
func Corpus(t testing.TB, folder string) []Case {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "documents", "*", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus under %s: %v", folder, err)
	}
	var all []Case
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents, _ := schemas.Decode(file, data)
		for _, document := range documents {
			if known(document.Object) {
				all = append(all, Case{File: file, Object: document.Object})
			}
		}
	}
	return all
}

// Variants are the corpus and each change of one field to its whole manifests.
func Variants(t testing.TB, folder string) []Case {
	t.Helper()
	var all []Case
	for _, one := range Corpus(t, folder) {
		all = append(all, one)
		if filepath.Base(filepath.Dir(one.File)) == "whole" {
			for _, changed := range Mutations(one.Object) {
				all = append(all, Case{File: one.File, Object: changed})
			}
		}
	}
	return all
}

func known(object *unstructured.Unstructured) bool {
	gvk := object.GroupVersionKind()
	if gvk.GroupVersion() != v1alpha1.GroupVersion {
		return false
	}
	switch gvk.Kind {
	case v1alpha1.ExecutorPoolKind, v1alpha1.HubPoolKind, v1alpha1.PoolSyncKind:
		return true
	}
	return false
}
