package fleet_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/kustomize"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

// kindsComponent is the component that tells kustomize of the kinds, as a
// repository has it: copied.
func kindsComponent(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	const source = "../../kustomize/components/kinds"
	entries, err := os.ReadDir(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(source, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[path.Join("kinds", entry.Name())] = string(data)
	}
	return files
}

// templated is a pool with lists that an overlay adds to.
func templated() map[string]string {
	files := sound()
	files["pools/base/gpu.yaml"] = basePool + `  template:
    env:
    - name: LICENSE
      secretKeyRef: {name: licenses, key: gpu}
    - name: PROXY
      secretKeyRef: {name: proxy, key: url}
    tolerations:
    - {key: gpu, operator: Exists}
`
	files["clusters/eu/larger.yaml"] = `apiVersion: cloop.dev/v1alpha1
kind: ExecutorPool
metadata:
  name: gpu
spec:
  template:
    env:
    - name: PROXY
      secretKeyRef: {name: proxy-eu}
    - name: MIRROR
      secretKeyRef: {name: mirror, key: url}
    tolerations:
    - {key: spot, operator: Exists}
    - {key: gpu, effect: NoSchedule}
`
	return files
}

func TestPatchesMergeListsByKeyWithTheComponent(t *testing.T) {
	files := with(templated(), kindsComponent(t))
	files["clusters/eu/kustomization.yaml"] += "components: [../../kinds]\n"
	template := onlyPool(t, files)["template"].(map[string]any)
	want := map[string]any{
		"env": []any{
			map[string]any{"name": "LICENSE", "secretKeyRef": map[string]any{"name": "licenses", "key": "gpu"}},
			map[string]any{"name": "PROXY", "secretKeyRef": map[string]any{"name": "proxy-eu", "key": "url"}},
			map[string]any{"name": "MIRROR", "secretKeyRef": map[string]any{"name": "mirror", "key": "url"}},
		},
		"tolerations": []any{
			map[string]any{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},
			map[string]any{"key": "spot", "operator": "Exists"},
		},
	}
	for name := range want {
		byKey(template[name].([]any))
		byKey(want[name].([]any))
		if !reflect.DeepEqual(template[name], want[name]) {
			t.Errorf("%s:\n%v, want\n%v", name, template[name], want[name])
		}
	}
}

// Without the component lists are replaced, here as with kubectl.
func TestPatchesReplaceListsWithoutTheComponent(t *testing.T) {
	env := onlyPool(t, templated(), "schema")["template"].(map[string]any)["env"].([]any)
	if len(env) != 2 {
		t.Errorf("env is %v, want the patch's alone", env)
	}
}

// A name that an overlay changes is followed by what refers to it: a prefix to
// a ServiceAccount, a Secret's prefix and the hash of its content.
func TestNamesAreFollowedWithTheComponent(t *testing.T) {
	files := with(sound(), kindsComponent(t))
	files["hub/gpu.yaml"] = strings.Replace(hubPool, "name: gpu", "name: eu-gpu", 1)
	files["pools/base/gpu.yaml"] += "  template:\n    serviceAccountName: runs\n    env: [{name: LICENSE, secretKeyRef: {name: licenses, key: gpu}}]\n"
	files["pools/base/kustomization.yaml"] += "- account.yaml\n"
	files["pools/base/account.yaml"] = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: runs}\n"
	files["clusters/eu/kustomization.yaml"] += `namePrefix: eu-
components: [../../kinds]
secretGenerator:
- name: gpu-pool-credential
  literals: [credential=x]
- name: licenses
  literals: [gpu=x]
  options: {disableNameSuffixHash: true}
`
	spec := onlyPool(t, files, "kind-not-applied", "kind-not-applied")
	if name := dig(spec, "poolCredentialSecretRef", "name").(string); len(name) != len("eu-gpu-pool-credential-")+10 || name[:23] != "eu-gpu-pool-credential-" {
		t.Errorf("the credential is %q, want it with prefix and hash", name)
	}
	if name := dig(spec, "template", "serviceAccountName"); name != "eu-runs" {
		t.Errorf("the account is %q, want eu-runs", name)
	}
	env := dig(spec, "template", "env").([]any)[0].(map[string]any)
	if name := dig(env, "secretKeyRef", "name"); name != "eu-licenses" {
		t.Errorf("the variable's Secret is %q, want eu-licenses", name)
	}
}

