package controllers

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet"
)

// contest is how often an object was corrected lately.
func (m *syncMemory) contestOf(id objectID) *contest {
	c := m.contests[id]
	if c == nil {
		if m.contests == nil {
			m.contests = map[objectID]*contest{}
		}
		c = &contest{}
		m.contests[id] = c
	}
	return c
}

// corrected counts a correction of an object.
func (m *syncMemory) corrected(id objectID, now time.Time) { m.contestOf(id).count(now) }

// mayCorrect says whether it is time to correct an object, and notes who changed
// what of it; where it is not, the pass comes back when it is.
func (r *poolSyncReconciler) mayCorrect(p *syncPass, s *sight) bool {
	c := p.memory.contestOf(s.id)
	at, may := c.next(r.clock.Now())
	c.by, c.what = s.opponent()
	if !may {
		s.again = at
		p.comeBack(at)
	}
	return may
}

// maxFields bounds how many fields of an object a condition names.
const maxFields = 3

// opponent is who changed an object in the cluster, and what of it.
func (s *sight) opponent() (by, what string) {
	var managers, fields []string
	for _, diff := range s.edited {
		if manager := shorten(diff.Manager, maxDriftManager); manager != "" && !slices.Contains(managers, manager) {
			managers = append(managers, manager)
		}
		switch {
		case diff.Path != "":
			fields = append(fields, diff.Path)
		case s.have == nil || s.leaving():
			fields = append(fields, "that it is there")
		}
	}
	if len(fields) == 0 && s.unmarked {
		field, manager := unmarkedField(s.want.object(), s.have)
		fields = append(fields, field)
		if manager != "" {
			managers = append(managers, manager)
		}
	}
	by = "somebody whom managedFields do not name"
	if len(managers) > 0 {
		by = strings.Join(managers, ", ")
	}
	return by, strings.Join(count.First(fields, maxFields), ", ")
}

// unmarkedField is the first label or annotation of want that have lacks, as a JSON
// pointer, and who wrote what have has there.
func unmarkedField(want, have *unstructured.Unstructured) (field, manager string) {
	for _, in := range []struct {
		name       string
		want, have map[string]string
	}{{"labels", want.GetLabels(), have.GetLabels()}, {"annotations", want.GetAnnotations(), have.GetAnnotations()}} {
		var missing []string
		for key, value := range in.want {
			if in.have[key] != value {
				missing = append(missing, key)
			}
		}
		if len(missing) > 0 {
			field = "/metadata/" + in.name + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(slices.Min(missing))
			return field, shorten(fleet.FieldManager(have, field, v1alpha1.FieldManagerPoolSync), maxDriftManager)
		}
	}
	return "", ""
}

// String says who keeps changing what, and how often.
func (c *contest) String() string {
	return fmt.Sprintf("%s changes %s as fast as it is put back (put back %s in %s)", c.by, c.what, count.Of(c.times, "time"), c.last.Sub(c.first).Round(time.Second))
}

// contestShown is how long it is said of what somebody else kept changing, after it
// was put back for good.
const contestShown = 2 * contestSlowest

// contested says of each object that somebody keeps changing who does, and when it is
// put back next; sorted. The pass comes back when there is less to say.
func (r *poolSyncReconciler) contested(p *syncPass) []string {
	again := map[objectID]time.Time{}
	for _, s := range p.sights {
		again[s.id] = s.again
	}
	now := r.clock.Now()
	var out []string
	for id, c := range p.memory.contests {
		over := c.last.Add(contestShown)
		if !c.disputed || again[id].IsZero() && !now.Before(over) {
			continue
		}
		text := fmt.Sprintf("%s: %s", id, c)
		if at := again[id]; at.IsZero() {
			p.comeBack(over)
			text += ", last at " + c.last.UTC().Format(time.RFC3339)
		} else {
			text += ", next at " + at.UTC().Format(time.RFC3339)
		}
		out = append(out, text)
		if !c.told {
			c.told = true
			r.events.record(p.sync, poolEvent{warning: true, reason: v1alpha1.ReasonContested, key: id.String(), message: text + ": " + v1alpha1.ReasonContested.Remedy()})
		}
	}
	slices.Sort(out)
	return out
}
