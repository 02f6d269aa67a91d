package diff

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// CompareObjects is what becomes of one object, and whether that is anything.
func CompareObjects(was, now *unstructured.Unstructured) (Object, bool) {
	return compare(ours(was), ours(now))
}

func ours(o *unstructured.Unstructured) *item {
	if o == nil {
		return nil
	}
	return &item{Unstructured: o, ours: o.GroupVersionKind().Group == "cloop.dev"}
}

// Pairs compares two renderings, whatever the order of their objects.
func Pairs(was, now []*unstructured.Unstructured) ([]Object, []string) {
	index := func(list []*unstructured.Unstructured) map[key]*item {
		all := map[key]*item{}
		for _, o := range list {
			all[keyOf(ours(o))] = ours(o)
		}
		return all
	}
	return pairs(index(was), index(now))
}

// FieldNames lists the names in a kind's table of classes.
func FieldNames(kind string) []string {
	var names []string
	for name := range judges[kind] {
		names = append(names, name)
	}
	return names
}
