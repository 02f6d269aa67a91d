package schemas

import (
	"bytes"
	"embed"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/apis/v1alpha1"
)

//go:embed crds/*.yaml
var crdFiles embed.FS

// crdFile says where a kind's definition is, so that a caller who meets one
// kind does not pay for reading the others.
var crdFile = map[string]string{
	v1alpha1.ExecutorPoolKind: "crds/cloop.dev_executorpools.yaml",
	v1alpha1.HubPoolKind:      "crds/cloop.dev_hubpools.yaml",
	v1alpha1.PoolSyncKind:     "crds/cloop.dev_poolsyncs.yaml",
}

// kinds in the order in which they are printed.
var kinds = []string{v1alpha1.ExecutorPoolKind, v1alpha1.HubPoolKind, v1alpha1.PoolSyncKind}

// CRDs returns the CustomResourceDefinitions of every kind, freshly decoded.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	definitions := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(kinds))
	for _, kind := range kinds {
		definition, err := loadCRD(kind)
		if err != nil {
			return nil, err
		}
		definitions = append(definitions, definition)
	}
	return definitions, nil
}

// CRDYAML returns the definitions as one YAML stream, ready for kubectl apply.
func CRDYAML() []byte {
	var stream bytes.Buffer
	for i, kind := range kinds {
		if i > 0 {
			stream.WriteString("---\n")
		}
		stream.Write(readCRD(kind))
	}
	return stream.Bytes()
}

func readCRD(kind string) []byte {
	data, err := crdFiles.ReadFile(crdFile[kind])
	if err != nil {
		// The files are compiled in; only a wrong name in crdFile gets here.
		panic(fmt.Sprintf("read the embedded definition of %s: %v", kind, err))
	}
	return data
}

func loadCRD(kind string) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(readCRD(kind), definition); err != nil {
		return nil, fmt.Errorf("decode the embedded definition of %s: %w", kind, err)
	}
	return definition, nil
}
