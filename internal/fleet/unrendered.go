package fleet

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/schemas"
)

// alterations are the fields by which a Kustomization of Flux changes what its path
// renders.
var alterations = []string{"commonMetadata", "components", "images", "namePrefix", "nameSuffix", "patches", "patchesJson6902", "patchesStrategicMerge", "targetNamespace"}

// unrendered finds those fields of a Kustomization, each where it is written.
func (a *alteration) unrendered() (found []schemas.Problem) {
	for _, name := range alterations {
		if a.spec[name] != nil {
			found = append(found, a.by.locate(a.by.about(RuleUnrendered, a.field("spec."+name), "what this changes is not applied to what is checked")))
		}
	}
	return found
}

func textAt(obj *unstructured.Unstructured, fields ...string) string {
	text, _, _ := unstructured.NestedString(obj.Object, fields...)
	return text
}

// alteredRoots warns of what changes, by fields of its own, what a root with documents
// of cloop.dev renders, where that is not applied.
func (c *checker) alteredRoots(roots []root) (problems []schemas.Problem) {
	for i := range *c.appliers {
		a := &(*c.appliers)[i]
		if len(a.unrendered) > 0 && slices.ContainsFunc(roots, func(at root) bool { return a.applies(at.path) && c.ours[at.path] }) {
			problems = append(problems, a.unrendered...)
		}
	}
	return problems
}

// Unrendered says which fields of the object that applies a path in this way change
// what the path renders, and are not applied, each with file and line; alters is
// equal where they say the same.
func (w *Way) Unrendered() (places []string, alters string) {
	if w.of == nil || len(w.of.unrendered) == 0 {
		return nil, ""
	}
	for i := range w.of.unrendered {
		p := &w.of.unrendered[i]
		places = append(places, fmt.Sprintf("%s:%d: %s of %s", p.File, p.Line, p.Path, w.By))
	}
	return places, w.of.digest
}

// Components are the directories, relative to the repository, that the object which
// applies a path in this way adds to it.
func (w *Way) Components(path string) []string { return w.of.alters().components(path) }
