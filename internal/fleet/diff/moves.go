package diff

import (
	"context"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// move is an object of the repository that applies another path than before: what
// it applied from the one it goes on to apply from the other. One of them is empty where
// it applies another repository, or nothing in its place. was and now are where the
// revisions have it.
type move struct{ by, from, to, was, now string }

// site is one path that an object applies, and where the repository has that object.
type site struct{ by, in, path string }

func siteOf(w fleet.Way) site { return site{w.By, w.In, w.Path} }

// seat is a site as one cluster has it.
type seat struct {
	site
	cluster string
}

// seats are those of one revision that the other does not have, by their object.
func seats(ways, others []fleet.Way) map[string][]seat {
	each := func(ways []fleet.Way, do func(seat)) {
		for _, way := range ways {
			if strings.Contains(way.Path, "{{") {
				continue
			}
			for _, cluster := range way.Clusters {
				do(seat{siteOf(way), cluster})
			}
			if len(way.Clusters) == 0 {
				do(seat{siteOf(way), ""})
			}
		}
	}
	known := map[seat]bool{}
	each(others, func(at seat) { known[at] = true })
	all := map[string][]seat{}
	each(ways, func(at seat) {
		if !known[at] {
			all[at.by], known[at] = append(all[at.by], at), true
		}
	})
	for _, list := range all {
		slices.SortFunc(list, func(a, b seat) int {
			return strings.Compare(a.path+"\x00"+a.in+"\x00"+a.cluster, b.path+"\x00"+b.in+"\x00"+b.cluster)
		})
	}
	return all
}

// movesBetween pairs the paths that an object applied with those that it applies
// now. Objects of several clusters may have one name: those are told apart by
// where they are defined and by their cluster, or else by the last name of their path. One that is only
// written in another place has not moved, and who cannot be told apart has moved nothing. What an object that is still there applies no more, and
// nothing in its place, goes nowhere.
func movesBetween(before, after []fleet.Way) []move {
	var all []move
	add := func(m move) {
		if m.from != m.to && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	arrived := seats(after, before)
	for by, gone := range seats(before, after) {
		come := arrived[by]
		pair := func(same func(a, b seat) bool) {
			for _, from := range slices.Clone(gone) {
				to, ok := only(come, func(s seat) bool { return same(from, s) })
				if _, alone := only(gone, func(s seat) bool { return same(s, to) }); !ok || !alone {
					continue
				}
				add(move{by, from.path, to.path, from.in, to.in})
				gone = slices.DeleteFunc(gone, func(s seat) bool { return s == from })
				come = slices.DeleteFunc(come, func(s seat) bool { return s == to })
			}
		}
		pair(func(a, b seat) bool { return a.in == b.in && a.cluster == b.cluster })
		pair(func(a, b seat) bool { return a.cluster == b.cluster && a.cluster != "" })
		gone, come = elsewhere(gone, come)
		pair(func(a, b seat) bool { return a.in == b.in })
		pair(func(a, b seat) bool { return path.Base(a.path) == path.Base(b.path) })
		pair(func(a, b seat) bool { return relative(a.site) == relative(b.site) && relative(a.site) != "" })
		pair(func(seat, seat) bool { return true })
		for _, from := range gone {
			if slices.ContainsFunc(after, func(w fleet.Way) bool { return w.By == by && w.In == from.in }) {
				add(move{by, from.path, "", from.in, from.in})
			}
		}
	}
	slices.SortFunc(all, func(a, b move) int {
		return strings.Compare(a.to+"\x00"+a.by+"\x00"+a.now+"\x00"+a.from, b.to+"\x00"+b.by+"\x00"+b.now+"\x00"+b.from)
	})
	return all
}

// elsewhere leaves out what is only written in another place, as far as there are as many.
func elsewhere(gone, come []seat) (left, arrived []seat) {
	arrived = slices.Clone(come)
	for _, from := range gone {
		if same := slices.IndexFunc(arrived, func(s seat) bool { return s.path == from.path }); same >= 0 {
			arrived = slices.Delete(arrived, same, same+1)
			continue
		}
		left = append(left, from)
	}
	return left, arrived
}

// relative is where an applier that lies in the path that it applies lies there.
func relative(s site) string {
	inner, err := filepath.Rel(s.path, s.in)
	if err != nil || strings.HasPrefix(inner, "..") {
		return ""
	}
	return inner
}

// only is the one of some that a condition holds for, where it is exactly one.
func only[T any](some []T, holds func(T) bool) (found T, ok bool) {
	for _, s := range some {
		if !holds(s) {
			continue
		}
		if ok {
			return *new(T), false
		}
		found, ok = s, true
	}
	return found, ok
}

// findMoves looks for them among all appliers of both revisions, and for those whose
// paths can be compared.
func (c *comparison) findMoves(ctx context.Context) error {
	before, err := c.was.Appliers(ctx)
	if err != nil {
		return err
	}
	after, err := c.now.Appliers(ctx)
	if err != nil {
		return err
	}
	for _, m := range movesBetween(before, after) {
		if m.from != "" && !c.was.Comparable(m.from) {
			continue
		}
		if m.to != "" && !c.now.Comparable(m.to) {
			m.to = ""
		}
		if m.to == "" {
			// It may lie in what the object still applies.
			ways, err := c.now.Ways(ctx, m.from)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(ways, func(w fleet.Way) bool { return w.By == m.by && w.In == m.now }) {
				continue
			}
		}
		c.moves = append(c.moves, m)
	}
	c.appliers = after
	other := func(w fleet.Way) bool { return !w.MakesSome() }
	c.wereSets, c.areSets = slices.DeleteFunc(before, other), slices.DeleteFunc(slices.Clone(after), other)
	return nil
}

// movedAt compares what comes to a path, or goes from it, with the other half of
// the move, and leaves the other ways. done: there are none.
func (c *comparison) movedAt(ctx context.Context, name string, before, after *[]fleet.Way) (done bool, err error) {
	told, was, now := false, *before, *after
	for _, m := range c.moves {
		switch {
		case m.to == name:
		case m.from == name && !c.visited[m.to]:
		default:
			continue
		}
		told = true
		if err := c.moved(ctx, m); err != nil {
			return false, err
		}
	}
	gone, come := map[site]bool{}, map[site]bool{}
	for _, m := range c.moves {
		gone[site{m.by, m.was, m.from}], come[site{m.by, m.now, m.to}] = true, true
	}
	all := len(*before) + len(*after)
	// What is a part of another path in one revision is compared with that.
	part := func(w fleet.Way) bool {
		return (c.was.Adopted(name) || c.now.Adopted(name)) && w.Path != name && w.Path != "." && c.visited[w.Path]
	}
	// What only one of several clusters has left is there for the others.
	stays := func(w fleet.Way) bool {
		at := func(other fleet.Way) bool { return siteOf(other) == siteOf(w) }
		return slices.ContainsFunc(was, at) && slices.ContainsFunc(now, at)
	}
	*before = slices.DeleteFunc(slices.Clone(was), func(w fleet.Way) bool { return gone[siteOf(w)] && !stays(w) || part(w) })
	*after = slices.DeleteFunc(slices.Clone(now), func(w fleet.Way) bool { return come[siteOf(w)] && !stays(w) || part(w) })
	// What nobody of the repository applies is no other way beside one that moved.
	return (told || len(*before)+len(*after) < all) && len(appliersOf(*before, *after)) == 0, nil
}

// moved compares what an object applied from one path with what it applies from
// another.
func (c *comparison) moved(ctx context.Context, m move) error {
	var sides [2][]fleet.Way
	for i, side := range []struct {
		*fleet.Renderer
		site
	}{{c.was, site{m.by, m.was, m.from}}, {c.now, site{m.by, m.now, m.to}}} {
		if side.path == "" {
			continue
		}
		ways, err := side.Ways(ctx, side.path)
		if err != nil {
			return err
		}
		sides[i] = slices.DeleteFunc(ways, func(w fleet.Way) bool { return siteOf(w) != side.site })
	}
	first := len(c.report.Overlays)
	if err := c.between(ctx, m, sides[0], sides[1]); err != nil {
		return err
	}
	if m.to != "" && !slices.ContainsFunc(c.report.Overlays[first:], func(o Overlay) bool { return len(o.Failures) > 0 }) {
		c.compared = append(c.compared, m)
	}
	return nil
}

// spot is where a report tells that an object comes or goes.
type spot struct {
	overlay, object int
	of              *item
}

// settlement takes what goes from a spot and comes at another for one object.
type settlement struct {
	*Report
	// settled are the objects that have nothing left to tell, and touched the overlays of
	// which some had.
	settled map[[2]int]bool
	touched map[int]bool
}

func (r *Report) settlement() *settlement { return &settlement{r, map[[2]int]bool{}, map[int]bool{}} }

func (s *settlement) settle(from, to spot) {
	s.settled[[2]int{from.overlay, from.object}], s.touched[from.overlay], s.touched[to.overlay] = true, true, true
	object, differs := compare(from.of, to.of)
	s.settled[[2]int{to.overlay, to.object}] = !differs
	s.Overlays[to.overlay].Objects[to.object] = object
}

// end takes them out of the report.
func (s *settlement) end() {
	for i := range s.Overlays {
		overlay, kept := &s.Overlays[i], []Object(nil)
		for j := range overlay.Objects {
			if !s.settled[[2]int{i, j}] {
				kept = append(kept, overlay.Objects[j])
			}
		}
		if s.touched[i] {
			overlay.Objects, overlay.Unchanged = kept, len(kept) == 0
			if !slices.ContainsFunc(kept, func(o Object) bool { return o.Change != Changed }) {
				overlay.Note = ""
			}
		}
	}
}

// settleWithin takes for one object what somebody applies from another of its paths than
// before: who has several prunes only what none has.
func (r *Report) settleWithin() {
	type applied struct {
		key
		by, in string
	}
	gone, come := map[applied][]spot{}, map[applied][]spot{}
	for i := range r.Overlays {
		by := r.Overlays[i].goesOn
		for j := range r.Overlays[i].Objects {
			switch o := &r.Overlays[i].Objects[j]; {
			case by == site{}:
			case o.Change == Removed:
				at := applied{keyOf(o.before), by.by, by.in}
				gone[at] = append(gone[at], spot{i, j, o.before})
			case o.Change == Added:
				at := applied{keyOf(o.after), by.by, by.in}
				come[at] = append(come[at], spot{i, j, o.after})
			}
		}
	}
	s := r.settlement()
	for at, from := range gone {
		if to := come[at]; len(from) == 1 && len(to) == 1 {
			s.settle(from[0], to[0])
		}
	}
	s.end()
}

// loose is what applies pools in place of a PoolSync, and comes or goes in a place that
// nothing of the repository applies.
type loose struct {
	spot
	// cluster of which its place is; empty: it does not say.
	cluster string
}

// settleLoose takes for one object what goes from such a place and comes in another: a file
// that was renamed or cut in two. Whoever applies the one applies the other, unless the
// directories say that the two are of different clusters.
func (r *Report) settleLoose() {
	gone, come := map[key][]loose{}, map[key][]loose{}
	// was and now are the clusters of the two revisions.
	was, now := map[string]bool{}, map[string]bool{}
	for i := range r.Overlays {
		overlay, cluster := &r.Overlays[i], fleet.ClusterOf(r.Overlays[i].Path)
		if len(overlay.Objects) == 0 {
			was[cluster], now[cluster] = true, true
		}
		for j := range overlay.Objects {
			o := &overlay.Objects[j]
			was[cluster], now[cluster] = was[cluster] || o.before != nil, now[cluster] || o.after != nil
			switch {
			case overlay.By != "" || len(overlay.appliers) > 0 || !fleet.AppliesPaths(o.either().Unstructured):
			case o.Change == Removed:
				gone[keyOf(o.before)] = append(gone[keyOf(o.before)], loose{spot{i, j, o.before}, cluster})
			case o.Change == Added:
				come[keyOf(o.after)] = append(come[keyOf(o.after)], loose{spot{i, j, o.after}, cluster})
			}
		}
	}
	s := r.settlement()
	for at, all := range gone {
		for _, same := range []func(a, b loose) bool{
			func(a, b loose) bool { _, differs := compare(a.of, b.of); return !differs },
			func(loose, loose) bool { return true },
		} {
			// A cluster's directory may have another name.
			fit := func(a, b loose) bool {
				return same(a, b) && (a.cluster == b.cluster || (a.cluster == "" || !now[a.cluster]) && (b.cluster == "" || !was[b.cluster]))
			}
			for _, from := range slices.Clone(all) {
				to, ok := only(come[at], func(l loose) bool { return fit(from, l) })
				if _, alone := only(all, func(l loose) bool { return fit(l, to) }); ok && alone {
					s.settle(from.spot, to.spot)
					all = slices.DeleteFunc(all, func(l loose) bool { return l == from })
					come[at] = slices.DeleteFunc(come[at], func(l loose) bool { return l == to })
				}
			}
		}
	}
	s.end()
}

// settleMoves gives the path of a PoolSync that moved the class that it has where
// the two paths were compared: what is pruned is told there.
func (r *Report) settleMoves(moves []move) {
	r.objects(func(_ *Overlay, o *Object) {
		if o.Kind != v1alpha1.PoolSyncKind || o.Change != Changed || !o.either().ours {
			return
		}
		for _, m := range moves {
			if m.by != o.title() || pathOf(o.before.Unstructured) != m.from || pathOf(o.after.Unstructured) != m.to {
				continue
			}
			var classes []Class
			for i := range o.Fields {
				if o.Fields[i].Path == "/spec/path" {
					o.Fields[i].Class = Neutral
				}
				classes = append(classes, o.Fields[i].Class)
			}
			o.Class = gravest(classes...)
			return
		}
	})
}

// settleKept keeps what an object has applied that is not in Git any more, and stays in the
// cluster all the same: whoever applies it does not take it away.
func (r *Report) settleKept() {
	for kept := true; kept; {
		kept = false
		stays := map[string][]*Overlay{}
		r.objects(func(overlay *Overlay, o *Object) {
			if o.Change == Removed && o.stays {
				stays[o.title()] = append(stays[o.title()], overlay)
			}
		})
		for i := range r.Overlays {
			overlay := &r.Overlays[i]
			if !slices.ContainsFunc(stays[overlay.left.by], func(in *Overlay) bool { return inside(overlay.left.in, in.Path) }) {
				continue
			}
			overlay.Note, overlay.left = overlay.left.by+" stays as it was applied last, and what it has applied", site{}
			for j := range overlay.Objects {
				overlay.Objects[j].stay()
			}
			kept = true
		}
	}
}
