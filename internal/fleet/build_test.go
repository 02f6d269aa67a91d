package fleet_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fluxcd/pkg/kustomize"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

const basePool = `# the shared half
apiVersion: cloop.dev/v1alpha1
kind: ExecutorPool
metadata:
  name: gpu
spec:
  hubURL: https://cloop.example.com
  poolCredentialSecretRef:
    name: gpu-pool-credential
  maxRunners: 4
`

const hubPool = `apiVersion: cloop.dev/v1alpha1
kind: HubPool
metadata:
  name: gpu
  namespace: fleet
spec:
  maxRunners: 4
  labels:
    gpu: "true"
`

// sound is the layout that the documentation shows, without a fault.
func sound() map[string]string {
	return map[string]string{
		"hub/kustomization.yaml":        "resources: [gpu.yaml]\n",
		"hub/gpu.yaml":                  hubPool,
		"pools/base/kustomization.yaml": "resources:\n- gpu.yaml\n",
		"pools/base/gpu.yaml":           basePool,
		"clusters/eu/kustomization.yaml": `namespace: cloop-gpu
resources:
- ../../pools/base
patches:
- path: larger.yaml
`,
		"clusters/eu/larger.yaml": `apiVersion: cloop.dev/v1alpha1
kind: ExecutorPool
metadata:
  name: gpu
spec:
  maxRunners: 3
`,
	}
}

// with returns the files with some of them replaced. The patch of an overlay goes
// with the kustomization that lists it.
func with(files map[string]string, changes map[string]string) map[string]string {
	for name, content := range changes {
		files[name] = content
		if content == "" {
			delete(files, name)
		}
	}
	const patch = "clusters/eu/larger.yaml"
	if _, own := changes[patch]; !own && files[patch] == sound()[patch] && changes["clusters/eu/kustomization.yaml"] != "" && !strings.Contains(changes["clusters/eu/kustomization.yaml"], "larger.yaml") {
		delete(files, patch)
	}
	return files
}

func repo(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	fleettest.WriteFiles(t, dir, files)
	return dir
}

func TestBuildRendersAnOverlayAndNamesItsSources(t *testing.T) {
	rendered, err := fleet.Build(t.Context(), repo(t, sound()), "./clusters/eu")
	if err != nil {
		t.Fatal(err)
	}
	if len(rendered) != 1 {
		t.Fatalf("rendered %d objects, want 1", len(rendered))
	}
	pool := rendered[0]
	if pool.SourcePath != "pools/base/gpu.yaml" || pool.Line != 2 {
		t.Errorf("source is %s:%d, want pools/base/gpu.yaml:2", pool.SourcePath, pool.Line)
	}
	want := map[string]any{
		"apiVersion": "cloop.dev/v1alpha1", "kind": "ExecutorPool",
		"metadata": map[string]any{"name": "gpu", "namespace": "cloop-gpu"},
		"spec": map[string]any{
			"hubURL": "https://cloop.example.com", "maxRunners": int64(3),
			"poolCredentialSecretRef": map[string]any{"name": "gpu-pool-credential"},
		},
	}
	if !reflect.DeepEqual(pool.Object.Object, want) {
		t.Errorf("rendered %v, want %v", pool.Object.Object, want)
	}
}

func TestBuildOfWhatIsNoKustomization(t *testing.T) {
	files := with(sound(), map[string]string{
		"plain/a.yaml":                   basePool + "---\n" + hubPool,
		"plain/deep/b.yml":               strings.ReplaceAll(hubPool, "name: gpu", "name: cpu"),
		"plain/README.md":                "no YAML: [",
		"plain/.github/ci.yaml":          "on: push",
		"plain/inner/kustomization.yaml": "namePrefix: x-\nresources: [p.yaml]\n",
		"plain/inner/p.yaml":             basePool,
	})
	dir := repo(t, files)
	tests := map[string][]string{
		"plain":          {"gpu plain/a.yaml:2", "gpu plain/a.yaml:12", "cpu plain/deep/b.yml:1", "x-gpu plain/inner/p.yaml:2"},
		"plain/a.yaml":   {"gpu plain/a.yaml:2", "gpu plain/a.yaml:12"},
		"/hub/gpu.yaml/": {"gpu hub/gpu.yaml:1"},
	}
	for path, want := range tests {
		t.Run(path, func(t *testing.T) {
			rendered, err := fleet.Build(t.Context(), dir, path)
			if err != nil {
				t.Fatal(err)
			}
			got := []string{}
			for _, r := range rendered {
				got = append(got, fmt.Sprintf("%s %s:%d", r.Object.GetName(), r.SourcePath, r.Line))
			}
			if !slices.Equal(got, want) {
				t.Errorf("rendered %v, want %v", got, want)
			}
		})
	}
}

