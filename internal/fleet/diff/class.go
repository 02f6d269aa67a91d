package diff

import (
	"math/big"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// Class says which way a change goes.
type Class string

// Classes, the gravest first.
const (
	// Destructive takes away what no other commit gives back: a volume, the hub or
	// the credential that a pool lives by, what a sync prunes.
	Destructive Class = "destructive"
	// Lower allows less than before: fewer runners, fewer people, fewer rights.
	Lower Class = "lower"
	// Raise allows more than before.
	Raise Class = "raise"
	// Neutral is another way to do as much.
	Neutral Class = "neutral"
)

// Classes lists all classes, the gravest first.
func Classes() []Class { return []Class{Destructive, Lower, Raise, Neutral} }

// gravest is the first of Classes that is among some; Neutral of none.
func gravest(some ...Class) Class {
	for _, class := range Classes() {
		if slices.Contains(some, class) {
			return class
		}
	}
	return Neutral
}

// change is one field before and after, in the objects that it changes in.
type change struct {
	// from and to are nil where the field is absent.
	from, to any
	// before and after are the whole objects.
	before, after *unstructured.Unstructured
}

// judge gives a change of a field its class.
type judge struct {
	// about says when which class is given, for people.
	about string
	// hidden values are never shown.
	hidden bool
	of     func(change) Class
}

func always(class Class, about string) judge {
	return judge{about: about, of: func(change) Class { return class }}
}

// amounts compares numbers; absent is what an absent field stands for.
func amounts(absent func(change, bool) *big.Rat, about string) judge {
	return judge{about: about, of: func(c change) Class {
		from, to := fleet.Amount(c.from), fleet.Amount(c.to)
		if from == nil {
			from = absent(c, false)
		}
		if to == nil {
			to = absent(c, true)
		}
		return direction(from, to)
	}}
}

// direction is of two amounts; nil is without a bound.
func direction(from, to *big.Rat) Class {
	switch {
	case from == nil && to == nil:
		return Neutral
	case from == nil:
		return Lower
	case to == nil:
		return Raise
	}
	switch from.Cmp(to) {
	case -1:
		return Raise
	case 1:
		return Lower
	}
	return Neutral
}

func zero(change, bool) *big.Rat      { return new(big.Rat) }
func unbounded(change, bool) *big.Rat { return nil }

var (
	neutral = always(Neutral, "`neutral`")
	// counted is a number whose absence means none.
	counted = amounts(zero, "`raise` when it grows, `lower` when it shrinks")
	// capped is a bound whose absence means that there is none.
	capped = amounts(unbounded, "`raise` when it grows or goes, `lower` when it shrinks or comes")
	// nonZero is a bound of which nothing means that there is none.
	nonZero = judge{about: "`raise` when it grows or becomes 0, which is no bound, `lower` when it shrinks", of: func(c change) Class {
		bound := func(value any) *big.Rat {
			if amount := fleet.Amount(value); amount != nil && amount.Sign() != 0 {
				return amount
			}
			return nil
		}
		return direction(bound(c.from), bound(c.to))
	}}
	lasting = judge{about: "`raise` when it is longer, `lower` when it is shorter", of: func(c change) Class {
		return direction(seconds(c.from), seconds(c.to))
	}}
	// volumes is the switch for what outlives a runner.
	volumes = judge{about: "`raise` when it is turned on; `destructive` when it is turned off or goes: reclaimPolicy decides what becomes of the volumes", of: func(c change) Class {
		return onOff(c, Raise, Destructive)
	}}
	// granted is a switch that gives something while it is on.
	granted = judge{about: "`raise` when it is turned on, `lower` when it is turned off", of: func(c change) Class {
		return onOff(c, Raise, Lower)
	}}
	// halting is a switch that stops something while it is on.
	halting = judge{about: "`lower` when it is turned on, `raise` when it is turned off", of: func(c change) Class {
		return onOff(c, Lower, Raise)
	}}
	// entries is a set of which each entry gives something.
	entries = judge{about: "`lower` when an entry goes, else `raise`", of: func(c change) Class { return setClass(c, false) }}
	// audience is such a set; empty, it gives to everybody.
	audience = judge{about: "`lower` when an entry goes, or the first comes; `raise` when one is added, or the last goes: empty means any project", of: func(c change) Class { return setClass(c, true) }}
	// owner restricts whose projects run.
	owner = judge{about: "`raise` when it goes, else `lower`: only projects that the owner may read run", of: func(c change) Class {
		if text(c.to) == "" {
			return Raise
		}
		return Lower
	}}
	// label gives grants and meets requirements.
	label = judge{about: "`raise` when it comes, `lower` when it goes or changes: grants and requirements use it", of: func(c change) Class {
		if c.from == nil {
			return Raise
		}
		return Lower
	}}
)

// kept is destructive once there was a value that something lives by.
func kept(about string) judge {
	return judge{about: "`destructive` when it changes or goes: " + about, of: func(c change) Class {
		if text(c.from) == "" {
			return Neutral
		}
		return Destructive
	}}
}

func onOff(c change, on, off Class) Class {
	switch {
	case c.to == true:
		return on
	case c.from == true:
		return off
	}
	return Neutral
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

func seconds(value any) *big.Rat {
	duration, err := time.ParseDuration(text(value))
	if err != nil {
		return nil
	}
	return new(big.Rat).SetInt64(int64(duration))
}

func setClass(c change, emptyIsAll bool) Class {
	from, to := set(c.from), set(c.to)
	switch {
	case emptyIsAll && len(to) == 0:
		return Raise
	case emptyIsAll && len(from) == 0:
		return Lower
	}
	for entry := range from {
		if !to[entry] {
			return Lower
		}
	}
	return Raise
}

func set(value any) map[string]bool {
	list, _ := value.([]any)
	found := map[string]bool{}
	for _, element := range list {
		if entry, ok := element.(string); ok {
			found[entry] = true
		}
	}
	return found
}

// maximum of an ExecutorPool also bounds its volumes, unless maxClaims does.
func maximum(c change) Class {
	class := counted.of(c)
	if class == Lower && deletesBeyond(c.before, c.after) {
		return Destructive
	}
	return class
}

// claims compares what bounds the volumes.
func claims(c change) Class {
	class := direction(claimsOf(c.before), claimsOf(c.after))
	if class == Lower && deletesVolumes(c.before) && deletesVolumes(c.after) {
		return Destructive
	}
	return class
}

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

// reclaim is destructive for volumes that were to be kept.
func reclaim(c change) Class {
	if text(c.from) == v1alpha1.ReclaimRetain && hasVolumes(c.before) {
		return Destructive
	}
	return Neutral
}

func forceDelete(c change) Class {
	if text(c.to) == "true" {
		return Destructive
	}
	return Neutral
}

func cordoned(c change) Class {
	switch {
	case c.from == nil:
		return Lower
	case c.to == nil:
		return Raise
	}
	return Neutral
}

func pruning(c change) Class {
	if c.to == true {
		return Destructive
	}
	return Neutral
}

func verification(c change) Class {
	switch {
	case c.to == nil:
		return Raise
	case c.from == nil:
		return Lower
	}
	return Neutral
}
