package diff

import (
	"cmp"
	"math/big"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// Judges of fields whose class depends on others of their object.
var (
	// maximum of an ExecutorPool also bounds its volumes, unless maxClaims does.
	maximum = counted.with(", and `destructive` where that deletes volumes: without maxClaims it bounds them", func(c change) Class {
		class := counted.of(c)
		if class == Lower && deletesBeyond(c.before, c.after) {
			return Destructive
		}
		return class
	})
	// volumes is the switch for what outlives a runner.
	volumes = judge{about: "`raise` when it is turned on; when it is turned off or goes `destructive`, and `lower` where reclaimPolicy is still Retain", takes: isSwitch, of: func(c change) Class {
		if retains(c.after) {
			return onOff(c, Raise, Lower)
		}
		return onOff(c, Raise, Destructive)
	}}
	// claims bounds the volumes.
	claims = counted.with(", and `destructive` where that deletes volumes", func(c change) Class {
		if deletesBeyond(c.before, c.after) {
			return Destructive
		}
		return direction(claimsOf(c.before), claimsOf(c.after))
	})
	// reclaim is destructive for volumes that were to be kept.
	reclaim = judge{about: "`destructive` when it was Retain and volumes stay on: those that are no longer needed are deleted from then on", of: func(c change) Class {
		if text(c.from) == v1alpha1.ReclaimRetain && hasVolumes(c.before) && hasVolumes(c.after) {
			return Destructive
		}
		return Neutral
	}}
	// deletion is destructive for a pool that was to outlive its document.
	deletion = judge{about: "`destructive` when it becomes Revoke: once the document goes, the pool is revoked", of: func(c change) Class {
		if text(c.to) == v1alpha1.DeletionRevoke {
			return Destructive
		}
		return Neutral
	}}
	forceDelete = judge{about: "`destructive` when it becomes true: a deletion then stops runs", of: func(c change) Class {
		if text(c.to) == "true" {
			return Destructive
		}
		return Neutral
	}}
	observing = judge{about: "`lower` for the object when it becomes true, since nothing of the document is applied then; `raise` when it was", of: func(c change) Class {
		if text(c.from) == "true" && text(c.to) != "true" {
			return Raise
		}
		return Neutral
	}}
	cordoned = judge{about: "`lower` when a cordon comes, `raise` when it goes", takes: isText, of: func(c change) Class {
		switch {
		case c.from == nil:
			return Lower
		case c.to == nil:
			return Raise
		}
		return Neutral
	}}
	pruning = judge{about: "`destructive` when it is turned on: what Git no longer has is deleted", takes: isSwitch, of: func(c change) Class {
		return onOff(c, Destructive, Neutral)
	}}
	// verification says what must be signed.
	verification = judge{about: "`raise` when something need not be signed any more, else `lower`", takes: isSignedBy, of: func(c change) Class {
		from, to := signed[text(c.from)], signed[text(c.to)]
		if from&^to != 0 {
			return Raise
		}
		return Lower
	}}
	// correction says what becomes of edits by others.
	correction = judge{about: "`raise` when it becomes Correct, `lower` when it becomes Report", of: func(c change) Class {
		switch text(c.to) {
		case v1alpha1.DriftCorrect:
			return Raise
		case v1alpha1.DriftReport:
			return Lower
		}
		return Neutral
	}}
	// moving is of a PoolSync's path; see settleMoves.
	moving  = applied(pathOf, "path").with("; `neutral` where both paths are roots of the repository, which are compared with each other, or the other is not there", applied(pathOf, "path").of)
	another = always(Raise, "`raise`: it gives one and takes another")
)

// while judges only where volumes are on before or after: without them the fields
// that shape them mean nothing.
func while(j judge) judge {
	return j.with("; `neutral` while volumes are off", func(c change) Class {
		if !hasVolumes(c.before) && !hasVolumes(c.after) {
			return Neutral
		}
		return j.of(c)
	})
}

// applied judges what decides which objects a PoolSync applies: of is what the
// object says of it, equal where it means the same.
func applied(of func(*unstructured.Unstructured) string, other string) judge {
	about := "`destructive` when it changes or goes: what the other " + other + " does not have is pruned; `raise` where prune is off"
	return judge{about: about, takes: isText, of: func(c change) Class {
		switch from := of(c.before); {
		case from == "" || from == of(c.after):
			return Neutral
		case !fleet.Prunes(c.after):
			return Raise
		}
		return Destructive
	}}
}

// field of a PoolSync's spec, as a text.
func field(sync *unstructured.Unstructured, names ...string) string {
	found, _, _ := unstructured.NestedString(sync.Object, append([]string{"spec"}, names...)...)
	return found
}

func pathOf(sync *unstructured.Unstructured) string {
	return fleet.WithinRepository(field(sync, "path"))
}

func gitURLOf(sync *unstructured.Unstructured) string {
	address := field(sync, "source", "git", "url")
	if address == "" {
		return ""
	}
	return fleet.RepositoryOf(address)
}

// refOf is what of a repository is followed: the first that is set, or else
// branch main.
func refOf(sync *unstructured.Unstructured) string {
	if gitURLOf(sync) == "" {
		return ""
	}
	for _, name := range []string{"commit", "semver", "tag", "branch"} {
		if value := field(sync, "source", "git", "ref", name); value != "" {
			return name + " " + value
		}
	}
	return "branch main"
}

func fluxSourceOf(sync *unstructured.Unstructured) string {
	name := field(sync, "sourceRef", "name")
	if name == "" {
		return ""
	}
	return strings.Join([]string{field(sync, "sourceRef", "kind"), cmp.Or(field(sync, "sourceRef", "namespace"), sync.GetNamespace()), name}, "/")
}

// signed: mode → what must be signed, as bits: the commit and the tag.
var signed = map[string]int{v1alpha1.VerifyHead: 1, v1alpha1.VerifyTag: 2, v1alpha1.VerifyTagAndHead: 3}

func isSignedBy(mode any) bool { return signed[text(mode)] != 0 }

// deletesBeyond says whether volumes beyond the bound are deleted, and the bound
// is smaller than it was.
func deletesBeyond(before, after *unstructured.Unstructured) bool {
	return deletesVolumes(before) && deletesVolumes(after) && direction(claimsOf(before), claimsOf(after)) == Lower
}

func hasVolumes(pool *unstructured.Unstructured) bool {
	enabled, _, _ := unstructured.NestedBool(pool.Object, "spec", "persistence", "enabled")
	return enabled
}

func retains(pool *unstructured.Unstructured) bool {
	policy, _, _ := unstructured.NestedString(pool.Object, "spec", "persistence", "reclaimPolicy")
	return policy == v1alpha1.ReclaimRetain
}

// deletesVolumes says whether the pool has volumes and deletes those that it no
// longer needs.
func deletesVolumes(pool *unstructured.Unstructured) bool { return hasVolumes(pool) && !retains(pool) }

// claimsOf is how many volumes a pool keeps at most.
func claimsOf(pool *unstructured.Unstructured) *big.Rat {
	for _, path := range [][]string{{"spec", "persistence", "maxClaims"}, {"spec", "maxRunners"}} {
		if value, found, _ := unstructured.NestedFieldNoCopy(pool.Object, path...); found {
			if amount := fleet.Amount(value); amount != nil {
				return amount
			}
		}
	}
	return new(big.Rat)
}
