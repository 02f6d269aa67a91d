package fleet

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds on what the aliases of one root stand for. kustomize, as everybody who
// writes YAML as JSON, replaces each alias by a copy of what it names: without a
// bound, a few hundred bytes of aliases of aliases, or many of one long text, take
// all memory there is.
const (
	// maxAliased bounds the nodes, and maxAliasedBytes their text.
	maxAliased      = 100_000
	maxAliasedBytes = 8 << 20
)

// aliases counts what the aliases of the files of one root stand for.
type aliases struct {
	total int
	bytes int64
}

// add refuses a file whose aliases, with those before, stand for too much. Text
// that is no YAML has none.
func (a *aliases) add(name string, data []byte) error {
	return a.addAt(name, data, position{}, 0)
}

// maxTexts bounds how deep texts in texts are looked into. kustomize reads a patch in
// a kustomization, and none in a patch.
const maxTexts = 4

func (a *aliases) addAt(name string, data []byte, at position, depth int) error {
	if tooDeep(data) {
		return fmt.Errorf("%w: %s is nested more than %d levels deep", errFile, name, maxDepth)
	}
	if !bytes.ContainsRune(data, '&') || !bytes.ContainsRune(data, '*') {
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		if decoder.Decode(&document) != nil {
			// The end, or text that kustomize cannot read either.
			return nil //nolint:nilerr // what is no YAML has no aliases
		}
		count := expansion{sizes: map[*yaml.Node]expanded{}, before: *a}
		count.size(&document)
		a.total, a.bytes = min(a.total+count.aliased.nodes, maxAliased+1), min(a.bytes+count.aliased.bytes, maxAliasedBytes+1)
		if a.total > maxAliased || a.bytes > maxAliasedBytes {
			message := fmt.Sprintf("the aliases of %s stand for more than %d values, or for themselves", name, maxAliased)
			if a.total <= maxAliased {
				message = fmt.Sprintf("the aliases of %s stand for more than %d MiB of text", name, maxAliasedBytes>>20)
			}
			where := at
			if count.passed != nil {
				where = position{count.passed.Line + at.lines, count.passed.Column + at.columns}
			}
			return &beyond{file: name, at: where, message: message, remedy: "write fewer aliases, or shorter values", kind: errFile}
		}
		if depth == maxTexts || len(document.Content) == 0 || document.Content[0].Kind == yaml.ScalarNode {
			// What is only a text is no patch, and may be the one that it is in.
			continue
		}
		for _, text := range count.texts {
			inner := inside(text)
			inner.lines += at.lines
			if err := a.addAt(name, []byte(text.Value), inner, depth+1); err != nil {
				return err
			}
		}
	}
}

// expanded is what a node is with its aliases replaced: nodes, and bytes of text.
// Neither grows much above its bound.
type expanded struct {
	nodes int
	bytes int64
}

func (e expanded) plus(other expanded) expanded {
	return expanded{min(e.nodes+other.nodes, maxAliased+1), min(e.bytes+other.bytes, maxAliasedBytes+1)}
}

// expansion measures one document.
type expansion struct {
	// sizes of the nodes that are known; those in progress are too large, so that an
	// anchor within itself is.
	sizes   map[*yaml.Node]expanded
	before  aliases
	aliased expanded
	// passed is the alias with which a bound is passed; nil: it is not.
	passed *yaml.Node
	// texts are scalars, such as an inline patch, that may be YAML of some lines or with
	// aliases.
	texts []*yaml.Node
}

func (e *expansion) size(node *yaml.Node) expanded {
	if known, ok := e.sizes[node]; ok {
		return known
	}
	e.sizes[node] = expanded{maxAliased + 1, maxAliasedBytes + 1}
	total := expanded{1, int64(len(node.Value))}
	switch {
	case node.Kind == yaml.AliasNode && node.Alias != nil:
		total = e.size(node.Alias)
		e.aliased = e.aliased.plus(total)
		if e.passed == nil && (e.before.total+e.aliased.nodes > maxAliased || e.before.bytes+e.aliased.bytes > maxAliasedBytes) {
			e.passed = node
		}
	case node.Kind == yaml.ScalarNode && (strings.Contains(node.Value, "\n") || strings.Contains(node.Value, "&") && strings.Contains(node.Value, "*")):
		e.texts = append(e.texts, node)
	}
	for _, child := range node.Content {
		total = total.plus(e.size(child))
	}
	e.sizes[node] = total
	return total
}
