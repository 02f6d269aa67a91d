package fleet_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

// object decodes one YAML document.
func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	documents, problems := schemas.Decode("test.yaml", []byte(text))
	if len(documents) != 1 || len(problems) > 0 {
		t.Fatalf("decoded %d documents, %v", len(documents), problems)
	}
	return documents[0].Object
}

func pool(t testing.TB, spec string) *unstructured.Unstructured {
	t.Helper()
	return object(t, "{apiVersion: cloop.dev/v1alpha1, kind: ExecutorPool, metadata: {name: gpu, namespace: cloop-gpu}, spec: "+spec+"}")
}

// described are differences as "path want have".
func described(diffs []fleet.FieldDiff) string {
	parts := make([]string, len(diffs))
	for i, d := range diffs {
		parts[i] = fmt.Sprintf("%s %v %v", d.Path, d.Want, d.Have)
	}
	return strings.Join(parts, "; ")
}

func TestCompareSpecs(t *testing.T) {
	tests := []struct{ name, want, have, diffs string }{
		{"equal", "{maxRunners: 4}", "{maxRunners: 4}", ""},
		{"changed", "{maxRunners: 4}", "{maxRunners: 5}", "/spec/maxRunners 4 5"},
		{"added by somebody", "{maxRunners: 4}", "{maxRunners: 4, hubCAPin: x}", "/spec/hubCAPin <nil> x"},
		{"removed by somebody", "{hubPool: a}", "{}", "/spec/hubPool a <nil>"},
		{"a default written or not", "{poolCredentialSecretRef: {name: a}}", "{minRunners: 0, scaleDownDelay: 5m, poolCredentialSecretRef: {name: a, key: credential}}", ""},
		{"a default overridden", "{}", "{minRunners: 2, scaleDownDelay: 0s}", "/spec/minRunners 0 2; /spec/scaleDownDelay 5m 0s"},
		{"a duration respelt", "{scaleDownDelay: 90s}", "{scaleDownDelay: 1m30s}", ""},
		{"quantities respelt", "{template: {resources: {requests: {cpu: 1000m, memory: 1Gi, x: 2}, limits: {cpu: 0.5}}}}",
			"{template: {resources: {requests: {cpu: '1', memory: '1073741824', x: 2e0}, limits: {cpu: 500m}}}}", ""},
		{"a quantity changed", "{template: {resources: {requests: {cpu: 1}}}}", "{template: {resources: {requests: {cpu: 1001m}}}}", "/spec/template/resources/requests/cpu 1 1001m"},
		{"what is no quantity", "{runnerLabels: {size: 1000m}}", "{runnerLabels: {size: '1'}}", "/spec/runnerLabels/size 1000m 1"},
		{"null and empty", "{template: null, runnerLabels: {}, hubCAPin: ''}", "{template: {env: [], image: '', resources: {limits: null}}}", ""},
		{"an empty label is there", "{runnerLabels: {a: ''}}", "{runnerLabels: {}}", "/spec/runnerLabels/a  <nil>"},
		{"a key with a slash", "{runnerLabels: {example.com/a: b}}", "{runnerLabels: {example.com/a: c}}", "/spec/runnerLabels/example.com~1a b c"},
		{"zero under a pointer", "{template: {tolerations: [{key: a, tolerationSeconds: 0}]}}", "{template: {tolerations: [{key: a}]}}", "/spec/template/tolerations/0/tolerationSeconds 0 <nil>"},
		{"order of a keyed list", "{template: {env: [{name: A, secretKeyRef: {name: s, key: a}}, {name: B, secretKeyRef: {name: s, key: b}}]}}",
			"{template: {env: [{name: B, secretKeyRef: {name: s, key: b}}, {name: A, secretKeyRef: {name: s, key: a}}]}}", ""},
		{"an element of a keyed list", "{template: {env: [{name: A, secretKeyRef: {name: s, key: a}}]}}", "{template: {env: [{name: A, secretKeyRef: {name: s, key: z}}]}}",
			"/spec/template/env/0/secretKeyRef/key a z"},
		{"a whole object in place of none", "{}", "{template: {nodeSelector: {a: b}}}", "/spec/template/nodeSelector/a <nil> b"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want, have := pool(t, test.want), pool(t, test.have)
			before := want.DeepCopy()
			if got := described(fleet.CompareSpecs(want, have, nil)); got != test.diffs {
				t.Errorf("differences are %q, want %q", got, test.diffs)
			}
			if !reflect.DeepEqual(want, before) {
				t.Error("the comparison changed its input")
			}
		})
	}
}

