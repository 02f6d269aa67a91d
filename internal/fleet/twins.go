package fleet

import (
	"context"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"cloop.dev/cloop/schemas"
)

// twins are the objects that a kustomization has twice, as kustomize tells them
// apart: with the names that they have by then. They are looked for where
// kustomize refuses them.
type twins struct {
	problems []schemas.Problem
	// layers: problem → the second of its two layers.
	layers []int
	// told: layers that were.
	told map[int]bool
}

// seen: identity → the layer that has it, from a layer on.
type seen map[string]int

func (l *layer) identity() string {
	gvk := l.document.Object.GroupVersionKind()
	namespace := l.namespace
	if namespace == "default" {
		namespace = ""
	}
	return strings.Join([]string{gvk.Group, gvk.Version, gvk.Kind, namespace, l.named()}, "|")
}

// twinsOf looks for them in what a root refers to. The layers are numbered as any
// scan of the root numbers them.
func (b *builder) twinsOf(ctx context.Context, dir, file string) *twins {
	s := &scan{root: b.root, gate: b.gate, twins: &twins{told: map[int]bool{}}}
	if s.visit(ctx, dir, file, 0, 0) != nil {
		return &twins{}
	}
	return s.twins
}

// meet adds the layers from one on to those that were seen. entry is what
// brought them, of a kustomization.
func (s *scan) meet(met seen, from int, file string, entry *yaml.Node) {
	if s.twins == nil {
		return
	}
	for i := from; i < len(s.layers); i++ {
		l := &s.layers[i]
		if !l.resource() || l.generated && l.merges {
			continue
		}
		first, twice := met[l.identity()]
		if !twice {
			met[l.identity()] = i
			continue
		}
		if first == i || s.twins.told[i] {
			continue
		}
		s.twins.told[i] = true
		s.twins.problems = append(s.twins.problems, twin(&s.layers[first], l, file, entry))
		s.twins.layers = append(s.twins.layers, i)
	}
}

// twin says that an object is there twice: at the second place, or where one
// place is brought in a second time.
func twin(first, second *layer, file string, entry *yaml.Node) schemas.Problem {
	line, column := second.document.Position("/metadata/name")
	problem := broken(RuleDuplicateObject, fmt.Sprintf("also defined at %s:%d", first.file, first.document.Line))
	problem.File, problem.Line, problem.Column, problem.Path = second.file, line, column, "metadata.name"
	object := second.document.Object.DeepCopy()
	object.SetName(second.named())
	object.SetNamespace(second.namespace)
	problem.Object = describe(object)
	if first.file == second.file && first.document.Line == second.document.Line && entry != nil {
		problem.File, problem.Line, problem.Column, problem.Path = file, entry.Line, entry.Column, ""
		problem.Message = fmt.Sprintf("%s brings it in a second time, of %s:%d", entry.Value, first.file, first.document.Line)
		problem.Hint = "remove one of the two references, or give one of the two another name or namespace"
	}
	return problem
}
