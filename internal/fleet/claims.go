package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet/moved"
)

// movedFromField is where an object says which one it was.
const movedFromField = "metadata.annotations[" + v1alpha1.AnnotationMovedFrom + "]"

// claim notes which object one says that it was. What is only compared is no rename, and
// to the hub the namespace means nothing.
func (f *facts) claim(o *renderedObject) {
	from := movedFrom(o.Object)
	if f.inHub = HubReads(o.Object); from == "" || !f.ours || Observed(o.Object) {
		return
	}
	f.movedFrom = f.renamed(from)
	f.keepAlso(o, movedFromField)
}

// renamed is the identity by which a rename means an object like this one.
func (f *facts) renamed(identity string) string {
	if parts := strings.Split(identity, "|"); f.inHub && len(parts) == 4 {
		parts[2] = ""
		return strings.Join(parts, "|")
	}
	return identity
}

// claimedTwice finds the objects of a root that say that they were one: whoever applies
// them, and a comparison of commits, takes the first for that one and the others for new.
// Where the one that they name is still there nothing is renamed.
func (r *rootChecker) claimedTwice() {
	claims, by := []moved.Claim[string]{}, map[string]*facts{}
	var sure []*facts
	for _, f := range r.seen {
		if f.movedFrom != "" {
			sure = append(sure, f)
		}
	}
	if len(sure) < 2 {
		return
	}
	is := map[string]bool{}
	for _, f := range r.seen {
		is[f.renamed(f.identity)] = true
	}
	slices.SortFunc(sure, func(a, b *facts) int { return cmp.Compare(a.identity, b.identity) })
	for _, f := range sure {
		at := f.renamed(f.identity)
		claims, by[at] = append(claims, moved.Claim[string]{At: at, From: f.movedFrom}), f
	}
	_, refused := moved.Pairs(claims, func(identity string) bool { return !is[identity] }, func(identity string) bool { return is[identity] })
	for _, refusal := range refused {
		if refusal.Why != moved.ClaimedTwice {
			continue
		}
		f, other := by[refusal.At], by[refusal.Other]
		r.find(f.subject, f.problem(RuleMovedFromTwice, movedFromField, fmt.Sprintf("it says that it was %s, and so does %s at %s:%d",
			wasNamed(refusal.From), other.object, other.file, other.line)))
	}
}

// wasNamed is how a problem names an object that is not there.
func wasNamed(identity string) string {
	parts := strings.Split(identity, "|")
	was := &unstructured.Unstructured{}
	was.SetKind(parts[1])
	was.SetNamespace(parts[2])
	was.SetName(parts[3])
	return describe(was)
}
