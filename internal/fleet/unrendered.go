package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/schemas"
)

// alterations are the fields by which a Kustomization of Flux changes what its path
// renders. They are not applied here: they would be built by kustomize over a file
// that nobody has written, with no place for what is wrong.
var alterations = []string{"components", "images", "namePrefix", "nameSuffix", "patches", "patchesJson6902", "patchesStrategicMerge", "targetNamespace"}

// unrendered finds those fields of a Kustomization, each where it is written; alters
// is equal where they say the same.
func (o *renderedObject) unrendered() (found []schemas.Problem, alters string) {
	said := map[string]any{}
	for _, name := range alterations {
		value, there, _ := unstructured.NestedFieldNoCopy(o.Object.Object, "spec", name)
		if list, isList := value.([]any); !there || value == nil || value == "" || isList && len(list) == 0 {
			continue
		}
		said[name] = value
		found = append(found, o.locate(o.about(RuleUnrendered, "spec."+name, "what this changes in "+WithinRepository(textAt(o.Object, "spec", "path"))+" is not applied to what is checked")))
	}
	if len(found) == 0 {
		return nil, ""
	}
	// What comes from JSON always encodes.
	text, _ := json.Marshal(said)
	return found, string(text)
}

func textAt(obj *unstructured.Unstructured, fields ...string) string {
	text, _, _ := unstructured.NestedString(obj.Object, fields...)
	return text
}

// alteredRoots warns of the Kustomizations of Flux that change, by fields of their
// own, what a root with documents of cloop.dev renders.
func (c *checker) alteredRoots(ctx context.Context, b *builder, roots []root) (problems []schemas.Problem, err error) {
	for i := range *c.appliers {
		a := &(*c.appliers)[i]
		if len(a.unrendered) == 0 {
			continue
		}
		s, err := b.surveyAll(ctx)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(roots, func(at root) bool {
			return a.applies(at.path) && (at.kustomization == "" || s.reaches(at.path, map[string]bool{}, ourDocument.Match))
		}) {
			problems = append(problems, a.unrendered...)
		}
	}
	return problems, nil
}

// Unrendered says which fields of the object that applies a path in this way change
// what the path renders, and are not applied, each with file and line; alters is
// equal where they say the same.
func (w *Way) Unrendered() (places []string, alters string) {
	if w.of == nil {
		return nil, ""
	}
	for i := range w.of.unrendered {
		p := &w.of.unrendered[i]
		places = append(places, fmt.Sprintf("%s:%d: %s of %s", p.File, p.Line, p.Path, w.By))
	}
	return places, w.of.alters
}
