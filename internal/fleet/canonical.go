package fleet

import (
	"reflect"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/types"
)

// plainly rewrites a kustomization that was read to say in one way what may be said
// in several: kustomize takes the names of fields in any case, and aliases and merges
// for what they stand for. Whoever looks only for the plain form would let kustomize
// read what was never looked at. It says whether a field had another name.
func plainly(document *yaml.Node) (renamed bool) {
	for _, top := range document.Content {
		renamed = plainNode(top, reflect.TypeFor[types.Kustomization](), 0) || renamed
	}
	return renamed
}

func plainNode(node *yaml.Node, t reflect.Type, depth int) (renamed bool) {
	if depth > maxDepth {
		return false
	}
	for i, child := range node.Content {
		if child.Kind == yaml.AliasNode && child.Alias != nil {
			node.Content[i] = child.Alias
		}
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if node.Kind != yaml.MappingNode {
		var of reflect.Type
		if t != nil && t.Kind() == reflect.Slice {
			of = t.Elem()
		}
		for _, child := range node.Content {
			renamed = plainNode(child, of, depth+1) || renamed
		}
		return renamed
	}
	withoutMerges(node)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, of := node.Content[i], reflect.Type(nil)
		switch {
		case t != nil && t.Kind() == reflect.Struct:
			if field, ok := jsonField(t, key.Value); ok {
				of = field.kind
				if field.name != key.Value {
					// The key may stand in several places.
					other := *key
					other.Value = field.name
					node.Content[i], renamed = &other, true
				}
			}
		case t != nil && t.Kind() == reflect.Map:
			of = t.Elem()
		}
		renamed = plainNode(node.Content[i+1], of, depth+1) || renamed
	}
	return renamed
}

// withoutMerges writes out what a mapping merges: its own keys come first, then those
// of what is merged, the first of each name.
func withoutMerges(node *yaml.Node) {
	var merged []*yaml.Node
	own := make([]*yaml.Node, 0, len(node.Content))
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Tag != "!!merge" {
			own = append(own, node.Content[i], node.Content[i+1])
			continue
		}
		merged = append(merged, node.Content[i+1])
	}
	if len(merged) == 0 {
		return
	}
	has := map[string]bool{}
	for i := 0; i < len(own); i += 2 {
		has[own[i].Value] = true
	}
	for len(merged) > 0 {
		next := merged[0]
		merged = merged[1:]
		if next.Kind == yaml.AliasNode && next.Alias != nil {
			next = next.Alias
		}
		if next.Kind == yaml.SequenceNode {
			merged = append(append([]*yaml.Node{}, next.Content...), merged...)
			continue
		}
		if next.Kind != yaml.MappingNode {
			continue
		}
		withoutMerges(next)
		for i := 0; i+1 < len(next.Content); i += 2 {
			if name := next.Content[i].Value; !has[name] {
				has[name] = true
				own = append(own, next.Content[i], next.Content[i+1])
			}
		}
	}
	node.Content = own
}
