package diff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/moved"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/internal/secret"
)

// item is what is kept of a rendered object.
type item struct {
	*unstructured.Unstructured
	// ours: it is of cloop.dev.
	ours bool
}

// ranks: kind of cloop.dev → its place in a report.
var ranks = map[string]int{v1alpha1.HubPoolKind: 1, v1alpha1.ExecutorPoolKind: 2, v1alpha1.PoolSyncKind: 3}

func (o *item) rank() int {
	if rank := ranks[o.GetKind()]; o.ours && rank > 0 {
		return rank
	}
	return len(ranks) + 1
}

// table is what is known of the object's fields.
func (o *item) table() table {
	if o.ours {
		if t, ok := tables()[o.GetKind()]; ok {
			return t
		}
	}
	return tables()[""]
}

// key tells the objects of a rendering apart.
type key struct{ group, kind, namespace, name string }

func keyOf(o *item) key {
	return key{o.GroupVersionKind().Group, o.GetKind(), o.GetNamespace(), o.GetName()}
}

// indexed are the objects of a rendering, the first of those that are one.
func indexed(rendered []fleet.Rendered) map[key]*item {
	all := make(map[key]*item, len(rendered))
	for i := range rendered {
		o := &item{Unstructured: rendered[i].Object, ours: rendered[i].Object.GroupVersionKind().Group == v1alpha1.Group}
		if _, twice := all[keyOf(o)]; !twice {
			all[keyOf(o)] = o
		}
	}
	return all
}

// pairs are the objects of two renderings that differ.
func pairs(before, after map[key]*item) (differing []Object, notes []string) {
	before = atTheirPlace(before, after)
	moved, notes := renames(before, after)
	gone := map[key]bool{}
	for _, from := range moved {
		gone[from] = true
	}
	for at, now := range after {
		was := before[at]
		if from, ok := moved[at]; ok {
			was = before[from]
		}
		if o, differs := compare(was, now); differs {
			differing = append(differing, o)
		}
	}
	for at, was := range before {
		if after[at] == nil && !gone[at] {
			o, _ := compare(was, nil)
			differing = append(differing, o)
		}
	}
	slices.SortFunc(differing, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.either().rank(), b.either().rank()), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.either().GroupVersionKind().Group, b.either().GroupVersionKind().Group))
	})
	return differing, notes
}

// hubReads says whether an object is a HubPool that the hub tells from others by the
// name alone, in whatever namespace it is written.
func hubReads(o *item) bool { return fleet.HubReads(o.Unstructured) }

// places: name → the only object of that name that hubReads; no place where there
// are several.
func places(objects map[key]*item) map[string]key {
	all := map[string]key{}
	for _, at := range sortedKeys(objects) {
		if !hubReads(objects[at]) {
			continue
		}
		if _, twice := all[at.name]; twice {
			all[at.name] = key{}
		} else {
			all[at.name] = at
		}
	}
	return all
}

// atTheirPlace are the objects of before, those that hubReads under the namespace
// in which after has their name, where it has it once and before does too.
func atTheirPlace(before, after map[key]*item) map[key]*item {
	placed, was := maps.Clone(before), places(before)
	for name, to := range places(after) {
		from := was[name]
		if from == (key{}) || to == (key{}) || from == to {
			continue
		}
		placed[to] = placed[from]
		delete(placed, from)
	}
	return placed
}

func (o *Object) either() *item {
	if o.after != nil {
		return o.after
	}
	return o.before
}

// renames: object → the one that it was, by its annotation. What is still there,
// never was, or is claimed twice is no rename.
func renames(before, after map[key]*item) (map[key]key, []string) {
	var claims []moved.Claim[key]
	for _, at := range sortedKeys(after) {
		if annotation := after[at].GetAnnotations()[v1alpha1.AnnotationMovedFrom]; annotation != "" && after[at].ours {
			claims = append(claims, moved.Claim[key]{At: at, From: movedFrom(at, after[at], annotation, before)})
		}
	}
	renamed, refused := moved.Pairs(claims, func(k key) bool { return before[k] != nil }, func(k key) bool { return after[k] != nil })
	var notes []string
	for _, r := range refused {
		why := "which the base does not have"
		switch r.Why {
		case moved.StillThere:
			why = "which is still there"
		case moved.ClaimedTwice:
			why = "and so does " + qualified(r.Other.namespace, r.Other.name)
		}
		notes = append(notes, fmt.Sprintf("%s %s says that it was %s, %s: it is new", r.At.kind, qualified(r.At.namespace, r.At.name),
			qualified(r.From.namespace, r.From.name), why))
	}
	return renamed, notes
}

