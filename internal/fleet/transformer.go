package fleet

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"

	"go.yaml.in/yaml/v3"
)

func (s *scan) plugins(ctx context.Context, dir, file, field string, list []yaml.Node, depth int) error {
	for i := range list {
		if err := s.reading(entry{file, field, i}, func() error { return s.plugin(ctx, dir, file, &list[i], depth) }); err != nil {
			return err
		}
	}
	return nil
}

// plugin scans one generator, transformer or validator: a file, a directory or
// its text. A plugin's configuration may have kustomize load any text in it.
func (s *scan) plugin(ctx context.Context, dir, file string, entry *yaml.Node, depth int) error {
	name := path.Join(dir, entry.Value)
	info, err := s.root.Stat(name)
	if err == nil && info.IsDir() {
		before, spans := len(s.layers), maps.Clone(s.spans)
		err := s.resource(ctx, dir, file, entry, depth, false)
		added := slices.Clone(s.layers[before:])
		s.layers, s.spans = s.layers[:before], spans
		for name, layers := range s.byName {
			s.byName[name] = slices.DeleteFunc(layers, func(i int) bool { return i >= before })
		}
		for i := 0; i < len(added) && err == nil; i++ {
			if of := added[i].whole(); of != nil && of.Node != nil {
				s.refuseRemote(added[i].file, of.Node, true)
				if err = s.plugged(dir, added[i].file, of.Node); err == nil {
					err = s.transformer(dir, added[i].file, of.Node)
				}
			}
		}
		return err
	}
	text, at := []byte(entry.Value), inside(entry)
	if err == nil {
		at = position{}
		if text, err = s.read(name); err != nil {
			return s.unreadable(file, entry, err)
		}
		file = name
	}
	lines := bytes.Split(text, []byte("\n"))
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		if decoder.Decode(&document) != nil {
			// The end, or text that kustomize cannot read either.
			return nil //nolint:nilerr // an entry that names no file is the plugin's text itself
		}
		if len(document.Content) == 1 && document.Content[0].Kind != yaml.MappingNode {
			// Neither a file nor the plugin's text: kustomize would look elsewhere.
			s.missing(file, entry, fs.ErrNotExist)
			return nil
		}
		indentBlocks(&document, lines)
		at.move(&document)
		s.twice(file, &document)
		s.refuseRemote(file, &document, true)
		s.growth.find(&document, 0)
		s.growth.added += int64(len(text)) * int64(s.objects())
		if err := s.plugged(dir, file, &document); err != nil {
			return err
		}
		if err := s.transformer(dir, file, &document); err != nil {
			return err
		}
	}
}

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
				if err := s.patch(file, []byte(text.Value), inside(text), t.Target); err != nil {
					return err
				}
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
		return s.patch(name, data, position{}, selected)
	}
	return nil
}
