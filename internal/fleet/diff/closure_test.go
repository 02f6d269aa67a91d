package diff_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/diff"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// everyWay is an overlay that is made of a file in every way in which kustomize
// takes one in, and files beside them that it is not made of.
func everyWay() map[string]string {
	return map[string]string{
		"clusters/eu/kustomization.yaml": `resources: [../../pools/base, own.yaml, linked.yaml, ../../linked]
components: [../../components/labels]
patches:
  - path: patch.yaml
  - path: merge.yaml
  - target: {kind: ExecutorPool, name: own}
    path: operations.json
  - target: {kind: ExecutorPool, name: own}
    patch: |
      - {op: replace, path: /spec/minRunners, value: 0}
configMapGenerator:
  - {name: values, files: [key=values.properties], envs: [values.env], options: {disableNameSuffixHash: true}}
replacements:
  - path: replacements.yaml
transformers: [transformers, prefix.yaml]
generators:
  - |
    apiVersion: builtin
    kind: ConfigMapGenerator
    metadata: {name: generated}
    files: [inline.txt]
configurations: [names.yaml]
`,
		"clusters/eu/own.yaml":                        executorPool("own", "maxRunners: 4\n  minRunners: 1"),
		"clusters/eu/patch.yaml":                      "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: own, namespace: cloop-pools}\nspec: {scaleDownDelay: 10m}\n",
		"clusters/eu/merge.yaml":                      "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: own, namespace: cloop-pools}\nspec: {template: {image: a}}\n",
		"clusters/eu/operations.json":                 `[{"op": "replace", "path": "/spec/maxRunners", "value": 7}]`,
		"clusters/eu/values.properties":               "a=b\n",
		"clusters/eu/values.env":                      "C=d\n",
		"clusters/eu/inline.txt":                      "text\n",
		"clusters/eu/names.yaml":                      "nameReference: []\n",
		"clusters/eu/replacements.yaml":               "- source: {kind: ExecutorPool, name: own, fieldPath: spec.maxRunners}\n  targets: [{select: {kind: ExecutorPool, name: gpu}, fieldPaths: [spec.maxRunners]}]\n",
		"clusters/eu/prefix.yaml":                     "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: p}\npath: transformed.yaml\ntarget: {kind: ExecutorPool, name: own}\n",
		"clusters/eu/transformed.yaml":                "- {op: add, path: /metadata/labels, value: {by: transformer}}\n",
		"clusters/eu/transformers/kustomization.yaml": "resources: [labels.yaml]\n",
		"clusters/eu/transformers/labels.yaml":        "apiVersion: builtin\nkind: AnnotationsTransformer\nmetadata: {name: a}\nannotations: {team: ml}\nfieldSpecs: [{path: metadata/annotations, create: true}]\n",
		"clusters/eu/linked.yaml":                     fleettest.Symlink("../../shared/one.yaml"),
		"linked":                                      fleettest.Symlink("shared/pools"),
		"shared/one.yaml":                             executorPool("one", "maxRunners: 1"),
		"shared/pools/kustomization.yml":              "resources: [two.yaml]\n",
		"shared/pools/two.yaml":                       executorPool("two", "maxRunners: 1"),
		"pools/base/Kustomization":                    "resources: [gpu.yaml]\n",
		"pools/base/gpu.yaml":                         executorPool("gpu", "maxRunners: 4"),
		"components/labels/kustomization.yaml":        "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\ncommonAnnotations: {from: component}\n",
		"README.md":                                   "Not of it.\n",
		"clusters/eu/notes.txt":                       "Not of it.\n",
	}
}

// edited is a file's content with another value, or another target.
func edited(content string) string {
	if strings.HasPrefix(content, fleettest.Symlink("")) {
		return fleettest.Symlink("nowhere")
	}
	for from, to := range map[string]string{
		"maxRunners: 4": "maxRunners: 5", "maxRunners: 1": "maxRunners: 2", "10m": "11m", "image: a": "image: b", "a=b": "a=c", "C=d": "C=e",
		"text": "texts", "value\": 7": "value\": 8", "component}": "other}", "by: transformer": "by: another", "team: ml": "team: ops", "spec.maxRunners]": "spec.minRunners]",
		"name: own}\n": "name: gpu}\n", "nameReference: []": "nameReference: [{kind: Secret, fieldSpecs: []}]", "Not of it": "Not of it at all",
	} {
		if strings.Contains(content, from) {
			return strings.Replace(content, from, to, 1)
		}
	}
	return content + "# edited\n"
}

