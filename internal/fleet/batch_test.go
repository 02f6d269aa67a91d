package fleet_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
)

// sameAsAtOnce says how it was rendered, and fails unless that is as kustomize
// renders it at once, an error included.
func sameAsAtOnce(t *testing.T, files map[string]string) (batched bool) {
	t.Helper()
	dir := repo(t, files)
	undo := fleet.SetBatches(1, 1<<30)
	want, apart, wantErr := fleet.BuildInBatches(t.Context(), dir, "eu")
	undo()
	got, batched, err := fleet.BuildInBatches(t.Context(), dir, "eu")
	if apart || fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Errorf("the error is %v, at once %v", err, wantErr)
	}
	if len(got) != len(want) {
		t.Fatalf("rendered %d objects, at once %d", len(got), len(want))
	}
	for i := range got {
		if !reflect.DeepEqual(got[i].Object, want[i].Object) {
			t.Errorf("object %d is\n%v\nat once\n%v", i, got[i].Object, want[i].Object)
		}
	}
	return batched
}

// account is what pools refer to by its name.
const account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: runs}\n"

// What is rendered in batches is what is rendered at once, in the same order.
func TestBatchesRenderWhatIsRenderedAtOnce(t *testing.T) {
	t.Cleanup(fleet.SetBatches(3, 4))
	plain := patched(10)
	change := func(changes map[string]string) map[string]string { return with(maps.Clone(plain), changes) }
	add := func(file, text string) map[string]string { return change(map[string]string{file: plain[file] + text}) }
	pool := func(name string) string {
		return strings.ReplaceAll(basePool, "name: gpu\n", "name: "+name+"\n")
	}
	two := patched(5)
	two["eu/kustomization.yaml"] = "resources: [../a, ../b]\n"
	two["a/kustomization.yaml"] = "namePrefix: a-\nresources: [../base]\n"
	two["b/kustomization.yaml"] = "namePrefix: b-\nresources: [../base]\npatches: [{path: p.yaml}]\n"
	two["b/p.yaml"] = two["eu/pool-0003.yaml"]
	kinds := kindsComponent(t)
	for name, test := range map[string]struct {
		files   map[string]string
		batched bool
	}{
		"a patch each":                  {plain, true},
		"few":                           {patched(3), false},
		"labels and annotations":        {add("eu/kustomization.yaml", "labels: [{pairs: {a: b}, includeSelectors: true}]\ncommonAnnotations: {c: d}\nnameSuffix: -x\n"), true},
		"a patch of all":                {add("eu/kustomization.yaml", "- {patch: '[{\"op\": \"add\", \"path\": \"/spec/minRunners\", \"value\": 1}]', target: {kind: ExecutorPool}}\n"), true},
		"a patch by a pattern":          {add("eu/kustomization.yaml", "- {patch: '{\"apiVersion\": \"cloop.dev/v1alpha1\", \"kind\": \"ExecutorPool\", \"metadata\": {\"name\": \"x\"}, \"spec\": {\"minRunners\": 1}}', target: {kind: ExecutorPool, name: pool-000.*}}\n"), true},
		"a patch by a name":             {add("eu/kustomization.yaml", "- {patch: '[{\"op\": \"add\", \"path\": \"/spec/minRunners\", \"value\": 1}]', target: {kind: ExecutorPool, name: pool-0007}}\n"), true},
		"a patch of nothing":            {add("eu/kustomization.yaml", "- {patch: '[{\"op\": \"add\", \"path\": \"/spec/minRunners\", \"value\": 1}]', target: {kind: ExecutorPool, name: nobody}}\n"), true},
		"a patch that finds none":       {change(map[string]string{"eu/pool-0001.yaml": strings.Replace(plain["eu/pool-0001.yaml"], "pool-0001", "nobody", 1)}), false},
		"a patch of another kind":       {change(map[string]string{"eu/pool-0001.yaml": strings.Replace(plain["eu/pool-0001.yaml"], "ExecutorPool", "HubPool", 1)}), false},
		"patches of several":            {change(map[string]string{"eu/pool-0001.yaml": plain["eu/pool-0001.yaml"] + "---\n" + plain["eu/pool-0009.yaml"]}), false},
		"a patch that deletes":          {change(map[string]string{"eu/pool-0001.yaml": plain["eu/pool-0001.yaml"] + "$patch: delete\n"}), false},
		"a patch that renames":          {add("eu/kustomization.yaml", "- {patch: '[{\"op\": \"replace\", \"path\": \"/metadata/name\", \"value\": \"x\"}]', target: {kind: ExecutorPool, name: pool-0001}}\n"), false},
		"a patch that may rename":       {add("eu/kustomization.yaml", "- {path: pool-0001.yaml, options: {allowNameChange: true}}\n"), false},
		"an object twice":               {change(map[string]string{"base/pool-0009.yaml": plain["base/pool-0000.yaml"]}), false},
		"one base under two prefixes":   {two, true},
		"objects beside":                {change(map[string]string{"base/kustomization.yaml": strings.Replace(plain["base/kustomization.yaml"], "- pool-0003.yaml\n", "- a.yaml\n- pool-0003.yaml\n", 1), "base/a.yaml": account}), true},
		"a file with both":              {change(map[string]string{"base/pool-0004.yaml": plain["base/pool-0004.yaml"] + "---\n" + account}), true},
		"several pools in a file":       {change(map[string]string{"base/pool-0004.yaml": plain["base/pool-0004.yaml"] + "---\n" + pool("a") + "---\n" + pool("b") + "---\n" + pool("c")}), true},
		"a generator":                   {add("base/kustomization.yaml", "configMapGenerator: [{name: a, literals: [a=b]}]\n"), false},
		"a replacement":                 {add("base/kustomization.yaml", "replacements: [{source: {kind: ExecutorPool, name: pool-0001}, targets: [{select: {kind: ExecutorPool, name: pool-0008}, fieldPaths: [spec.hubPool], options: {create: true}}]}]\n"), false},
		"both halves":                   {change(map[string]string{"base/pool-0004.yaml": hubPool}), false},
		"an unknown field":              {add("base/kustomization.yaml", "replicas: []\n"), false},
		"old fields":                    {add("base/kustomization.yaml", "patchesJson6902: []\n"), false},
		"common labels":                 {add("base/kustomization.yaml", "commonLabels: {a: b}\n"), true},
		"common labels twice":           {add("base/kustomization.yaml", "commonLabels: {a: b}\nlabels: [{pairs: {a: c}}]\n"), false},
		"common labels and ours":        {with(add("base/kustomization.yaml", "commonLabels: {a: b}\nconfigurations: [../kinds/configuration.yaml]\n"), kinds), true},
		"names followed":                {with(change(map[string]string{"base/pool-0004.yaml": plain["base/pool-0004.yaml"] + "  template: {serviceAccountName: runs, image: \"a:1\"}\n", "base/kustomization.yaml": plain["base/kustomization.yaml"] + "- a.yaml\n", "base/a.yaml": account, "eu/kustomization.yaml": plain["eu/kustomization.yaml"] + "components: [../kinds]\nimages: [{name: a, newTag: \"2\"}]\n"}), kinds), true},
		"another configuration":         {with(add("base/kustomization.yaml", "configurations: [c.yaml]\n"), map[string]string{"base/c.yaml": "nameReference:\n- kind: ExecutorPool\n  fieldSpecs: [{kind: ExecutorPool, path: spec/hubPool}]\n", "base/pool-0001.yaml": plain["base/pool-0001.yaml"] + "  hubPool: pool-0009\n"}), false},
		"another OpenAPI document":      {with(add("base/kustomization.yaml", "openapi: {path: o.json}\n"), map[string]string{"base/o.json": `{"definitions": {}}`}), false},
		"a component with a patch":      {with(add("eu/kustomization.yaml", "components: [../small]\n"), map[string]string{"small/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [p.yaml]\npatches: [{path: q.yaml}]\n", "small/p.yaml": pool("extra"), "small/q.yaml": plain["eu/pool-0002.yaml"]}), true},
		"one namespace for two objects": {change(map[string]string{"base/pool-0009.yaml": strings.Replace(plain["base/pool-0000.yaml"], "name: pool-0000\n", "name: pool-0000\n  namespace: other\n", 1)}), false},
	} {
		t.Run(name, func(t *testing.T) {
			if batched := sameAsAtOnce(t, test.files); batched != test.batched {
				t.Errorf("in batches is %t, want %t", batched, test.batched)
			}
		})
	}
}

