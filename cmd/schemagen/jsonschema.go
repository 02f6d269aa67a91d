package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// jsonObject is a JSON Schema, or any other JSON object. Its keys are written
// in the order of the alphabet.
type jsonObject = map[string]any

// draft07 is the newest draft that every release of yaml-language-server, and
// the editors of JetBrains, read; the newer ones add nothing that a definition
// says. It ignores what stands beside a $ref, so that everything is inline.
const draft07 = "http://json-schema.org/draft-07/schema#"

func jsonSchemaFile(crd *apiextensionsv1.CustomResourceDefinition, version string) string {
	// As kubeconform's and others' templates name it: KIND_VERSION.json.
	return crd.Spec.Names.Singular + "_" + version + ".json"
}

// renderJSONSchema writes a kind's JSON Schema: the structural part of the
// definition as an API server reads a document, its CEL rules as text in the
// descriptions. What it cannot say: that no two entries of a list have the same
// key, the sizes of metadata, the kind's own form of names that a server makes,
// and what is no field in a status of another form.
func renderJSONSchema(crd *apiextensionsv1.CustomResourceDefinition, version apiextensionsv1.CustomResourceDefinitionVersion, hints map[string]string) ([]byte, error) {
	root, err := asObject(version.Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	c := jsonSchemaConverter{hints: hints}
	properties, _ := root["properties"].(jsonObject)
	spec, err := c.convert("spec", properties["spec"].(jsonObject))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", crd.Spec.Names.Kind, err)
	}
	name, err := c.ownName(properties["metadata"].(jsonObject))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", crd.Spec.Names.Kind, err)
	}
	return indented(jsonObject{
		"$comment":    generatedMark,
		"$schema":     draft07,
		"title":       crd.Spec.Names.Kind,
		"description": root["description"],
		"type":        "object",
		// A document without kind or apiVersion is none, whatever a definition requires.
		"required":             append([]string{"apiVersion", "kind", "metadata"}, crdRequired(root)...),
		"additionalProperties": false,
		"properties": jsonObject{
			"apiVersion": jsonObject{"const": crd.Spec.Group + "/" + version.Name},
			"kind":       jsonObject{"const": crd.Spec.Names.Kind},
			"metadata":   metadataSchema(name),
			"spec":       spec,
			"status":     ignoredStatus(properties["status"].(jsonObject)),
		},
	})
}

// renderAnyKind writes the schema for a file of any kind: an editor picks one by
// a file's name, and a fleet repository's names do not tell the kinds apart.
// What is of another group may stand beside, and is not looked at.
func renderAnyKind(group string, files map[string]string) ([]byte, error) {
	kinds := slices.Sorted(maps.Keys(files))
	ours := jsonObject{"pattern": "^" + regexp.QuoteMeta(group) + "/"}
	cases := []any{jsonObject{
		"if":   jsonObject{"properties": jsonObject{"apiVersion": ours}},
		"then": jsonObject{"properties": jsonObject{"kind": jsonObject{"enum": kinds}}},
	}}
	for _, kind := range kinds {
		cases = append(cases, jsonObject{
			"if":   jsonObject{"properties": jsonObject{"apiVersion": ours, "kind": jsonObject{"const": kind}}},
			"then": jsonObject{"$ref": files[kind]},
		})
	}
	return indented(jsonObject{
		"$comment":    generatedMark,
		"$schema":     draft07,
		"title":       group,
		"description": "A document of " + group + ", or of another group.",
		"type":        "object",
		"required":    []string{"apiVersion", "kind"},
		// The words are for completion.
		"properties": jsonObject{"kind": jsonObject{"anyOf": []any{jsonObject{"enum": kinds}, jsonObject{"type": "string"}}}},
		"allOf":      cases,
	})
}

func crdRequired(root jsonObject) []string {
	var names []string
	for _, name := range list(root["required"]) {
		names = append(names, name.(string))
	}
	return names
}

// jsonSchemaConverter turns structural schemas into JSON Schemas.
type jsonSchemaConverter struct {
	hints map[string]string
}

// convert fails on a keyword that it does not know rather than leave it out.
func (c *jsonSchemaConverter) convert(path string, schema jsonObject) (jsonObject, error) {
	out := jsonObject{}
	for _, keyword := range slices.Sorted(maps.Keys(schema)) {
		if err := c.keyword(path, out, keyword, schema[keyword]); err != nil {
			return nil, err
		}
	}
	if _, open := schema["x-kubernetes-preserve-unknown-fields"]; !open && schema["type"] == "object" && out["additionalProperties"] == nil {
		out["additionalProperties"] = false
	}
	c.allowNulls(out, schema)
	return out, nil
}