// What is skipped renders the same: whichever file changes or goes, there is a
// difference where the two renderings have one.
func TestNothingThatChangesIsSkipped(t *testing.T) {
	t.Parallel()
	r := newRepo(t, everyWay())
	built := func() (any, error) {
		rendered, err := fleet.Build(context.Background(), r.dir, "clusters/eu")
		var objects []map[string]any
		for _, o := range rendered {
			objects = append(objects, o.Object.Object)
		}
		return objects, err
	}
	before, err := built()
	if err != nil {
		t.Fatal(err)
	}
	if got := r.summary("HEAD", "clusters/eu"); got != "1 root: no difference" {
		t.Fatal(got)
	}
	goes := map[string]bool{"clusters/eu/own.yaml": true, "clusters/eu/linked.yaml": true, "shared/one.yaml": true, "linked": true,
		"clusters/eu/transformed.yaml": true, "clusters/eu/inline.txt": true, "pools/base/Kustomization": true}
	seen := 0
	for name, content := range everyWay() {
		changes := map[string]string{"edited": edited(content)}
		if goes[name] {
			changes["removed"] = fleettest.Removed
		}
		for change, now := range changes {
			r.write(map[string]string{name: fleettest.Removed})
			if now != fleettest.Removed {
				r.write(map[string]string{name: now})
			}
			after, err := built()
			report, compareErr := r.compare("HEAD", "clusters/eu")
			if compareErr != nil {
				t.Fatal(compareErr)
			}
			differs := err != nil || !reflect.DeepEqual(before, after)
			if differs {
				seen++
			}
			overlay := report.Overlays[slices.IndexFunc(report.Overlays, func(o diff.Overlay) bool { return o.Path == "clusters/eu" })]
			if differs == overlay.Unchanged {
				t.Errorf("%s %s: rendered otherwise: %v (%v); compared as: %s", name, change, differs, err, report.Summary)
			}
			if now != fleettest.Removed {
				r.write(map[string]string{name: fleettest.Removed})
			}
			r.write(map[string]string{name: content})
		}
	}
	if seen < 22 {
		t.Errorf("only %d of the changes made a difference: the overlay is not made of what it should be", seen)
	}
}

// An overlay whose files are the same is not rendered: a work tree in which the
// rendering would fail for another reason than its files shows it.
func TestWhatDidNotChangeIsNotRendered(t *testing.T) {
	t.Parallel()
	files := fleetFiles()
	// Neither revision builds, which would be said of both.
	files["clusters/us/kustomization.yaml"] = "resources: [nowhere.yaml]\n"
	r := newRepo(t, files)
	r.write(more)
	r.want("HEAD", oneChanged)
	r.write(map[string]string{"clusters/us/kustomization.yaml": "resources: [nowhere.yaml, ../../pools/base]\n"})
	r.want("HEAD", oneChanged+"; 1 root not compared")
}

func TestPlainDirectories(t *testing.T) {
	t.Parallel()
	r := newRepo(t, map[string]string{
		"fleet/a.yaml": executorPool("a", "maxRunners: 1"), "fleet/deep/b.yml": executorPool("b", "maxRunners: 1"),
		"fleet/kustomized/kustomization.yaml": "resources: [c.txt]\n", "fleet/kustomized/c.txt": executorPool("c", "maxRunners: 1"),
		"other.txt": "no document\n",
	})
	r.want("HEAD", "3 roots: no difference")
	for name, content := range map[string]string{
		"fleet/deep/b.yml":       executorPool("b", "maxRunners: 2"),
		"fleet/deep/new.yaml":    executorPool("new", "maxRunners: 2"),
		"fleet/a.yaml":           fleettest.Removed,
		"fleet/kustomized/c.txt": executorPool("c", "maxRunners: 2"),
	} {
		t.Run(name, func(t *testing.T) {
			r.write(map[string]string{name: content})
			if got := r.summary("HEAD"); !strings.HasPrefix(got, "1 of 3 roots differ: 1 ") {
				t.Error(got)
			}
			r.clean()
			r.want("HEAD", "3 roots: no difference")
		})
	}
	plain := newRepo(t, map[string]string{"a.yaml": executorPool("a", "maxRunners: 1")})
	plain.write(map[string]string{"a.yaml": executorPool("a", "maxRunners: 2")})
	plain.want("HEAD", "1 of 1 root differs: 1 changed (1 raise)")
	plain.write(map[string]string{"a.yaml": fleettest.Removed})
	plain.want("HEAD", "1 of 1 root differs: 1 removed (1 neutral)")
	// What applies the whole repository still does when there are overlays in it.
	plain.clean()
	plain.write(map[string]string{"a.yaml": fleettest.Removed, "b.yaml": executorPool("b", "maxRunners: 1"),
		"clusters/eu/kustomization.yaml": "resources: [c.yaml]\n", "clusters/eu/c.yaml": executorPool("c", "maxRunners: 1")})
	plain.want("HEAD", "2 of 2 roots differ: 2 added, 1 removed (1 destructive, 2 raise)")
	plain.commit("Mix", nil)
	plain.want("HEAD", "2 roots: no difference")
	plain.write(map[string]string{"b.yaml": executorPool("b", "maxRunners: 2")})
	plain.want("HEAD", "1 of 2 roots differ: 1 changed (1 raise)")
}

