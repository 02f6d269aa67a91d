package fleet

import (
	"errors"
	"path"

	"go.yaml.in/yaml/v3"
)

// transformerFile is what is needed of the configuration of a transformer that is
// built into kustomize.
type transformerFile struct {
	Kind    string      `yaml:"kind"`
	Path    yaml.Node   `yaml:"path"`
	Patch   yaml.Node   `yaml:"patch"`
	JSONOp  yaml.Node   `yaml:"jsonOp"`
	Paths   []yaml.Node `yaml:"paths"`
	Patches yaml.Node   `yaml:"patches"`
	Target  *target     `yaml:"target"`
}

// transformer adds what a transformer that stands in a file of its own, or in the
// text of a kustomization, changes about objects. Its nodes have their places in
// the file, with the indentation of blocks as indentBlocks has it.
func (s *scan) transformer(dir, file string, document *yaml.Node) error {
	var t transformerFile
	if document.Decode(&t) != nil {
		// What cannot be read is kustomize's to report: here it sets nothing.
		return nil //nolint:nilerr // see above
	}
	fields := map[string]position{}
	switch t.Kind {
	case "PatchTransformer", "PatchJson6902Transformer", "PatchStrategicMergeTransformer":
		for _, text := range []*yaml.Node{&t.Patch, &t.JSONOp, &t.Patches} {
			if text.Kind == yaml.ScalarNode && text.Value != "" {
				s.patch(file, []byte(text.Value), inside(text), t.Target)
			}
		}
		for _, entry := range append(t.Paths, t.Path) {
			if err := s.transformerPatch(dir, entry.Value, t.Target); err != nil {
				return err
			}
		}
	case "LabelTransformer":
		s.pairs(document, "labels", "/metadata/labels/", fields)
	case "AnnotationsTransformer":
		s.pairs(document, "annotations", "/metadata/annotations/", fields)
	case "ReplacementTransformer":
		if _, list := entryNamed(document, "replacements"); list != nil && list.Kind == yaml.SequenceNode {
			s.replacements(file, list)
		}
	}
	if len(fields) > 0 {
		s.add(layer{file: file, patch: true, fields: fields})
	}
	return nil
}

// transformerPatch adds a patch in a file; kustomize reports one that is not there.
func (s *scan) transformerPatch(dir, name string, selected *target) error {
	if name == "" {
		return nil
	}
	name = path.Join(dir, name)
	data, err := s.read(name)
	switch {
	case errors.Is(err, errBounds):
		return err
	case err == nil:
		s.patch(name, data, position{}, selected)
	}
	return nil
}
