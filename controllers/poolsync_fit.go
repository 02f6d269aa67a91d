package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
)

// etcd takes 1.5 MiB of an object, and an API server refuses to write what is larger:
// a controller whose status is would have forgotten what it applied. So the inventory,
// which is never cut, is asked about before anything is applied; conditions and drift
// get what it leaves.
const (
	// maxObject bounds an object with its status, in bytes of JSON.
	maxObject = 1_550_000
	// maxInventory is the API's bound on the entries.
	maxInventory = 12000
	// besideInventory is kept free for conditions and drift.
	besideInventory = 64 << 10
	// besideDrift is kept free for what is written after it, and leastDrift for it.
	besideDrift = 16 << 10
	leastDrift  = 16 << 10
	// maxDriftBytes bounds status.drift also where there is room: whoever watches
	// PoolSyncs reads it again with each change.
	maxDriftBytes = 256 << 10
)

// sizeOf is how many bytes something takes as JSON.
func sizeOf(value any) int {
	data, err := json.Marshal(value)
	if err != nil {
		return 0 // nothing that comes from JSON gets here
	}
	return len(data)
}

// written is how many bytes a PoolSync takes without its status.
func written(sync *v1alpha1.PoolSync) int {
	without := *sync
	without.Status = v1alpha1.PoolSyncStatus{}
	return sizeOf(&without)
}

// fit refuses a build that would not fit into the inventory, together with what is in
// it and not pruned yet.
func (r *poolSyncReconciler) fit(_ context.Context, p *syncPass) *stageError {
	newest := p.memory.newest
	if newest == nil || newest.refusal != nil {
		return nil
	}
	together := merged(p.status.Inventory, inventory(p.own(newest)))
	size, room := sizeOf(together), maxObject-besideInventory-written(p.sync)
	if len(together) <= maxInventory && size <= room {
		return nil
	}
	return stalled(v1alpha1.ReasonTooManyObjects, fmt.Errorf(
		"%s has %s, with what was applied before an inventory of %d in %d bytes, and there is room for %d in %d bytes",
		newest.revision, count.Of(len(newest.objects), "object"), len(together), size, maxInventory, room))
}

// shownDrift are the entries that a status has room for, the first ones, with their
// values as far as there is room. cut says that values were shortened.
func shownDrift(entries []v1alpha1.DriftEntry, room int) (shown []v1alpha1.DriftEntry, cut bool) {
	entries = entries[:min(len(entries), maxDrift)]
	room = min(room, maxDriftBytes)
	if sizeOf(entries) <= room {
		return entries, false
	}
	for _, most := range []int{4096, 1024, 256, 64} {
		shown = shortened(entries, most)
		if sizeOf(shown) <= room {
			return shown, true
		}
	}
	for len(shown) > 0 && sizeOf(shown) > room {
		shown = shown[:len(shown)/2]
	}
	return shown, true
}

// shortened are entries with texts of at most so many bytes. The path is none of them:
// with a part of it nobody finds the field.
func shortened(entries []v1alpha1.DriftEntry, most int) []v1alpha1.DriftEntry {
	out := make([]v1alpha1.DriftEntry, len(entries))
	for i, e := range entries {
		e.Git, e.Hub, e.Cluster, e.Message = shorten(e.Git, most), shorten(e.Hub, most), shorten(e.Cluster, most), shorten(e.Message, most)
		out[i] = e
	}
	return out
}

// showDrift makes status.drift what there is room for of all entries, and returns what
// is to be said of the rest; empty: there is none.
func (p *syncPass) showDrift(entries []v1alpha1.DriftEntry) (rest string) {
	room := maxObject - besideDrift - written(p.sync) - sizeOf(p.status.Inventory)
	p.status.Conditions = trimmed(p.status.Conditions, room-leastDrift)
	shown, cut := shownDrift(entries, room-sizeOf(p.status.Conditions))
	p.status.Drift = shown
	if len(shown) < len(entries) {
		rest = fmt.Sprintf(", the first %d of %d", len(shown), len(entries))
	}
	if cut {
		rest += ", with long values cut"
	}
	// What is not shown is remembered for when it began, not for its values.
	p.memory.drift = entries
	if len(entries) > maxDrift {
		copy(entries[maxDrift:], shortened(entries[maxDrift:], maxShown))
	}
	return rest
}

// trimmed are conditions with messages as long as there is room.
func trimmed(conditions []metav1.Condition, room int) []metav1.Condition {
	for _, most := range []int{4096, 512} {
		if sizeOf(conditions) <= room {
			break
		}
		conditions = slices.Clone(conditions)
		for i := range conditions {
			conditions[i].Message = shorten(conditions[i].Message, most)
		}
	}
	return conditions
}
