package controllers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/secret"
)

const (
	// keepCorrected is how long an entry stays that is no difference any more:
	// long enough for whoever wonders where the edit went.
	keepCorrected = 10 * time.Minute
	// maxDriftValue, maxDriftManager and maxDriftMessage are the API's bounds, in bytes.
	maxDriftValue   = 16384
	maxDriftManager = 512
	maxDriftMessage = 2048
)

// driftKey tells entries apart.
type driftKey struct{ kind, namespace, name, path string }

func keyOf(e *v1alpha1.DriftEntry) driftKey { return driftKey{e.Kind, e.Namespace, e.Name, e.Path} }

// finding is a difference that a pass has seen.
type finding struct {
	v1alpha1.DriftEntry
	// corrected: the same pass removed it.
	corrected bool
}

// driftHistory is what becomes of status.drift, and what is new in it.
type driftHistory struct {
	entries             []v1alpha1.DriftEntry
	detected, corrected []v1alpha1.DriftEntry
}

// findings are the differences that a pass has seen: what somebody changed in the
// cluster, and what Git wants and the cluster does not have.
func (p *syncPass) findings() []finding {
	var found []finding
	seen := map[driftKey]bool{}
	add := func(s *sight, cause string, diffs ...fleet.FieldDiff) {
		for _, diff := range diffs {
			entry := entryOf(s.id, cause, diff)
			if seen[keyOf(&entry)] {
				continue
			}
			seen[keyOf(&entry)] = true
			entry.Outcome, entry.Message = p.outcome(s)
			entry.Message = shorten(secret.Redact(entry.Message), maxDriftMessage)
			found = append(found, finding{entry, s.applied})
		}
	}
	for _, s := range p.sights {
		if s.observed {
			add(s, v1alpha1.DriftCommitNotApplied, s.diffs...)
			continue
		}
		add(s, v1alpha1.DriftClusterEdited, s.edited...)
		if s.changed() && !s.applied && p.err != nil {
			add(s, v1alpha1.DriftCommitNotApplied, s.awaited()...)
		}
	}
	for _, pending := range p.unapplied() {
		add(pending, v1alpha1.DriftCommitNotApplied, pending.diffs...)
	}
	return found
}

// outcome is what becomes of the differences of an object, and why.
func (p *syncPass) outcome(s *sight) (outcome, message string) {
	report := p.sync.Spec.Drift.Mode == v1alpha1.DriftReport
	switch {
	case s.observed:
		return v1alpha1.OutcomeObserved, fleet.ObservedMessage
	case s.applied:
		return v1alpha1.OutcomeCorrected, "Git's value was put back"
	case s.leaving():
		return v1alpha1.OutcomeWaiting, "the object is being deleted, and is made again once it is gone"
	case s.refused != nil:
		return v1alpha1.OutcomeRefused, s.refused.Error()
	case !s.again.IsZero():
		c := p.memory.contestOf(s.id)
		return v1alpha1.OutcomeContested, fmt.Sprintf("%s; next at %s", c, s.again.UTC().Format(time.RFC3339))
	case report && !s.changed():
		return v1alpha1.OutcomeReportOnly, "spec.drift.mode is " + v1alpha1.DriftReport
	case p.err != nil:
		return v1alpha1.OutcomeWaiting, p.err.message()
	}
	return v1alpha1.OutcomeWaiting, "Git's value is about to be put back"
}

// errHeldBack is of an object in which the check finds an error.
var errHeldBack = errors.New("the check holds the document back; the condition Ready says why")

// unapplied are the ExecutorPools that the newest build holds back, and where none of
// it is applied all of them, compared with what the cluster has.
func (p *syncPass) unapplied() []*sight {
	var pending []*sight
	for id := range p.held() {
		if id.isPool() {
			// Its values may be anything, a secret too.
			pending = append(pending, &sight{id: id, diffs: []fleet.FieldDiff{{}}, refused: errHeldBack})
		}
	}
	newest := p.memory.newest
	if newest == nil || newest.refusal == nil || p.newest || p.target == nil {
		return pending
	}
	have := map[objectID]*unstructured.Unstructured{}
	for _, s := range p.sights {
		have[s.id] = s.have
	}
	for _, want := range newest.objects {
		s := &sight{id: want.id, want: want, refused: newest.refusal.cause}
		live, known := have[s.id]
		switch {
		case !s.id.isPool() || s.id.name == "":
			continue
		case newest.broken[s.id]:
			s.diffs = []fleet.FieldDiff{{}}
		case known:
			s.diffs = fleet.CompareSpecs(want.object(), live, want.ignored(p.sync.Spec.Drift.Ignore))
		default:
			s.diffs = fleet.CompareSpecs(want.object(), nil, nil)
		}
		pending = append(pending, s)
	}
	return pending
}

