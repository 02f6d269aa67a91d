package fleet

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxDepth bounds how deep the values of a text are nested. What kustomize takes
// for one grows with the square of that, and the deepest field of a Kubernetes API
// is a few dozen levels down.
const maxDepth = 500

// tooDeep says whether a YAML or JSON text, or one within it, is nested beyond the
// bound. Only what looks as if it were is parsed for it.
func tooDeep(data []byte) bool {
	if nestingIn(data) <= maxDepth {
		return false
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		if decoder.Decode(&document) != nil {
			// The end, or text that kustomize cannot read either.
			return false
		}
		if deeper(&document, maxDepth) {
			return true
		}
	}
}

// deeper says whether there are more levels below a node, in texts of several
// lines too: each may be YAML, such as an inline patch.
func deeper(node *yaml.Node, levels int) bool {
	if levels < 0 {
		return true
	}
	if node.Kind == yaml.ScalarNode && strings.Contains(node.Value, "\n") && tooDeep([]byte(node.Value)) {
		return true
	}
	for _, child := range node.Content {
		if deeper(child, levels-1) {
			return true
		}
	}
	return false
}

// nestingIn is at least how deep a YAML or JSON text is nested: brackets that are
// open, also those within texts, and lines that stand further in than the ones
// before.
func nestingIn(data []byte) (deepest int) {
	open := 0
	var columns []int // of the lines and list entries that the present one is within
	for line := range bytes.Lines(data) {
		line = bytes.TrimRight(line, "\r\n")
		at := len(line) - len(bytes.TrimLeft(line, " "))
		if at == len(line) {
			continue
		}
		for len(columns) > 0 && columns[len(columns)-1] >= at {
			columns = columns[:len(columns)-1]
		}
		columns = append(columns, at)
		for at+1 < len(line) && line[at] == '-' && line[at+1] == ' ' {
			at += 2
			columns = append(columns, at)
		}
		if bytes.HasPrefix(line, []byte("---")) {
			open = 0
		}
		for _, b := range line[at:] {
			switch b {
			case '{', '[':
				open++
				deepest = max(deepest, open+len(columns))
			case '}', ']':
				open = max(open-1, 0)
			}
		}
		deepest = max(deepest, open+len(columns))
	}
	return deepest
}
