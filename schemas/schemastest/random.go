package schemastest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/schemas"
)

// Random makes documents from the definitions. It is safe for concurrent use.
type Random struct {
	seed  uint64
	kinds []string
	specs map[string]*place
	group string
}

// place is a field, an element of a list or a value of a map, and what may be
// there.
type place struct {
	// name of the field; elements and values have that of their list or map.
	name     string
	schema   *apiextensionsv1.JSONSchemaProps
	fields   map[string]*place
	elements *place
	values   *place
	// fitting are those of texts that the bounds and the pattern allow.
	fitting []string
	pattern *syntax.Regexp
}

// NewRandom reads the definitions. The same seed gives the same documents.
func NewRandom(t testing.TB, seed uint64) *Random {
	t.Helper()
	definitions, err := schemas.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	r := &Random{seed: seed, specs: map[string]*place{}}
	for _, definition := range definitions {
		kind, version := definition.Spec.Names.Kind, definition.Spec.Versions[0]
		r.group = definition.Spec.Group + "/" + version.Name
		r.kinds = append(r.kinds, kind)
		spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
		if r.specs[kind], err = placeOf("spec", &spec); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func placeOf(name string, schema *apiextensionsv1.JSONSchemaProps) (*place, error) {
	p := &place{name: name, schema: schema}
	var err error
	if schema.Type == "string" || schema.XIntOrString {
		if err := p.fit(); err != nil {
			return nil, err
		}
	}
	if schema.Properties != nil {
		p.fields = map[string]*place{}
	}
	for field := range schema.Properties {
		child := schema.Properties[field]
		if p.fields[field], err = placeOf(field, &child); err != nil {
			return nil, err
		}
	}
	if schema.Items != nil {
		if p.elements, err = placeOf(name, schema.Items.Schema); err != nil {
			return nil, err
		}
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		p.values, err = placeOf(name, schema.AdditionalProperties.Schema)
	}
	return p, err
}

// fit picks the texts that may stand here.
func (p *place) fit() error {
	matches := func(string) bool { return true }
	if p.schema.Pattern != "" {
		expression, err := regexp.Compile(p.schema.Pattern)
		if err != nil {
			return err
		}
		if p.pattern, err = syntax.Parse(p.schema.Pattern, syntax.Perl); err != nil {
			return err
		}
		matches = expression.MatchString
	}
	for _, text := range texts {
		length := int64(utf8.RuneCountInString(text))
		short := p.schema.MinLength != nil && length < *p.schema.MinLength
		long := p.schema.MaxLength != nil && length > *p.schema.MaxLength
		if !short && !long && matches(text) {
			p.fitting = append(p.fitting, text)
		}
	}
	return nil
}

// Case is the document with a number: one that is meant to be good, as it is
// or, in four of five, with one to three edits that it may not survive. The
// same number gives the same document, whatever was asked for before.
func (r *Random) Case(number int) *unstructured.Unstructured {
	m := r.maker(number, 0)
	kind := r.kinds[number%len(r.kinds)]
	object := m.object(r.group, kind, r.specs[kind])
	if m.IntN(5) > 0 {
		m.edit(object, r.specs[kind], 1+m.IntN(3))
	}
	return normal(object)
}

// Stored is the object with a number that a server has from before there were
// rules: most have something wrong in their spec.
func (r *Random) Stored(number int) *unstructured.Unstructured {
	m := r.maker(number, 1)
	kind := r.kinds[number%len(r.kinds)]
	object := m.object(r.group, kind, r.specs[kind])
	for range m.IntN(4) {
		if spec, ok := object["spec"].(map[string]any); ok {
			m.editSlot(spec, r.specs[kind])
		}
	}
	if _, ok := object["spec"].(map[string]any); !ok {
		object["spec"] = map[string]any{}
	}
	return normal(object)
}

// Change is a change with a number to an object: its spec or its labels, in up
// to three places.
func (r *Random) Change(object *unstructured.Unstructured, number int) *unstructured.Unstructured {
	m := r.maker(number, 2)
	changed := object.DeepCopy()
	place := r.specs[object.GetKind()]
	for range m.IntN(4) {
		if m.IntN(8) == 0 {
			changed.SetLabels(map[string]string{m.text(nil): m.text(nil)})
			continue
		}
		m.editSlot(changed.Object["spec"].(map[string]any), place)
	}
	return normal(changed.Object)
}

// normal is the object as a JSON parser of Kubernetes reads it.
func normal(object map[string]any) *unstructured.Unstructured {
	data, err := (&unstructured.Unstructured{Object: object}).MarshalJSON()
	if err != nil {
		panic(fmt.Sprintf("write a random object: %v", err))
	}
	read := &unstructured.Unstructured{}
	if err := read.UnmarshalJSON(data); err != nil {
		panic(fmt.Sprintf("read a random object: %v", err))
	}
	return read
}

// maker makes one document.
type maker struct{ *rand.Rand }

func (r *Random) maker(number int, sort uint64) *maker {
	return &maker{rand.New(rand.NewPCG(r.seed, uint64(number)<<2|sort))} //nolint:gosec // it must repeat
}

// object is meant to be good; rules over several fields may still be broken.
func (m *maker) object(group, kind string, spec *place) map[string]any {
	return map[string]any{
		"apiVersion": group, "kind": kind,
		"metadata": map[string]any{"name": "random"},
		"spec":     m.good(spec),
	}
}

func (m *maker) good(p *place) any {
	schema := p.schema
	switch {
	case len(schema.Enum) > 0:
		return strings.Trim(string(schema.Enum[m.IntN(len(schema.Enum))].Raw), `"`)
	case schema.Type == "integer":
		return m.number(p)
	case schema.Type == "boolean":
		return m.IntN(2) == 0
	case schema.Type == "array":
		return m.list(p)
	case p.values != nil:
		return m.dictionary(p)
	case schema.Type == "object":
		return m.fields(p)
	case schema.XIntOrString && m.IntN(3) == 0:
		return m.number(p)
	}
	return m.text(p)
}

// number is small: rules compare numbers, and a minimum is the first of a pair.
func (m *maker) number(p *place) any {
	if strings.HasPrefix(p.name, "min") {
		return int64(m.IntN(3))
	}
	number := int64(2 + m.IntN(8))
	if low := p.schema.Minimum; low != nil {
		number = max(number, int64(*low))
	}
	if high := p.schema.Maximum; high != nil {
		number = min(number, int64(*high))
	}
	return number
}

// text fits the place, and most times its rules; any text where there is none.
func (m *maker) text(p *place) string {
	if p == nil {
		return texts[m.IntN(len(texts))]
	}
	if good := sound[p.name]; len(good) > 0 && m.IntN(8) > 0 {
		return good[m.IntN(len(good))]
	}
	if p.schema.Format == "date-time" {
		return "2030-01-02T03:04:05Z"
	}
	if p.pattern != nil && (len(p.fitting) == 0 || m.IntN(4) == 0) {
		var text strings.Builder
		sample(m.Rand, p.pattern, &text)
		return text.String()
	}
	if len(p.fitting) == 0 {
		return "x"
	}
	return p.fitting[m.IntN(len(p.fitting))]
}

func (m *maker) list(p *place) any {
	count := m.IntN(4)
	if least := p.schema.MinItems; least != nil {
		count = max(count, int(*least))
	}
	if most := p.schema.MaxItems; most != nil {
		count = min(count, int(*most))
	}
	entries := []any{}
	seen := map[string]bool{}
	for range count {
		entry := m.good(p.elements)
		identity := fmt.Sprint(entry)
		if object, ok := entry.(map[string]any); ok && len(p.schema.XListMapKeys) > 0 {
			identity = fmt.Sprint(object[p.schema.XListMapKeys[0]])
		}
		if !seen[identity] {
			entries = append(entries, entry)
		}
		seen[identity] = true
	}
	return entries
}

func (m *maker) dictionary(p *place) any {
	names := keys[p.name]
	if names == nil {
		names = keys[""]
	}
	entries := map[string]any{}
	for range m.IntN(3) {
		entries[names[m.IntN(len(names))]] = m.good(p.values)
	}
	return entries
}

func (m *maker) fields(p *place) any {
	object := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(p.fields)) {
		if slices.Contains(p.schema.Required, name) || m.IntN(3) == 0 {
			object[name] = m.good(p.fields[name])
		}
	}
	return object
}
