package schemas

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
)

// A name that the server makes is judged as one that is written: a pool's name
// has no dots, and a long beginning is cut before letters are added.
func TestGeneratedNamesAreJudged(t *testing.T) {
	validator := mustValidator(t)
	for prefix, good := range map[string]bool{"gpu-": true, "a.b-": false, strings.Repeat("a", 200): true, "Gpu-": false} {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.HubPoolKind,
			"metadata": map[string]any{"generateName": prefix},
			"spec":     map[string]any{"maxRunners": int64(1)},
		}}
		problems := validator.Validate(Document{Object: object})
		if (len(problems) == 0) != good {
			t.Errorf("%s: %v, want good: %t", prefix, problems, good)
		}
		if name := object.GetName(); name != "" {
			t.Errorf("the document was given the name %s", name)
		}
	}
}
