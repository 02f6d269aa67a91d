package fleet

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
)

// Fate is what becomes of what an object of the repository has applied.
type Fate struct {
	// Prunes: what its path does not render any more is deleted. Empties: also where that
	// is all, which others take for an accident. Along: also where it goes itself.
	Prunes, Empties, Along bool
	// heeds: an object of its may say that it is not pruned.
	heeds bool
}

// Leaves says whether an object stays that is not rendered any more. What the hub reads
// from Git is the hub's.
func (f Fate) Leaves(obj *unstructured.Unstructured) bool {
	return !HubReads(obj) && !f.Prunes || f.Spares(obj)
}

// Spares says whether an object stays because it says so, wherever else it would go.
func (f Fate) Spares(obj *unstructured.Unstructured) bool {
	return !HubReads(obj) && f.heeds && Unpruned(obj)
}

// Prunes says whether a PoolSync prunes, which is the default.
func Prunes(sync *unstructured.Unstructured) bool {
	prune, said, _ := unstructured.NestedBool(sync.Object, "spec", "prune")
	return prune || !said
}

// fateBy is that of what an object applies.
func fateBy(obj *unstructured.Unstructured) Fate {
	switch {
	case isKind(obj, v1alpha1.PoolSyncKind):
		return Fate{Prunes: Prunes(obj), Along: TakesAlong(obj)}
	case isFlux(obj):
		prune, _, _ := unstructured.NestedBool(obj.Object, "spec", "prune")
		return Fate{Prunes: prune, Empties: prune, Along: TakesAlong(obj), heeds: true}
	}
	spec := []string{"spec"}
	if obj.GetKind() == kindApplicationSet {
		spec = []string{"spec", "template", "spec"}
	}
	options, _, _ := unstructured.NestedStringSlice(obj.Object, append(slices.Clone(spec), "syncPolicy", "syncOptions")...)
	automated := append(slices.Clone(spec), "syncPolicy", "automated")
	prune, _, _ := unstructured.NestedBool(obj.Object, append(slices.Clone(automated), "prune")...)
	empty, _, _ := unstructured.NestedBool(obj.Object, append(slices.Clone(automated), "allowEmpty")...)
	// Without automated pruning whoever syncs may have it prune.
	return Fate{Prunes: !slices.Contains(options, "Prune=false"), Empties: prune && empty, Along: TakesAlong(obj) && !keepsApplications(obj), heeds: true}
}
