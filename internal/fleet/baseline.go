package fleet

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet/moved"
)

// baseline is what the objects of each root were before a change.
type baseline struct {
	mu       sync.Mutex // guards what follows; a renderer is used by one at a time
	renderer *Renderer
	// ways are all of the base, and roots what its roots render in them: identity → object.
	ways  []way
	found map[way]Way
	roots map[way]map[string]*unstructured.Unstructured
	// now are the roots of what is checked, and appliers what applies those.
	now      map[string]bool
	appliers []applier
}

// find returns what an object was in a root, as one object applies that; none: it is
// new, or nothing is known. Of a root that is the same for all who apply it there may
// be several, which the base did not apply alike.
func (b *baseline) find(ctx context.Context, at way, object *unstructured.Unstructured) (all []*unstructured.Unstructured) {
	if b == nil || b.renderer == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.read(ctx) {
		return nil
	}
	for _, asked := range b.asked(at) {
		old := b.old(ctx, asked, object)
		if old != nil && !slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool { return equality.Semantic.DeepEqual(o.Object, old.Object) }) {
			all = append(all, old)
		}
	}
	return all
}

// read finds the ways of the base, once.
func (b *baseline) read(ctx context.Context) bool {
	if b.roots != nil {
		return true
	}
	roots, err := b.renderer.Roots(ctx)
	if err != nil {
		return false
	}
	found := map[way]Way{}
	var all []way
	for _, root := range roots {
		ways, err := b.renderer.Ways(ctx, root)
		if err != nil {
			return false
		}
		for _, w := range ways {
			at := way{root, w.By, w.In}
			if _, known := found[at]; !known {
				found[at], all = w, append(all, at)
			}
		}
	}
	b.ways, b.found, b.roots = all, found, map[way]map[string]*unstructured.Unstructured{}
	return true
}

// asked are the ways in which what is checked has a root: where the one is nobody's,
// those of all who apply it.
func (b *baseline) asked(at way) (all []way) {
	for i := range b.appliers {
		if a := &b.appliers[i]; at.by == "" && a.applies(at.path) {
			all = append(all, way{at.path, a.name, a.in})
		}
	}
	if len(all) == 0 {
		return []way{at}
	}
	return all
}

// old is what an object was, in the likeliest way of the base that has it.
func (b *baseline) old(ctx context.Context, asked way, object *unstructured.Unstructured) *unstructured.Unstructured {
	names := []string{identity(object)}
	if from := movedFrom(object); from != "" {
		names = append(names, from)
	}
	for _, was := range b.likely(asked) {
		objects := b.of(ctx, was)
		for _, name := range names {
			if old := objects[name]; old != nil {
				return old
			}
		}
	}
	return nil
}

// movedFrom is the identity that an object says it had; empty: it says nothing.
func movedFrom(object *unstructured.Unstructured) string {
	annotation := object.GetAnnotations()[v1alpha1.AnnotationMovedFrom]
	if annotation == "" {
		return ""
	}
	was := &unstructured.Unstructured{}
	was.SetGroupVersionKind(object.GroupVersionKind())
	namespace, name := moved.Named(annotation, object.GetNamespace())
	was.SetNamespace(namespace)
	was.SetName(name)
	return identity(was)
}

// likely are the ways of the base that may have become the one asked for. Where it was
// there, it alone; otherwise those that are there no more: what its object applied in its
// place, then what applied the root, under another name or in another file, then what
// has the object's name. One that is still there is another cluster's. A root that is new
// may be another one that is gone.
func (b *baseline) likely(asked way) []way {
	if _, known := b.found[asked]; known {
		return []way{asked}
	}
	var all []way
	add := func(fits func(w way) bool) {
		for _, w := range b.ways {
			if fits(w) && !b.remains(w) && !slices.Contains(all, w) {
				all = append(all, w)
			}
		}
	}
	named := asked.by != ""
	add(func(w way) bool { return named && w.by == asked.by && w.in == asked.in })
	add(func(w way) bool { return w.path == asked.path && w.by == asked.by })
	add(func(w way) bool { return w.path == asked.path })
	add(func(w way) bool { return named && w.by == asked.by })
	if !slices.ContainsFunc(b.ways, func(w way) bool { return w.path == asked.path }) {
		add(func(w way) bool { return !b.now[w.path] })
	}
	return all
}

// remains says whether what is checked has a way of the base too.
func (b *baseline) remains(w way) bool {
	return w.by != "" && slices.ContainsFunc(b.appliers, func(a applier) bool { return a.name == w.by && a.in == w.in && a.applies(w.path) })
}

// of are the objects of a way of the base. A root that cannot be rendered there had
// nothing.
func (b *baseline) of(ctx context.Context, at way) map[string]*unstructured.Unstructured {
	objects, known := b.roots[at]
	if known {
		return objects
	}
	objects = map[string]*unstructured.Unstructured{}
	b.roots[at] = objects
	all, err := b.renderer.Render(ctx, at.path, []Way{b.found[at]})
	if err != nil {
		return objects
	}
	for i := range all[0].Objects {
		object := all[0].Objects[i].Object
		objects[identity(object)] = object
	}
	return objects
}
