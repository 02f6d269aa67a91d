package examples

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/internal/argocdtest"
	"cloop.dev/cloop/internal/fleet"
)

func TestTheFleetOfArgoCDPassesItsCheckWithoutAWarning(t *testing.T) {
	code, stdout, stderr := cloop(t, repository(t, "argocd"), "fleet", "check")
	if code != 0 || stdout != "4 roots, 4 documents, 1 pool: all is well\n" {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

// settings are the keys of argocd-cm that the example adds.
func settings(t *testing.T) map[string]string {
	t.Helper()
	rendered, err := fleet.Build(context.Background(), "argocd", "settings")
	if err != nil || len(rendered) != 1 {
		t.Fatalf("%d objects: %v", len(rendered), err)
	}
	object := rendered[0].Object
	keys, _, err := unstructured.NestedStringMap(object.Object, "data")
	// Argo CD looks for that name, and for that label.
	if object.GetName() != "argocd-cm" || object.GetNamespace() != "argocd" || object.GetLabels()["app.kubernetes.io/part-of"] != "argocd" || err != nil {
		t.Errorf("it renders %s/%s labelled %v: %v", object.GetNamespace(), object.GetName(), object.GetLabels(), err)
	}
	return keys
}

func TestArgoCDKnowsTheHealthOfTheKinds(t *testing.T) {
	keys := settings(t)
	spec := map[string]any{"hub": map[string]any{"url": "https://cloop.example.com:8443"}}
	conditions := func(status, reason string) map[string]any {
		return map[string]any{"observedGeneration": int64(2), "conditions": []any{
			map[string]any{"type": "Drifted", "status": "True", "reason": "Overridden", "message": "Git is set aside"},
			map[string]any{"type": "Ready", "status": status, "reason": reason, "message": "so it is"},
			map[string]any{"type": "Unsupported", "status": "True", "reason": "NotBuilt", "message": "not yet"},
		}}
	}
	for _, kind := range []string{"ExecutorPool", "HubPool", "PoolSync"} {
		script := keys["resource.customizations.health.cloop.dev_"+kind]
		for _, c := range []struct {
			generation int64
			status     map[string]any
			want       string
		}{
			{1, nil, "Progressing: the"},
			{1, map[string]any{}, "Progressing: the"},
			{2, map[string]any{"observedGeneration": int64(2), "conditions": []any{}}, "Progressing: the"},
			{3, conditions("True", "Serving"), "Progressing: the"},
			{2, conditions("True", "Serving"), "Healthy: so it is; "},
			{2, conditions("Unknown", "Connecting"), "Progressing: so it is"},
			{2, conditions("False", "HubRefused"), "Degraded: HubRefused: so it is"},
		} {
			object := &unstructured.Unstructured{Object: map[string]any{"kind": kind, "metadata": map[string]any{"generation": c.generation}, "spec": spec}}
			if c.status != nil {
				object.Object["status"] = c.status
			}
			health, err := argocdtest.Run(t.Context(), script, object)
			if got := health.Status + ": " + health.Message; err != nil || !strings.HasPrefix(got, c.want) {
				t.Errorf("%s of generation %d with %v is %q, %v, and not %q", kind, c.generation, c.status, got, err, c.want)
			}
		}
	}
}

// Argo CD compares three ways: a field that Git does not name is no difference, but a
// list is compared whole. So no default may be set within one, and of the lists of our
// kinds none has any.
func TestTheServersDefaultsAreNoDifferenceToArgoCD(t *testing.T) {
	files, err := filepath.Glob("../kustomize/crd/cloop.dev_*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var definition map[string]any
		if err := yaml.Unmarshal(data, &definition); err != nil {
			t.Fatal(err)
		}
		defaultsInLists(t, file, definition, false)
	}
}

func defaultsInLists(t *testing.T, at string, schema any, within bool) {
	t.Helper()
	switch node := schema.(type) {
	case []any:
		for _, item := range node {
			defaultsInLists(t, at, item, within)
		}
	case map[string]any:
		_, typed := node["type"].(string)
		if _, set := node["default"]; set && typed && within {
			t.Errorf("%s sets a default within a list", at)
		}
		for key, value := range node {
			defaultsInLists(t, at+"."+key, value, within || key == "items")
		}
	}
}

func TestArgoCDComparesTheKinds(t *testing.T) {
	const prefix = "resource.customizations."
	keys := settings(t)
	var names []string
	for key, text := range keys {
		if strings.HasPrefix(key, prefix+"health.") {
			continue
		}
		names = append(names, strings.TrimPrefix(key, prefix))
		if strings.HasPrefix(key, prefix+"knownTypeFields.") {
			var fields []struct{ Field, Type string }
			if err := yaml.UnmarshalStrict([]byte(text), &fields); err != nil || len(fields) != 1 || fields[0].Type != "core/v1/ResourceRequirements" {
				t.Errorf("%s is %+v: %v", key, fields, err)
			}
			continue
		}
		var rules struct{ JSONPointers []string }
		if err := yaml.UnmarshalStrict([]byte(text), &rules); err != nil || len(rules.JSONPointers) == 0 {
			t.Errorf("%s is %+v: %v", key, rules, err)
		}
		for _, pointer := range rules.JSONPointers {
			// Never what says how many runners there may be, where, or whose they are.
			if !strings.HasPrefix(pointer, "/metadata/annotations/") && !strings.HasPrefix(pointer, "/spec/suspend") {
				t.Errorf("%s leaves out %s", key, pointer)
			}
		}
	}
	slices.Sort(names)
	if got, want := strings.Join(names, " "), "ignoreDifferences.cloop.dev_HubPool ignoreDifferences.cloop.dev_PoolSync knownTypeFields.cloop.dev_ExecutorPool"; got != want {
		t.Errorf("it has %s, want %s", got, want)
	}
}

// The Application names a folder that is there, and honours what is not compared while
// it applies, too.
func TestTheApplicationAppliesTheCluster(t *testing.T) {
	data, err := os.ReadFile("argocd/apps/fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var application struct {
		Spec struct {
			Source      struct{ Path string }
			Destination struct{ Namespace string }
			SyncPolicy  struct{ SyncOptions []string }
		}
	}
	if err := yaml.Unmarshal(data, &application); err != nil {
		t.Fatal(err)
	}
	spec := application.Spec
	rendered, err := fleet.Build(context.Background(), "argocd", spec.Source.Path)
	if err != nil || len(rendered) != 1 || rendered[0].Object.GetNamespace() != spec.Destination.Namespace {
		t.Errorf("%s renders %d objects: %v", spec.Source.Path, len(rendered), err)
	}
	if !slices.Contains(spec.SyncPolicy.SyncOptions, "RespectIgnoreDifferences=true") {
		t.Errorf("it syncs with %q", spec.SyncPolicy.SyncOptions)
	}
}