func (c *jsonSchemaConverter) keyword(path string, out jsonObject, keyword string, value any) (err error) {
	switch keyword {
	case "type", "description", "default", "enum", "minLength", "maxLength", "minimum", "maximum",
		"minItems", "maxItems", "minProperties", "maxProperties", "required":
		out[keyword] = value
	case "pattern":
		out["pattern"] = value
		if hint := c.hints[value.(string)]; hint != "" {
			// Editors on the code of Visual Studio Code show it for the pattern.
			out["patternErrorMessage"] = hint
		}
	case "format":
		// The formats of numbers bound nothing that JSON's own parser does not.
		if value == "date-time" {
			out["format"] = value
		}
	case "items":
		out["items"], err = c.convert(path+"[]", value.(jsonObject))
	case "additionalProperties":
		out["additionalProperties"], err = c.convert(path+".*", value.(jsonObject))
		if err == nil {
			// A server drops a key whose value is null.
			nullable(out["additionalProperties"].(jsonObject))
		}
	case "properties":
		properties := jsonObject{}
		for name, property := range value.(jsonObject) {
			if properties[name], err = c.convert(path+"."+name, property.(jsonObject)); err != nil {
				return err
			}
		}
		out["properties"] = properties
	case "x-kubernetes-int-or-string":
		out["type"] = []any{"integer", "string"}
	case "anyOf":
		// Only integer-or-string has it, and says it in its type.
	case "x-kubernetes-list-type":
		if value == "set" {
			out["uniqueItems"] = true
		}
	case "x-kubernetes-validations":
		out["description"] = c.withRules(out["description"], list(value))
	case "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-preserve-unknown-fields":
		// JSON Schema has no word for the first; the second says how to merge;
		// the third is looked at by convert.
	default:
		return fmt.Errorf("%s: no JSON Schema is known for the keyword %s: say it in cmd/schemagen", path, keyword)
	}
	return err
}

// withRules adds the rules that no JSON Schema expresses to a description.
func (c *jsonSchemaConverter) withRules(description any, rules []any) string {
	text, _ := description.(string)
	for _, rule := range rules {
		message, _ := rule.(jsonObject)["message"].(string)
		text = strings.TrimSpace(text + " Rule: " + strings.TrimSuffix(message, ".") + ".")
	}
	return text
}

// allowNulls lets a field be null where a server takes that for absent: where
// it is not required, or has a default that comes in its place.
func (c *jsonSchemaConverter) allowNulls(out, schema jsonObject) {
	properties, _ := out["properties"].(jsonObject)
	required := crdRequired(schema)
	for name, property := range properties {
		property := property.(jsonObject)
		if _, filled := property["default"]; filled || !slices.Contains(required, name) {
			nullable(property)
		}
	}
}

func nullable(schema jsonObject) {
	switch kind := schema["type"].(type) {
	case string:
		schema["type"] = []any{kind, "null"}
	case []any:
		schema["type"] = append(slices.Clone(kind), "null")
	}
	if words, ok := schema["enum"].([]any); ok {
		schema["enum"] = append(slices.Clone(words), nil)
	}
}

// ownName is what the definition says of metadata.name; nil where it says
// nothing.
func (c *jsonSchemaConverter) ownName(metadata jsonObject) (jsonObject, error) {
	properties, _ := metadata["properties"].(jsonObject)
	for name := range properties {
		if name != "name" {
			return nil, fmt.Errorf("metadata.%s: a definition may narrow only metadata.name", name)
		}
	}
	name, ok := properties["name"].(jsonObject)
	if !ok {
		return nil, nil
	}
	return c.convert("metadata.name", name)
}

// ignoredStatus knows the fields of a status and nothing of their values: a
// server refuses unknown ones and takes no other notice of what a manifest says.
func ignoredStatus(schema jsonObject) jsonObject {
	out := fieldsOnly(schema)
	out["description"] = "Written by the controller. What a manifest says here is ignored."
	return out
}

func fieldsOnly(schema jsonObject) jsonObject {
	out := jsonObject{}
	if text, ok := schema["description"]; ok {
		out["description"] = text
	}
	if properties, ok := schema["properties"].(jsonObject); ok {
		fields := jsonObject{}
		for name, property := range properties {
			fields[name] = fieldsOnly(property.(jsonObject))
		}
		out["properties"] = fields
		out["additionalProperties"] = false
	}
	if items, ok := schema["items"].(jsonObject); ok {
		out["items"] = fieldsOnly(items)
	}
	return out
}

// asObject reads a value as the JSON that it becomes.
func asObject(value any) (jsonObject, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("write a schema as JSON: %w", err)
	}
	object := jsonObject{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	// A bound is written as it stands, not as a float64 prints.
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return nil, fmt.Errorf("read a schema as JSON: %w", err)
	}
	return object, nil
}

func list(value any) []any {
	all, _ := value.([]any)
	return all
}

func indented(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return text.Bytes(), nil
}
