package fleet

import (
	"encoding/json"
	"path"
	"slices"

	"go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/yaml"
)

// resource cuts a file of several documents into those.
func (d *steps) resource(it *item) {
	of := d.layers[it.entry()]
	for _, number := range of {
		l := &d.scan.layers[number]
		if !l.resource() {
			break
		}
		// What is read a second time has the same documents again.
		if l.read != d.scan.layers[of[0]].read {
			break
		}
		data, err := l.document.Object.MarshalJSON()
		if err != nil {
			it.parts, it.documents = nil, nil
			return
		}
		it.documents = append(it.documents, data)
		it.parts = append(it.parts, part{at: placed{file: l.file, line: int32(l.document.Line), column: 1}, layer: l, node: it.node})
	}
	if len(it.parts) == 1 {
		// It is at its entry.
		it.parts = nil
	}
}

// patch cuts a JSON patch into its operations.
func (d *steps) patch(it *item) {
	layers := d.layers[it.entry()]
	if len(layers) == 0 {
		return
	}
	l := &d.scan.layers[layers[0]]
	here := placed{file: it.file, line: int32(it.node.Line), column: int32(it.node.Column)}
	it.parts = []part{{at: here, layer: l, node: it.node}}
	fields, _ := it.value.(map[string]any)
	text, inline := fields["patch"].(string)
	name, inFile := fields["path"].(string)
	if l.operations == nil || inline == inFile {
		return
	}
	if inFile {
		data, err := d.scan.gate.read(path.Join(it.dir, name))
		if err != nil {
			return
		}
		text = string(data)
	}
	var operations []any
	if kyaml.Unmarshal([]byte(text), &operations) != nil || len(operations) != len(l.operations) || len(operations) == 0 {
		return
	}
	it.parts = nil
	for i := range l.operations {
		op := &l.operations[i]
		it.parts = append(it.parts, part{at: placed{file: l.file, line: int32(op.line), column: int32(op.column)}, operation: op, layer: l, node: it.node})
	}
	it.cut = func(kept []bool) []any {
		var some []any
		for i := range operations {
			if kept[i] {
				some = append(some, operations[i])
			}
		}
		data, err := json.Marshal(some)
		if err != nil {
			return []any{it.value}
		}
		cut := with(fields, "patch", string(data))
		delete(cut, "path")
		return []any{cut}
	}
}

// replacement cuts an entry of replacements into the fields that it writes.
func (d *steps) replacement(it *item) {
	entries, nodes, file := []any{it.value}, []*yaml.Node{it.node}, it.file
	if fields, _ := it.value.(map[string]any); fields["path"] != nil {
		name, _ := fields["path"].(string)
		file = path.Join(it.dir, name)
		data, err := d.scan.gate.read(file)
		var document yaml.Node
		var value any
		if err != nil || kyaml.Unmarshal(data, &value) != nil || yaml.Unmarshal(data, &document) != nil || len(document.Content) == 0 {
			return
		}
		entries, nodes = []any{value}, document.Content[:1]
		if list, ok := value.([]any); ok && nodes[0].Kind == yaml.SequenceNode && len(list) == len(nodes[0].Content) {
			entries, nodes = list, nodes[0].Content
		}
	}
	cuts := make([]*replacementCut, len(entries))
	for e := range entries {
		fields, _ := entries[e].(map[string]any)
		cuts[e] = &replacementCut{fields: fields}
		for _, field := range cuts[e].split(nodes[e]) {
			it.parts = append(it.parts, part{at: placed{file: file, line: int32(field.Line), column: int32(field.Column)}, replacement: fields, node: nodes[e], field: field.Value})
		}
	}
	it.cut = func(kept []bool) []any {
		var some []any
		for _, c := range cuts {
			if entry := c.with(kept[:c.parts]); entry != nil {
				some = append(some, entry)
			}
			kept = kept[c.parts:]
		}
		return some
	}
}

// replacementCut is an entry of replacements that is cut into the fields that it
// writes; one that names none is one part.
type replacementCut struct {
	fields map[string]any
	parts  int
	// fieldPaths of each target, in order; a target without is nil.
	targets [][]any
}

// split finds the parts: a node each, the value of which is the field.
func (c *replacementCut) split(node *yaml.Node) (parts []*yaml.Node) {
	here := func(node *yaml.Node, field string) {
		parts = append(parts, &yaml.Node{Line: node.Line, Column: node.Column, Value: field})
	}
	targets, _ := c.fields["targets"].([]any)
	_, list := entryNamed(node, "targets")
	for t := range targets {
		target, _ := targets[t].(map[string]any)
		paths, _ := target["fieldPaths"].([]any)
		c.targets = append(c.targets, paths)
		at := node
		if list != nil && list.Kind == yaml.SequenceNode && t < len(list.Content) {
			at = list.Content[t]
		}
		if len(paths) == 0 {
			here(at, "metadata.name")
		}
		_, named := entryNamed(at, "fieldPaths")
		for p := range paths {
			text, _ := paths[p].(string)
			if named != nil && named.Kind == yaml.SequenceNode && p < len(named.Content) {
				here(named.Content[p], text)
			} else {
				here(at, text)
			}
		}
	}
	if len(parts) == 0 {
		here(node, "")
	}
	c.parts = len(parts)
	return parts
}

// with is the entry with some of its parts; nil where it has none of them.
func (c *replacementCut) with(kept []bool) any {
	if !slices.Contains(kept, true) {
		return nil
	}
	targets, _ := c.fields["targets"].([]any)
	var some []any
	next := 0
	for t, paths := range c.targets {
		target, _ := targets[t].(map[string]any)
		if len(paths) == 0 {
			if kept[next] {
				some = append(some, targets[t])
			}
			next++
			continue
		}
		var fields []any
		for p := range paths {
			if kept[next] {
				fields = append(fields, paths[p])
			}
			next++
		}
		if len(fields) > 0 {
			some = append(some, with(target, "fieldPaths", fields))
		}
	}
	if len(c.targets) == 0 {
		return c.fields
	}
	return with(c.fields, "targets", some)
}

// with is a mapping with another value of a key.
func with(fields map[string]any, key string, value any) map[string]any {
	out := map[string]any{}
	for name := range fields {
		out[name] = fields[name]
	}
	out[key] = value
	return out
}
