package fleet

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxAliased bounds how many nodes the aliases of one root stand for. kustomize
// replaces each alias by a copy of what it names: without a bound, a few hundred
// bytes of aliases of aliases take all memory there is.
const maxAliased = 100_000

// aliases counts what the aliases of the files of one root stand for.
type aliases struct{ total int }

// add refuses a file whose aliases, with those before, stand for too much. Text
// that is no YAML has none.
func (a *aliases) add(name string, data []byte) error {
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
		count := expansion{sizes: map[*yaml.Node]int{}}
		count.size(&document)
		if a.total = min(a.total+count.aliased, maxAliased+1); a.total > maxAliased {
			return fmt.Errorf("%w: the aliases of %s stand for more than %d values, or for themselves", errFile, name, maxAliased)
		}
		for _, text := range count.texts {
			if err := a.add(name, []byte(text)); err != nil {
				return err
			}
		}
	}
}

// expansion measures one document. Sizes stop growing above maxAliased.
type expansion struct {
	// sizes of the nodes that are known; those in progress have maxAliased+1, so
	// that an anchor within itself is too large.
	sizes   map[*yaml.Node]int
	aliased int
	// texts are block scalars, such as an inline patch, that may be YAML.
	texts []string
}

func (e *expansion) size(node *yaml.Node) int {
	if known, ok := e.sizes[node]; ok {
		return known
	}
	e.sizes[node] = maxAliased + 1
	total := 1
	switch {
	case node.Kind == yaml.AliasNode && node.Alias != nil:
		total = e.size(node.Alias)
		e.aliased = min(e.aliased+total, maxAliased+1)
	case node.Kind == yaml.ScalarNode && strings.Contains(node.Value, "\n"):
		e.texts = append(e.texts, node.Value)
	}
	for _, child := range node.Content {
		total = min(total+e.size(child), maxAliased+1)
	}
	e.sizes[node] = total
	return total
}
