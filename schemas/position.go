package schemas

import (
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// Position says where a field is written: for a mapping's entry its key, for a
// sequence's element the element. The path is a JSON pointer (RFC 6901), and
// for a field that is not written its nearest ancestor counts. Both are counted
// from 1; the column is 1 where the document's nodes are unknown.
func (d *Document) Position(path string) (line, column int) {
	at := d.root()
	node := d.Node
	for _, token := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		if node == nil || path == "" {
			break
		}
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		key, value := child(node, token)
		if value == nil {
			break
		}
		at, node = key, value
	}
	return max(at.Line, 1), max(at.Column, 1)
}

// positionOf is Position for a path as the API server prints it. Such a path
// is ambiguous (a map's keys may have dots, and are printed after a dot by the
// structural check and in brackets by the others), so the nodes decide.
func (d *Document) positionOf(path string) (line, column int) {
	at := d.root()
	node, rest := d.Node, path
	for node != nil && rest != "" {
		key, value, remaining := step(node, rest)
		if value == nil {
			break
		}
		at, node, rest = key, value, remaining
	}
	return max(at.Line, 1), max(at.Column, 1)
}

func (d *Document) root() *yamlv3.Node {
	if d.Node == nil {
		return &yamlv3.Node{Line: d.Line}
	}
	return d.Node
}

// step finds the entry of node that a printed path goes into, the longest key
// that fits, and what of the path remains.
func step(node *yamlv3.Node, path string) (key, value *yamlv3.Node, rest string) {
	path = strings.TrimPrefix(path, ".")
	if inner, ok := strings.CutPrefix(path, "["); ok {
		if index, after, ok := strings.Cut(inner, "]"); ok {
			if key, value := child(node, index); value != nil {
				return key, value, after
			}
		}
		path = inner
	}
	best := -1
	eachEntry(node, maxMergeDepth, func(k, v *yamlv3.Node) {
		after, ok := strings.CutPrefix(path, k.Value)
		if !ok || len(k.Value) <= best || after != "" && !strings.ContainsAny(after[:1], ".[]") {
			return
		}
		best = len(k.Value)
		key, value, rest = k, v, strings.TrimPrefix(after, "]")
	})
	return key, value, rest
}

// child finds a mapping's entry or a sequence's element.
func child(node *yamlv3.Node, token string) (key, value *yamlv3.Node) {
	node = follow(node)
	if node.Kind == yamlv3.SequenceNode {
		index, err := strconv.Atoi(token)
		if err != nil || index < 0 || index >= len(node.Content) {
			return nil, nil
		}
		return node.Content[index], node.Content[index]
	}
	eachEntry(node, maxMergeDepth, func(k, v *yamlv3.Node) {
		if key == nil && k.Value == token {
			key, value = k, v
		}
	})
	return key, value
}

// maxMergeDepth bounds how far merge keys are followed, which might otherwise
// go round in circles.
const maxMergeDepth = 8

// eachEntry visits a mapping's own entries, then those that it merges.
func eachEntry(node *yamlv3.Node, depth int, visit func(key, value *yamlv3.Node)) {
	node = follow(node)
	if node.Kind != yamlv3.MappingNode || depth == 0 {
		return
	}
	var merged []*yamlv3.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Tag == "!!merge" {
			merged = append(merged, node.Content[i+1])
			continue
		}
		visit(node.Content[i], node.Content[i+1])
	}
	for _, source := range merged {
		if source = follow(source); source.Kind == yamlv3.SequenceNode {
			for _, one := range source.Content {
				eachEntry(one, depth-1, visit)
			}
			continue
		}
		eachEntry(source, depth-1, visit)
	}
}

func follow(node *yamlv3.Node) *yamlv3.Node {
	if node.Kind == yamlv3.AliasNode && node.Alias != nil {
		return node.Alias
	}
	return node
}
