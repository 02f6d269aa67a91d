package schemas

import (
	"regexp"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// ofSelf is a field that a rule looks at; with a parenthesis the last name is of
// a function.
var ofSelf = regexp.MustCompile(`\bself((?:\.[A-Za-z_][A-Za-z0-9_]*)+)(\()?`)

// looksAt lists the fields that a broken rule looks at, as printed paths: none
// where it looks at its own value only.
func (k *kindValidator) looksAt(path, message string) []string {
	schema := schemaAt(k.structural, path)
	if schema == nil {
		return nil
	}
	var fields []string
	for _, rule := range schema.XValidations {
		if rule.Message != message {
			continue
		}
		for _, match := range ofSelf.FindAllStringSubmatch(rule.Rule, -1) {
			field := match[1]
			if match[2] != "" {
				field = field[:strings.LastIndex(field, ".")]
			}
			if field = strings.TrimPrefix(path+field, "."); field != path {
				fields = append(fields, field)
			}
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// schemaAt is the schema of what a printed path leads to; nil where it leads
// nowhere.
func schemaAt(schema *structuralschema.Structural, path string) *structuralschema.Structural {
	for _, name := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		next, ok := schema.Properties[name]
		switch {
		case ok:
			schema = &next
		case schema.Items != nil:
			schema = schema.Items
		case schema.AdditionalProperties != nil && schema.AdditionalProperties.Structural != nil:
			schema = schema.AdditionalProperties.Structural
		default:
			return nil
		}
	}
	return schema
}
