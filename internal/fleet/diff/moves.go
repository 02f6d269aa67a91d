package diff

import (
	"context"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/closure"
)

// move is an object of the repository that applies another path than before: what
// it applied from the one it goes on to apply from the other. was and now are where the
// revisions have it.
type move struct{ by, from, to, was, now string }

// site is one object that applies a path, and where the repository has it.
type site struct{ by, in, path string }

// sites are those of one revision that the other does not have, by their object. One that
// is only written in another place is the same, as far as there are as many.
func sites(ways, others map[string][]fleet.Way) map[string][]site {
	all := map[string][]site{}
	for at, list := range ways {
		has := func(list []fleet.Way, way fleet.Way) bool {
			return slices.ContainsFunc(list, func(w fleet.Way) bool { return w.By == way.By && w.In == way.In })
		}
		left := slices.DeleteFunc(slices.Clone(others[at]), func(w fleet.Way) bool { return has(list, w) })
		for _, way := range list {
			if way.By == "" || has(others[at], way) {
				continue
			}
			if same := slices.IndexFunc(left, func(w fleet.Way) bool { return w.By == way.By }); same >= 0 {
				left = slices.Delete(left, same, same+1)
				continue
			}
			all[way.By] = append(all[way.By], site{way.By, way.In, at})
		}
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b site) int { return strings.Compare(a.path+"\x00"+a.in, b.path+"\x00"+b.in) })
	}
	return all
}

