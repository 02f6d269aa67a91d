package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	"cloop.dev/cloop/internal/fleet"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: apps}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: app:1
        env: [{name: A, value: a}]
        ports: [{containerPort: 80, protocol: TCP}]
      - {name: sidecar, image: sidecar:1}
      volumes: [{name: data, emptyDir: {}}]
`

// A root with other kinds is rendered as the library alone renders it, whatever is
// merged by key, and whatever addresses the outcome by its place.
func TestOtherKindsAreMergedAsByTheLibrary(t *testing.T) {
	const web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: NAME, namespace: apps}\n"
	var resources, patches strings.Builder
	resources.WriteString(basePool)
	add := func(resource, patch string) {
		resources.WriteString("---\n" + resource)
		patches.WriteString("- patch: |-\n    " + strings.ReplaceAll(strings.TrimSpace(patch), "\n", "\n    ") + "\n")
	}
	for name, spec := range map[string]string{
		"indexed":  "containers: [{name: sidecar, env: [{name: B, value: b}]}]",
		"new":      "containers: [{name: other, image: 'other:1'}]",
		"gone":     "containers: [{name: sidecar, $patch: delete}]",
		"two-keys": "containers: [{name: app, ports: [{containerPort: 80, protocol: TCP, name: http}, {containerPort: 80, protocol: UDP}]}]",
		"volumes":  "volumes: [{name: more, emptyDir: {}}]",
	} {
		add(strings.ReplaceAll(deployment, "name: web,", "name: "+name+","), strings.ReplaceAll(web, "NAME", name)+"spec: {template: {spec: {"+spec+"}}}")
	}
	patches.WriteString("- target: {kind: Deployment, name: .*e.*}\n  patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata: {name: any}\n    spec: {template: {spec: {containers: [{name: app, image: 'app:2'}]}}}\n")
	const job = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: web, namespace: apps}\nspec:\n  schedule: '* * * * *'\n  jobTemplate: {spec: {template: {spec: {containers: ["
	add(job+"{name: a, image: 'a:1'}, {name: b, image: 'b:1'}]}}}}\n", job+"{name: b, image: 'b:2'}]}}}}\n")
	const role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: web, namespace: apps}\nrules:\n"
	add(role+"- {apiGroups: [''], resources: [pods], verbs: [get]}\n", role+"- {apiGroups: [apps], resources: [deployments], verbs: [list]}\n")
	const custom = "apiVersion: example.com/v1\nkind: Web\nmetadata: {name: web, namespace: apps}\nspec: "
	add(custom+"{containers: [{name: a}, {name: b}]}\n", custom+"{containers: [{name: b, image: 'b:1'}]}\n")

	dir := repo(t, map[string]string{
		"base/kustomization.yaml": "resources: [all.yaml]\npatches:\n" + patches.String(),
		"base/all.yaml":           resources.String(),
		"eu/kustomization.yaml": "resources: [../base]\npatches:\n- target: {kind: Deployment, name: indexed}\n" +
			"  patch: '[{\"op\": \"replace\", \"path\": \"/spec/template/spec/containers/1/image\", \"value\": \"sidecar:2\"}]'\n",
		"own/kustomization.yaml": "resources: [../base]\nopenapi: {path: kinds.json}\n",
		"own/kinds.json":         `{"definitions": {}}`,
	})
	want := map[string][]string{"eu": libraryTexts(t, dir, "eu"), "own": libraryTexts(t, dir, "own")}
	if slices.Equal(want["eu"], want["own"]) {
		t.Fatal("a document of the root's own does not matter")
	}
	// What one root needs to know is not there for the next.
	for _, root := range []string{"eu", "own", "eu"} {
		objects, err := fleet.Build(t.Context(), dir, root)
		if err != nil {
			t.Fatal(err)
		}
		if got := texts(t, objects); !slices.Equal(got, want[root]) {
			t.Errorf("%s: rendered\n%s\nthe library\n%s", root, strings.Join(got, "\n"), strings.Join(want[root], "\n"))
		}
	}
}

func texts(t *testing.T, objects []fleet.Rendered) (all []string) {
	t.Helper()
	for i := range objects {
		text, err := objects[i].Object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.TrimSpace(string(text)))
	}
	return all
}

// What is kept of the library's document says the same of every list that is merged.
func TestEveryMergeKeyIsKept(t *testing.T) {
	openapi.ResetOpenAPI()
	t.Cleanup(openapi.ResetOpenAPI)
	all := openapi.Schema().Definitions
	cut := fleet.OnlyMergeKeys(all)
	lists := 0
	seen := map[string]bool{}
	resolve := func(of spec.Definitions, s *spec.Schema) (*spec.Schema, string) {
		name := strings.TrimPrefix(s.Ref.String(), "#/definitions/")
		if name == "" {
			return s, ""
		}
		definition, ok := of[name]
		if !ok {
			return nil, name
		}
		return &definition, name
	}
	var same func(path string, whole, less *spec.Schema)
	same = func(path string, whole, less *spec.Schema) {
		for _, name := range []string{"x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key", "x-kubernetes-list-map-keys", "x-kubernetes-group-version-kind"} {
			var value any
			if less != nil {
				value = less.Extensions[name]
			}
			if _, merged := whole.Extensions["x-kubernetes-patch-strategy"]; (merged || less != nil) && fmt.Sprint(value) != fmt.Sprint(whole.Extensions[name]) {
				t.Errorf("%s: %s is %v, want %v", path, name, value, whole.Extensions[name])
			} else if merged {
				lists++
			}
		}
		whole, name := resolve(all, whole)
		if name != "" {
			if seen[fmt.Sprint(name, less != nil)] {
				return
			}
			seen[fmt.Sprint(name, less != nil)] = true
		}
		if less != nil {
			if less, _ = resolve(cut, less); less != nil && !slices.Equal(less.Type, whole.Type) {
				t.Errorf("%s: type %v, want %v", path, less.Type, whole.Type)
			}
		}
		for field := range whole.Properties {
			property := whole.Properties[field]
			var other *spec.Schema
			if less != nil {
				if found, ok := less.Properties[field]; ok {
					other = &found
				}
			}
			same(path+"."+field, &property, other)
		}
		if whole.Items != nil && whole.Items.Schema != nil {
			var other *spec.Schema
			if less != nil && less.Items != nil {
				other = less.Items.Schema
			}
			same(path+"[]", whole.Items.Schema, other)
		}
		if whole.AdditionalProperties != nil && whole.AdditionalProperties.Schema != nil {
			var other *spec.Schema
			if less != nil && less.AdditionalProperties != nil {
				other = less.AdditionalProperties.Schema
			}
			same(path+".*", whole.AdditionalProperties.Schema, other)
		}
	}
	for name := range all {
		whole := all[name]
		var other *spec.Schema
		if less, ok := cut[name]; ok {
			other = &less
		}
		same(name, &whole, other)
	}
	if lists < 300 || len(cut) == len(all) {
		t.Errorf("%d lists are merged; %d of %d definitions are kept", lists, len(cut), len(all))
	}
	t.Logf("%d lists, %d of %d definitions", lists/4, len(cut), len(all))
}
