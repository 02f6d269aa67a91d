package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
)

// Two PoolSyncs may want one object. It belongs to the one that has it in its
// inventory and whose labels it carries; the other applies all the rest, leaves
// it alone and says so. Were it applied by both, each would take the other's
// work for drift, and either's prune would delete what the other wants.

// yield notes the objects that are another PoolSync's, as far as this pass has
// looked at them.
func (r *poolSyncReconciler) yield(ctx context.Context, p *syncPass) error {
	m := p.memory
	if m.rivals == nil {
		m.rivals = map[objectID]types.NamespacedName{}
	}
	for id := range m.rivals {
		if p.target.byID[id] == nil {
			delete(m.rivals, id)
		}
	}
	mine := idsOf(p.status.Inventory)
	for _, s := range p.sights {
		rival, err := r.rival(ctx, p, s, mine[s.id])
		if err != nil {
			return err
		}
		if rival.Name == "" {
			delete(m.rivals, s.id)
			continue
		}
		m.rivals[s.id] = rival
	}
	p.sights = slices.DeleteFunc(p.sights, func(s *sight) bool { return m.rivals[s.id].Name != "" })
	return nil
}

// rival is the other PoolSync that an object belongs to; empty: there is none.
func (r *poolSyncReconciler) rival(ctx context.Context, p *syncPass, s *sight, mine bool) (types.NamespacedName, error) {
	if s.have == nil {
		return types.NamespacedName{}, nil
	}
	named := syncNamed(s.have)
	if named.Name == "" || named == p.name() {
		return types.NamespacedName{}, nil
	}
	if named.Namespace != p.sync.Namespace {
		// What another namespace's PoolSync has applied cannot be read here. A
		// label is soon forged, so what is in the inventory is given up only to
		// one that insists.
		if mine && p.memory.contests[s.id].times < freeCorrections {
			return types.NamespacedName{}, nil
		}
		return named, nil
	}
	other := &v1alpha1.PoolSync{}
	if err := r.client.Get(ctx, named, other); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return types.NamespacedName{}, nil
		}
		return types.NamespacedName{}, fmt.Errorf("read PoolSync %s: %w", named, err)
	}
	if !idsOf(other.Status.Inventory)[s.id] {
		return types.NamespacedName{}, nil
	}
	return named, nil
}

// syncNamed is the PoolSync that an object's labels name.
func syncNamed(object client.Object) types.NamespacedName {
	labels := object.GetLabels()
	return types.NamespacedName{Namespace: labels[v1alpha1.LabelPoolSyncNamespace], Name: labels[v1alpha1.LabelPoolSyncName]}
}

// idsOf are the objects of an inventory.
func idsOf(inventory []v1alpha1.InventoryEntry) map[objectID]bool {
	ids := make(map[objectID]bool, len(inventory))
	for _, e := range inventory {
		ids[idOfEntry(e)] = true
	}
	return ids
}

func idOfEntry(e v1alpha1.InventoryEntry) objectID {
	return objectID{schema.FromAPIVersionAndKind(e.APIVersion, e.Kind).Group, e.Kind, e.Namespace, e.Name}
}

// own are the objects of a build that no other PoolSync has.
func (p *syncPass) own(b *build) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(b.objects), func(object *unstructured.Unstructured) bool {
		return p.memory.rivals[idOf(object)].Name != ""
	})
}

// rivalry says what was left to others; nil: nothing.
func (p *syncPass) rivalry() *stageError {
	var left []string
	for id, rival := range p.memory.rivals {
		left = append(left, fmt.Sprintf("%s is applied by PoolSync %s", id, rival))
	}
	if len(left) == 0 {
		return nil
	}
	slices.Sort(left)
	if more := len(left) - maxProblems; more > 0 {
		left = append(left[:maxProblems], fmt.Sprintf("and %d more", more))
	}
	return stalled(v1alpha1.ReasonOwnedByAnother, fmt.Errorf("all of %s is applied but for what is another's: %s", p.target.revision, strings.Join(left, "; ")))
}
