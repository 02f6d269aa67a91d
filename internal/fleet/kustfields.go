package fleet

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/types"

	"cloop.dev/cloop/schemas"
)

// canonicalField is a field of a kustomization as kustomize spells it, which
// reads any case; a name that it does not know stays.
func canonicalField(name string) string {
	if field, ok := jsonField(reflect.TypeFor[types.Kustomization](), name); ok {
		return field.name
	}
	return name
}

type jsonStructField struct {
	name string
	kind reflect.Type
}

// jsonField finds a field of a struct as encoding/json does.
func jsonField(t reflect.Type, name string) (jsonStructField, bool) {
	var found jsonStructField
	ok := false
	for _, field := range jsonFields(t) {
		if field.name == name {
			return field, true
		}
		if !ok && strings.EqualFold(field.name, name) {
			found, ok = field, true
		}
	}
	return found, ok
}

func jsonFields(t reflect.Type) []jsonStructField {
	var all []jsonStructField
	for i := range t.NumField() {
		field := t.Field(i)
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case tag == "-" || !field.IsExported() && !field.Anonymous:
		case tag == "" && field.Anonymous && inner.Kind() == reflect.Struct:
			all = append(all, jsonFields(inner)...)
		case tag == "":
			all = append(all, jsonStructField{field.Name, field.Type})
		default:
			all = append(all, jsonStructField{tag, field.Type})
		}
	}
	return all
}

// wrongFields are the fields of a kustomization that kustomize does not know, and
// the values that are not of the type it takes, each at its place.
func wrongFields(file string, document *yaml.Node) []schemas.Problem {
	w := &fieldWalk{file: file}
	if document.Kind == yaml.DocumentNode && len(document.Content) > 0 {
		document = document.Content[0]
	}
	w.value(document, reflect.TypeFor[types.Kustomization](), "", 0)
	return w.problems
}

type fieldWalk struct {
	file     string
	problems []schemas.Problem
}

// maxWrong bounds how many of them are told.
const maxWrong = 20

func (w *fieldWalk) wrong(node *yaml.Node, message, remedy string) {
	if len(w.problems) >= maxWrong {
		return
	}
	problem := broken(RuleBuild, message)
	problem.File, problem.Line, problem.Column, problem.Hint = w.file, node.Line, node.Column, remedy
	w.problems = append(w.problems, problem)
}

func (w *fieldWalk) value(node *yaml.Node, t reflect.Type, name string, depth int) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node == nil || depth > maxNesting || node.ShortTag() == "!!null" {
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		if node.Kind != yaml.MappingNode {
			w.wrong(node, orKustomization(name)+" has to be a mapping of fields", "write "+fieldsOf(t))
			return
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			w.structField(node.Content[i], node.Content[i+1], t, name, depth)
		}
	case reflect.Map:
		if node.Kind != yaml.MappingNode {
			w.wrong(node, name+" has to be a mapping of names to values", "write NAME: VALUE below it")
			return
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			w.key(node.Content[i], name)
			w.value(node.Content[i+1], t.Elem(), name+"."+node.Content[i].Value, depth+1)
		}
	case reflect.Slice:
		if node.Kind != yaml.SequenceNode {
			w.wrong(node, name+" has to be a list", "begin each entry with a dash, on a line of its own")
			return
		}
		for i, child := range node.Content {
			w.value(child, t.Elem(), fmt.Sprintf("%s[%d]", name, i), depth+1)
		}
	default:
		w.scalar(node, t, name)
	}
}

func (w *fieldWalk) structField(key, value *yaml.Node, t reflect.Type, name string, depth int) {
	if key.Tag == "!!merge" {
		w.value(value, t, name, depth+1)
		return
	}
	field, known := jsonField(t, key.Value)
	path := strings.TrimPrefix(name+"."+key.Value, ".")
	if known {
		w.value(value, field.kind, path, depth+1)
		return
	}
	var names []string
	for _, field := range jsonFields(t) {
		names = append(names, field.name)
	}
	remedy := schemas.Suggest(key.Value, names)
	if remedy == "" {
		remedy = "remove it; there is " + fieldsOf(t)
	}
	w.wrong(key, fmt.Sprintf("kustomize has no field %s", path), remedy)
}

// key of a mapping of names: one that is true or false to kustomize is no name to it.
func (w *fieldWalk) key(node *yaml.Node, name string) {
	if node.Kind == yaml.ScalarNode && node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 && (node.ShortTag() == "!!bool" || oldBool[strings.ToLower(node.Value)]) {
		w.wrong(node, fmt.Sprintf("%s: the key %s has to be a text, and kustomize reads it as true or false", name, node.Value), fmt.Sprintf("put it in quotes: %q", node.Value))
	}
}

func (w *fieldWalk) scalar(node *yaml.Node, t reflect.Type, name string) {
	if node.Kind != yaml.ScalarNode {
		w.wrong(node, name+" has to be a single value", "write it behind the colon or the dash")
		return
	}
	tag := node.ShortTag()
	switch t.Kind() {
	case reflect.String:
		if tag == "!!str" && (node.Style != 0 || !oldBool[strings.ToLower(node.Value)]) || tag == "!!timestamp" {
			return
		}
		w.wrong(node, fmt.Sprintf("%s has to be a text, and %s is none", name, node.Value), fmt.Sprintf("put it in quotes: %q", node.Value))
	case reflect.Bool:
		if tag != "!!bool" && !oldBool[strings.ToLower(node.Value)] {
			w.wrong(node, name+" has to be true or false", "write true or false, without quotes")
		}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32, reflect.Uint64:
		if tag != "!!int" {
			w.wrong(node, name+" has to be a whole number", "write a number, without quotes")
		}
	}
}

// oldBool are the words that YAML 1.1, and so kustomize, reads as true or false.
var oldBool = map[string]bool{"yes": true, "no": true, "on": true, "off": true, "y": true, "n": true}

func orKustomization(name string) string {
	if name == "" {
		return "a kustomization"
	}
	return name
}

// fieldsOf lists some fields of a struct.
func fieldsOf(t reflect.Type) string {
	var names []string
	for _, field := range jsonFields(t) {
		if field.name != "apiVersion" && field.name != "kind" && len(names) < 12 {
			names = append(names, field.name)
		}
	}
	return strings.Join(names, ", ")
}
