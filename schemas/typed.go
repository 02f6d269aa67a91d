package schemas

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// As converts an object into a Go type, such as v1alpha1.ExecutorPool. Fields
// that the type does not have are dropped; a value of another JSON type is an
// error, which Validate would have reported before.
func As[T any](obj *unstructured.Unstructured) (*T, error) {
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, into); err != nil {
		return nil, fmt.Errorf("convert %s into %T: %w", describe(obj), *into, err)
	}
	return into, nil
}

// describe names an object as a Problem does.
func describe(obj *unstructured.Unstructured) string {
	name := obj.GetName()
	if name == "" {
		name = obj.GetGenerateName()
	}
	if namespace := obj.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	if name == "" {
		return obj.GetKind()
	}
	return obj.GetKind() + " " + name
}
