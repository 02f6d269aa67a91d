package controllers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// wanted is an object as a build wants it. It is kept as text: as a tree it takes
// several times as much memory, for as long as the build is what the cluster is held
// to, and nearly all passes ask for none of it.
type wanted struct {
	id         objectID
	apiVersion string
	// observed: it is compared, and nothing else.
	observed bool
	// movedFrom is what the object says it was called before.
	movedFrom string
	// operators are JSON pointers to fields that are an operator's unless Git sets them.
	operators []string
	text      []byte
}

// wantedOf keeps an object, which has what is applied of it but for the revision.
func wantedOf(object *unstructured.Unstructured) (*wanted, error) {
	w := &wanted{id: idOf(object), apiVersion: object.GetAPIVersion(), observed: fleet.Observed(object), movedFrom: object.GetAnnotations()[v1alpha1.AnnotationMovedFrom]}
	if _, cordoned, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "cordon"); !cordoned && w.id.group == v1alpha1.Group && w.id.kind == v1alpha1.HubPoolKind {
		w.operators = []string{"/spec/cordon"}
	}
	var err error
	if w.text, err = json.Marshal(object.Object); err != nil {
		return nil, fmt.Errorf("encode %s: %w", w.id, err)
	}
	return w, nil
}

// object is the tree, another one each time: who asks may change it.
func (w *wanted) object() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(w.text, &object.Object); err != nil {
		panic(err) // the text was written from such a tree
	}
	return object
}

func (w *wanted) groupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(w.apiVersion, w.id.kind)
}

// named is an object that has no more than what it is called by.
func (w *wanted) named() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(w.apiVersion)
	object.SetKind(w.id.kind)
	object.SetNamespace(w.id.namespace)
	object.SetName(w.id.name)
	return object
}

// same says whether two builds want the same of an object.
func (w *wanted) same(other *wanted) bool {
	return w == other || w != nil && other != nil && bytes.Equal(w.text, other.text)
}

// ignored are JSON pointers to fields of the object that are neither compared nor
// applied.
func (w *wanted) ignored(rules []v1alpha1.IgnoreRule) []string {
	return fleet.IgnoredPaths(rules, w.id.kind, w.id.namespace, w.id.name)
}

func (w *wanted) entry() v1alpha1.InventoryEntry {
	return v1alpha1.InventoryEntry{APIVersion: w.apiVersion, Kind: w.id.kind, Namespace: w.id.namespace, Name: w.id.name}
}

// inventory lists what is wanted in the order in which the inventory has it.
func inventory(objects []*wanted) []v1alpha1.InventoryEntry {
	entries := make([]v1alpha1.InventoryEntry, len(objects))
	for i, object := range objects {
		entries[i] = object.entry()
	}
	return sorted(entries)
}

// ours is a rendered object as the PoolSync applies it. The rendered one stays as it
// is; the two share what lies below their spec.
func ours(sync *v1alpha1.PoolSync, rendered *fleet.Rendered) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: maps.Clone(rendered.Object.Object)}
	delete(obj.Object, "status")
	metadata, _ := obj.Object["metadata"].(map[string]any)
	obj.Object["metadata"] = maps.Clone(metadata)
	obj.SetNamespace(idIn(sync, obj).namespace)
	if fleet.Observed(obj) {
		return obj
	}
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.LabelPoolSyncName], labels[v1alpha1.LabelPoolSyncNamespace] = sync.Name, sync.Namespace
	obj.SetLabels(labels)
	setAnnotation(obj, v1alpha1.AnnotationSourcePath, rendered.SourcePath)
	return obj
}
