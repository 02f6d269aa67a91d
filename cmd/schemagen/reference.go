package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// renderReference writes the tables of a kind: one row for each field.
func renderReference(crd *apiextensionsv1.CustomResourceDefinition, places map[string]string) []byte {
	var page bytes.Buffer
	version := crd.Spec.Versions[0]
	schema := version.Schema.OpenAPIV3Schema
	names := crd.Spec.Names
	fmt.Fprintf(&page, "<!-- %s -->\n\n# %s\n\n%s\n\n", generatedMark, names.Kind, schema.Description)
	fmt.Fprintf(&page, "- apiVersion: `%s/%s`\n- kind: `%s`, in a namespace\n- with kubectl: `%s`, `%s` or, with the other kinds, `%s`\n",
		crd.Spec.Group, version.Name, names.Kind, names.Plural,
		strings.Join(names.ShortNames, "`, `"), strings.Join(names.Categories, "`, `"))
	if name, ok := schema.Properties["metadata"].Properties["name"]; ok {
		fmt.Fprintf(&page, "- `metadata.name`: %s\n", strings.Join(bounds(&name), "; "))
	}
	section(&page, "Spec", "spec", schema.Properties["spec"], places)
	section(&page, "Status", "status", schema.Properties["status"], places)
	columns(&page, version.AdditionalPrinterColumns)
	return page.Bytes()
}

func section(page *bytes.Buffer, title, path string, schema apiextensionsv1.JSONSchemaProps, places map[string]string) {
	fmt.Fprintf(page, "\n## %s\n\n%s\n\n", title, schema.Description)
	page.WriteString("| Field | Type | Default | Bounds and rules | Meaning |\n| --- | --- | --- | --- | --- |\n")
	rules := map[string][]string{}
	collectRules(path, &schema, places, rules)
	rows(page, path, &schema, rules)
}

// rows writes the fields below an object, depth first and by name.
func rows(page *bytes.Buffer, path string, parent *apiextensionsv1.JSONSchemaProps, rules map[string][]string) {
	for _, name := range slices.Sorted(maps.Keys(parent.Properties)) {
		child := parent.Properties[name]
		row(page, path+"."+name, &child, slices.Contains(parent.Required, name), rules)
	}
}

func row(page *bytes.Buffer, path string, schema *apiextensionsv1.JSONSchemaProps, required bool, rules map[string][]string) {
	initial := ""
	switch {
	case schema.Default != nil:
		initial = code(string(schema.Default.Raw))
	case required:
		initial = "required"
	}
	all := append(bounds(schema), rules[path]...)
	fmt.Fprintf(page, "| `%s` | %s | %s | %s | %s |\n",
		path, typeName(schema), initial, strings.Join(all, "; "), cell(schema.Description))
	switch {
	case schema.Items != nil && schema.Items.Schema.Type == "object":
		rows(page, path+"[]", schema.Items.Schema, rules)
	default:
		rows(page, path, schema, rules)
	}
}

// collectRules files each rule under the field that it speaks of.
func collectRules(path string, schema *apiextensionsv1.JSONSchemaProps, places map[string]string, into map[string][]string) {
	for _, rule := range schema.XValidations {
		field := path + places[rule.Message]
		into[field] = append(into[field], cell(rule.Message))
	}
	for name := range schema.Properties {
		child := schema.Properties[name]
		collectRules(path+"."+name, &child, places, into)
	}
	if schema.Items != nil {
		// The rules of an element that is no row of its own belong to the list.
		element := path + "[]"
		collectRules(element, schema.Items.Schema, places, into)
		into[path] = append(into[path], into[element]...)
	}
}

func bounds(schema *apiextensionsv1.JSONSchemaProps) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if len(schema.Enum) > 0 {
		words := make([]string, len(schema.Enum))
		for i, word := range schema.Enum {
			words[i] = code(string(word.Raw))
		}
		add("one of %s", strings.Join(words, ", "))
	}
	switch {
	case schema.Minimum != nil && schema.Maximum != nil:
		add("%.0f to %.0f", *schema.Minimum, *schema.Maximum)
	case schema.Minimum != nil:
		add("at least %.0f", *schema.Minimum)
	}
	lengths(add, "characters", schema.MinLength, schema.MaxLength)
	lengths(add, "entries", schema.MinItems, schema.MaxItems)
	lengths(add, "entries", schema.MinProperties, schema.MaxProperties)
	if schema.Pattern != "" {
		add("matches %s", code(schema.Pattern))
	}
	if keys := schema.XListMapKeys; len(keys) > 0 {
		add("no two entries with the same %s", strings.Join(keys, " and "))
	}
	if schema.XListType != nil && *schema.XListType == "set" {
		add("no entry twice")
	}
	switch {
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		all = append(all, values(schema.AdditionalProperties.Schema)...)
	case schema.Items != nil && schema.Items.Schema.Type != "object":
		all = append(all, values(schema.Items.Schema)...)
	}
	return all
}

func values(schema *apiextensionsv1.JSONSchemaProps) []string {
	inner := bounds(schema)
	for i := range inner {
		inner[i] = "each value: " + inner[i]
	}
	return inner
}

func lengths(add func(string, ...any), what string, low, high *int64) {
	switch {
	case low != nil && *low > 0 && high != nil:
		add("%d to %d %s", *low, *high, what)
	case low != nil && *low > 0:
		add("at least %d %s", *low, what)
	case high != nil:
		add("at most %d %s", *high, what)
	}
}

func typeName(schema *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case schema.XIntOrString:
		return "integer or string"
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		return "map of " + typeName(schema.AdditionalProperties.Schema)
	case schema.Items != nil:
		return "list of " + typeName(schema.Items.Schema)
	case schema.Format == "date-time":
		return "time"
	}
	return schema.Type
}

func columns(page *bytes.Buffer, all []apiextensionsv1.CustomResourceColumnDefinition) {
	page.WriteString("\n## What `kubectl get` prints\n\n| Column | Field |\n| --- | --- |\n")
	for _, column := range all {
		name := strings.ToUpper(column.Name)
		if column.Priority > 0 {
			name += " (with `-o wide`)"
		}
		fmt.Fprintf(page, "| %s | %s |\n", name, code(column.JSONPath))
	}
}

// code quotes a value for a cell, where a bar would end the cell.
func code(value string) string {
	var text string
	if json.Unmarshal([]byte(value), &text) == nil {
		value = text
	}
	fence := "`"
	if strings.Contains(value, "`") {
		fence = "``"
	}
	return fence + strings.ReplaceAll(value, "|", `\|`) + fence
}

func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", `\|`), "\n", " ")
}
