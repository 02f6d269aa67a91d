package controllers

import (
	"cmp"
	"encoding/json"
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
	// maxDriftValue and maxDriftManager are the API's bounds, in bytes.
	maxDriftValue   = 16384
	maxDriftManager = 512
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
	add := func(id objectID, cause string, corrected bool, diffs ...fleet.FieldDiff) {
		for _, diff := range diffs {
			entry := entryOf(id, cause, diff)
			if !seen[keyOf(&entry)] {
				seen[keyOf(&entry)] = true
				found = append(found, finding{entry, corrected})
			}
		}
	}
	for _, s := range p.sights {
		add(s.id, v1alpha1.DriftClusterEdited, s.applied, s.edited...)
		if s.changed() && !s.applied && p.err != nil {
			add(s.id, v1alpha1.DriftCommitNotApplied, false, s.awaited()...)
		}
	}
	for _, pending := range p.unapplied() {
		add(pending.id, v1alpha1.DriftCommitNotApplied, false, pending.diffs...)
	}
	return found
}

// unapplied are the ExecutorPools that the newest build holds back, and where none of
// it is applied all of them, compared with what the cluster has.
func (p *syncPass) unapplied() []*sight {
	var pending []*sight
	for id := range p.held() {
		if id.isPool() {
			// Its values may be anything, a secret too.
			pending = append(pending, &sight{id: id, diffs: []fleet.FieldDiff{{}}})
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
		s := &sight{id: idOf(want), want: want}
		live, known := have[s.id]
		switch {
		case !s.id.isPool() || s.id.name == "":
			continue
		case newest.broken[s.id]:
			s.diffs = []fleet.FieldDiff{{}}
		case known:
			s.diffs = fleet.CompareSpecs(want, live, fleet.IgnoredPaths(p.sync.Spec.Drift.Ignore, want))
		default:
			s.diffs = fleet.CompareSpecs(want, nil, nil)
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
	for _, f := range found {
		key := keyOf(&f.DriftEntry)
		current[key] = true
		f.Since = now
		if old, ok := open[key]; ok && old.Cause == f.Cause {
			f.Since = old.Since
			// Who wrote it is forgotten once somebody else owns the field.
			f.Manager = cmp.Or(f.Manager, old.Manager)
		} else {
			h.detected = append(h.detected, f.DriftEntry)
		}
		if f.corrected {
			f.Corrected = &now
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
			e.Corrected = &now
			h.corrected = append(h.corrected, e)
		}
		h.entries = append(h.entries, e)
	}
	h.entries = bounded(h.entries)
	return h
}

// bounded sorts entries, and where there are too many drops corrected ones first.
func bounded(entries []v1alpha1.DriftEntry) []v1alpha1.DriftEntry {
	rank := func(e *v1alpha1.DriftEntry) int {
		if e.Corrected == nil {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(entries, func(a, b v1alpha1.DriftEntry) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path))
	})
	return entries[:min(len(entries), maxDrift)]
}

// looked says whether the object of an entry was looked at in this pass.
func (p *syncPass) looked() func(*v1alpha1.DriftEntry) bool {
	if p.full && p.target != nil && len(p.sights) > 0 {
		return func(*v1alpha1.DriftEntry) bool { return true }
	}
	seen := map[driftKey]bool{}
	for _, s := range p.sights {
		seen[driftKey{kind: s.id.kind, namespace: s.id.namespace, name: s.id.name}] = true
	}
	return func(e *v1alpha1.DriftEntry) bool {
		return seen[driftKey{kind: e.Kind, namespace: e.Namespace, name: e.Name}]
	}
}
