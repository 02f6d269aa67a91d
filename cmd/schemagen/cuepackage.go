package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/format"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// cueModule is the root of the CUE module for people who write pools in CUE:
// apart from the sources in schemas/, which are data about definitions and
// nothing to write pools with.
const cueModule = "schemas/cue/"

// cuePackages adds a CUE module with a package a version: the structural part
// of each kind as a closed definition, the CEL rules as comments. Defaults are
// comments too: as CUE defaults an export would write them out.
func cuePackages(files map[string][]byte, crds []*apiextensionsv1.CustomResourceDefinition) error {
	versions := map[string]bool{}
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			text, err := renderCUE(crd, version)
			if err != nil {
				return err
			}
			files[cueModule+version.Name+"/"+crd.Spec.Names.Singular+".cue"] = text
			versions[version.Name] = true
		}
	}
	for version := range versions {
		text, err := renderCUEMetadata(crds[0].Spec.Group, version)
		if err != nil {
			return err
		}
		files[cueModule+version+"/metadata.cue"] = text
	}
	return nil
}

func renderCUE(crd *apiextensionsv1.CustomResourceDefinition, version apiextensionsv1.CustomResourceDefinitionVersion) ([]byte, error) {
	root, err := asObject(version.Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	kind := crd.Spec.Names.Kind
	properties := root["properties"].(jsonObject)
	w := &cueWriter{imports: map[string]bool{}}
	w.comment(root)
	w.line("#" + kind + ": {")
	w.line("apiVersion: " + strconv.Quote(crd.Spec.Group+"/"+version.Name))
	w.line("kind: " + strconv.Quote(kind))
	metadata := "metadata!: #Metadata"
	narrowed, _ := properties["metadata"].(jsonObject)["properties"].(jsonObject)
	if name, ok := narrowed["name"].(jsonObject); ok {
		metadata += " & {name!: " + w.scalar("metadata.name", name) + "}"
	}
	w.line(metadata)
	w.field("spec", properties["spec"].(jsonObject), true)
	w.line("}")
	if w.err != nil {
		return nil, fmt.Errorf("%s: %w", kind, w.err)
	}
	return w.file(version.Name, "")
}

// renderCUEMetadata writes what people write of metav1.ObjectMeta, and the
// package's comment.
func renderCUEMetadata(group, version string) ([]byte, error) {
	w := &cueWriter{imports: map[string]bool{"strings": true, "struct": true}}
	pattern := func(text string) string { return "=~" + cueText("^"+text+"$") }
	value := "strings.MaxRunes(63) & " + pattern("("+metadataQualified+")?")
	w.line("// Metadata is what a manifest says of an object besides its spec.")
	w.line("#Metadata: {")
	w.line("// Name of the object, one of its kind in a namespace.")
	w.line("name!: strings.MaxRunes(253) & " + pattern(metadataSubdomain))
	w.line("// Namespace of the object. Absent: the one that it is applied to.")
	w.line("namespace?: strings.MaxRunes(63) & " + pattern(metadataLabel))
	w.line("// What selectors select by.")
	key := "strings.MaxRunes(317) & " + pattern("("+metadataSubdomain+"/)?"+metadataQualified)
	w.line("labels?: {[" + key + "]: " + value + "}")
	w.line("// What tools and people note on the object.")
	w.line("annotations?: {[" + key + "]: string}")
	w.line("}")
	delete(w.imports, "struct")
	return w.file(version, "Package "+version+" has the kinds of "+group+" as closed definitions, for pools that are\n// written in CUE: `#ExecutorPool & {…}`. What a server's CEL rules add is in the\n// comments; `cloop fleet check` judges what is exported.")
}

// cueWriter writes CUE from structural schemas. It keeps its first error.
type cueWriter struct {
	text    strings.Builder
	imports map[string]bool
	// within counts the lists and maps around what is written. A definition
	// does not close what is in a list or map that a validator bounds, so that
	// each object there is closed by itself (seen with CUE v0.17.1).
	within int
	err    error
}

func (w *cueWriter) line(text string) {
	w.text.WriteString(text)
	w.text.WriteByte('\n')
}

func (w *cueWriter) file(name, about string) ([]byte, error) {
	var head strings.Builder
	head.WriteString("// " + generatedMark + "\n\n")
	if about != "" {
		head.WriteString("// " + about + "\n")
	}
	head.WriteString("package " + name + "\n\n")
	if len(w.imports) > 0 {
		head.WriteString("import (\n")
		for _, one := range slices.Sorted(maps.Keys(w.imports)) {
			head.WriteString(strconv.Quote(one) + "\n")
		}
		head.WriteString(")\n\n")
	}
	formatted, err := format.Source([]byte(head.String() + w.text.String()))
	if err != nil {
		return nil, fmt.Errorf("format the CUE package %s: %w", name, err)
	}
	return formatted, nil
}

// field writes one field of an object with its comment.
func (w *cueWriter) field(name string, schema jsonObject, required bool) {
	w.comment(schema)
	mark := "?: "
	// A default comes in the place of what a document leaves out.
	if _, filled := schema["default"]; required && !filled {
		mark = "!: "
	}
	w.text.WriteString(name + mark)
	w.value(name, schema)
	w.line("")
}

// value writes what a field may be.
func (w *cueWriter) value(path string, schema jsonObject) {
	w.check(path, schema)
	switch {
	case schema["type"] == "array":
		w.text.WriteString("[...")
		w.element(path+"[]", schema["items"].(jsonObject))
		w.text.WriteString("]")
		w.bound("list", "list.MinItems", schema["minItems"])
		w.bound("list", "list.MaxItems", schema["maxItems"])
		if schema["x-kubernetes-list-type"] == "set" {
			w.imports["list"] = true
			w.text.WriteString(" & list.UniqueItems()")
		}
	case schema["additionalProperties"] != nil:
		w.text.WriteString("{[string]: ")
		w.element(path+".*", schema["additionalProperties"].(jsonObject))
		w.text.WriteString("}")
		w.bound("struct", "struct.MinFields", schema["minProperties"])
		w.bound("struct", "struct.MaxFields", schema["maxProperties"])
	case schema["type"] == "object" && w.within > 0:
		w.text.WriteString("close(")
		w.object(schema)
		w.text.WriteString(")")
	case schema["type"] == "object":
		w.object(schema)
	default:
		w.text.WriteString(w.scalar(path, schema))
	}
}

func (w *cueWriter) element(path string, schema jsonObject) {
	w.within++
	w.value(path, schema)
	w.within--
}

func (w *cueWriter) object(schema jsonObject) {
	w.line("{")
	properties, _ := schema["properties"].(jsonObject)
	required := crdRequired(schema)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property := properties[name].(jsonObject)
		w.field(name, property, slices.Contains(required, name))
	}
	w.text.WriteString("}")
}