func TestImagesAreSetWithTheComponent(t *testing.T) {
	files := with(sound(), kindsComponent(t))
	files["pools/base/gpu.yaml"] += "  template: {image: registry.example.com/runner:1}\n"
	files["clusters/eu/kustomization.yaml"] += "components: [../../kinds]\nimages: [{name: registry.example.com/runner, newTag: \"2\"}]\n"
	if image := dig(onlyPool(t, files), "template", "image"); image != "registry.example.com/runner:2" {
		t.Errorf("the image is %v", image)
	}
}

// An entry that a patch brings has its problems in the patch, wherever the
// merge puts it.
func TestCheckFindsMergedEntriesInThePatch(t *testing.T) {
	for name, component := range map[string]bool{"merged": true, "replaced": false} {
		t.Run(name, func(t *testing.T) {
			files := templated()
			files["clusters/eu/larger.yaml"] = `apiVersion: cloop.dev/v1alpha1
kind: ExecutorPool
metadata:
  name: gpu
spec:
  template:
    env:
    - name: HOME
      secretKeyRef: {name: homes, key: eu}
    - name: MIRROR
      secretKeyRef:
        name: mirror
`
			if component {
				files = with(files, kindsComponent(t))
				files["clusters/eu/kustomization.yaml"] += "components: [../../kinds]\n"
			}
			var got []string
			for _, problem := range check(t, files).Problems {
				if problem.Path != "" {
					got = append(got, fmt.Sprintf("%s:%d:%d", problem.File, problem.Line, problem.Column))
				}
			}
			// The second has no key; the first is a reserved name, which is judged
			// once the rest is right.
			if want := []string{"clusters/eu/larger.yaml:11:7"}; !slices.Equal(got, want) {
				t.Errorf("problems at %v, want %v", got, want)
			}
			files["clusters/eu/larger.yaml"] += "        key: eu\n"
			got = places(check(t, files))
			if want := []string{"cel clusters/eu/larger.yaml:8:7 "}; len(got) != 1 || !strings.HasPrefix(got[0], want[0]) {
				t.Errorf("problems at %v, want %v", got, want)
			}
		})
	}
}

// onlyPool checks the repository, which may have problems of these rules and no
// others, and returns the spec of eu's pool as it renders, which is what Flux
// renders.
func onlyPool(t *testing.T, files map[string]string, rules ...string) map[string]any {
	t.Helper()
	var found []string
	for _, problem := range check(t, files).Problems {
		// It says that rules were not looked at.
		if problem.Severity == schemas.SeverityWarning && problem.Rule == schemas.RuleCEL {
			continue
		}
		found = append(found, problem.Rule)
		if !slices.Contains(rules, problem.Rule) {
			t.Error(problem)
		}
	}
	if !slices.Equal(found, rules) {
		t.Errorf("problems of %v, want %v", found, rules)
	}
	dir := repo(t, files)
	rendered, err := fleet.Build(t.Context(), dir, "clusters/eu")
	if err != nil {
		t.Fatal(err)
	}
	resources, err := kustomize.SecureBuild(dir, filepath.Join(dir, "clusters/eu"), false)
	if err != nil {
		t.Fatal(err)
	}
	for i, resource := range resources.Resources() {
		data, err := resource.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var flux unstructured.Unstructured
		if err := flux.UnmarshalJSON(data); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(flux.Object, rendered[i].Object.Object) {
			t.Errorf("rendered\n%v\nFlux:\n%v", rendered[i].Object.Object, flux.Object)
		}
	}
	pools := fleet.ExecutorPools(rendered)
	if len(pools) != 1 {
		t.Fatalf("%d pools, want 1", len(pools))
	}
	return pools[0].Object.Object["spec"].(map[string]any)
}

func dig(node map[string]any, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(node, path...)
	return value
}

// byKey orders a list's objects by name or key.
func byKey(list []any) {
	slices.SortFunc(list, func(a, b any) int {
		name := func(entry any) string {
			text, _ := entry.(map[string]any)["name"].(string)
			key, _ := entry.(map[string]any)["key"].(string)
			return text + key
		}
		if name(a) < name(b) {
			return -1
		}
		return 1
	})
}
