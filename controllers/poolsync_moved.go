package controllers

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/internal/fleet/moved"
)

// notMoved are those of the doomed objects that no object of Git says that it was. One
// that was renamed is no loss to ask a person about: what it became is applied by now,
// and it drains as any other.
func notMoved(b *build, doomed []*unstructured.Unstructured) []*unstructured.Unstructured {
	gone := map[objectID]bool{}
	for _, object := range doomed {
		gone[idOf(object)] = true
	}
	var claims []moved.Claim[objectID]
	for id, object := range b.byID {
		if object.movedFrom != "" && !object.observed {
			claims = append(claims, moved.Claim[objectID]{At: id, From: movedFrom(id, object.movedFrom)})
		}
	}
	renamed, _ := moved.Pairs(claims, func(id objectID) bool { return gone[id] }, func(id objectID) bool { return b.byID[id] != nil })
	for _, from := range renamed {
		delete(gone, from)
	}
	return slices.DeleteFunc(slices.Clone(doomed), func(object *unstructured.Unstructured) bool { return !gone[idOf(object)] })
}

// movedFrom is the object that one says it was, NAME or NAMESPACE/NAME: of its kind.
func movedFrom(id objectID, from string) objectID {
	id.namespace, id.name = moved.Named(from, id.namespace)
	return id
}