// movesBetween pairs the paths that an object applied with those that it applies
// now. Objects of several clusters may have one name: those are told apart by
// where they are defined, or else by the last name of their path. Who cannot be
// told apart has moved nothing.
func movesBetween(before, after map[string][]fleet.Way) []move {
	var all []move
	arrived := sites(after, before)
	for by, gone := range sites(before, after) {
		come := arrived[by]
		for _, same := range []func(a, b site) bool{
			func(a, b site) bool { return a.in == b.in },
			func(a, b site) bool { return path.Base(a.path) == path.Base(b.path) },
			func(a, b site) bool { return relative(a) == relative(b) && relative(a) != "" },
			func(site, site) bool { return true },
		} {
			for _, from := range slices.Clone(gone) {
				to, ok := only(come, func(s site) bool { return same(from, s) })
				if _, alone := only(gone, func(s site) bool { return same(s, to) }); !ok || !alone {
					continue
				}
				all = append(all, move{by, from.path, to.path, from.in, to.in})
				gone = slices.DeleteFunc(gone, func(s site) bool { return s == from })
				come = slices.DeleteFunc(come, func(s site) bool { return s == to })
			}
		}
	}
	slices.SortFunc(all, func(a, b move) int {
		return strings.Compare(a.to+"\x00"+a.by+"\x00"+a.now, b.to+"\x00"+b.by+"\x00"+b.now)
	})
	return all
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
func only(some []site, holds func(site) bool) (found site, ok bool) {
	for _, s := range some {
		if !holds(s) {
			continue
		}
		if ok {
			return site{}, false
		}
		found, ok = s, true
	}
	return found, ok
}

// findMoves looks for them among all roots of both revisions.
func (c *comparison) findMoves(ctx context.Context, roots []string) error {
	before, after := map[string][]fleet.Way{}, map[string][]fleet.Way{}
	for _, name := range roots {
		var err error
		if before[name], err = c.was.Ways(ctx, name); err != nil {
			return err
		}
		if after[name], err = c.now.Ways(ctx, name); err != nil {
			return err
		}
	}
	c.moves = movesBetween(before, after)
	return nil
}

// movedAt compares what comes to a path, or goes from it, with the other half of
// the move, and leaves the other ways. done: there are none.
func (c *comparison) movedAt(ctx context.Context, name string, before, after *[]fleet.Way) (done bool, err error) {
	gone, come := map[site]bool{}, map[site]bool{}
	for _, m := range c.moves {
		switch {
		case m.from == name:
			gone[site{m.by, m.was, name}] = true
			if c.wanted(m.to) {
				continue
			}
		case m.to == name:
			come[site{m.by, m.now, name}] = true
		default:
			continue
		}
		if err := c.moved(ctx, m); err != nil {
			return false, err
		}
	}
	if len(gone)+len(come) == 0 {
		return false, nil
	}
	*before = slices.DeleteFunc(slices.Clone(*before), func(w fleet.Way) bool { return gone[site{w.By, w.In, name}] })
	*after = slices.DeleteFunc(slices.Clone(*after), func(w fleet.Way) bool { return come[site{w.By, w.In, name}] })
	// What nobody of the repository applies is no other way beside one that moved.
	return len(appliersOf(*before, *after)) == 0, nil
}

// moved compares what an object applied from one path with what it applies from
// another.
func (c *comparison) moved(ctx context.Context, m move) error {
	var (
		sides   [2]*rendering
		applied [2][]fleet.Way
	)
	for i, r := range []struct {
		revision
		files closure.Files
		name  string
		in    string
	}{{revision{name: AtBase, renderer: c.was}, c.base, m.from, m.was}, {revision{name: AtHead, renderer: c.now}, c.head, m.to, m.now}} {
		ways, err := r.renderer.Ways(ctx, r.name)
		if err != nil {
			return err
		}
		ways = slices.DeleteFunc(ways, func(w fleet.Way) bool { return w.By != m.by || w.In != r.in })
		applied[i] = ways
		r.from = closureOf(r.files, r.name, ways)
		if i == 0 {
			if err := c.extract.closure(ctx, r.from); err != nil {
				return c.missing(c.options.Base, err)
			}
		}
		rendered, err := c.render(ctx, r.revision, r.name, ways[:1])
		if err != nil {
			return err
		}
		sides[i] = rendered[0]
	}
	overlay := c.differ(m.to, both{was: sides[0], now: sides[1]})
	overlay.From, overlay.appliers = m.from, []string{m.by}
	if slices.ContainsFunc(c.moves, func(other move) bool { return other.by == m.by && other.now != m.now && other.to == m.to }) {
		overlay.By, overlay.In = m.by, m.now
	}
	if len(overlay.Failures) == 0 && len(sides[1].objects) > 0 {
		c.compared = append(c.compared, m)
		overlay.Note = m.by + " applies it in place of " + m.from + ": what both have stays as it is"
	}
	c.unrendered(applied[0], applied[1], !overlay.Unchanged)
	c.report.Overlays = append(c.report.Overlays, overlay)
	return nil
}

// settleLoose takes for one object what goes from a place that nothing of the repository
// applies and comes in another: what applies pools in place of a PoolSync, in a file that
// was renamed or cut in two. Whoever applies the one applies the other.
func (r *Report) settleLoose() {
	type place struct{ overlay, object int }
	gone, come := map[key][]place{}, map[key][]place{}
	for i := range r.Overlays {
		if r.Overlays[i].By != "" || len(r.Overlays[i].appliers) > 0 {
			continue
		}
		for j := range r.Overlays[i].Objects {
			switch o := &r.Overlays[i].Objects[j]; {
			case !fleet.AppliesPaths(o.either().Unstructured):
			case o.Change == Removed:
				gone[keyOf(o.before)] = append(gone[keyOf(o.before)], place{i, j})
			case o.Change == Added:
				come[keyOf(o.after)] = append(come[keyOf(o.after)], place{i, j})
			}
		}
	}
	settled, touched := map[place]bool{}, map[int]bool{}
	for at, from := range gone {
		if to := come[at]; len(from) == 1 && len(to) == 1 {
			settled[from[0]], touched[from[0].overlay], touched[to[0].overlay] = true, true, true
			now := &r.Overlays[to[0].overlay].Objects[to[0].object]
			var differs bool
			if *now, differs = compare(r.Overlays[from[0].overlay].Objects[from[0].object].before, now.after); !differs {
				settled[to[0]] = true
			}
		}
	}
	for i := range r.Overlays {
		overlay, kept := &r.Overlays[i], []Object(nil)
		for j := range overlay.Objects {
			if !settled[place{i, j}] {
				kept = append(kept, overlay.Objects[j])
			}
		}
		if touched[i] {
			overlay.Objects, overlay.Unchanged = kept, len(kept) == 0
			if !slices.ContainsFunc(kept, func(o Object) bool { return o.Change != Changed }) {
				overlay.Note = ""
			}
		}
	}
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
