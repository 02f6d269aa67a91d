package prunelimit_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet/prunelimit"
	"cloop.dev/cloop/schemas"
)

func TestALimit(t *testing.T) {
	for name, c := range map[string]struct {
		limit     prunelimit.Limit
		gone, all int
		allowed   bool
	}{
		"within both":       {prunelimit.Limit{Count: 7, Percent: 70}, 7, 10, true},
		"above the count":   {prunelimit.Limit{Count: 6, Percent: 100}, 7, 10, false},
		"above the share":   {prunelimit.Limit{Count: 100, Percent: 69}, 7, 10, false},
		"no share":          {prunelimit.Limit{Count: 100}, 10, 10, true},
		"nothing may go":    {prunelimit.Limit{}, 1, 10, false},
		"nothing goes":      {prunelimit.Limit{}, 0, 10, true},
		"nothing of none":   {prunelimit.Default, 0, 0, true},
		"a fifth":           {prunelimit.Default, 1, 5, true},
		"more than a fifth": {prunelimit.Default, 1, 4, false},
		"six of many":       {prunelimit.Default, 6, 1000, false},
	} {
		if allowed := c.limit.Allows(c.gone, c.all); allowed != c.allowed {
			t.Errorf("%s: %v", name, allowed)
		}
	}
	const want = "abc lacks 3 of 4 pools, and one sync prunes at most 2: a, b, c"
	if got := (prunelimit.Limit{Count: 2}).Refusal("abc", []string{"c", "a", "b"}, 4, "pool"); got != want {
		t.Errorf("it says %q", got)
	}
}

// A PoolSync without a limit and a sync of the hub without one have the same.
func TestTheDefaultIsThatOfAPoolSync(t *testing.T) {
	validator, err := schemas.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	sync := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.PoolSyncKind, "metadata": map[string]any{"name": "fleet"}, "spec": map[string]any{},
	}}
	if err := validator.Default(sync); err != nil {
		t.Fatal(err)
	}
	typed, err := schemas.As[v1alpha1.PoolSync](sync)
	if err != nil {
		t.Fatal(err)
	}
	if l := typed.Spec.PruneLimit; prunelimit.Default != (prunelimit.Limit{Count: int(l.Count), Percent: int(l.Percent)}) {
		t.Errorf("it is %+v, a PoolSync's is %+v", prunelimit.Default, l)
	}
}