// Whatever a repository is made of, batches change nothing.
func TestRandomBatchesRenderWhatIsRenderedAtOnce(t *testing.T) {
	t.Cleanup(fleet.SetBatches(3, 4))
	batched := 0
	const rounds = 40
	for seed := range uint64(rounds) {
		if sameAsAtOnce(t, randomOverlay(rand.New(rand.NewPCG(seed, 1)))) {
			batched++
		}
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
	if batched < rounds/8 {
		t.Errorf("%d of %d were rendered in batches", batched, rounds)
	}
}

func randomOverlay(r *rand.Rand) map[string]string {
	chance := func(of int) bool { return r.IntN(of) == 0 }
	files, list := map[string]string{}, map[string]string{"base": "resources:\n", "eu": "resources:\n- ../base\n"}
	var names []string
	for i := range 5 + r.IntN(12) {
		name, in := fmt.Sprintf("p%d", i), "base"
		if chance(4) {
			in = "eu"
		}
		file := fmt.Sprintf("f%d.yaml", i-r.IntN(2))
		text := strings.Replace(basePool, "name: gpu\n", "name: "+name+"\n", 1)
		switch {
		case chance(12):
			text = strings.Replace(account, "runs", name, 1)
		case chance(6):
			text += "  template: {serviceAccountName: p1}\n"
		case chance(25):
			text = strings.Replace(text, name, "p0", 1)
		}
		if before, ok := files[in+"/"+file]; ok {
			text = before + "---\n" + text
		} else {
			list[in] += "- " + file + "\n"
		}
		files[in+"/"+file] = text
		names = append(names, name)
	}
	patches := map[string]string{}
	for i := range r.IntN(12) {
		in, name := "eu", names[r.IntN(len(names))]
		if chance(3) {
			in = "base"
		}
		switch r.IntN(4) {
		case 0:
			patches[in] += fmt.Sprintf("- patch: '[{\"op\": \"add\", \"path\": \"/spec/minRunners\", \"value\": %d}]'\n  target: {kind: ExecutorPool, name: %s}\n", i, name)
		case 1:
			patches[in] += fmt.Sprintf("- patch: '[{\"op\": \"add\", \"path\": \"/spec/maxRunners\", \"value\": %d}]'\n  target: {kind: ExecutorPool, name: \"p[1-%d]\"}\n", i, 1+r.IntN(8))
		default:
			if strings.Contains(files["base/"+name+".yaml"], "ServiceAccount") {
				continue
			}
			patches[in] += fmt.Sprintf("- patch: '{\"apiVersion\": \"cloop.dev/v1alpha1\", \"kind\": \"ExecutorPool\", \"metadata\": {\"name\": \"%s\"}, \"spec\": {\"idleTimeout\": \"%dm\"}}'\n", name, i+1)
		}
	}
	for in, text := range list {
		if patches[in] != "" {
			text += "patches:\n" + patches[in]
		}
		for _, field := range []string{"namePrefix: a-\n", "nameSuffix: -b\n", "namespace: n\n", "labels: [{pairs: {a: b}}]\n"} {
			if chance(3) {
				text += field
			}
		}
		files[in+"/kustomization.yaml"] = text
	}
	return files
}