func TestCompareSpecsIgnoresAndWholeObjects(t *testing.T) {
	want, have := pool(t, "{maxRunners: 4, template: {image: a}}"), pool(t, "{maxRunners: 5, template: {image: b, runtimeClassName: c}}")
	if got := described(fleet.CompareSpecs(want, have, []string{"/spec/maxRunners", "/spec/template/image"})); got != "/spec/template/runtimeClassName <nil> c" {
		t.Errorf("differences are %q", got)
	}
	if got := fleet.CompareSpecs(want, have, []string{"/spec/max", "/spec/maxRunners/", "/spec/template"}); len(got) != 0 {
		t.Errorf("differences are %v, want none", got)
	}
	gone := fleet.CompareSpecs(want, nil, nil)
	if len(gone) != 1 || gone[0].Path != "" || gone[0].Want == nil || gone[0].Have != nil {
		t.Errorf("a missing object is %v", gone)
	}
	if fleet.CompareSpecs(nil, nil, nil) != nil {
		t.Error("nothing differs from nothing")
	}
}

func TestCompareSpecsOfOtherKindsLooksAtWhatGitSets(t *testing.T) {
	want := object(t, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {pods: 10, requests.cpu: 1000m}}}")
	have := object(t, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {pods: '11', requests.cpu: '1'}, scopes: [BestEffort]}, status: {used: {pods: 1}}}")
	if got := described(fleet.CompareSpecs(want, have, nil)); got != "/spec/hard/pods 10 11" {
		t.Errorf("differences are %q", got)
	}
	account := object(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: s}, automountServiceAccountToken: false}")
	if got := described(fleet.CompareSpecs(account, object(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: s}, secrets: [{name: x}]}"), nil)); got != "/automountServiceAccountToken false <nil>" {
		t.Errorf("differences are %q", got)
	}
}

func TestFieldManager(t *testing.T) {
	have := pool(t, "{maxRunners: 9, hubPool: a, runnerLabels: {team: ml}, template: {image: x, tolerations: [{key: a}], env: [{name: A, secretKeyRef: {name: s, key: k}}]}}")
	entry := func(manager, at, subresource, fields string) any {
		return map[string]any{"manager": manager, "operation": "Update", "time": at, "subresource": subresource,
			"apiVersion": "cloop.dev/v1alpha1", "fieldsType": "FieldsV1", "fieldsV1": object(t, "{apiVersion: v, kind: k, x: "+fields+"}").Object["x"]}
	}
	err := unstructured.SetNestedSlice(have.Object, []any{
		entry(v1alpha1.FieldManagerPoolSync, "2026-01-03T00:00:00Z", "", "{f:spec: {f:maxRunners: {}, f:hubPool: {}}}"),
		entry("helm", "2026-01-01T00:00:00Z", "", "{f:spec: {f:maxRunners: {}, f:template: {}}}"),
		entry("kubectl-edit", "2026-01-02T00:00:00Z", "", `{f:spec: {f:maxRunners: {}, f:template: {f:tolerations: {}, f:env: {'k:{"name":"A"}': {.: {}, f:secretKeyRef: {f:key: {}}}}}, f:runnerLabels: {f:team: {}}}}`),
		entry("controller", "2026-01-04T00:00:00Z", "status", "{f:spec: {f:maxRunners: {}}}"),
	}, "metadata", "managedFields")
	if err != nil {
		t.Fatal(err)
	}
	for pointer, want := range map[string]string{
		"/spec/maxRunners":                      "kubectl-edit",
		"/spec/hubPool":                         "",
		"/spec/template/image":                  "helm",
		"/spec/template/tolerations/0/key":      "kubectl-edit",
		"/spec/template/env/0/secretKeyRef/key": "kubectl-edit",
		"/spec/runnerLabels":                    "kubectl-edit",
		"/spec/runnerLabels/team":               "kubectl-edit",
		"/spec/minRunners":                      "",
		"/spec/template/tolerations/7/key":      "kubectl-edit",
	} {
		if got := fleet.FieldManager(have, pointer, v1alpha1.FieldManagerPoolSync); got != want {
			t.Errorf("%s was written by %q, want %q", pointer, got, want)
		}
	}
	diffs := fleet.CompareSpecs(pool(t, "{maxRunners: 4}"), have, []string{"/spec/template", "/spec/hubPool", "/spec/runnerLabels"})
	if len(diffs) != 1 || diffs[0].Manager != "kubectl-edit" {
		t.Errorf("differences are %+v", diffs)
	}
}

