package fleet_test

import (
	"fmt"
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

// Having kustomize note each of four hundred patches on each of four hundred
// pools took minutes.
func TestManyPatchesAreRenderedInTime(t *testing.T) {
	began := processorTime()
	rendered, err := fleet.Build(t.Context(), repo(t, patched(400)), "eu")
	if took := processorTime() - began; err != nil || len(rendered) != 400 || took > time.Minute {
		t.Errorf("rendered %d objects in %s, %v", len(rendered), took, err)
	}
}
