package schemas

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

//go:embed crds/hints.json
var hintFile []byte

// advice is what is known of a breach beyond an API server's words. It is
// authored beside the rules, in the CUE sources.
type advice struct {
	// Hints: a rule's message or a pattern → what to do about a breach.
	Hints map[string]string `json:"hints"`
	// Places: the message of a rule over several fields → the field to change,
	// from the rule's own on.
	Places map[string]string `json:"places"`
}

var advices = sync.OnceValue(func() advice {
	var all advice
	if err := json.Unmarshal(hintFile, &all); err != nil {
		// The file is compiled in, and a test reads it.
		panic(fmt.Sprintf("decode the embedded hints: %v", err))
	}
	return all
})

func hints() map[string]string { return advices().Hints }

// hint says what to do about an error of the API server, where its own words
// leave that open.
func (k *kindValidator) hint(err *field.Error) string {
	if err.Type == field.ErrorTypeRequired {
		return "add " + err.Field
	}
	if hint, ok := hints()[err.Detail]; ok {
		return hint
	}
	// The structural check's words: spec.image in body should match 'PATTERN'.
	if _, pattern, ok := strings.Cut(err.Detail, " in body should match '"); ok {
		return hints()[strings.TrimSuffix(pattern, "'")]
	}
	return ""
}

// placeOf is the field to change where an API server names another one, or says
// which only in its words; empty where path is it.
func placeOf(path, detail string) string {
	if place := advices().Places[detail]; place != "" {
		return strings.TrimPrefix(path+place, ".")
	}
	if path != "" {
		return ""
	}
	if _, field, ok := strings.Cut(detail, "Checked value must be of type integer (default format) in "); ok {
		return field
	}
	if field, ok := strings.CutSuffix(detail, `" must validate at least one schema (anyOf)`); ok {
		return strings.TrimPrefix(field, `"`)
	}
	return ""
}

// suggestField names the field that an unknown one was probably meant to be.
func (k *kindValidator) suggestField(path string) string {
	parent, name := "", path
	if dot := strings.LastIndex(path, "."); dot >= 0 {
		parent, name = path[:dot], path[dot+1:]
	}
	fields := propertiesAt(k.structural, parent)
	if hint := Suggest(name, fields); hint != "" {
		return hint
	}
	if len(fields) == 0 {
		return ""
	}
	return "the fields here are " + strings.Join(fields, ", ")
}

// propertiesAt lists the fields of the object that a printed path leads to.
func propertiesAt(schema *structuralschema.Structural, path string) []string {
	for _, name := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		next, ok := schema.Properties[name]
		switch {
		case ok:
			schema = &next
		case schema.Items != nil:
			schema = schema.Items
		default:
			return nil
		}
	}
	if schema.Items != nil {
		schema = schema.Items
	}
	names := make([]string, 0, len(schema.Properties))
	for name := range schema.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Suggest asks whether one of the candidates was meant: the nearest, if at most
// a third of the word differs.
func Suggest(word string, candidates []string) string {
	best, bestDistance := "", len(word)/3+1
	for _, candidate := range candidates {
		if strings.EqualFold(word, candidate) {
			return "did you mean " + candidate + "?"
		}
		if d := distance(strings.ToLower(word), strings.ToLower(candidate)); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}

// distance counts the single-byte edits between two words.
func distance(a, b string) int {
	// Nobody misspells a name of this length by a few letters, and the work
	// grows with the product.
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j]+1, row[j+1]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