// FuzzFieldManager: managedFields are whatever a cluster holds.
func FuzzFieldManager(f *testing.F) {
	f.Add(`{"f:spec":{"f:maxRunners":{}}}`, "/spec/maxRunners")
	f.Add(`{"k:{\"name\":1}":{".":{}},"v:1":{},"i:0":{}}`, "//~1~0")
	f.Fuzz(func(t *testing.T, fields, pointer string) {
		obj := pool(t, "{maxRunners: 4, template: {env: [{name: A}]}}")
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}})
		if got := fleet.FieldManager(obj, pointer, "ours"); got != "" && got != "m" {
			t.Errorf("manager is %q", got)
		}
	})
}

// drawPool draws a legal spec, as an API server would store it.
func drawPool(t *rapid.T) *unstructured.Unstructured {
	label := rapid.StringMatching(`[a-z][a-z0-9./-]{0,8}`)
	text := rapid.StringMatching(`[a-z0-9]{1,8}`)
	labels := func(name string) map[string]any {
		out := map[string]any{}
		for key, value := range rapid.MapOfN(label, text, 0, 3).Draw(t, name) {
			out[key] = value
		}
		return out
	}
	amounts := func(name string) map[string]any {
		out := map[string]any{}
		for _, key := range rapid.SliceOfNDistinct(label, 0, 3, rapid.ID[string]).Draw(t, name) {
			out[key] = fmt.Sprintf("%dm", rapid.Int64Range(1, 1_000_000).Draw(t, "amount"))
		}
		return out
	}
	tolerations := []any{}
	for range rapid.IntRange(0, 3).Draw(t, "tolerations") {
		tolerations = append(tolerations, map[string]any{"key": label.Draw(t, "key"), "tolerationSeconds": rapid.Int64Range(0, 9).Draw(t, "seconds")})
	}
	env := []any{}
	for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Z]{1,4}`), 0, 3, rapid.ID[string]).Draw(t, "env") {
		env = append(env, map[string]any{"name": name, "secretKeyRef": map[string]any{"name": text.Draw(t, "secret"), "key": text.Draw(t, "key")}})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cloop.dev/v1alpha1", "kind": "ExecutorPool", "metadata": map[string]any{"name": "gpu"},
		"spec": map[string]any{
			"hubURL": "https://" + text.Draw(t, "host"), "maxRunners": rapid.Int64Range(1, 100).Draw(t, "max"),
			"minRunners":              rapid.Int64Range(0, 100).Draw(t, "min"),
			"scaleDownDelay":          fmt.Sprintf("%ds", rapid.IntRange(0, 86400).Draw(t, "delay")),
			"poolCredentialSecretRef": map[string]any{"name": text.Draw(t, "name"), "key": text.Draw(t, "key")},
			"runnerLabels":            labels("labels"),
			"template": map[string]any{
				"image": text.Draw(t, "image"), "nodeSelector": labels("nodes"), "tolerations": tolerations, "env": env,
				"resources": map[string]any{"requests": amounts("requests"), "limits": amounts("limits")},
			},
		},
	}}
}

// respell returns another spelling of the same pool.
func respell(t *rapid.T, obj *unstructured.Unstructured) *unstructured.Unstructured {
	out := obj.DeepCopy()
	spec := out.Object["spec"].(map[string]any)
	var seconds int
	if _, err := fmt.Sscanf(spec["scaleDownDelay"].(string), "%ds", &seconds); err != nil {
		t.Fatal(err)
	}
	spec["scaleDownDelay"] = rapid.SampledFrom([]string{
		fmt.Sprintf("%dm%ds", seconds/60, seconds%60), fmt.Sprintf("%dms", seconds*1000), fmt.Sprintf("%d.0s", seconds),
	}).Draw(t, "duration")
	spec["maxRunners"] = float64(spec["maxRunners"].(int64))
	template := spec["template"].(map[string]any)
	resources := template["resources"].(map[string]any)
	for _, list := range []string{"requests", "limits"} {
		amounts := resources[list].(map[string]any)
		for key, value := range amounts {
			var milli int64
			if _, err := fmt.Sscanf(value.(string), "%dm", &milli); err != nil {
				t.Fatal(err)
			}
			amounts[key] = rapid.SampledFrom([]string{
				fmt.Sprintf("%d.%03d", milli/1000, milli%1000), fmt.Sprintf("%d000u", milli), fmt.Sprintf("%de-3", milli),
			}).Draw(t, "quantity")
		}
		if len(amounts) == 0 {
			resources[list] = nil
		}
	}
	if spec["minRunners"] == int64(0) {
		delete(spec, "minRunners")
	}
	if env := template["env"].([]any); len(env) == 0 {
		delete(template, "env")
	} else {
		template["env"] = append(append([]any{}, env[1:]...), env[0])
	}
	return out
}

func TestCompareFindsNothingBetweenSpellings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		obj := drawPool(t)
		if diffs := fleet.CompareSpecs(obj, obj.DeepCopy(), nil); len(diffs) > 0 {
			t.Fatalf("an object differs from itself: %v", diffs)
		}
		other := respell(t, obj)
		if diffs := fleet.CompareSpecs(obj, other, nil); len(diffs) > 0 {
			t.Fatalf("spellings differ: %v", diffs)
		}
		if diffs := fleet.CompareSpecs(other, obj, nil); len(diffs) > 0 {
			t.Fatalf("spellings differ the other way round: %v", diffs)
		}
	})
}

// leaves lists the pointers of the scalars of a value.
func leaves(value any, pointer string) []string {
	var out []string
	switch node := value.(type) {
	case map[string]any:
		for key, child := range node {
			out = append(out, leaves(child, pointer+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key))...)
		}
	case []any:
		for i, child := range node {
			out = append(out, leaves(child, fmt.Sprintf("%s/%d", pointer, i))...)
		}
	default:
		return []string{pointer}
	}
	return out
}

// change gives the scalar at a pointer another meaning.
func change(value any, path []string) any {
	switch node := value.(type) {
	case map[string]any:
		key := strings.NewReplacer("~1", "/", "~0", "~").Replace(path[0])
		node[key] = change(node[key], path[1:])
		return node
	case []any:
		var i int
		_, _ = fmt.Sscan(path[0], &i)
		node[i] = change(node[i], path[1:])
		return node
	case int64:
		return node + 1
	default:
		return "7" + fmt.Sprint(node)
	}
}

func TestCompareFindsAChangedLeafAtItsPointer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawPool(t)
		have := respell(t, want)
		// The order of env is no difference, but an index then means another element.
		spec := have.Object["spec"].(map[string]any)
		spec["template"].(map[string]any)["env"] = want.DeepCopy().Object["spec"].(map[string]any)["template"].(map[string]any)["env"]
		pointers := leaves(have.Object["spec"], "/spec")
		slices.Sort(pointers)
		pointer := pointers[rapid.IntRange(0, 1<<20).Draw(t, "leaf")%len(pointers)]
		have.Object["spec"] = change(spec, strings.Split(pointer, "/")[2:])

		expected := pointer
		if strings.HasPrefix(pointer, "/spec/template/env/") && strings.HasSuffix(pointer, "/name") && !strings.Contains(pointer, "secretKeyRef") {
			// Another name is another variable, so the list differs.
			expected = "/spec/template/env"
		}
		diffs := fleet.CompareSpecs(want, have, nil)
		if strings.HasSuffix(pointer, "limits") || strings.HasSuffix(pointer, "requests") {
			return // an empty list of amounts that respell made null
		}
		if len(diffs) != 1 || diffs[0].Path != expected {
			t.Fatalf("a change at %s is found at %s", pointer, described(diffs))
		}
		if diffs := fleet.CompareSpecs(want, have, []string{expected}); len(diffs) > 0 {
			t.Fatalf("an ignored change is found: %s", described(diffs))
		}
	})
}

// FuzzCompareSpecs holds the comparison to its laws for whatever is committed.
func FuzzCompareSpecs(f *testing.F) {
	f.Add("{maxRunners: 4, scaleDownDelay: 1h, template: {resources: {limits: {cpu: 1e3}}}}", "{maxRunners: 5}")
	f.Add("{template: {resources: {limits: {cpu: 1e999999999}}}}", "[1, {a: b}]")
	f.Add("{template: {env: [{name: A}, {name: A}, 3]}}", "{template: {env: {}}}")
	f.Fuzz(func(t *testing.T, a, b string) {
		one, _ := schemas.Decode("a", []byte("{apiVersion: cloop.dev/v1alpha1, kind: ExecutorPool, spec: "+a+"}"))
		two, _ := schemas.Decode("b", []byte("{apiVersion: cloop.dev/v1alpha1, kind: ExecutorPool, spec: "+b+"}"))
		if len(one) != 1 || len(two) != 1 {
			t.Skip()
		}
		if diffs := fleet.CompareSpecs(one[0].Object, one[0].Object.DeepCopy(), nil); len(diffs) > 0 {
			t.Errorf("an object differs from itself: %s", described(diffs))
		}
		there := fleet.CompareSpecs(one[0].Object, two[0].Object, nil)
		back := fleet.CompareSpecs(two[0].Object, one[0].Object, nil)
		if len(there) != len(back) {
			t.Errorf("the comparison is not symmetric: %s; the other way round %s", described(there), described(back))
		}
	})
}

func TestHubDefinitions(t *testing.T) {
	hp := &v1alpha1.HubPool{Spec: v1alpha1.HubPoolSpec{
		MaxRunners: 4, Labels: map[string]string{"gpu": "true"}, Audience: []string{"user:b", "group:a", "user:b"},
		Capabilities: map[string]bool{}, Cordon: &v1alpha1.Cordon{Reason: "x"},
	}}
	want := hubv1.PoolDefinition{MaxRunners: 4, Labels: map[string]string{"gpu": "true"}, Audience: []string{"group:a", "user:b"}, Harness: "command", DeletionPolicy: "Orphan"}
	got := fleet.DefinitionOf(hp)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("definition is %+v, want %+v", got, want)
	}
	got.Labels["gpu"] = "no"
	if hp.Spec.Labels["gpu"] != "true" || hp.Spec.Audience[0] != "user:b" {
		t.Error("the definition shares its maps with the document")
	}
	same := hubv1.PoolDefinition{MaxRunners: 4, Labels: map[string]string{"gpu": "true"}, Audience: []string{"user:b", "group:a"}, Capabilities: map[string]bool{}}
	if diffs := fleet.CompareHub(want, same); len(diffs) > 0 || fleet.Digest(want) != fleet.Digest(same) {
		t.Errorf("equal definitions differ: %v", diffs)
	}
	other := same
	other.MaxRunners, other.Audience, other.Harness = 5, []string{"group:a"}, "claude"
	if got := described(fleet.CompareHub(want, other)); got != "/spec/audience [group:a user:b] [group:a]; /spec/harness command claude; /spec/maxRunners 4 5" {
		t.Errorf("differences are %q", got)
	}
	if digest := fleet.Digest(other); digest == fleet.Digest(want) || !strings.HasPrefix(digest, "sha256:") || len(digest) != 71 {
		t.Errorf("digest is %s", digest)
	}
}

func TestCrossSurface(t *testing.T) {
	hub := hubv1.Pool{Name: "gpu", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 4, Labels: map[string]string{"gpu": "true"}}}
	local := &v1alpha1.ExecutorPool{Spec: v1alpha1.ExecutorPoolSpec{HubPool: "gpu", MaxRunners: 4, RunnerLabels: map[string]string{"gpu": "true", "team": "ml"}}}
	if entries := fleet.CrossSurface(local, hub); len(entries) > 0 {
		t.Errorf("a sound pool breaks %+v", entries)
	}
	local.Namespace, local.Name, local.Spec.HubPool, local.Spec.MaxRunners, local.Spec.RunnerLabels["gpu"] = "cloop-gpu", "large", "", 9, "no"
	want := []v1alpha1.DriftEntry{
		{Kind: "ExecutorPool", Namespace: "cloop-gpu", Name: "large", Path: "/spec/hubPool", Cause: v1alpha1.DriftRuleBroken, Hub: `"gpu"`, Cluster: `"large"`},
		{Kind: "ExecutorPool", Namespace: "cloop-gpu", Name: "large", Path: "/spec/maxRunners", Cause: v1alpha1.DriftRuleBroken, Hub: "4", Cluster: "9"},
		{Kind: "ExecutorPool", Namespace: "cloop-gpu", Name: "large", Path: "/spec/runnerLabels/gpu", Cause: v1alpha1.DriftRuleBroken, Hub: `"true"`, Cluster: `"no"`},
	}
	for i := range want {
		want[i].Outcome, want[i].Message = v1alpha1.OutcomeReportOnly, "nobody changes either side for a rule between the two: change one of them in Git"
	}
	if got := fleet.CrossSurface(local, hub); !reflect.DeepEqual(got, want) {
		t.Errorf("broken rules are %+v, want %+v", got, want)
	}
	hub.Override = &hubv1.Override{By: "user:dana", Reason: "maintenance", Until: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	for i := range want[1:] {
		e := &want[1:][i]
		e.Cause, e.Outcome, e.Manager = v1alpha1.DriftBreakGlass, v1alpha1.OutcomeWaiting, "user:dana"
		e.Message = "it ends with the override at the hub, until 2026-03-01T12:00:00Z: maintenance"
	}
	if got := fleet.CrossSurface(local, hub); !reflect.DeepEqual(got, want) {
		t.Errorf("under an override they are %+v, want %+v", got, want)
	}
}
