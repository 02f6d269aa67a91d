package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

// A few objects that apply one path, or a few overlays of one base, make any number of
// documents: beyond the bounds nothing more is rendered, which is said once.
func TestAllRootsTogetherAreBounded(t *testing.T) {
	sync := func(name, value string) string {
		return "apiVersion: cloop.dev/v1alpha1\nkind: PoolSync\nmetadata: {name: " + name + ", namespace: fleet}\nspec:\n  interval: 1m\n  path: ./clusters/eu\n" +
			"  source: {git: {url: https://git.example.com/fleet.git}}\n  substitute: {vars: {COUNT: \"" + value + "\"}}\n---\n"
	}
	var pools, hubs strings.Builder
	syncs := map[string]string{}
	for i := range 10 {
		name := fmt.Sprintf("p%d", i)
		pools.WriteString("---\n" + strings.ReplaceAll(strings.Replace(basePool, "maxRunners: 4", "maxRunners: ${COUNT}", 1), "gpu", name))
		hubs.WriteString("---\n" + strings.ReplaceAll(hubPool, "gpu", name))
	}
	for i := range 20 {
		// Each is of a cluster of its own.
		syncs[fmt.Sprintf("boot/c%d/sync.yaml", i)] = sync(fmt.Sprintf("s%d", i), "3")
	}
	files := with(syncs, map[string]string{"clusters/eu/pools.yaml": pools.String(), "hub/pools.yaml": hubs.String()})
	overlays := map[string]string{"base/pools.yaml": strings.ReplaceAll(pools.String(), "${COUNT}", "3"), "base/kustomization.yaml": "resources: [pools.yaml]\n", "hub/pools.yaml": hubs.String()}
	for i := range 20 {
		overlays[fmt.Sprintf("clusters/c%02d/kustomization.yaml", i)] = "resources: [../../base]\n"
	}
	for name, test := range map[string]struct {
		files            map[string]string
		documents, texts int64
		want             string
	}{
		"few enough":         {files, 300, 1 << 20, ""},
		"ways, by documents": {files, 100, 1 << 20, "clusters/eu:1:1: it is not rendered as PoolSync fleet/s"},
		"ways, by text":      {files, 300, 5_000, "together more than 0 MiB of text"},
		"overlays":           {overlays, 100, 1 << 20, "clusters/c11/kustomization.yaml:1:1: it is not rendered, because the roots before it have together more than 100 documents"},
	} {
		t.Run(name, func(t *testing.T) {
			defer fleet.SetMost(test.documents, test.texts)()
			report := check(t, test.files)
			if test.want == "" {
				if len(report.Problems) > 0 {
					t.Errorf("%v", report.Problems)
				}
				return
			}
			if len(report.Problems) != 1 || report.Problems[0].Rule != fleet.RuleTooLarge || !strings.Contains(report.Problems[0].String(), test.want) ||
				!strings.Contains(report.Problems[0].Hint, "name some of the roots") || report.Problems[0].Severity != schemas.SeverityError {
				t.Errorf("%v, want one problem: %s", report.Problems, test.want)
			}
			if most := int(test.documents) + 40; report.Documents > most {
				t.Errorf("%d documents were rendered", report.Documents)
			}
		})
	}

	defer fleet.SetMost(100, 1<<20)()
	renderer, err := fleet.NewRenderer(repo(t, files), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer renderer.Close()
	if _, err := renderer.Roots(t.Context()); err != nil {
		t.Fatal(err)
	}
	ways, err := renderer.Ways(t.Context(), "clusters/eu")
	if err != nil || len(ways) != 20 {
		t.Fatal(len(ways), err)
	}
	all, err := renderer.Render(t.Context(), "clusters/eu", ways)
	if err != nil {
		t.Fatal(err)
	}
	rendered, omitted := 0, 0
	for _, one := range all {
		rendered += len(one.Objects)
		if len(one.Problems) == 1 && one.Problems[0].Rule == fleet.RuleTooLarge {
			omitted++
		}
	}
	if rendered != 110 || omitted != 9 {
		t.Errorf("%d objects were rendered, and %d ways were not", rendered, omitted)
	}
}

// What other teams have keeps nobody's pools from being looked at.
func TestOtherTeamsDocumentsAreCountedApart(t *testing.T) {
	files := map[string]string{"pools/gpu.yaml": strings.Replace(basePool, "maxRunners: 4", "maxRunners: lots", 1), "pools/kustomization.yaml": "resources: [gpu.yaml]\n",
		"base/pool.yaml": strings.Replace(named("other"), "maxRunners: 4", "maxRunners: lots", 1), "base/kustomization.yaml": "resources: [pool.yaml]\n", "zz/kustomization.yaml": "resources: [../base]\n",
		"flux/all.yaml": strings.Replace(fluxHead, "./clusters/eu", "./zz", 1)}
	var settings strings.Builder
	for i := range 30 {
		fmt.Fprintf(&settings, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\n", i)
	}
	for i := range 8 {
		app := fmt.Sprintf("apps/a%d/", i)
		files[app+"a.yaml"], files[app+"kustomization.yaml"] = settings.String(), "resources: [a.yaml]\n"
	}
	defer fleet.SetMost(100, 1<<20)()
	report := check(t, files)
	want := []string{"too-large apps/a4/kustomization.yaml:1:1", "schema base/pool.yaml:10:3 spec.maxRunners", "schema pools/gpu.yaml:10:3 spec.maxRunners"}
	var got []string
	for _, place := range places(report) {
		if !strings.HasPrefix(place, "cel ") {
			got = append(got, place)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%q, want %q: %v", got, want, report.Problems)
	}
	if p := report.Problems[0]; p.Severity != schemas.SeverityWarning || !strings.Contains(p.Message, "nothing in it is of cloop.dev") || !strings.Contains(p.Hint, "exclude") {
		t.Errorf("%+v", p)
	}
	if report.Documents != 4*30+2 {
		t.Errorf("%d documents were rendered", report.Documents)
	}
}
