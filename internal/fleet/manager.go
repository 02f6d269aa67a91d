package fleet

import (
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// FieldManager says who wrote a field, from the object's managedFields: of the
// managers other than ours that own the field, a part of it or the list it is
// in, the one that wrote last. Empty: nobody else, or nobody any more, which is
// what removing a field leaves behind.
func FieldManager(obj *unstructured.Unstructured, pointer, ours string) string {
	manager, _ := fieldWriter(obj, pointer, ours)
	return manager
}

// fieldWriter is FieldManager with the time of the write, zero where unknown.
func fieldWriter(obj *unstructured.Unstructured, pointer, ours string) (string, time.Time) {
	var latest *metav1.ManagedFieldsEntry
	entries := obj.GetManagedFields()
	for i := range entries {
		entry := &entries[i]
		if entry.Manager == ours || entry.Subresource == "status" || !owns(entry, obj, pointer) {
			continue
		}
		if latest == nil || latest.Time.Before(entry.Time) {
			latest = entry
		}
	}
	if latest == nil {
		return "", time.Time{}
	}
	if latest.Time == nil {
		return latest.Manager, time.Time{}
	}
	return latest.Manager, latest.Time.Time
}

// owns says whether an entry has a field, something above it that is owned as a
// whole, or something below it.
func owns(entry *metav1.ManagedFieldsEntry, obj *unstructured.Unstructured, pointer string) bool {
	if entry.FieldsV1 == nil || entry.FieldsType != "FieldsV1" {
		return false
	}
	set := &fieldpath.Set{}
	if err := set.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
		return false
	}
	return ownsIn(set, obj.Object, tokens(pointer))
}

func ownsIn(set *fieldpath.Set, node any, path []string) bool {
	if len(path) == 0 {
		return !set.Empty()
	}
	for _, element := range elements(node, path[0]) {
		// A field that is owned without anything below it is owned as a whole.
		inner := set.WithPrefix(element)
		if !inner.Empty() {
			next, _ := child(node, path[0])
			if ownsIn(inner, next, path[1:]) {
				return true
			}
			continue
		}
		if set.Members.Has(element) {
			return true
		}
	}
	return false
}

// elements are the ways in which managedFields may name a token: a field by its
// name, a list's element by its index, its value or any keys that it has.
func elements(node any, token string) []fieldpath.PathElement {
	list, ok := node.([]any)
	if !ok {
		return []fieldpath.PathElement{{FieldName: &token}}
	}
	index, err := strconv.Atoi(token)
	if err != nil || index < 0 || index >= len(list) {
		return nil
	}
	whole := value.NewValueInterface(list[index])
	found := []fieldpath.PathElement{{Index: &index}, {Value: &whole}}
	fields, ok := list[index].(map[string]any)
	if !ok {
		return found
	}
	for _, keys := range [][]string{{"name"}, {"type"}, {"key"}, {"uid"}, {"name", "key"}} {
		if key := keyOf(fields, keys); key != nil {
			found = append(found, fieldpath.PathElement{Key: key})
		}
	}
	return found
}

func keyOf(fields map[string]any, names []string) *value.FieldList {
	var key value.FieldList
	for _, name := range names {
		field, ok := fields[name]
		if !ok {
			return nil
		}
		key = append(key, value.Field{Name: name, Value: value.NewValueInterface(field)})
	}
	slices.SortFunc(key, func(a, b value.Field) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return &key
}