func (w *cueWriter) bound(pkg, function string, value any) {
	if value != nil {
		w.imports[pkg] = true
		fmt.Fprintf(&w.text, " & %s(%v)", function, value)
	}
}

// scalar is the expression for a value without parts.
func (w *cueWriter) scalar(path string, schema jsonObject) string {
	if words := texts(list(schema["enum"])); len(words) > 0 {
		for i := range words {
			words[i] = strconv.Quote(words[i])
		}
		return strings.Join(words, " | ")
	}
	switch {
	case schema["x-kubernetes-int-or-string"] == true:
		return "(" + w.number(schema) + ") | (" + w.string(schema) + ")"
	case schema["type"] == "integer":
		return w.number(schema)
	case schema["type"] == "string":
		return w.string(schema)
	case schema["type"] == "boolean":
		return "bool"
	}
	w.fail("%s: no CUE is known for the type %v", path, schema["type"])
	return "_|_"
}

func (w *cueWriter) number(schema jsonObject) string {
	parts := []string{"int"}
	for keyword, operator := range map[string]string{"minimum": ">=", "maximum": "<="} {
		if value := schema[keyword]; value != nil {
			parts = append(parts, fmt.Sprintf("%s%v", operator, value))
		}
	}
	// The lower bound first: > sorts after <.
	slices.SortFunc(parts[1:], func(a, b string) int { return strings.Compare(b, a) })
	return strings.Join(parts, " & ")
}

func (w *cueWriter) string(schema jsonObject) string {
	var parts []string
	for _, bound := range []struct{ keyword, function string }{{"minLength", "strings.MinRunes"}, {"maxLength", "strings.MaxRunes"}} {
		if value := schema[bound.keyword]; value != nil {
			w.imports["strings"] = true
			parts = append(parts, fmt.Sprintf("%s(%v)", bound.function, value))
		}
	}
	if pattern, ok := schema["pattern"].(string); ok {
		parts = append(parts, "=~"+cueText(pattern))
	}
	if len(parts) == 0 {
		return "string"
	}
	return strings.Join(parts, " & ")
}

// comment writes what a person should know: description, default, rules.
func (w *cueWriter) comment(schema jsonObject) {
	text, _ := schema["description"].(string)
	if value, ok := schema["default"]; ok {
		text += fmt.Sprintf(" Default: %v.", defaultText(value))
	}
	if keys := texts(list(schema["x-kubernetes-list-map-keys"])); len(keys) > 0 {
		// A comprehension that compares the entries would let a text stand for
		// the object around it.
		text += " Rule: no two entries with the same " + strings.Join(keys, " and ") + "."
	}
	for _, rule := range list(schema["x-kubernetes-validations"]) {
		text += " Rule: " + strings.TrimSuffix(rule.(jsonObject)["message"].(string), ".") + "."
	}
	const width = 90
	line := "//"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width {
			w.line(line)
			line = "//"
		}
		line += " " + word
	}
	if line != "//" {
		w.line(line)
	}
}

func defaultText(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	data, err := json.Marshal(value)
	if err != nil {
		// It was read from JSON.
		panic(err)
	}
	return string(data)
}

// check fails on a keyword that would be left out without a word.
func (w *cueWriter) check(path string, schema jsonObject) {
	for keyword := range schema {
		switch keyword {
		case "type", "description", "default", "enum", "pattern", "format", "minLength", "maxLength", "minimum", "maximum",
			"minItems", "maxItems", "minProperties", "maxProperties", "items", "properties", "additionalProperties", "required",
			"anyOf", "x-kubernetes-int-or-string", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
			"x-kubernetes-map-type", "x-kubernetes-validations":
		default:
			w.fail("%s: no CUE is known for the keyword %s: say it in cmd/schemagen", path, keyword)
		}
	}
}

func (w *cueWriter) fail(message string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(message, args...)
	}
}

// cueText quotes a text so that its backslashes stay as they are.
func cueText(text string) string {
	if strings.Contains(text, `\`) && !strings.Contains(text, `"`) {
		return `#"` + text + `"#`
	}
	return strconv.Quote(text)
}

func texts(values []any) []string {
	all := make([]string, len(values))
	for i, value := range values {
		all[i] = fmt.Sprint(value)
	}
	return all
}
