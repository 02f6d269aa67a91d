package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
)

// Two PoolSyncs may want one object. It belongs to the one that has it in its
// inventory, and where both do, to the one whose labels it carries; the other
// applies all the rest, leaves it alone and says so. Were it applied by both, each
// would take the other's work for drift, and either's prune would delete what the
// other wants.

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
	theirs, err := r.othersInventory(ctx, p)
	if err != nil {
		return err
	}
	mine := idsOf(p.status.Inventory)
	p.sights = slices.DeleteFunc(p.sights, func(s *sight) bool {
		delete(m.rivals, s.id)
		if s.observed {
			return false // whosever it is
		}
		rival, yes := p.rival(s, mine[s.id], theirs[s.id])
		if yes {
			m.rivals[s.id] = rival
		}
		return yes
	})
	return nil
}

// rival is the other PoolSync that an object belongs to, if there is one. mine:
// the object is in this one's inventory; theirs: the others of the namespace that
// have it in theirs.
func (p *syncPass) rival(s *sight, mine bool, theirs []types.NamespacedName) (types.NamespacedName, bool) {
	var named types.NamespacedName
	if s.have != nil {
		named = syncNamed(s.have)
	}
	elsewhere := named.Name != "" && named.Namespace != p.sync.Namespace
	switch {
	case mine && elsewhere:
		// What another namespace's PoolSync has applied cannot be read here. A
		// label is soon forged, so the object is given up only to one that insists.
		return named, p.memory.contestOf(s.id).times >= freeCorrections
	case mine:
		return named, slices.Contains(theirs, named)
	case len(theirs) > 0:
		return theirs[0], true
	default:
		return named, elsewhere
	}
}

// othersInventory: object → the other PoolSyncs of the namespace that have it in
// their inventory, by name.
func (r *poolSyncReconciler) othersInventory(ctx context.Context, p *syncPass) (map[objectID][]types.NamespacedName, error) {
	syncs := &v1alpha1.PoolSyncList{}
	if err := r.client.List(ctx, syncs, client.InNamespace(p.sync.Namespace)); err != nil {
		return nil, fmt.Errorf("list PoolSyncs: %w", err)
	}
	theirs := map[objectID][]types.NamespacedName{}
	for i := range syncs.Items {
		other := &syncs.Items[i]
		if other.Name == p.sync.Name {
			continue
		}
		for _, entry := range other.Status.Inventory {
			if id := idOfEntry(entry); p.target.byID[id] != nil {
				theirs[id] = append(theirs[id], client.ObjectKeyFromObject(other))
			}
		}
	}
	for id := range theirs {
		slices.SortFunc(theirs[id], func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) })
	}
	return theirs, nil
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

// own are the objects of a build that are applied and that no other PoolSync has.
func (p *syncPass) own(b *build) []*wanted {
	return slices.DeleteFunc(slices.Clone(b.objects), func(object *wanted) bool {
		return p.memory.rivals[object.id].Name != "" || object.observed
	})
}

// maxRivals bounds how many objects of another PoolSync a condition names.
const maxRivals = 10

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
	return stalled(v1alpha1.ReasonOwnedByAnother, fmt.Errorf("all of %s is applied but for what is another's: %s", p.target.revision, strings.Join(count.First(left, maxRivals), "; ")))
}
