package diff

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// meaning says what it does that an object comes, goes or gets another name, and
// of which class that is by itself; of a changed object only its fields tell.
func meaning(o *Object) (Class, string) {
	if !o.either().ours {
		return foreignMeaning(o)
	}
	switch o.Kind {
	case v1alpha1.ExecutorPoolKind:
		return executorPoolMeaning(o)
	case v1alpha1.HubPoolKind:
		return hubPoolMeaning(o)
	case v1alpha1.PoolSyncKind:
		return poolSyncMeaning(o)
	}
	return Neutral, ""
}

// foreignMeaning is that of what applies pools in place of a PoolSync: gone, it takes with
// it what it has applied, if it was told to. One that was renamed does so too.
func foreignMeaning(o *Object) (Class, string) {
	if o.before != nil && (o.Change == Removed || o.Change == Renamed) && fleet.TakesAlong(o.before.Unstructured) {
		return Destructive, "what it has applied goes with it: pools are drained first"
	}
	if o.Change == Changed && fleet.MakesFewer(o.before.Unstructured, o.after.Unstructured) {
		return Destructive, "an Application that it does not make any more goes, and what that has applied with it: pools are drained first"
	}
	return Neutral, ""
}

// stay is for an object that its overlay does not have any more without anything
// happening to it.
func (o *Object) stay() {
	o.Class, o.stays = Neutral, true
	if o.either().ours || o.Meaning != "" {
		o.Meaning = "nothing happens to it: it stays as it was applied last, and no commit changes it any more"
	}
}

func executorPoolMeaning(o *Object) (Class, string) {
	volumes := ""
	if o.before != nil && hasVolumes(o.before.Unstructured) {
		volumes = ", and its volumes are deleted"
		if retains(o.before.Unstructured) {
			volumes = ", and its volumes are kept"
		}
	}
	switch o.Change {
	case Added:
		return Raise, "the cluster starts runners for hub pool " + o.Pool
	case Removed:
		leaves := "; a PoolSync that does not prune leaves it"
		if fleet.Unpruned(o.before.Unstructured) {
			leaves = "; Flux or Argo CD leave it, as it says itself, and so does a PoolSync that does not prune"
		}
		return Destructive, "the cluster retires its idle runners, waits for the busy ones and starts no more" + volumes + leaves
	case Renamed:
		class := Neutral
		if deletesVolumes(o.before.Unstructured) {
			class = Destructive
		}
		return class, "a new pool starts runners; the old one retires its idle runners and waits for the busy ones" + volumes
	}
	return Neutral, ""
}

func hubPoolMeaning(o *Object) (Class, string) {
	revokes := o.before != nil && deletionPolicy(o.before.Unstructured) == v1alpha1.DeletionRevoke
	switch {
	case o.Change == Added:
		return Raise, "the hub makes the pool; its credential has yet to be minted"
	case o.keepsPool():
		return Neutral, "the hub's pool has the new name, and keeps its id, and with it bindings, credentials and volumes"
	case o.Change == Removed && revokes:
		return Destructive, "its deletionPolicy is Revoke: the hub hands out nothing more, cancels what waits, lets busy runners finish, and revokes the pool with its credentials"
	case o.Change == Removed:
		return Neutral, "its deletionPolicy is Orphan: the pool stays at the hub as it is, and Git no longer manages it"
	case o.Change == Renamed && revokes:
		return Destructive, "the hub makes a new pool with no credential and no project bound to it; the deletionPolicy of the old one is Revoke: what waits is cancelled, and it is revoked once its busy runners have finished"
	case o.Change == Renamed:
		return Neutral, "the hub makes a new pool with no credential and no project bound to it; the deletionPolicy of the old one is Orphan: it stays as it is"
	}
	return Neutral, ""
}

func poolSyncMeaning(o *Object) (Class, string) {
	switch {
	case o.Change == Added:
		return Raise, "the cluster applies the path from then on"
	case o.Change != Removed && o.Change != Renamed:
		return Neutral, ""
	case fleet.TakesAlong(o.before.Unstructured):
		return Destructive, "what it has applied is pruned: pools are drained first"
	}
	return Neutral, "what it has applied stays, and nothing updates it"
}

// deletionPolicy of a HubPool, with its default.
func deletionPolicy(pool *unstructured.Unstructured) string {
	policy, _, _ := unstructured.NestedString(pool.Object, "spec", "deletionPolicy")
	if policy == "" {
		return v1alpha1.DeletionOrphan
	}
	return policy
}
