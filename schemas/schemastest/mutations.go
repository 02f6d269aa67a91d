package schemastest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Mutations changes one field at a time, the object's spec and everything in
// it, to values of every type and near every edge.
func Mutations(object *unstructured.Unstructured) []*unstructured.Unstructured {
	values := []any{
		nil, "", "x y", "a", "https://example.com/a", "0s", "24h0m1s", "1.5h", "99999h", "999999m", "default", "HOME", "cloop.dev/a",
		strings.Repeat("a", 70), strings.Repeat("a", 300), int64(0), int64(-1), int64(101), int64(100001), 1.5, true, false,
		map[string]any{}, map[string]any{"a": "b"}, map[string]any{"name": "a"}, []any{}, []any{"a", "a"}, []any{map[string]any{"name": "A"}},
	}
	var all []*unstructured.Unstructured
	for _, path := range paths("spec", object.Object["spec"]) {
		for _, value := range values {
			all = append(all, with(object, path, value))
		}
		all = append(all, without(object, path), with(object, path+"/unheard", "of"))
	}
	return slices.DeleteFunc(all, func(u *unstructured.Unstructured) bool { return u == nil })
}

func paths(path string, value any) []string {
	all := []string{path}
	switch value := value.(type) {
	case map[string]any:
		for name, child := range value {
			all = append(all, paths(path+"/"+strings.ReplaceAll(name, "/", "~1"), child)...)
		}
	case []any:
		for i, child := range value {
			all = append(all, paths(path+"/"+strconv.Itoa(i), child)...)
		}
	}
	return all
}

func with(object *unstructured.Unstructured, path string, value any) *unstructured.Unstructured {
	return change(object, path, func(parent map[string]any, name string) { parent[name] = value })
}

func without(object *unstructured.Unstructured, path string) *unstructured.Unstructured {
	return change(object, path, func(parent map[string]any, name string) { delete(parent, name) })
}

// change returns a copy in which the parent of path was edited, and nil if the
// parent is no object.
func change(object *unstructured.Unstructured, path string, edit func(parent map[string]any, name string)) *unstructured.Unstructured {
	copied := object.DeepCopy()
	names := strings.Split(path, "/")
	var at any = copied.Object
	for _, name := range names[:len(names)-1] {
		name = strings.ReplaceAll(name, "~1", "/")
		switch node := at.(type) {
		case map[string]any:
			at = node[name]
		case []any:
			index, err := strconv.Atoi(name)
			if err != nil {
				panic(fmt.Sprintf("%s is no index in %s", name, path))
			}
			at = node[index]
		}
	}
	parent, ok := at.(map[string]any)
	if !ok {
		return nil
	}
	edit(parent, strings.ReplaceAll(names[len(names)-1], "~1", "/"))
	return copied
}