// Plain directories beside each other are clusters of their own.
func TestPlainDirectoriesOfClusters(t *testing.T) {
	t.Parallel()
	r := newRepo(t, map[string]string{"clusters/eu/pools.yaml": executorPool("gpu", "maxRunners: 1"),
		"clusters/us/pools.yaml": executorPool("gpu", "maxRunners: 1"), "hub/p.yaml": hubPool("gpu", "maxRunners: 8")})
	r.want("HEAD", "3 roots: no difference")
	r.write(map[string]string{"clusters/eu/pools.yaml": executorPool("gpu", "maxRunners: 2"), "clusters/ap/pools.yaml": executorPool("gpu", "maxRunners: 1")})
	r.want("HEAD", "2 of 4 roots differ: 1 added, 1 changed (2 raise)")
	for path, want := range map[string]string{
		"clusters/eu": "1 of 1 root differs: 1 changed (1 raise)",
		"clusters/ap": "1 of 1 root differs: 1 added (1 raise)",
		"clusters/us": "1 root: no difference",
	} {
		if got := r.summary("HEAD", path); got != want {
			t.Errorf("of %s: %s, want %s", path, got, want)
		}
	}
}

func TestPathsNarrowTheComparison(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	r.write(map[string]string{"pools/base/gpu.yaml": executorPool("gpu", "maxRunners: 5")})
	r.write(more)
	for path, want := range map[string]string{
		"clusters":    "2 of 2 roots differ: 2 changed (2 raise)",
		"clusters/us": "1 of 1 root differs: 1 changed (1 raise)",
		"hub":         "1 of 1 root differs: 1 changed (1 raise)",
		"docs":        "error: nothing to compare in docs: neither revision has a root there; name a directory with a kustomization, or with pools",
	} {
		if got := r.summary("HEAD", path); got != want {
			t.Errorf("of %s: %s, want %s", path, got, want)
		}
	}
}

func TestRenames(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	moved := func(name, from, spec string) string {
		return strings.Replace(executorPool(name, spec), "\nspec:", "\n  annotations: {cloop.dev/moved-from: "+from+"}\nspec:", 1)
	}
	r.write(map[string]string{"pools/base/gpu.yaml": moved("big", "gpu", "maxRunners: 6")})
	report, err := r.compare("HEAD", "clusters/eu")
	if err != nil {
		t.Fatal(err)
	}
	o := report.Overlays[0].Objects[0]
	if o.Change != "renamed" || o.From != "cloop-pools/gpu" || o.Name != "big" || classes(o)["/spec/maxRunners"] != "raise" {
		t.Errorf("%+v", o)
	}
	for spelt, want := range map[string]string{
		"nowhere":         "ExecutorPool cloop-pools/big says that it was cloop-pools/nowhere, which the base does not have: it is new",
		"cloop-pools/gpu": "",
	} {
		r.write(map[string]string{"pools/base/gpu.yaml": moved("big", spelt, "maxRunners: 6")})
		if report, err = r.compare("HEAD", "clusters/eu"); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(report.Notes, "\n"); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("of %s: %s", spelt, got)
		}
	}
	r.write(map[string]string{"pools/base/gpu.yaml": moved("big", "gpu", "maxRunners: 6")})
	r.write(map[string]string{"pools/base/kustomization.yaml": "resources: [gpu.yaml, old.yaml]\n", "pools/base/old.yaml": executorPool("gpu", "maxRunners: 4")})
	if report, err = r.compare("HEAD", "clusters/eu"); err != nil || !strings.Contains(strings.Join(report.Notes, "\n"), "which is still there: it is new") {
		t.Errorf("%v %+v", err, report)
	}
	// Once it is merged the annotation says nothing new.
	r.commit("Move", nil)
	r.want("HEAD", noDifference)
}

func poolSync(name, spec string) string {
	return "apiVersion: cloop.dev/v1alpha1\nkind: PoolSync\nmetadata: {name: " + name + ", namespace: cloop}\nspec: {path: ./clusters/" + name + ", source: {git: {url: https://git.example.com/fleet.git}}" + spec + "}\n"
}

