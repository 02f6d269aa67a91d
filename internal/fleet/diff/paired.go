package diff

import (
	"slices"

	"cloop.dev/cloop/internal/fleet"
)

// both are a unit of the comparison: what one object applies, or nobody of the repository,
// from a path in one way, in both revisions.
type both struct {
	// path is where it is shown; from is that of the base, where it is another one.
	path, from string
	// by, and in which tells apart ways of one name, are empty where there is one way.
	by, in   string
	was, now *rendering
	// nothing: what applied the path applies nothing of the repository in its place.
	// instead is what it applies in its place, which is not there.
	nothing bool
	instead string
	// empty: whatever applies it, the path renders nothing.
	empty bool
}

func sameWay(a, b fleet.Way) bool { return a.By == b.By && a.In == b.In && a.Digest == b.Digest }

// apart takes out the ways that both revisions have: of the same files they make the
// same. Those that nothing but their values tells apart stay together.
func apart(before, after []fleet.Way) (was, now, same []fleet.Way) {
	alone := func(w fleet.Way, among []fleet.Way) bool {
		return !slices.ContainsFunc(among, func(other fleet.Way) bool { return siteOf(other) == siteOf(w) && other.Digest != w.Digest })
	}
	taken := func(w fleet.Way) bool {
		has := func(among []fleet.Way) bool {
			return slices.ContainsFunc(among, func(other fleet.Way) bool { return sameWay(w, other) })
		}
		return has(before) && has(after) && alone(w, before) && alone(w, after)
	}
	for _, w := range before {
		if !taken(w) {
			was = append(was, w)
		}
	}
	for _, w := range after {
		if taken(w) {
			same = append(same, w)
		} else {
			now = append(now, w)
		}
	}
	return was, now, same
}

// paired puts the ways of two revisions side by side: the same ones, those of one name that
// the same file or root defines, then those of one name. Of what is defined once, and comes
// to several clusters with other values, there may be fewer ways than there were, or more.
// What nobody of the repository applies is no way beside those of somebody. beside are the
// ways that differ in nothing.
func (c *comparison) paired(m move, was, now []*rendering, beside []fleet.Way) []both {
	all := make([]both, len(now))
	for i, r := range now {
		all[i].now = r
	}
	left := slices.Clone(was)
	for _, same := range []func(a, b fleet.Way) bool{
		sameWay,
		func(a, b fleet.Way) bool { return a.By == b.By && a.In == b.In },
		func(a, b fleet.Way) bool { return a.By == b.By && a.Digest == b.Digest },
		func(a, b fleet.Way) bool { return a.By == b.By },
	} {
		for i := range all {
			if at := slices.IndexFunc(left, func(r *rendering) bool { return same(r.way, all[i].now.way) }); at >= 0 && all[i].was == nil {
				all[i].was = left[at]
				left = slices.Delete(left, at, at+1)
			}
		}
	}
	sibling := func(of *rendering) func(*rendering) bool {
		return func(r *rendering) bool {
			return r.way.By == of.way.By && (r.way.In == of.way.In || m.by != "")
		}
	}
	for i := range all {
		if at := slices.IndexFunc(was, sibling(all[i].now)); at >= 0 && all[i].was == nil {
			all[i].was = was[at]
		}
	}
	there := slices.ContainsFunc(now, func(r *rendering) bool { return r.found }) || len(beside) > 0
	empty := len(beside) == 0 && !slices.ContainsFunc(now, func(r *rendering) bool { return len(r.objects) > 0 || r.failure != nil })
	for _, r := range left {
		gone := both{was: r, now: &rendering{found: there}, empty: empty}
		if at := slices.IndexFunc(now, sibling(r)); at >= 0 {
			gone.now = now[at]
		}
		all = append(all, gone)
	}
	all = slices.DeleteFunc(all, func(b both) bool {
		switch {
		case b.was == nil && b.now.way.By == "":
			return len(was)+len(beside) > 0
		case b.was == nil:
			return there && m.by == "" && !concernsPools(b.now)
		case b.now.way.By == "" && b.was.way.By == "":
			return !slices.Contains(now, b.now)
		case b.now.way.By == "" && m.by == "":
			// Who applies it may be in what cannot be read.
			return there && !concernsPools(b.was) || c.inDoubt()
		}
		return false
	})
	for i := range all {
		all[i].label(c, m, len(all)+len(beside) > 1)
	}
	labelled := slices.Clone(all)
	for i := range all {
		if !slices.ContainsFunc(labelled, func(other both) bool { return other.by == all[i].by && other.in != all[i].in }) &&
			!slices.ContainsFunc(beside, func(w fleet.Way) bool { return w.By == all[i].by && w.In != all[i].in }) && !c.namesake(m, all[i]) {
			all[i].in = ""
		}
	}
	return all
}

// label says where a unit is shown, and by whom.
func (b *both) label(c *comparison, m move, several bool) {
	if b.was == nil {
		b.was = &rendering{}
	}
	of := b.now.way
	if of.By == "" {
		of = b.was.way
	}
	b.path = m.to
	if m.from != m.to {
		b.from = m.from
	}
	switch {
	case m.by != "" && m.to == "":
		b.nothing = true
		if at := slices.IndexFunc(c.appliers, func(w fleet.Way) bool { return w.By == m.by && w.In == m.now }); at >= 0 {
			b.now.way = c.appliers[at]
		}
	case m.by != "" && !b.now.found && b.now.failure == nil:
		b.instead = m.to
	}
	if b.nothing || b.instead != "" {
		b.path, b.from = m.from, ""
		several = true
	}
	if several || of.By != "" && b.now.way.By == "" || c.namesake(m, *b) {
		b.by, b.in = of.By, of.In
	}
}

// namesake says whether another object of the name of one that has moved applies the path
// where that is shown.
func (c *comparison) namesake(m move, b both) bool {
	return m.by != "" && slices.ContainsFunc(c.appliers, func(w fleet.Way) bool { return w.By == m.by && w.In != m.now && w.Path == b.path })
}

// inDoubt says whether the work tree may have more that applies a path than is known, where
// the base did not leave that open.
func (c *comparison) inDoubt() bool {
	was := c.was.Unread()
	return slices.ContainsFunc(c.now.Unread(), func(file string) bool { return !slices.Contains(was, file) })
}

// concernsPools says whether something of a rendering is ours, or applies what may be.
func concernsPools(r *rendering) bool {
	for _, o := range r.objects {
		if o.ours || fleet.AppliesPaths(o.Unstructured) {
			return true
		}
	}
	return r.failure != nil
}
