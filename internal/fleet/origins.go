package fleet

import (
	"sort"

	"go.yaml.in/yaml/v3"
)

// origins are where the parts of a kustomization come from that was written anew. Nil
// has everything where it is.
type origins struct {
	file string
	// top is for what is above all parts.
	top   placed
	parts []partFrom
}

// partFrom is a node of the new text, and where it comes from. indent is that of the
// text of a block.
type partFrom struct {
	line, column, indent int32
	from                 origin
}

// walk goes through the nodes as they were put together and as they are written; it
// says whether they are the same.
func (o *origins) walk(made, written *yaml.Node, from map[*yaml.Node]origin, lines [][]byte) bool {
	if made.Kind != written.Kind || len(made.Content) != len(written.Content) || made.Value != written.Value {
		return false
	}
	part := partFrom{line: int32(written.Line), column: int32(written.Column), from: from[made]} //nolint:gosec // files are bounded
	if isBlock(written) {
		block := *written
		indentBlocks(&block, lines)
		part.indent = int32(block.Column) //nolint:gosec // files are bounded
	}
	if made.Kind != yaml.DocumentNode {
		o.parts = append(o.parts, part)
	}
	for i := range made.Content {
		if !o.walk(made.Content[i], written.Content[i], from, lines) {
			return false
		}
	}
	return true
}

// of is where a place of the new text comes from.
func (o *origins) of(at placed) placed {
	if o == nil || at.file != o.file {
		return at
	}
	i := sort.Search(len(o.parts), func(i int) bool {
		p := &o.parts[i]
		return p.line > at.line || p.line == at.line && p.column > at.column
	}) - 1
	if i < 0 {
		return placed{path: at.path, file: o.top.file, line: o.top.line, column: o.top.column}
	}
	p := &o.parts[i]
	found := p.from.placed
	found.path = at.path
	switch {
	case p.indent > 0 && at.line > p.line && p.from.block:
		found.line += at.line - p.line
		found.column = max(1, at.column-p.indent+p.from.indent)
	case p.from.exact && at.line == p.line:
		found.column += at.column - p.column
	}
	return found
}