func TestBuildSourcesThroughPrefixGeneratorAndComponent(t *testing.T) {
	dir := repo(t, map[string]string{
		"base/kustomization.yaml":      "resources: [two.yaml]\n",
		"base/two.yaml":                "---\n" + basePool + "---\n" + strings.Replace(basePool, "name: gpu\n", "name: gpu-large\n", 1),
		"component/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [sa.yaml]\n",
		"component/sa.yaml":            "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: runner\n  annotations: {keep: me}\n",
		"eu/kustomization.yaml":        "nameSuffix: -eu\nresources: [../base]\ncomponents: [../component]\nconfigMapGenerator:\n- name: settings\n  literals: [home=https://example.com]\n",
	})
	rendered, err := fleet.Build(t.Context(), dir, "eu")
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, r := range rendered {
		got = append(got, fmt.Sprintf("%s %s:%d %v", r.Object.GetKind(), r.SourcePath, r.Line, r.Object.GetAnnotations()))
	}
	slices.Sort(got)
	want := []string{
		"ConfigMap eu/kustomization.yaml:5 map[]",
		"ExecutorPool base/two.yaml:14 map[]",
		"ExecutorPool base/two.yaml:3 map[]",
		"ServiceAccount component/sa.yaml:1 map[keep:me]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rendered\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestBuildErrors(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		path  string
		kind  error
		says  []string
	}{
		{"missing path", nil, "clusters/us", fleet.ErrPathNotFound, []string{"clusters/us", "correct the path"}},
		{"path out of the repository", nil, "../../etc", fleet.ErrPathNotFound, []string{"leaves the repository"}},
		{"path over a link out of the repository", map[string]string{"out": fleettest.Symlink("/etc")}, "out", fleet.ErrPathNotFound, nil},
		{"missing base", map[string]string{"clusters/eu/kustomization.yaml": "resources:\n- ../../pools/bass\n"}, "clusters/eu",
			fleet.ErrBuild, []string{"clusters/eu/kustomization.yaml:2:3", "../../pools/bass", "cloop fleet check"}},
		{"broken YAML in a base", map[string]string{"pools/base/gpu.yaml": "kind: [\n"}, "clusters/eu", fleet.ErrBuild, []string{"pools/base/gpu.yaml:"}},
		{"broken kustomization", map[string]string{"clusters/eu/kustomization.yaml": "resources:\n- ../../pools/base\n nonsense\n"}, "clusters/eu", fleet.ErrBuild, []string{"clusters/eu/kustomization.yaml:"}},
		{"unknown field", map[string]string{"clusters/eu/kustomization.yaml": "resorces: [../../pools/base]\n"}, "clusters/eu", fleet.ErrBuild, []string{"resorces"}},
		{"patch without a target", map[string]string{"clusters/eu/larger.yaml": strings.ReplaceAll(basePool, "name: gpu\n", "name: other\n")}, "clusters/eu", fleet.ErrBuild, []string{"other"}},
		{"circle", map[string]string{"pools/base/kustomization.yaml": "resources: [../../clusters/eu]\n"}, "clusters/eu", fleet.ErrBuild, nil},
		{"base over a link out of the repository", map[string]string{"pools/base/gpu.yaml": fleettest.Symlink("/etc/passwd")}, "clusters/eu", fleet.ErrBuild, []string{"gpu.yaml"}},
		{"duplicate keys in a plain file", map[string]string{"plain.yaml": basePool + "  maxRunners: 5\n"}, "plain.yaml", fleet.ErrBuild, []string{"plain.yaml:11"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			files := sound()
			for name := range test.files {
				delete(files, name)
			}
			dir := repo(t, with(files, test.files))
			_, err := fleet.Build(t.Context(), dir, test.path)
			if !errors.Is(err, test.kind) {
				t.Fatalf("error is %v, want %v", err, test.kind)
			}
			for _, word := range test.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error %q does not say %q", err, word)
				}
			}
			if strings.Contains(err.Error(), dir) {
				t.Errorf("error %q shows the temporary directory", err)
			}
		})
	}
}

