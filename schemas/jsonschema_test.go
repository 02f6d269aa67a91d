package schemas_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/schemas"
	"cloop.dev/cloop/schemas/schemastest"
)

// An editor with the JSON Schemas calls good what the structural part of the
// validator calls good, and only that: on the corpus, on each change of one
// field to its good documents, and on random documents.
func TestJSONSchemasAgreeWithTheValidator(t *testing.T) {
	validator, editor := mustNewValidator(t), newEditor(t)
	compared, refused := 0, 0
	all := corpusAndChanges(t)
	random := newRandom(t)
	for i := range 1500 * times(t) {
		all = append(all, schemastest.Case{File: fmt.Sprintf("creation %d", i), Object: random.Case(i)})
	}
	for _, variant := range all {
		errs := structural(validator.Validate(schemas.Document{Object: variant.Object}))
		said := editor.validate(t, variant.Object)
		compared++
		if len(errs) > 0 {
			refused++
		}
		if slices.ContainsFunc(errs, func(p schemas.Problem) bool { return inexpressible(p, variant.Object) }) || nullsCounted(said, variant.Object) {
			continue
		}
		if (len(errs) > 0) != (said != nil) {
			t.Errorf("%s: the validator says %v, the JSON Schema %v\n%v", variant.File, errs, said, variant.Object.Object)
		}
	}
	t.Logf("%d documents compared, %d of them refused", compared, refused)
	if compared < 2000 || refused < compared/4 || refused > compared-100 {
		t.Error("too few documents of each sort to show anything")
	}
}

// The schema for a file of any kind is that of the document's kind.
func TestAnyKindIsTheKindsSchema(t *testing.T) {
	editor := newEditor(t)
	whole, err := editor.compiler.Compile("cloop.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, variant := range schemastest.Corpus(t, "testdata") {
		if one, any := editor.validate(t, variant.Object), whole.Validate(plainJSON(t, variant.Object)); (one == nil) != (any == nil) {
			t.Errorf("%s: the kind's schema says %v, that of any kind %v", variant.File, one, any)
		}
	}
	if whole.Validate(map[string]any{"apiVersion": "cloop.dev/v1alpha1", "kind": "ExecutorPol"}) == nil {
		t.Error("a kind of nobody is good")
	}
	if err := whole.Validate(map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "secrets": []any{}}); err != nil {
		t.Errorf("what may stand beside is bad: %v", err)
	}
}

// What people hover over and what completes: texts, defaults, words.
func TestJSONSchemasSayWhatEditorsShow(t *testing.T) {
	schema := map[string]any{}
	readJSON(t, "jsonschema/executorpool_v1alpha1.json", &schema)
	at := func(path ...string) map[string]any {
		node := schema
		for _, name := range path {
			node, _ = node[name].(map[string]any)
		}
		return node
	}
	delay := at("properties", "spec", "properties", "scaleDownDelay")
	if delay["default"] != "5m" || delay["patternErrorMessage"] == nil || !strings.Contains(delay["description"].(string), "Rule: must be between 0s and 24h.") {
		t.Errorf("scaleDownDelay has not default, hint and rule: %v", delay)
	}
	effect := at("properties", "spec", "properties", "template", "properties", "tolerations", "items", "properties", "effect")
	if words, _ := effect["enum"].([]any); len(words) < 3 || words[0] != "NoSchedule" {
		t.Errorf("effect has no words to choose from: %v", effect)
	}
	for _, kind := range []string{"executorpool", "hubpool", "poolsync"} {
		readJSON(t, "jsonschema/"+kind+"_v1alpha1.json", &schema)
		undescribed(t, kind, at("properties", "spec"))
	}
}

func undescribed(t *testing.T, path string, schema map[string]any) {
	for name, property := range schema["properties"].(map[string]any) {
		property := property.(map[string]any)
		if property["description"] == nil {
			t.Errorf("%s.%s has no description", path, name)
		}
		if property["properties"] != nil {
			undescribed(t, path+"."+name, property)
		}
	}
}

// structural are the errors that are not rules over several fields.
func structural(problems []schemas.Problem) []schemas.Problem {
	return slices.DeleteFunc(problems, func(p schemas.Problem) bool {
		return p.Rule == schemas.RuleCEL || p.Severity != schemas.SeverityError
	})
}

// inexpressible says whether the JSON Schema has no words for a problem: two
// entries with one key, the kind's own form of a name that a server makes, and
// what stands in a status that is a list.
func inexpressible(p schemas.Problem, object *unstructured.Unstructured) bool {
	return strings.HasPrefix(p.Message, "Duplicate value: {") || p.Path == "metadata.name" && namedByServer(object) || strings.HasPrefix(p.Path, "status[")
}

// nullsCounted says whether a map is too large only in the eyes of who counts
// the keys that a server drops.
func nullsCounted(said error, object *unstructured.Unstructured) bool {
	return said != nil && strings.Contains(said.Error(), ": maxProperties: got ") && strings.Contains(fmt.Sprint(object.Object), ":<nil>")
}

// editor validates with the checked-in JSON Schemas, as an editor does.
type editor struct {
	compiler *jsonschema.Compiler
	kinds    map[string]*jsonschema.Schema
}

func newEditor(t *testing.T) *editor {
	t.Helper()
	e := &editor{compiler: jsonschema.NewCompiler(), kinds: map[string]*jsonschema.Schema{}}
	files, err := filepath.Glob("jsonschema/*.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d schemas, %v", len(files), err)
	}
	for _, file := range files {
		var schema any
		readJSON(t, file, &schema)
		if err := e.compiler.AddResource(filepath.Base(file), schema); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func (e *editor) validate(t *testing.T, object *unstructured.Unstructured) error {
	t.Helper()
	kind := object.GetKind()
	if e.kinds[kind] == nil {
		schema, err := e.compiler.Compile(strings.ToLower(kind) + "_v1alpha1.json")
		if err != nil {
			t.Fatal(err)
		}
		e.kinds[kind] = schema
	}
	return e.kinds[kind].Validate(plainJSON(t, object))
}

// plainJSON is the object with the types that a JSON parser gives.
func plainJSON(t *testing.T, object *unstructured.Unstructured) any {
	t.Helper()
	data, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func mustNewValidator(t testing.TB) *schemas.Validator {
	t.Helper()
	validator, err := schemas.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	return validator
}
