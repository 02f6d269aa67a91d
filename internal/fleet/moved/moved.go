// Package moved decides which objects of Git are others under a new name.
//
// In go what each object says that it was (the annotation cloop.dev/moved-from),
// and what was there before and is there now; out come the renames, and why other
// claims are none. A comparison of commits and whoever applies one decide alike. It
// reads nothing and changes nothing.
package moved

import "strings"

// Named is the object that the annotation of one in a namespace means: NAME, or
// NAMESPACE/NAME.
func Named(annotation, namespace string) (ofNamespace, name string) {
	if ofNamespace, name, both := strings.Cut(annotation, "/"); both {
		return ofNamespace, name
	}
	return namespace, annotation
}

// Claim is an object that says that it was another one.
type Claim[K comparable] struct{ At, From K }

// Why a claim is no rename.
type Why int

// Reasons for which the object at a claim is new.
const (
	// NeverWas: there was no such object before.
	NeverWas Why = iota
	// StillThere: the object that it says that it was is still there.
	StillThere
	// ClaimedTwice: another object, the Refusal's Other, says the same.
	ClaimedTwice
)

// Refusal is a claim that is no rename.
type Refusal[K comparable] struct {
	Claim[K]
	Why   Why
	Other K
}

// Pairs are the renames: object → the one that it was. was and is say what was
// there before and is there now. Of those that claim the same the first has it. A
// claim of what was there before under its own name is of a rename that is over,
// and is no refusal.
func Pairs[K comparable](claims []Claim[K], was, is func(K) bool) (renamed map[K]K, refused []Refusal[K]) {
	renamed = map[K]K{}
	taken := map[K]K{}
	for _, c := range claims {
		if was(c.At) {
			continue
		}
		other, claimed := taken[c.From]
		switch {
		case !was(c.From):
			refused = append(refused, Refusal[K]{Claim: c, Why: NeverWas})
		case is(c.From):
			refused = append(refused, Refusal[K]{Claim: c, Why: StillThere})
		case claimed:
			refused = append(refused, Refusal[K]{Claim: c, Why: ClaimedTwice, Other: other})
		default:
			renamed[c.At], taken[c.From] = c.From, c.At
		}
	}
	return renamed, refused
}
