package fleet

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

// shape is what the comparison needs of a field's definition: its default and
// how its list compares. It is a small part of a CustomResourceDefinition and
// kept for the life of the process; the definitions are not.
type shape struct {
	// fallback is the default, nil where there is none.
	fallback any
	// nullable: null is a value of its own.
	nullable bool
	// set: a list whose order means nothing. keys: a list of objects that are
	// told apart by these fields.
	set    bool
	keys   []string
	fields map[string]*shape
	// items of a list, values of a map.
	items, values *shape
}

// field returns nil where nothing is known; nil is a shape too.
func (s *shape) field(name string) *shape {
	if s == nil {
		return nil
	}
	if field, ok := s.fields[name]; ok {
		return field
	}
	return s.values
}

func (s *shape) element() *shape {
	if s == nil {
		return nil
	}
	return s.items
}

// shapes: kind of cloop.dev → its shape.
var shapes = sync.OnceValue(func() map[string]*shape {
	definitions, err := schemas.CRDs()
	if err != nil {
		// They are compiled in and tested; a binary with broken ones is broken.
		panic(fmt.Sprintf("read the embedded definitions: %v", err))
	}
	all := make(map[string]*shape, len(definitions))
	for _, definition := range definitions {
		all[definition.Spec.Names.Kind] = shapeOf(definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
	}
	return all
})

func shapeOf(schema *apiextensionsv1.JSONSchemaProps) *shape {
	s := &shape{nullable: schema.Nullable, keys: schema.XListMapKeys, set: schema.XListType != nil && *schema.XListType == "set"}
	if schema.Default != nil {
		if err := json.Unmarshal(schema.Default.Raw, &s.fallback); err != nil {
			panic(fmt.Sprintf("read the default %s: %v", schema.Default.Raw, err))
		}
	}
	for name := range schema.Properties {
		property := schema.Properties[name]
		if s.fields == nil {
			s.fields = make(map[string]*shape, len(schema.Properties))
		}
		s.fields[name] = shapeOf(&property)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		s.items = shapeOf(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		s.values = shapeOf(schema.AdditionalProperties.Schema)
	}
	return s
}

// withDefaults returns the value with the defaults that an API server fills in.
// It copies what it changes.
func (s *shape) withDefaults(value any) any {
	if s == nil {
		return value
	}
	switch node := value.(type) {
	case map[string]any:
		filled := make(map[string]any, len(node))
		for name, child := range node {
			filled[name] = s.field(name).withDefaults(child)
		}
		for name, field := range s.fields {
			// Absent, or null where an API server would drop it for the default.
			if filled[name] == nil && field.fallback != nil {
				filled[name] = field.withDefaults(field.fallback)
			}
		}
		return filled
	case []any:
		filled := make([]any, len(node))
		for i, child := range node {
			filled[i] = s.element().withDefaults(child)
		}
		return filled
	}
	return value
}

// goTypes: kind → the Go type that says which of its texts are quantities and
// durations, and which zero values mean that a field is absent.
var goTypes = map[schema.GroupKind]reflect.Type{
	{Group: v1alpha1.GroupVersion.Group, Kind: v1alpha1.ExecutorPoolKind}: reflect.TypeFor[v1alpha1.ExecutorPool](),
	{Group: v1alpha1.GroupVersion.Group, Kind: v1alpha1.HubPoolKind}:      reflect.TypeFor[v1alpha1.HubPool](),
	{Group: v1alpha1.GroupVersion.Group, Kind: v1alpha1.PoolSyncKind}:     reflect.TypeFor[v1alpha1.PoolSync](),
	{Group: "", Kind: "ServiceAccount"}:                                   reflect.TypeFor[corev1.ServiceAccount](),
	{Group: "", Kind: "ResourceQuota"}:                                    reflect.TypeFor[corev1.ResourceQuota](),
	{Group: "", Kind: "LimitRange"}:                                       reflect.TypeFor[corev1.LimitRange](),
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}:                   reflect.TypeFor[networkingv1.NetworkPolicy](),
}

// goField finds a struct's field by its JSON name; nil where there is none.
func goField(t reflect.Type, name string) reflect.Type {
	for i := range t.NumField() {
		field := t.Field(i)
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == name {
			return field.Type
		}
		if tag == "" && field.Anonymous && field.Type.Kind() == reflect.Struct {
			if inner := goField(field.Type, name); inner != nil {
				return inner
			}
		}
	}
	return nil
}