// movedFrom is the object that an annotation means.
func movedFrom(at key, now *item, annotation string, before map[key]*item) key {
	from := at
	from.namespace, from.name = moved.Named(annotation, at.namespace)
	if hubReads(now) && before[from] == nil {
		if place, known := places(before)[from.name]; known && place != (key{}) {
			return place
		}
	}
	return from
}

func sortedKeys(objects map[key]*item) []key {
	all := make([]key, 0, len(objects))
	for at := range objects {
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.kind, b.kind), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return all
}

// compare is what becomes of one object, and whether that is anything.
func compare(was, now *item) (Object, bool) {
	o := Object{before: was, after: now}
	either := o.either()
	o.Kind, o.Namespace, o.Name = either.GetKind(), either.GetNamespace(), either.GetName()
	if either.ours && (o.Kind == v1alpha1.ExecutorPoolKind || o.Kind == v1alpha1.HubPoolKind) {
		o.Pool = fleet.HubPoolName(either.Unstructured)
	}
	switch {
	case was == nil:
		o.Change = Added
	case now == nil:
		o.Change = Removed
	case keyOf(was) != keyOf(now) && (was.GetName() != now.GetName() || !hubReads(was) || !hubReads(now)):
		o.Change, o.From = Renamed, qualified(was.GetNamespace(), was.GetName())
	default:
		o.Change = Changed
	}
	if was != nil && now != nil {
		o.Fields = differing(was, now)
		if o.Change == Changed && len(o.Fields) == 0 {
			return o, false
		}
	}
	var class Class
	class, o.Meaning = meaning(&o)
	classes := []Class{class}
	for _, field := range o.Fields {
		classes = append(classes, field.Class)
	}
	o.Class = gravest(classes...)
	o.observe()
	return o, true
}

// differing are the fields in which two objects differ, each once, by path.
func differing(was, now *item) []Field {
	found := map[string]fleet.FieldDiff{}
	add := func(prefix string, swapped bool, diffs []fleet.FieldDiff) {
		for _, d := range diffs {
			if swapped {
				d.Want, d.Have = d.Have, d.Want
			}
			if _, known := found[prefix+d.Path]; !known {
				found[prefix+d.Path] = d
			}
		}
	}
	add("", false, fleet.CompareSpecs(now.Unstructured, was.Unstructured, nil))
	if !now.ours {
		// Of other kinds the comparison leaves out what only one side has.
		add("", true, fleet.CompareSpecs(was.Unstructured, now.Unstructured, nil))
	}
	if from, to := was.GetNamespace(), now.GetNamespace(); from != to && hubReads(now) && was.GetName() == now.GetName() {
		add("", false, []fleet.FieldDiff{{Path: "/metadata/namespace", Have: absentOrText(from), Want: absentOrText(to)}})
	}
	add("/metadata", false, fleet.CompareSpecs(metadataOf(now), metadataOf(was), nil))
	fields := make([]Field, 0, len(found))
	for path, d := range found {
		if covered(found, path) {
			continue
		}
		fields = append(fields, classified(was, now, path, d))
	}
	slices.SortFunc(fields, func(a, b Field) int { return cmp.Compare(a.Path, b.Path) })
	return fields
}

// absentOrText is nil for an empty text.
func absentOrText(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// covered says whether a field lies in another one that differs as a whole.
func covered(found map[string]fleet.FieldDiff, path string) bool {
	for i := len(path) - 1; i > 0; i-- {
		if path[i] == '/' {
			if _, whole := found[path[:i]]; whole {
				return true
			}
		}
	}
	return false
}

// metadataOf are the labels and annotations of an object as if they were an
// object of ours, so that whatever only one side has counts.
func metadataOf(o *item) *unstructured.Unstructured {
	fields := map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Metadata"}
	for _, name := range []string{"labels", "annotations"} {
		if value, ok, _ := unstructured.NestedMap(o.Object, "metadata", name); ok {
			fields[name] = value
		}
	}
	return &unstructured.Unstructured{Object: fields}
}

func classified(was, now *item, path string, d fleet.FieldDiff) Field {
	t, at := now.table(), tokens(path)
	field := Field{Path: printable.Abridge(secret.Redact(path), maxPath), Class: Neutral}
	if j, known := t.field("", at); known {
		field.Class = j.class(change{from: d.Have, to: d.Want, before: was.Unstructured, after: now.Unstructured})
	}
	if !now.ours && fleet.Applicable(now.GroupVersionKind()) && at[0] != "metadata" {
		// Kinds without a place for secrets.
		field.From, field.To = plain(at[len(at)-1], d.Have, 0), plain(at[len(at)-1], d.Want, 0)
		return field
	}
	field.From, field.To = t.shown("", at, d.Have), t.shown("", at, d.Want)
	return field
}