// What an overlay that goes means is said in every format, and nothing is said to
// be retired where nothing happens.
func TestOverlaysThatGo(t *testing.T) {
	t.Parallel()
	files := fleetFiles()
	files["bootstrap/us.yaml"] = poolSync("us", "")
	files["bootstrap/de.yaml"] = poolSync("de", "")
	files["clusters/de/kustomization.yaml"] = "resources: [../../pools/base]\n"
	files["bootstrap/flux.yaml"] = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: ap, namespace: flux-system}\nspec: {path: ./clusters/ap, prune: true}\n"
	files["clusters/ap/kustomization.yaml"] = "resources: [../../pools/base]\n"
	r := newRepo(t, files)
	for name, test := range map[string]struct {
		files map[string]string
		says  string
		class diff.Class
	}{
		"gone":           {map[string]string{"clusters/us/kustomization.yaml": fleettest.Removed}, "the path is gone: what applies it keeps what it has applied", diff.Neutral},
		"gone, by hand":  {map[string]string{"clusters/eu/kustomization.yaml": fleettest.Removed}, "the path is gone: what applies it keeps what it has applied", diff.Neutral},
		"gone hub":       {map[string]string{"hub/kustomization.yaml": fleettest.Removed, "hub/gpu.yaml": fleettest.Removed}, "the path is gone", diff.Neutral},
		"emptied":        {map[string]string{"clusters/us/kustomization.yaml": "resources: []\n"}, "it renders nothing any more: hub and PoolSync take that for an accident and change nothing", diff.Neutral},
		"emptied, Flux":  {map[string]string{"clusters/ap/kustomization.yaml": "resources: []\n"}, "it renders nothing any more: Kustomization flux-system/ap prunes what it has applied", diff.Destructive},
		"gone with sync": {map[string]string{"clusters/de/kustomization.yaml": fleettest.Removed, "bootstrap/de.yaml": fleettest.Removed}, "the path is gone, and PoolSync cloop/de does not apply it any more", diff.Destructive},
		"new":            {map[string]string{"clusters/asia/kustomization.yaml": "resources: [../../pools/base]\n"}, "the path is new: something has to apply it", diff.Raise},
	} {
		t.Run(name, func(t *testing.T) {
			r.clean()
			r.write(test.files)
			for file := range test.files {
				// As git rm does; one that holds something stays.
				_ = os.Remove(filepath.Join(r.dir, filepath.Dir(file)))
			}
			report, err := r.compare("HEAD")
			if err != nil {
				t.Fatal(err)
			}
			for _, format := range diff.Formats() {
				data, err := report.Render(format)
				if err != nil {
					t.Fatal(err)
				}
				// YAML breaks lines where it likes.
				got := strings.Join(strings.Fields(strings.NewReplacer("\\", "", "`", "").Replace(string(data))), " ")
				if !strings.Contains(got, test.says) {
					t.Errorf("%s does not say it: %s", format, got)
				}
				if retires := strings.Contains(got, "retires"); retires != (test.class == diff.Destructive) {
					t.Errorf("%s says that runners are retired: %v\n%s", format, retires, got)
				}
			}
			for i := range report.Overlays {
				for _, o := range report.Overlays[i].Objects {
					if o.Kind != "PoolSync" && o.Class != test.class {
						t.Errorf("%s is %s, want %s", o.Name, o.Class, test.class)
					}
				}
			}
		})
	}
}

// Nothing is counted for what stays.
func TestOverlaysThatGoHaveNoImpact(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	r.write(map[string]string{"clusters/us/kustomization.yaml": fleettest.Removed})
	report, err := r.compare("HEAD")
	if err != nil {
		t.Fatal(err)
	}
	xpool := v1alpha1.ExecutorPool{Status: v1alpha1.ExecutorPoolStatus{Runners: 3, Idle: 3}}
	xpool.Name, xpool.Namespace = "gpu", "cloop-pools"
	report.AddImpact(diff.Live{Clusters: []diff.LiveCluster{{Name: "us", Pools: []v1alpha1.ExecutorPool{xpool}}}})
	if got := everything(t, report); report.Counts.Removed != 1 || strings.Contains(got, "retires") {
		t.Error(got)
	}
}

