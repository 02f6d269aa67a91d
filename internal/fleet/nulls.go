package fleet

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

// A null says of most fields of our kinds what leaving them out does, and an API server
// drops it from what is created. From what is applied on the server's side it does not,
// and then takes it for a value of the wrong type. So what a path renders is handed out
// without such nulls, and whoever compares, pushes or applies it sees the same; a check
// looks at what is written, and tells of them where somebody else applies it that way.

// eachNull visits the nulls of a value that an API server drops from what is created:
// those of fields that may not be null and have no default. visit may delete them.
func (s *shape) eachNull(value any, pointer string, visit func(parent map[string]any, name, pointer string)) {
	switch node := value.(type) {
	case map[string]any:
		for name, child := range node {
			field, at := s.field(name), pointer+"/"+escape(name)
			if child == nil && field != nil && !field.nullable && field.fallback == nil {
				visit(node, name, at)
				continue
			}
			field.eachNull(child, at, visit)
		}
	case []any:
		for i, child := range node {
			s.element().eachNull(child, fmt.Sprintf("%s/%d", pointer, i), visit)
		}
	}
}

// nullsOf are pointers to the nulls of an object that a server-side apply refuses, sorted.
func nullsOf(obj *unstructured.Unstructured) (pointers []string) {
	if obj.GroupVersionKind().Group != v1alpha1.Group {
		return nil // what a Go type reads takes a null for nothing
	}
	shapes()[obj.GetKind()].eachNull(obj.Object, "", func(_ map[string]any, _, pointer string) {
		// A status is taken through its subresource alone.
		if pointer != "/status" && !strings.HasPrefix(pointer, "/status/") {
			pointers = append(pointers, pointer)
		}
	})
	slices.Sort(pointers)
	return pointers
}

// withoutNulls is an object without what nullsOf finds. Another one has the trees that it
// is made of, so that it is copied before it is changed.
func withoutNulls(obj *unstructured.Unstructured) *unstructured.Unstructured {
	if len(nullsOf(obj)) == 0 {
		return obj
	}
	obj = obj.DeepCopy()
	shapes()[obj.GetKind()].eachNull(obj.Object, "", func(parent map[string]any, name, _ string) { delete(parent, name) })
	return obj
}

// textsForNulls makes of labels and annotations that are null the empty texts that an API
// server makes of them. Whoever reads labels as texts would take one null for none at all.
func textsForNulls(obj *unstructured.Unstructured) {
	metadata, _ := obj.Object["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		entries, _ := metadata[field].(map[string]any)
		for name, value := range entries {
			if value == nil {
				entries[name] = ""
			}
		}
	}
}

// maxNulls bounds how many nulls of an object are told of.
const maxNulls = 20

// refusedNulls are the problems that the nulls of an object are where it is applied on
// the server's side.
func (r *rootChecker) refusedNulls(o *renderedObject) (problems []schemas.Problem) {
	by := r.serverSide(o.Object)
	if by == "" {
		return nil
	}
	pointers := nullsOf(o.Object)
	for _, pointer := range pointers[:min(len(pointers), maxNulls)] {
		problems = append(problems, o.locate(o.about(RuleNullApplied, printPath(o.Object.Object, pointer),
			fmt.Sprintf("null is refused by the API server where %s applies it on the server's side", by))))
	}
	return problems
}

// serverSide is who applies an object of the root on the server's side, other than a
// PoolSync, which leaves nulls out; empty: nobody of whom the repository tells.
func (r *rootChecker) serverSide(obj *unstructured.Unstructured) string {
	for _, a := range r.appliedBy {
		if !a.sync && a.serverSideOf(obj) {
			return a.name
		}
	}
	return ""
}

// serverSideOf says whether it applies an object on the server's side, which in Argo CD
// the object may say for itself.
func (a *applier) serverSideOf(obj *unstructured.Unstructured) bool {
	if !a.argo() {
		return true
	}
	said, is := serverSideOption(strings.Split(obj.GetAnnotations()["argocd.argoproj.io/sync-options"], ","))
	return is || a.serverSide && !said
}

// serverSideOption is what options of a sync of Argo CD say of a server-side apply, and
// whether they say anything.
func serverSideOption(options []string) (said, is bool) {
	for _, option := range options {
		if value, ok := strings.CutPrefix(strings.TrimSpace(option), "ServerSideApply="); ok {
			said, is = true, value == "true"
		}
	}
	return said, is
}