func TestEmptyOverlayIsNoError(t *testing.T) {
	for name, content := range map[string]string{
		"nothing": "# later\n", "no resources": "resources: []\n", "flow style": "{resources: []}\n", "own metadata": "buildMetadata: [managedByLabel]\n",
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := fleet.Build(t.Context(), repo(t, map[string]string{"eu/kustomization.yaml": content}), "eu")
			if err != nil || len(rendered) != 0 {
				t.Errorf("Build = %v, %v, want nothing", rendered, err)
			}
		})
	}
}

// Each is a way to have kustomize fetch something from within the process.
func TestBuildRefusesWhatIsRemote(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(basePool))
	}))
	defer server.Close()
	plugin := "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: p}\npath: " + server.URL + "/p.yaml\n"
	tests := map[string]map[string]string{
		"resource":          {"eu/kustomization.yaml": "resources: [" + server.URL + "/pool.yaml]\n"},
		"repository":        {"eu/kustomization.yaml": "resources: [\"github.com/example/fleet//base?ref=main\"]\n"},
		"over ssh":          {"eu/kustomization.yaml": "resources: [\"git@git.example.com:example/fleet\"]\n"},
		"in a base":         {"eu/kustomization.yaml": "resources: [../base]\n", "base/kustomization.yaml": "resources: [" + server.URL + "/pool.yaml]\n"},
		"component":         {"eu/kustomization.yaml": "components: [\"https://github.com/example/fleet\"]\n"},
		"patch":             {"eu/kustomization.yaml": "resources: [p.yaml]\npatches: [{path: \"" + server.URL + "/p.yaml\"}]\n", "eu/p.yaml": basePool},
		"behind an alias":   {"eu/kustomization.yaml": "commonAnnotations: {a: &u \"" + server.URL + "/pool.yaml\"}\nresources: [*u]\n"},
		"openapi":           {"eu/kustomization.yaml": "resources: [p.yaml]\nopenapi: {path: \"" + server.URL + "/o.json\"}\n", "eu/p.yaml": basePool},
		"generator file":    {"eu/kustomization.yaml": "configMapGenerator: [{name: x, files: [\"" + server.URL + "/f\"]}]\n"},
		"transformer":       {"eu/kustomization.yaml": "resources: [p.yaml]\ntransformers: [t.yaml]\n", "eu/p.yaml": basePool, "eu/t.yaml": plugin},
		"inline":            {"eu/kustomization.yaml": "resources: [p.yaml]\ntransformers:\n- |\n  " + strings.ReplaceAll(plugin, "\n", "\n  ") + "\n", "eu/p.yaml": basePool},
		"transformers base": {"eu/kustomization.yaml": "resources: [p.yaml]\ntransformers: [../t]\n", "eu/p.yaml": basePool, "t/kustomization.yaml": "resources: [t.yaml]\n", "t/t.yaml": plugin},
	}
	for name, files := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := fleet.Build(t.Context(), repo(t, files), "eu")
			if !errors.Is(err, fleet.ErrBuild) || !strings.Contains(err.Error(), "not in the repository") {
				t.Errorf("error is %v, want a refusal", err)
			}
		})
	}
	if asked.Load() != 0 {
		t.Errorf("the server was asked %d times", asked.Load())
	}
}

// Every level names the next one twice: sixteen levels are 65,536 copies.
func TestBuildIsBounded(t *testing.T) {
	files := map[string]string{"l16/kustomization.yaml": "resources: [p.yaml]\n", "l16/p.yaml": basePool}
	for level := range 16 {
		for _, half := range []string{"a", "b"} {
			files[fmt.Sprintf("l%d/%s/kustomization.yaml", level, half)] = fmt.Sprintf("namePrefix: %s\nresources: [../../l%d]\n", half, level+1)
		}
		files[fmt.Sprintf("l%d/kustomization.yaml", level)] = "resources: [a, b]\n"
	}
	dir := repo(t, files)
	if _, err := fleet.Build(t.Context(), dir, "l0"); !errors.Is(err, fleet.ErrBuild) || !strings.Contains(err.Error(), "beyond the bounds") {
		t.Errorf("error is %v, want one about the bounds", err)
	}
	if rendered, err := fleet.Build(t.Context(), dir, "l12"); err != nil || len(rendered) != 16 {
		t.Errorf("a moderate repository renders %d objects, %v, want 16", len(rendered), err)
	}
}

