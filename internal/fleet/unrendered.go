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

// unrendered finds those fields of a Kustomization, each where it is written, for a
// path without a kustomization: Flux writes one, of which there is no text here.
func (a *alteration) unrendered() (found []schemas.Problem) {
	if a == nil {
		return nil
	}
	o := a.by
	for _, name := range alterations {
		if a.spec[name] != nil {
			found = append(found, o.locate(o.about(RuleUnrendered, "spec."+name, "what this changes in "+WithinRepository(textAt(o.Object, "spec", "path"))+" is not applied to what is checked")))
		}
	}
	return found
}

func textAt(obj *unstructured.Unstructured, fields ...string) string {
	text, _, _ := unstructured.NestedString(obj.Object, fields...)
	return text
}

// alteredRoots warns of the Kustomizations of Flux that change, by fields of their
// own, what a plain directory with documents of cloop.dev renders.
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
	return places, w.of.alteration.digest
}

// Components are the directories, relative to the repository, that the object which
// applies a path in this way adds to it.
func (w *Way) Components(path string) []string { return w.of.alters().components(path) }
