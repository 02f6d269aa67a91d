package released_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/schemas"
	"cloop.dev/cloop/schemas/released"
	"cloop.dev/cloop/schemas/schemastest"
)

// A change that Breaks has nothing to say about leaves every document good that
// was good, and drops no field. Rules are compared by their text, and left out.
func TestWhatBreaksNothingRefusesNothing(t *testing.T) {
	seed := rand.Uint64()
	if given := os.Getenv("CLOOP_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("CLOOP_SEED: %v", err)
		}
	}
	t.Logf("the seed is %d; CLOOP_SEED=%d repeats this run", seed, seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	random := schemastest.NewRandom(t, seed)
	definitions, err := schemas.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	documents := map[string][]*unstructured.Unstructured{}
	for i := range 450 {
		object := random.Case(i)
		documents[object.GetKind()] = append(documents[object.GetKind()], object)
	}
	harmless, broken := 0, 0
	for _, definition := range definitions {
		before := judgeOf(t, definition)
		good := slices.DeleteFunc(documents[definition.Spec.Names.Kind], func(u *unstructured.Unstructured) bool { return before.refuses(u) != "" })
		for range 60 {
			changed := definition.DeepCopy()
			what := change(rng, changed.Spec.Versions[0].Schema.OpenAPIV3Schema)
			breaks := released.Breaks([]*apiextensionsv1.CustomResourceDefinition{definition}, []*apiextensionsv1.CustomResourceDefinition{changed})
			after := judgeOf(t, changed)
			refused := ""
			for _, object := range good {
				if refused = after.refuses(object); refused != "" {
					break
				}
			}
			switch {
			case refused != "" && len(breaks) == 0:
				t.Errorf("%s: %s: Breaks finds nothing, and a document is refused: %s", definition.Name, what, refused)
			case refused != "":
				broken++
			case len(breaks) == 0:
				harmless++
			}
		}
	}
	t.Logf("%d changes did nothing, %d refused something", harmless, broken)
	if harmless < 10 || broken < 10 {
		t.Error("too few changes of each sort to show anything")
	}
}

// change does one thing to one field of a spec, and says what.
func change(rng *rand.Rand, root *apiextensionsv1.JSONSchemaProps) string {
	spec := root.Properties["spec"]
	path, at := "spec", &spec
	// Way down, each field equally likely at each step.
	for range rng.IntN(5) {
		names := slices.Sorted(maps.Keys(at.Properties))
		if len(names) == 0 {
			break
		}
		name := names[rng.IntN(len(names))]
		child := at.Properties[name]
		held := at
		at, path = &child, path+"."+name
		if child.Items != nil {
			at, path = child.Items.Schema, path+"[]"
		}
		defer func() { held.Properties[name] = child }()
	}
	defer func() { root.Properties["spec"] = spec }()
	return path + ": " + edit(rng, at)
}

func edit(rng *rand.Rand, at *apiextensionsv1.JSONSchemaProps) string {
	nudged := func(bound **int64, name string) string {
		value := int64(rng.IntN(4))
		if *bound != nil {
			value = max(0, **bound+int64(rng.IntN(7)-3))
		}
		*bound = &value
		return fmt.Sprintf("%s is %d", name, value)
	}
	switch rng.IntN(12) {
	case 0:
		return nudged(&at.MaxLength, "maxLength")
	case 1:
		return nudged(&at.MinLength, "minLength")
	case 2:
		return nudged(&at.MaxItems, "maxItems")
	case 3:
		return nudged(&at.MaxProperties, "maxProperties")
	case 4:
		value := float64(rng.IntN(8) - 2)
		at.Minimum = &value
		return fmt.Sprintf("minimum is %v", value)
	case 5:
		at.Pattern = []string{"", "^[a-z]*$", at.Pattern}[rng.IntN(3)]
		return "pattern is " + at.Pattern
	case 6:
		if len(at.Enum) > 1 {
			at.Enum = at.Enum[1:]
			return "the first word goes"
		}
		at.Enum = append(slices.Clone(at.Enum), apiextensionsv1.JSON{Raw: []byte(`"more"`)})
		return "a word comes"
	case 7:
		names := slices.Sorted(maps.Keys(at.Properties))
		if len(names) == 0 {
			return "nothing"
		}
		name := names[rng.IntN(len(names))]
		delete(at.Properties, name)
		at.Required = slices.DeleteFunc(slices.Clone(at.Required), func(one string) bool { return one == name })
		return name + " goes"
	case 8:
		names := slices.Sorted(maps.Keys(at.Properties))
		if len(names) == 0 {
			return "nothing"
		}
		name := names[rng.IntN(len(names))]
		at.Required = append(slices.Clone(at.Required), name)
		return name + " is required"
	case 9:
		at.Required = nil
		return "nothing is required"
	case 10:
		at.MaxLength, at.MinLength, at.Pattern, at.Minimum, at.Maximum = nil, nil, "", nil, nil
		return "no bounds"
	default:
		at.Nullable = !at.Nullable
		return "nullable or not"
	}
}

// judging is a definition's structural part as a server has it.
type judging struct {
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
}

func judgeOf(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition) *judging {
	t.Helper()
	internal := &apiextensions.JSONSchemaProps{}
	external := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(external, internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	schema, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		t.Fatal(err)
	}
	return &judging{structural, schema}
}

// refuses says what is wrong with a document; empty: nothing.
func (j *judging) refuses(object *unstructured.Unstructured) string {
	object = object.DeepCopy()
	track := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	if dropped := pruning.PruneWithOptions(object.Object, j.structural, true, track); len(dropped) > 0 {
		return "it drops " + dropped[0]
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, j.structural)
	defaulting.Default(object.Object, j.structural)
	delete(object.Object, "status")
	errs := validation.ValidateCustomResource(nil, object.Object, j.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, j.structural, object.Object)...)
	if len(errs) > 0 {
		return errs[0].Error()
	}
	return ""
}