// A few hundred bytes of aliases are billions of nodes once kustomize copies
// each of them, and an anchor within itself never ends.
func TestBuildRefusesAliasesThatExplode(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString(basePool + "x:\n  a: &a [x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		fmt.Fprintf(&bomb, "  %c: &%c [%s*%c]\n", 'b'+i, 'b'+i, strings.Repeat(fmt.Sprintf("*%c, ", 'a'+i), 8), 'a'+i)
	}
	circle := basePool + "x: &x {y: *x}\n"
	inline := func(text string) string {
		return "resources: [p.yaml]\npatches:\n- patch: |\n    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
	}
	moderate := strings.Replace(basePool, "  name: gpu\n", "  name: gpu\n  labels: {a: &a one, b: *a}\n", 1)
	for name, files := range map[string]map[string]string{
		"resource":        {"eu/kustomization.yaml": "resources: [p.yaml]\n", "eu/p.yaml": bomb.String()},
		"circle":          {"eu/kustomization.yaml": "resources: [p.yaml]\n", "eu/p.yaml": circle},
		"kustomization":   {"eu/kustomization.yaml": "resources: [p.yaml]\n" + bomb.String()[len(basePool):], "eu/p.yaml": basePool},
		"patch":           {"eu/kustomization.yaml": "resources: [p.yaml]\npatches: [{path: q.yaml}]\n", "eu/p.yaml": basePool, "eu/q.yaml": bomb.String()},
		"inline patch":    {"eu/kustomization.yaml": inline(bomb.String()), "eu/p.yaml": basePool},
		"inline circle":   {"eu/kustomization.yaml": inline(circle), "eu/p.yaml": basePool},
		"replacement":     {"eu/kustomization.yaml": "resources: [p.yaml]\nreplacements: [{path: r.yaml}]\n", "eu/p.yaml": basePool, "eu/r.yaml": bomb.String()},
		"configuration":   {"eu/kustomization.yaml": "resources: [p.yaml]\nconfigurations: [c.yaml]\n", "eu/p.yaml": basePool, "eu/c.yaml": bomb.String()},
		"second document": {"eu/kustomization.yaml": "resources: [p.yaml]\n", "eu/p.yaml": basePool + "---\n" + bomb.String()},
		"transformer":     {"eu/kustomization.yaml": "resources: [p.yaml]\ntransformers: [t.yaml]\n", "eu/p.yaml": basePool, "eu/t.yaml": bomb.String()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := fleet.Build(t.Context(), repo(t, files), "eu")
			if !errors.Is(err, fleet.ErrBuild) || !strings.Contains(err.Error(), "alias") {
				t.Errorf("error is %v, want one about the aliases", err)
			}
		})
	}
	rendered, err := fleet.Build(t.Context(), repo(t, map[string]string{"eu/kustomization.yaml": "resources: [p.yaml]\n", "eu/p.yaml": moderate}), "eu")
	if err != nil || len(rendered) != 1 || rendered[0].Object.GetLabels()["b"] != "one" {
		t.Errorf("a moderate alias renders %v, %v", rendered, err)
	}
}

