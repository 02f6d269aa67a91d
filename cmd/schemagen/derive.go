package main

import apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

// derive adds to files what other tools than Kubernetes read, made from the
// sources alone: path in the repository → content.
func derive(files map[string][]byte, crds []*apiextensionsv1.CustomResourceDefinition, loaded *sources) error {
	if err := jsonSchemas(files, crds, loaded.hints); err != nil {
		return err
	}
	if err := cuePackages(files, crds); err != nil {
		return err
	}
	return kustomizeFiles(files, crds, &loaded.kustomize)
}

// jsonSchemas adds a schema for editors for each kind and version, and one for
// a document of any kind in the newest version.
func jsonSchemas(files map[string][]byte, crds []*apiextensionsv1.CustomResourceDefinition, hints map[string]string) error {
	const folder = "schemas/jsonschema/"
	newest := map[string]string{}
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			text, err := renderJSONSchema(crd, version, hints)
			if err != nil {
				return err
			}
			file := jsonSchemaFile(crd, version.Name)
			files[folder+file] = text
			if version.Storage {
				newest[crd.Spec.Names.Kind] = file
			}
		}
	}
	text, err := renderAnyKind(crds[0].Spec.Group, newest)
	files[folder+"cloop.json"] = text
	return err
}
