package fleet_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/internal/fleet"
)

// patched has pools with a patch each, under a prefix.
func patched(pools int) map[string]string {
	files := map[string]string{}
	base, overlay := "resources:\n", "namespace: eu\nnamePrefix: eu-\nresources: [../base]\npatches:\n"
	for i := range pools {
		name := fmt.Sprintf("pool-%04d", i)
		files["base/"+name+".yaml"] = strings.ReplaceAll(basePool, "name: gpu\n", "name: "+name+"\n")
		files["eu/"+name+".yaml"] = "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: " + name + "}\nspec:\n  maxRunners: 5\n  foo: 1\n"
		base += "- " + name + ".yaml\n"
		overlay += "- path: " + name + ".yaml\n"
	}
	files["base/kustomization.yaml"], files["eu/kustomization.yaml"] = base, overlay
	return files
}

// Sources are the same whether kustomize notes them or the scan finds them.
func TestSourcesWithoutTracking(t *testing.T) {
	dir, v := repo(t, patched(12)), validator(t)
	tracked, err := fleet.Check(t.Context(), v, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.SetMaxTracking(0))
	found, err := fleet.Check(t.Context(), v, dir)
	if err != nil || len(found.Problems) != 12 || !reflect.DeepEqual(found, tracked) {
		t.Errorf("reported\n%+v\n%v\nwant\n%+v", found, err, tracked)
	}
}

// Noting each of four hundred patches on each of four hundred pools took minutes.
func TestManyPatchesAreRenderedInTime(t *testing.T) {
	began := time.Now()
	rendered, err := fleet.Build(t.Context(), repo(t, patched(400)), "eu")
	if took := time.Since(began); err != nil || len(rendered) != 400 || took > time.Minute {
		t.Errorf("rendered %d objects in %s, %v", len(rendered), took, err)
	}
}