// The hub knows a pool by its name, in whatever namespace it is written.
func TestTheNamespaceOfAHubPoolMeansNothing(t *testing.T) {
	t.Parallel()
	pool := func(name, namespace, fields string) *unstructured.Unstructured {
		o := document(t, "HubPool", spec(fields))
		o.SetName(name)
		o.SetNamespace(namespace)
		return o
	}
	const revoke, pushed = "{maxRunners: 3, deletionPolicy: Revoke}", "{maxRunners: 3, deletionPolicy: Revoke, hub: {url: 'https://h'}}"
	renamed := func(namespace, fields string) *unstructured.Unstructured {
		o := pool("big", namespace, fields)
		o.SetAnnotations(map[string]string{"cloop.dev/moved-from": "a/gpu"})
		return o
	}
	for name, test := range map[string]struct {
		was, now []*unstructured.Unstructured
		want     string
	}{
		"another": {[]*unstructured.Unstructured{pool("gpu", "a", revoke)}, []*unstructured.Unstructured{pool("gpu", "b", revoke)}, "gpu changed neutral /metadata/namespace"},
		"one":     {[]*unstructured.Unstructured{pool("gpu", "", revoke)}, []*unstructured.Unstructured{pool("gpu", "b", revoke)}, "gpu changed neutral /metadata/namespace"},
		"none":    {[]*unstructured.Unstructured{pool("gpu", "a", revoke)}, []*unstructured.Unstructured{pool("gpu", "", "{maxRunners: 4, deletionPolicy: Revoke}")}, "gpu changed raise /metadata/namespace /spec/maxRunners"},
		"renamed": {[]*unstructured.Unstructured{pool("gpu", "a", revoke)}, []*unstructured.Unstructured{renamed("b", revoke)}, "big renamed neutral /metadata/annotations/cloop.dev~1moved-from"},
		"renamed in a cluster": {[]*unstructured.Unstructured{pool("gpu", "a", pushed)}, []*unstructured.Unstructured{renamed("a", pushed)},
			"big renamed neutral /metadata/annotations/cloop.dev~1moved-from"},
		"renamed in a cluster, to another namespace": {[]*unstructured.Unstructured{pool("gpu", "a", pushed)}, []*unstructured.Unstructured{renamed("b", pushed)},
			"big renamed destructive /metadata/annotations/cloop.dev~1moved-from"},
		"renamed in a cluster, to another hub": {[]*unstructured.Unstructured{pool("gpu", "a", pushed)}, []*unstructured.Unstructured{renamed("a", strings.ReplaceAll(pushed, "//h", "//i"))},
			"big renamed destructive /metadata/annotations/cloop.dev~1moved-from /spec/hub/url"},
		"of a cluster": {[]*unstructured.Unstructured{pool("gpu", "a", pushed)}, []*unstructured.Unstructured{pool("gpu", "b", pushed)}, "gpu removed destructive; gpu added raise"},
		"twice":        {[]*unstructured.Unstructured{pool("gpu", "a", revoke), pool("gpu", "b", revoke)}, []*unstructured.Unstructured{pool("gpu", "c", revoke)}, "gpu removed destructive; gpu removed destructive; gpu added raise"},
	} {
		objects, _ := diff.Pairs(test.was, test.now)
		var got []string
		for _, o := range objects {
			parts := []string{o.Name, o.Change, string(o.Class)}
			for _, f := range o.Fields {
				parts = append(parts, f.Path)
			}
			got = append(got, strings.Join(parts, " "))
		}
		if shown := strings.Join(got, "; "); shown != test.want {
			t.Errorf("%s: %s, want %s", name, shown, test.want)
		}
	}
}

// Values come from the PoolSyncs of each revision: a changed one changes what
// its overlay renders, though none of the overlay's files does.
func TestVariablesOfTheRepository(t *testing.T) {
	t.Parallel()
	sync := func(value string) string {
		return "apiVersion: cloop.dev/v1alpha1\nkind: PoolSync\nmetadata: {name: fleet, namespace: fleet}\nspec:\n  interval: 1m\n  path: ./clusters/eu\n" +
			"  source: {git: {url: https://git.example.com/fleet.git}}\n  substitute: {vars: {COUNT: \"" + value + "\"}}\n"
	}
	files := fleetFiles()
	files["pools/base/gpu.yaml"] = executorPool("gpu", "maxRunners: ${COUNT:=1}")
	files["syncs/eu.yaml"] = sync("4")
	r := newRepo(t, files)
	r.want("HEAD", "4 roots: no difference")
	r.write(map[string]string{"syncs/eu.yaml": sync("6")})
	report, err := r.compare("HEAD")
	if err != nil {
		t.Fatal(err)
	}
	if got := everything(t, report); report.Counts.Differ != 2 || !strings.Contains(got, "/spec/maxRunners  raise  4 → 6") ||
		!strings.Contains(got, "/spec/substitute/vars/COUNT  neutral  [not shown] → [not shown]") {
		t.Error(got)
	}
}