// core has every kind that Git sync applies, each patched in its lists.
func core() map[string]string {
	return map[string]string{
		"base/kustomization.yaml": "resources: [all.yaml]\n",
		"base/all.yaml": basePool + `  template:
    tolerations: [{key: a, operator: Exists}]
    env: [{name: A, secretKeyRef: {name: s, key: a}}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: runner, finalizers: [example.com/a], labels: {a: a}}
secrets: [{name: one}]
imagePullSecrets: [{name: one}]
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota}
spec: {hard: {pods: "10", requests.cpu: 4}, scopes: [NotTerminating]}
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits}
spec: {limits: [{type: Container, default: {cpu: 1}}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny}
spec:
  podSelector: {matchExpressions: [{key: a, operator: Exists}]}
  policyTypes: [Egress]
  egress: [{ports: [{port: 443}]}]
`,
		"eu/kustomization.yaml": "namespace: eu\nnamePrefix: eu-\nresources: [../base]\npatches: [{path: patches.yaml}]\nlabels: [{pairs: {team: ml}}]\n",
		"eu/patches.yaml": `apiVersion: cloop.dev/v1alpha1
kind: ExecutorPool
metadata: {name: gpu}
spec:
  template:
    serviceAccountName: runner
    tolerations: [{key: b, operator: Exists}]
    env: [{name: B, secretKeyRef: {name: s, key: b}}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: runner, finalizers: [example.com/b], ownerReferences: [{uid: u, name: n, kind: K, apiVersion: v1}]}
secrets: [{name: two}]
imagePullSecrets: [{name: two}, {name: one, $patch: delete}]
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota}
spec: {hard: {pods: "20"}, scopes: [BestEffort]}
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits}
spec: {limits: [{type: Pod, max: {cpu: 2}}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny}
spec:
  podSelector: {matchExpressions: [{key: b, operator: Exists}]}
  policyTypes: [Ingress]
  egress: [{ports: [{port: 80}]}]
`,
	}
}

// The small schema must render what all of Kubernetes' schema renders.
func TestBuildRendersWhatFluxRenders(t *testing.T) {
	// The pools of the last are rendered in batches.
	t.Cleanup(fleet.SetBatches(2, 4))
	for name, files := range map[string]map[string]string{"core kinds": core(), "batches": patched(5), "an OpenAPI file": with(core(), map[string]string{
		"eu/kustomization.yaml": core()["eu/kustomization.yaml"] + "openapi: {path: openapi.json}\n",
		"eu/openapi.json": `{"definitions": {"dev.cloop.v1alpha1.ExecutorPool": {"x-kubernetes-group-version-kind": [{"group": "cloop.dev", "version": "v1alpha1", "kind": "ExecutorPool"}],
"properties": {"spec": {"properties": {"template": {"properties": {"env": {"type": "array", "items": {"type": "object"}, "x-kubernetes-patch-merge-key": "name", "x-kubernetes-patch-strategy": "merge"}}}}}}}}}`,
	})} {
		t.Run(name, func(t *testing.T) {
			dir := repo(t, files)
			rendered, err := fleet.Build(t.Context(), dir, "eu")
			if err != nil {
				t.Fatal(err)
			}
			resources, err := kustomize.SecureBuild(dir, filepath.Join(dir, "eu"), false)
			if err != nil {
				t.Fatal(err)
			}
			if len(rendered) != resources.Size() || len(rendered) != 5 {
				t.Fatalf("rendered %d objects, Flux %d, want 5", len(rendered), resources.Size())
			}
			for i, resource := range resources.Resources() {
				data, err := resource.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				var want unstructured.Unstructured
				if err := want.UnmarshalJSON(data); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(rendered[i].Object.Object, want.Object) {
					t.Errorf("%s differs:\n%v\nFlux:\n%v", want.GetKind(), rendered[i].Object.Object, want.Object)
				}
				if !fleet.Applicable(want.GroupVersionKind()) {
					t.Errorf("%s is not applicable", want.GetKind())
				}
			}
		})
	}
}

func TestApplicableRefusesWhatGrantsRights(t *testing.T) {
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Namespace"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"}, {Group: "example.com", Version: "v1", Kind: "ExecutorPool2"},
	} {
		if fleet.Applicable(gvk) {
			t.Errorf("%s is applicable", gvk)
		}
	}
}

// TestBuildMemory holds a build to leaving nothing behind, which is what the
// idle budget of hub and fleet controller rests on.
func TestBuildMemory(t *testing.T) {
	dir := repo(t, core())
	build := func() {
		if _, err := fleet.Build(t.Context(), dir, "eu"); err != nil {
			t.Fatal(err)
		}
	}
	before := heap()
	build()
	once := heap()
	for range 20 {
		build()
	}
	after := heap()
	t.Logf("heap in KiB: before %d, after one build %d, after 21 builds %d", before>>10, once>>10, after>>10)
	if grown := int64(after) - int64(before); grown > 4<<20 {
		t.Errorf("builds left %d KiB behind", grown>>10)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
