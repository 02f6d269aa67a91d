package schemas

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
)

// shape is what Go and the schema must agree on.
type shape struct {
	JSONType string
	// Narrow is a whole number that must fit 32 bits: in Go, its type; in the
	// schema, it has a maximum that does. A larger one would keep a controller
	// from reading any object.
	Narrow bool
	// Always is whether a stored object always has the field: in Go, it is
	// never omitted; in the schema, it is required or has a default.
	Always bool
}

func TestGoTypesAndSchemasAgree(t *testing.T) {
	types := map[string]reflect.Type{
		v1alpha1.ExecutorPoolKind: reflect.TypeFor[v1alpha1.ExecutorPool](),
		v1alpha1.HubPoolKind:      reflect.TypeFor[v1alpha1.HubPool](),
		v1alpha1.PoolSyncKind:     reflect.TypeFor[v1alpha1.PoolSync](),
	}
	for _, crd := range mustCRDs(t) {
		kind := crd.Spec.Names.Kind
		t.Run(kind, func(t *testing.T) {
			inGo, inSchema := map[string]shape{}, map[string]shape{}
			for _, part := range []string{"Spec", "Status"} {
				member, _ := types[kind].FieldByName(part)
				goFields(strings.ToLower(part), member.Type, inGo)
				props := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[strings.ToLower(part)]
				schemaFields(strings.ToLower(part), &props, inSchema)
			}
			for _, path := range slices.Sorted(maps.Keys(inGo)) {
				if got, ok := inSchema[path]; !ok {
					t.Errorf("%s is in the Go type and not in the schema", path)
				} else if got != inGo[path] {
					t.Errorf("%s: the schema says %+v, the Go type %+v", path, got, inGo[path])
				}
			}
			for _, path := range slices.Sorted(maps.Keys(inSchema)) {
				if _, ok := inGo[path]; !ok {
					t.Errorf("%s is in the schema and not in the Go type", path)
				}
			}
		})
	}
}

// scalars have a JSON type of their own, whatever Go type they are.
var scalars = map[reflect.Type]string{
	reflect.TypeFor[metav1.Duration]():   "string",
	reflect.TypeFor[metav1.Time]():       "string",
	reflect.TypeFor[resource.Quantity](): "integer or string",
}

func goFields(path string, typ reflect.Type, into map[string]shape) {
	for member := range typ.Fields() {
		name, options, _ := strings.Cut(member.Tag.Get("json"), ",")
		jsonType, inner, suffix := jsonTypeOf(member.Type)
		// Kubernetes' own types omit what they do not have: a struct with
		// omitempty is written all the same, and has no default here.
		into[path+"."+name] = shape{JSONType: jsonType, Narrow: kindOf(member.Type) == reflect.Int32, Always: !strings.Contains(options, "omit")}
		if inner != nil {
			goFields(path+"."+name+suffix, inner, into)
		}
	}
}

func kindOf(typ reflect.Type) reflect.Kind {
	if typ.Kind() == reflect.Pointer {
		return typ.Elem().Kind()
	}
	return typ.Kind()
}

// jsonTypeOf names a type in JSON; inner is the struct whose fields follow.
func jsonTypeOf(typ reflect.Type) (name string, inner reflect.Type, suffix string) {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if name, ok := scalars[typ]; ok {
		return name, nil, ""
	}
	switch typ.Kind() {
	case reflect.Struct:
		return "object", typ, ""
	case reflect.Slice:
		element, inner, suffix := jsonTypeOf(typ.Elem())
		return "list of " + element, inner, "[]" + suffix
	case reflect.Map:
		element, inner, suffix := jsonTypeOf(typ.Elem())
		return "map of " + element, inner, ".*" + suffix
	case reflect.Bool:
		return "boolean", nil, ""
	case reflect.Int32, reflect.Int64:
		return "integer", nil, ""
	case reflect.String:
		return "string", nil, ""
	}
	return "unexpected " + typ.String(), nil, ""
}

func schemaFields(path string, props *apiextensionsv1.JSONSchemaProps, into map[string]shape) {
	for name := range props.Properties {
		child := props.Properties[name]
		jsonType, inner, suffix := schemaType(&child)
		always := slices.Contains(props.Required, name) || child.Default != nil
		// An object whose fields all have defaults is an empty struct in Go
		// until it is filled, and omitted then.
		if child.Default != nil && string(child.Default.Raw) == "{}" {
			always = false
		}
		narrow := jsonType == "integer" && child.Maximum != nil && *child.Maximum <= math.MaxInt32
		into[path+"."+name] = shape{JSONType: jsonType, Narrow: narrow, Always: always}
		if inner != nil {
			schemaFields(path+"."+name+suffix, inner, into)
		}
	}
}

func schemaType(props *apiextensionsv1.JSONSchemaProps) (name string, inner *apiextensionsv1.JSONSchemaProps, suffix string) {
	switch {
	case props.XIntOrString:
		return "integer or string", nil, ""
	case props.Items != nil:
		element, inner, suffix := schemaType(props.Items.Schema)
		return "list of " + element, inner, "[]" + suffix
	case props.AdditionalProperties != nil && props.AdditionalProperties.Schema != nil:
		element, inner, suffix := schemaType(props.AdditionalProperties.Schema)
		return "map of " + element, inner, ".*" + suffix
	case props.Type == "object":
		return "object", props, ""
	}
	return props.Type, nil, ""
}
