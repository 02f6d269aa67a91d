package schemas

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/apis/v1alpha1"
)

// An API server would accept every definition, cost of its CEL rules included.
func TestDefinitionsAreAccepted(t *testing.T) {
	for _, crd := range mustCRDs(t) {
		t.Run(crd.Name, func(t *testing.T) {
			apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
			apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
			crd.Status.StoredVersions = []string{"v1alpha1"}
			internal := &apiextensions.CustomResourceDefinition{}
			if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
				t.Fatal(err)
			}
			for _, err := range crdvalidation.ValidateCustomResourceDefinition(context.Background(), internal) {
				t.Error(err)
			}
		})
	}
}

// Kubernetes 1.27 is the floor: its CEL has fewer functions than today's.
func TestRulesCompileOnTheOldestKubernetes(t *testing.T) {
	floor := environment.MustBaseEnvSet(version.MajorMinor(1, 27))
	for _, crd := range mustCRDs(t) {
		t.Run(crd.Name, func(t *testing.T) {
			root := structuralOf(t, crd)
			rules := 0
			compile := func(path string, schema *structuralschema.Structural, isRoot bool) {
				results, err := cel.Compile(schema, model.SchemaDeclType(schema, isRoot), celconfig.PerCallLimit, floor, cel.NewExpressionsEnvLoader())
				if err != nil {
					t.Errorf("%s: %v", path, err)
				}
				for i, result := range results {
					rules++
					if result.Error != nil {
						t.Errorf("%s: rule %q: %v", path, schema.XValidations[i].Rule, result.Error)
					}
				}
			}
			compile("", root, true)
			eachSchema("", root, func(path string, schema *structuralschema.Structural) { compile(path, schema, false) })
			if rules == 0 {
				t.Error("no rule was compiled")
			}
		})
	}
}

// What a server of 1.27 does not know, its strict decoding refuses, and kubectl
// asks for that. It would drop reason, fieldPath and optionalOldSelf otherwise.
func TestRulesUseKeywordsOfTheOldestKubernetes(t *testing.T) {
	documents, problems := Decode("crds", CRDYAML())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	rules := 0
	var walk func(path string, node any)
	walk = func(path string, node any) {
		switch node := node.(type) {
		case []any:
			for i, item := range node {
				walk(fmt.Sprintf("%s[%d]", path, i), item)
			}
		case map[string]any:
			if list, ok := node["x-kubernetes-validations"].([]any); ok {
				for _, rule := range list {
					rules++
					keywords := slices.Sorted(maps.Keys(rule.(map[string]any)))
					if !slices.Equal(keywords, []string{"message", "rule"}) {
						t.Errorf("%s: a rule has %v, want message and rule alone", path, keywords)
					}
				}
			}
			for name, child := range node {
				walk(path+"."+name, child)
			}
		}
	}
	for _, document := range documents {
		walk(document.Object.GetName(), document.Object.Object)
	}
	if rules == 0 {
		t.Error("no rule was found")
	}
}

// saysEnough are messages that leave nothing open; those of #Duration name the
// bounds.
var saysEnough = map[string]bool{
	"must be between 0s and 24h": true, "must be between 1s and 24h": true, "must be between 1s and 1h": true, "must be between 1h and 8760h": true,
}

func TestEveryPatternAndRuleHasAHint(t *testing.T) {
	used := map[string]bool{}
	for _, crd := range mustCRDs(t) {
		eachProps("", crd.Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, props *apiextensionsv1.JSONSchemaProps) {
			// Conditions and the rest of the status are not written by people.
			written := !strings.HasPrefix(path, "status")
			if props.Pattern != "" {
				used[props.Pattern] = true
				if written && hints()[props.Pattern] == "" {
					t.Errorf("%s %s: no hint for pattern %s", crd.Spec.Names.Kind, path, props.Pattern)
				}
			}
			for _, rule := range props.XValidations {
				used[rule.Message] = true
				if rule.Rule == "" || rule.Message == "" {
					t.Errorf("%s %s: a rule needs a text and a message", crd.Spec.Names.Kind, path)
				}
				if hints()[rule.Message] == "" && !saysEnough[rule.Message] {
					t.Errorf("%s %s: no hint for %q", crd.Spec.Names.Kind, path, rule.Message)
				}
			}
		})
	}
	for message := range advices().Places {
		if !used[message] {
			t.Errorf("there is a place for %q, which no rule says", message)
		}
	}
	for key := range hints() {
		if !used[key] {
			t.Errorf("the hint for %q is for nothing that a definition says", key)
		}
	}
}

// The API server accepts a required name that is no property.
func TestRequiredNamesAreFields(t *testing.T) {
	for _, crd := range mustCRDs(t) {
		eachProps("", crd.Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, props *apiextensionsv1.JSONSchemaProps) {
			for _, name := range props.Required {
				if _, ok := props.Properties[name]; !ok {
					t.Errorf("%s %s requires %q, which is no field", crd.Spec.Names.Kind, path, name)
				}
			}
		})
	}
}

