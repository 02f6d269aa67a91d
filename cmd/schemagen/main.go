package main

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func main() {
	root := flag.String("C", ".", "folder of the repository")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := write(filepath.Join(root, name), files[name]); err != nil {
			return err
		}
	}
	return nil
}

// generate returns every generated file, by its path in the repository.
func generate(root string) (map[string][]byte, error) {
	loaded, err := loadSources(filepath.Join(root, "schemas"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	plurals := slices.Sorted(maps.Keys(loaded.definitions))
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, plural := range plurals {
		crd, err := typed(plural, loaded.definitions[plural])
		if err != nil {
			return nil, err
		}
		crds = append(crds, crd)
		text, err := renderCRD(loaded.definitions[plural])
		if err != nil {
			return nil, err
		}
		files["schemas/crds/"+crdFile(plural)] = text
		files["kustomize/crd/"+crdFile(plural)] = text
		files["docs/reference/"+crd.Spec.Names.Singular+".md"] = renderReference(crd, loaded.places)
	}
	files["kustomize/crd/kustomization.yaml"] = renderKustomization(plurals)
	if files["schemas/crds/hints.json"], err = renderHints(loaded); err != nil {
		return nil, err
	}
	if err := derive(files, crds, loaded); err != nil {
		return nil, err
	}
	return files, nil
}

func crdFile(plural string) string { return "cloop.dev_" + plural + ".yaml" }

// write leaves a file alone that is current, so that its time says when its
// content changed.
func write(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && slices.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of %s: %w", path, err)
	}
	const readable fs.FileMode = 0o644
	if err := os.WriteFile(path, data, readable); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
