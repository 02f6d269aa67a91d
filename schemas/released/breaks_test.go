package released

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const small = `
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, listKind: ThingList, plural: things, shortNames: [th], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, maximum: 9}
              name: {type: string, default: a, minLength: 1, maxLength: 5, pattern: "^a"}
              mode: {type: string, enum: [Fast, Slow]}
              extra: {type: object, x-kubernetes-preserve-unknown-fields: true}
              share: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
              labels: {type: object, maxProperties: 4, additionalProperties: {type: string, maxLength: 9}}
              items:
                type: array
                maxItems: 3
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, note: {type: string, nullable: true}}}
            x-kubernetes-validations: [{rule: "self.size > 0", message: positive}]
          status: {type: object, properties: {ready: {type: boolean}}}
`

func TestBreaks(t *testing.T) {
	for name, test := range map[string]struct {
		old, now string
		want     []string
	}{
		"nothing":                 {"", "", nil},
		"the group changes":       {"group: example.com", "group: example.org", []string{"Thing  . KindRemoved"}},
		"the scope changes":       {"scope: Namespaced", "scope: Cluster", []string{"Thing  . KindRemoved"}},
		"a short name goes":       {"shortNames: [th], ", "", []string{"Thing  . NameRemoved"}},
		"a version goes":          {"name: v1\n", "name: v2\n", []string{"Thing v1 . VersionRemoved"}},
		"a version is not served": {"served: true", "served: false", []string{"Thing v1 . VersionRemoved"}},
		"the status subresource":  {"    subresources: {status: {}}\n", "", []string{"Thing v1 status SubresourceRemoved"}},

		"a field goes":                     {`mode: {type: string, enum: [Fast, Slow]}`, "", []string{"Thing v1 spec.mode FieldRemoved"}},
		"a field goes from elements":       {`, note: {type: string, nullable: true}`, "", []string{"Thing v1 spec.items[].note FieldRemoved"}},
		"a status field goes":              {`ready: {type: boolean}`, "", []string{"Thing v1 status.ready FieldRemoved"}},
		"unknown fields are dropped":       {`extra: {type: object, x-kubernetes-preserve-unknown-fields: true}`, `extra: {type: object}`, []string{"Thing v1 spec.extra FieldRemoved"}},
		"a field is renamed":               {"mode: {", "state: {", []string{"Thing v1 spec.mode FieldRemoved"}},
		"a field is added":                 {"mode: {", "more: {type: string, maxLength: 3, pattern: x, default: x}\n              mode: {", nil},
		"a required field with a default":  {"required: [size]", "required: [size, name]", nil},
		"a field becomes required":         {"required: [size]", "required: [size, mode]", []string{"Thing v1 spec.mode RequiredAdded"}},
		"a new field is required":          {"required: [size]", "required: [size, fresh]", []string{"Thing v1 spec.fresh RequiredAdded"}},
		"a required field becomes not so":  {"required: [size]", "required: []", nil},
		"an element's field gets required": {"required: [name]", "required: [name, note]", []string{"Thing v1 spec.items[].note RequiredAdded"}},

		"a type changes":                  {"ready: {type: boolean}", "ready: {type: string}", []string{"Thing v1 status.ready TypeChanged"}},
		"a number may be a text":          {"size: {type: integer, minimum: 1, maximum: 9}", "size: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}], minimum: 1, maximum: 9}", nil},
		"a text may not be a number":      {"share: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}", "share: {type: string}", []string{"Thing v1 spec.share TypeChanged"}},
		"a map becomes an object":         {"labels: {type: object, maxProperties: 4, additionalProperties: {type: string, maxLength: 9}}", "labels: {type: object, properties: {a: {type: string}}}", []string{"Thing v1 spec.labels TypeChanged"}},
		"a format is added":               {"mode: {type: string,", "mode: {type: string, format: date-time,", []string{"Thing v1 spec.mode TypeChanged"}},
		"a null is kept":                  {"ready: {type: boolean}", "ready: {type: boolean, nullable: true}", []string{"Thing v1 status.ready TypeChanged"}},
		"a null is dropped":               {", nullable: true", "", []string{"Thing v1 spec.items[].note TypeChanged"}},
		"a map's values are other":        {"additionalProperties: {type: string, maxLength: 9}", "additionalProperties: {type: integer}", []string{"Thing v1 spec.labels.* TypeChanged"}},
		"a maximum falls":                 {"maximum: 9", "maximum: 8", []string{"Thing v1 spec.size BoundTightened"}},
		"a maximum rises":                 {"maximum: 9", "maximum: 10", nil},
		"a maximum goes":                  {", maximum: 9", "", nil},
		"a maximum comes":                 {"mode: {type: string,", "mode: {type: string, maxLength: 3,", []string{"Thing v1 spec.mode BoundTightened"}},
		"a minimum rises":                 {"minimum: 1", "minimum: 2", []string{"Thing v1 spec.size BoundTightened"}},
		"a minimum falls":                 {"minimum: 1", "minimum: 0", nil},
		"the bound itself is out":         {"maximum: 9", "maximum: 9, exclusiveMaximum: true", []string{"Thing v1 spec.size BoundTightened"}},
		"a text gets shorter":             {"maxLength: 5", "maxLength: 4", []string{"Thing v1 spec.name BoundTightened"}},
		"a text gets longer at least":     {"minLength: 1", "minLength: 2", []string{"Thing v1 spec.name BoundTightened"}},
		"a list gets shorter":             {"maxItems: 3", "maxItems: 2", []string{"Thing v1 spec.items BoundTightened"}},
		"a list needs an entry":           {"maxItems: 3", "maxItems: 3\n                minItems: 1", []string{"Thing v1 spec.items BoundTightened"}},
		"a list needs none":               {"maxItems: 3", "maxItems: 3\n                minItems: 0", nil},
		"a map gets smaller":              {"maxProperties: 4", "maxProperties: 3", []string{"Thing v1 spec.labels BoundTightened"}},
		"a map's values get shorter":      {"maxLength: 9", "maxLength: 8", []string{"Thing v1 spec.labels.* BoundTightened"}},
		"a word goes":                     {"enum: [Fast, Slow]", "enum: [Fast]", []string{"Thing v1 spec.mode EnumNarrowed"}},
		"a word comes":                    {"enum: [Fast, Slow]", "enum: [Fast, Slow, Auto]", nil},
		"words become the only ones":      {`name: {type: string, default: a,`, `name: {type: string, default: a, enum: [a],`, []string{"Thing v1 spec.name EnumNarrowed"}},
		"all words are allowed":           {", enum: [Fast, Slow]", "", nil},
		"a pattern changes":               {`pattern: "^a"`, `pattern: "^[ab]"`, []string{"Thing v1 spec.name PatternChanged"}},
		"a pattern comes":                 {"mode: {type: string,", "mode: {type: string, pattern: S,", []string{"Thing v1 spec.mode PatternChanged"}},
		"a pattern goes":                  {`, pattern: "^a"`, "", nil},
		"a default changes":               {"default: a,", "default: ab,", []string{"Thing v1 spec.name DefaultChanged"}},
		"a default goes":                  {"default: a, ", "", []string{"Thing v1 spec.name DefaultChanged"}},
		"a default comes":                 {"mode: {type: string,", "mode: {type: string, default: Fast,", nil},
		"a rule comes":                    {"[{rule: \"self.size > 0\"", "[{rule: \"self.size < 5\", message: small}, {rule: \"self.size > 0\"", []string{"Thing v1 spec RuleAdded"}},
		"a rule changes":                  {"self.size > 0", "self.size > 1", []string{"Thing v1 spec RuleAdded"}},
		"a rule goes":                     {`x-kubernetes-validations: [{rule: "self.size > 0", message: positive}]`, "", nil},
		"a rule says it otherwise":        {"message: positive", "message: must be positive", nil},
		"a rule about a change comes":     {"[{rule: \"self.size > 0\"", "[{rule: \"self.size >= oldSelf.size\", message: grows}, {rule: \"self.size > 0\"", nil},
		"a rule about both comes":         {"[{rule: \"self.size > 0\"", "[{rule: \"oldSelf.hasValue() || self.size < 5\", optionalOldSelf: true, message: small}, {rule: \"self.size > 0\"", []string{"Thing v1 spec RuleAdded"}},
		"a rule comes with a new field":   {"mode: {", "more: {type: string, x-kubernetes-validations: [{rule: \"self != ''\", message: some}]}\n              mode: {", nil},
		"a list merges otherwise":         {"x-kubernetes-list-map-keys: [name]", "x-kubernetes-list-map-keys: [name, note]", []string{"Thing v1 spec.items MergeChanged"}},
		"a list becomes a set":            {"x-kubernetes-list-type: map\n                x-kubernetes-list-map-keys: [name]", "x-kubernetes-list-type: set", []string{"Thing v1 spec.items MergeChanged"}},
		"an object becomes atomic":        {"labels: {type: object,", "labels: {type: object, x-kubernetes-map-type: atomic,", []string{"Thing v1 spec.labels MergeChanged"}},
		"a keyword that nothing uses yet": {"size: {type: integer,", "size: {type: integer, multipleOf: 2,", []string{"Thing v1 spec.size ConstraintChanged"}},
		"alternatives":                    {"mode: {type: string,", "mode: {type: string, anyOf: [{pattern: Fast}],", []string{"Thing v1 spec.mode ConstraintChanged"}},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(small, test.old) {
				t.Fatalf("there is no %q to change", test.old)
			}
			var got []string
			for _, one := range Breaks(definitions(t, small), definitions(t, strings.Replace(small, test.old, test.now, 1))) {
				got = append(got, one.ID())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

func TestBreaksOfARemovedDefinition(t *testing.T) {
	got := Breaks(definitions(t, small), nil)
	if len(got) != 1 || got[0].Cause != KindRemoved {
		t.Errorf("got %v, want the kind", got)
	}
	if more := Breaks(nil, definitions(t, small)); len(more) > 0 {
		t.Errorf("a new kind breaks %v", more)
	}
}

func definitions(t *testing.T, text string) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(text), definition); err != nil {
		t.Fatal(err)
	}
	return []*apiextensionsv1.CustomResourceDefinition{definition}
}