func entryOf(id objectID, cause string, diff fleet.FieldDiff) v1alpha1.DriftEntry {
	return v1alpha1.DriftEntry{
		Kind: id.kind, Namespace: id.namespace, Name: id.name, Path: diff.Path, Cause: cause,
		Git: asJSON(diff.Want), Cluster: asJSON(diff.Have), Manager: shorten(diff.Manager, maxDriftManager),
	}
}

// asJSON is a value as status.drift has it: empty where there is none.
func asJSON(value any) string {
	if value == nil {
		return ""
	}
	data, err := json.Marshal(value)
	if err != nil {
		return "" // nothing that comes from JSON gets here
	}
	return shorten(secret.Redact(string(data)), maxDriftValue)
}

// follow takes the entries of the last pass on: what is found again keeps its
// beginning, what is not found any more is corrected, what was corrected long ago
// goes. looked says whether an object was looked at in this pass; nothing is known
// of the others.
func follow(before []v1alpha1.DriftEntry, found []finding, looked func(*v1alpha1.DriftEntry) bool, now metav1.Time) driftHistory {
	var h driftHistory
	open := map[driftKey]v1alpha1.DriftEntry{}
	for _, e := range before {
		if e.Corrected == nil {
			open[keyOf(&e)] = e
		}
	}
	current := map[driftKey]bool{}
	differing := map[driftKey][]string{} // object → paths that differ still
	for _, f := range found {
		key := keyOf(&f.DriftEntry)
		current[key] = true
		if !f.corrected {
			object := key
			object.path = ""
			differing[object] = append(differing[object], key.path)
		}
		f.Since = now
		switch old, ok := open[key]; {
		case ok && old.Cause == f.Cause:
			f.Since = old.Since
			// Who wrote it is forgotten once somebody else owns the field.
			f.Manager = cmp.Or(f.Manager, old.Manager)
		case ok && old.Cause == v1alpha1.DriftConverging:
			f.Since = old.Since // what did not pass began then
			h.detected = append(h.detected, f.DriftEntry)
		default:
			h.detected = append(h.detected, f.DriftEntry)
		}
		if f.corrected {
			f.Corrected, f.Outcome = &now, v1alpha1.OutcomeCorrected
			h.corrected = append(h.corrected, f.DriftEntry)
		}
		h.entries = append(h.entries, f.DriftEntry)
	}
	for _, e := range before {
		switch {
		case current[keyOf(&e)]:
			continue
		case e.Corrected != nil && now.Sub(e.Corrected.Time) >= keepCorrected:
			continue
		case e.Corrected == nil && looked(&e):
			object := keyOf(&e)
			object.path = ""
			if slices.ContainsFunc(differing[object], func(path string) bool { return within(path, e.Path) || within(e.Path, path) }) {
				continue // it is told of by what it is a part of, or by its parts
			}
			e.Corrected = &now
			e.Outcome, e.Message = v1alpha1.OutcomeCorrected, "the two agree again, without this controller's doing"
			if e.Cause == v1alpha1.DriftCommitNotApplied {
				e.Message = "the cluster has what Git says"
			}
			h.corrected = append(h.corrected, e)
		}
		h.entries = append(h.entries, e)
	}
	sortDrift(h.entries)
	return h
}

// sortDrift sorts entries, those that are no difference any more last, and of those what
// somebody did before what only waited for its commit: there may be more than are shown.
func sortDrift(entries []v1alpha1.DriftEntry) {
	rank := func(e *v1alpha1.DriftEntry) int {
		switch {
		case e.Corrected == nil:
			return 0
		case e.Cause != v1alpha1.DriftCommitNotApplied:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(entries, func(a, b v1alpha1.DriftEntry) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path))
	})
}

// looked says whether the object of an entry was looked at in this pass.
func (p *syncPass) looked() func(*v1alpha1.DriftEntry) bool {
	if p.full && p.target != nil && len(p.sights) > 0 {
		return everything
	}
	seen := map[driftKey]bool{}
	for _, s := range p.sights {
		seen[driftKey{kind: s.id.kind, namespace: s.id.namespace, name: s.id.name}] = true
	}
	return func(e *v1alpha1.DriftEntry) bool {
		return seen[driftKey{kind: e.Kind, namespace: e.Namespace, name: e.Name}]
	}
}
