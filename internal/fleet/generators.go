package fleet

import (
	"path"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/schemas"
)

// generators adds what the built-in generators make, each at its entry, and what
// they take in.
func (s *scan) generators(dir, file string, document *yaml.Node) error {
	for _, kind := range []string{"ConfigMap", "Secret"} {
		field := strings.ToLower(kind[:1]) + kind[1:] + "Generator"
		_, list := entryNamed(document, field)
		if list == nil || list.Kind != yaml.SequenceNode {
			continue
		}
		for i, made := range list.Content {
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{}}}
			for name, set := range map[string]func(string){"name": object.SetName, "namespace": object.SetNamespace} {
				if _, value := entryNamed(made, name); value != nil {
					set(value.Value)
				}
			}
			_, behavior := entryNamed(made, "behavior")
			err := s.reading(entry{file, field, i}, func() error {
				brings, err := s.taken(dir, file, made)
				if err != nil {
					return err
				}
				s.add(layer{file: file, generated: true, brings: brings, merges: behavior != nil && behavior.Value != "create", given: s.givenTo(dir, file, made),
					document: &schemas.Document{Object: object, File: file, Line: made.Line, Node: made}})
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// givenTo says where the fields of what a generator makes are written, and
// reports files that it takes in and that are not there.
func (s *scan) givenTo(dir, file string, entry *yaml.Node) map[string]placed {
	given := map[string]placed{}
	at := func(key string, node *yaml.Node) {
		given["/data/"+escape(key)] = placed{file: file, line: int32(node.Line), column: int32(node.Column)}
	}
	for _, node := range entriesOf(entry, "literals") {
		if key, _, ok := strings.Cut(node.Value, "="); ok {
			at(strings.TrimSpace(key), node)
		}
	}
	for _, node := range entriesOf(entry, "files") {
		key, name, named := strings.Cut(node.Value, "=")
		if !named {
			key, name = path.Base(node.Value), node.Value
		}
		if s.there(dir, file, name, node) {
			given["/data/"+escape(key)] = placed{file: path.Join(dir, name), line: 1, column: 1}
		}
	}
	for _, node := range append(entriesOf(entry, "envs"), entriesOf(entry, "env")...) {
		if s.there(dir, file, node.Value, node) {
			s.givenLines(path.Join(dir, node.Value), given)
		}
	}
	return given
}

// givenLines are the lines of a file with NAME=VALUE on each.
func (s *scan) givenLines(file string, given map[string]placed) {
	data, err := readBounded(s.root, file)
	if err != nil {
		return
	}
	number := int32(0)
	for line := range strings.Lines(strings.TrimPrefix(string(data), "\ufeff")) {
		number++
		text := strings.TrimLeftFunc(line, unicode.IsSpace)
		if key, _, ok := strings.Cut(text, "="); ok && !strings.HasPrefix(text, "#") {
			given["/data/"+escape(key)] = placed{file: file, line: number, column: int32(len(line) - len(text) + 1)}
		}
	}
}

// entriesOf are the texts of a list, or the one that a field is.
func entriesOf(of *yaml.Node, field string) []*yaml.Node {
	_, value := entryNamed(of, field)
	switch {
	case value == nil:
		return nil
	case value.Kind == yaml.SequenceNode:
		return value.Content
	case value.Kind == yaml.ScalarNode && value.ShortTag() == "!!str":
		return []*yaml.Node{value}
	}
	return nil
}

// configured looks at the files that configure kustomize, and reports those that are
// not there.
func (s *scan) configured(dir, file string, document *yaml.Node) error {
	look := func(nodes []*yaml.Node, at func(dir, file string, entry *yaml.Node) error) error {
		for _, node := range nodes {
			if !s.there(dir, file, node.Value, node) || s.configuring[path.Join(dir, node.Value)] {
				continue
			}
			if s.configuring == nil {
				s.configuring = map[string]bool{}
			}
			s.configuring[path.Join(dir, node.Value)] = true
			if err := at(dir, file, node); err != nil {
				return err
			}
		}
		return nil
	}
	var schema []*yaml.Node
	if _, openapi := entryNamed(document, "openapi"); openapi != nil {
		schema = entriesOf(openapi, "path")
	}
	if err := look(schema, s.openAPI); err != nil {
		return err
	}
	if err := look(entriesOf(document, "configurations"), s.configuration); err != nil {
		return err
	}
	return look(entriesOf(document, "crds"), s.described)
}

// there says whether a file is in the repository, and reports it where it is not.
func (s *scan) there(dir, file, name string, node *yaml.Node) bool {
	if name == "" || remote.MatchString(name) {
		return false
	}
	info, err := s.root.Stat(path.Join(dir, name))
	if err == nil {
		if err = s.gate.leftOut(path.Join(dir, name), false); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	if err == nil {
		err = errNoFile
	}
	s.missing(file, node, err)
	return false
}