// What kubectl get prints, with -o wide in brackets, and what it is called by.
func TestColumnsAndNames(t *testing.T) {
	want := map[string]string{
		v1alpha1.ExecutorPoolKind: "DESIRED RUNNERS BUSY IDLE QUEUED READY (VOLUMES) AGE: xpool cloop",
		v1alpha1.HubPoolKind:      "MAX HARNESS (DELETION) READY (REASON) AGE: hpool cloop",
		v1alpha1.PoolSyncKind:     "READY STATUS REVISION (SUSPENDED) AGE: psync cloop",
	}
	for _, crd := range mustCRDs(t) {
		var got []string
		for _, column := range crd.Spec.Versions[0].AdditionalPrinterColumns {
			name := strings.ToUpper(column.Name)
			if column.Priority > 0 {
				name = "(" + name + ")"
			}
			got = append(got, name)
		}
		names := crd.Spec.Names
		text := strings.Join(got, " ") + ": " + strings.Join(append(names.ShortNames, names.Categories...), " ")
		if text != want[names.Kind] {
			t.Errorf("%s prints and is called %s, want %s", names.Kind, text, want[names.Kind])
		}
	}
}

func TestCRDYAMLIsTheDefinitions(t *testing.T) {
	documents, problems := Decode("crd", CRDYAML())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var names []string
	for _, document := range documents {
		names = append(names, document.Object.GetName())
	}
	if want := []string{"executorpools.cloop.dev", "hubpools.cloop.dev", "poolsyncs.cloop.dev"}; !slices.Equal(names, want) {
		t.Errorf("the stream holds %v, want %v", names, want)
	}
}

// The constants that a status carries are those that the definition allows.
func TestEnumsAreTheConstants(t *testing.T) {
	causes := []string{v1alpha1.DriftCommitNotApplied, v1alpha1.DriftClusterEdited, v1alpha1.DriftHubEdited, v1alpha1.DriftBothEdited, v1alpha1.DriftBreakGlass, v1alpha1.DriftConverging, v1alpha1.DriftRuleBroken}
	outcomes := []string{v1alpha1.OutcomeCorrected, v1alpha1.OutcomeWaiting, v1alpha1.OutcomeReportOnly, v1alpha1.OutcomeObserved, v1alpha1.OutcomeContested, v1alpha1.OutcomeRefused, v1alpha1.OutcomeSuspended}
	want := map[string][]string{
		"HubPool status.drift[].cause":                causes,
		"ExecutorPool status.drift[].cause":           causes,
		"PoolSync status.drift[].cause":               causes,
		"HubPool status.drift[].outcome":              outcomes,
		"ExecutorPool status.drift[].outcome":         outcomes,
		"PoolSync status.drift[].outcome":             outcomes,
		"PoolSync spec.drift.mode":                    {v1alpha1.DriftCorrect, v1alpha1.DriftReport},
		"PoolSync spec.sourceRef.kind":                {v1alpha1.SourceGitRepository, v1alpha1.SourceOCIRepository, v1alpha1.SourceBucket},
		"PoolSync spec.source.git.verify.mode":        {v1alpha1.VerifyHead, v1alpha1.VerifyTag, v1alpha1.VerifyTagAndHead},
		"ExecutorPool spec.persistence.reclaimPolicy": {v1alpha1.ReclaimDelete, v1alpha1.ReclaimRetain},
		"ExecutorPool spec.persistence.mounts[]":      {v1alpha1.MountWorkspace, v1alpha1.MountGitCache, v1alpha1.MountToolCache},
		"HubPool spec.deletionPolicy":                 {v1alpha1.DeletionOrphan, v1alpha1.DeletionRevoke},
	}
	for _, crd := range mustCRDs(t) {
		eachProps("", crd.Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, props *apiextensionsv1.JSONSchemaProps) {
			constants, ok := want[crd.Spec.Names.Kind+" "+path]
			if !ok {
				return
			}
			delete(want, crd.Spec.Names.Kind+" "+path)
			var allowed []string
			for _, word := range props.Enum {
				var text string
				if err := json.Unmarshal(word.Raw, &text); err != nil {
					t.Fatal(err)
				}
				allowed = append(allowed, text)
			}
			if !slices.Equal(allowed, constants) {
				t.Errorf("%s %s allows %v, the constants are %v", crd.Spec.Names.Kind, path, allowed, constants)
			}
		})
	}
	for path := range want {
		t.Errorf("there is no field %s", path)
	}
}

func mustCRDs(t testing.TB) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crds, err := CRDs()
	if err != nil {
		t.Fatal(err)
	}
	return crds
}

func structuralOf(t testing.TB, crd *apiextensionsv1.CustomResourceDefinition) *structuralschema.Structural {
	t.Helper()
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	return structural
}

// eachSchema visits every schema below one; the path of an element ends in
// [], that of a map's value in .*.
func eachSchema(path string, schema *structuralschema.Structural, visit func(path string, schema *structuralschema.Structural)) {
	visit(path, schema)
	for name := range schema.Properties {
		child := schema.Properties[name]
		eachSchema(joinPath(path, name), &child, visit)
	}
	if schema.Items != nil {
		eachSchema(path+"[]", schema.Items, visit)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Structural != nil {
		eachSchema(path+".*", schema.AdditionalProperties.Structural, visit)
	}
}

func eachProps(path string, props *apiextensionsv1.JSONSchemaProps, visit func(path string, props *apiextensionsv1.JSONSchemaProps)) {
	visit(path, props)
	for name := range props.Properties {
		child := props.Properties[name]
		eachProps(joinPath(path, name), &child, visit)
	}
	if props.Items != nil {
		eachProps(path+"[]", props.Items.Schema, visit)
	}
	if props.AdditionalProperties != nil && props.AdditionalProperties.Schema != nil {
		eachProps(path+".*", props.AdditionalProperties.Schema, visit)
	}
}

func mustYAML(t testing.TB, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(string(text))
}
