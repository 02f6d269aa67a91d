package output

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/schemas"
)

// owner is what a problem is put under: a pool with both of its halves and all
// its clusters, or else an object, or else a file.
type owner struct{ pool, object, file string }

func (o owner) isPool() bool { return o.pool != "" }

func ownerOf(subject *fleet.Subject) owner {
	switch {
	case subject.Pool != "":
		return owner{pool: subject.Pool}
	case subject.Object != "":
		return owner{object: subject.Object}
	}
	return owner{file: subject.File}
}

// entry is a problem with the roots that show it.
type entry struct {
	*schemas.Problem
	roots []string
	// print is its fingerprint.
	print string
}

// group is the problems of one owner, errors first. Nothing else is ever taken
// apart where an output has room for a part of the problems only.
type group struct {
	owner   owner
	entries []entry
	// whole counts all its problems, also those that were cut off.
	whole tally
}

func (g group) tally() tally {
	var t tally
	for _, e := range g.entries {
		t.add(e.Problem)
	}
	return t
}

// groups puts the problems under their owners, those with errors first and else
// in the report's order.
func groups(report *fleet.Report) []group {
	owners, roots := make([]owner, len(report.Problems)), rootsOf(report)
	for i := range report.Subjects {
		subject := &report.Subjects[i]
		for _, index := range subject.Problems {
			if owners[index] == (owner{}) || subject.Pool != "" && !owners[index].isPool() {
				owners[index] = ownerOf(subject)
			}
		}
	}
	prints := fingerprints(report.Problems)
	var all []group
	indexes := map[owner]int{}
	for i := range report.Problems {
		problem := &report.Problems[i]
		if owners[i] == (owner{}) {
			owners[i] = ownerOf(&fleet.Subject{Object: problem.Object, File: problem.File})
		}
		index, ok := indexes[owners[i]]
		if !ok {
			index = len(all)
			indexes[owners[i]] = index
			all = append(all, group{owner: owners[i]})
		}
		all[index].entries = append(all[index].entries, entry{problem, roots[i], prints[i]})
	}
	for i := range all {
		all[i].whole = all[i].tally()
		slices.SortStableFunc(all[i].entries, func(a, b entry) int { return cmp.Compare(weight(a.Problem), weight(b.Problem)) })
	}
	slices.SortStableFunc(all, func(a, b group) int { return cmp.Compare(weight(a.entries[0].Problem), weight(b.entries[0].Problem)) })
	return all
}

// rootsOf are the roots that show each of the problems, in the report's order.
func rootsOf(report *fleet.Report) [][]string {
	roots := make([][]string, len(report.Problems))
	for i := range report.Subjects {
		subject := &report.Subjects[i]
		for _, index := range subject.Problems {
			if n := len(roots[index]); n == 0 || roots[index][n-1] != subject.Root {
				roots[index] = append(roots[index], subject.Root)
			}
		}
	}
	return roots
}

// elsewhere names the roots that show a problem and do not have its file, as many
// as most, each as style writes it; more counts the rest.
func elsewhere(problem *schemas.Problem, roots []string, most int, style func(string) string) (names []string, more int) {
	for _, root := range roots {
		switch {
		case root == "." || problem.File == root || strings.HasPrefix(problem.File, root+"/"):
		case len(names) == most:
			more++
		default:
			names = append(names, style(printable.Abridge(visible(root), maxName)))
		}
	}
	return names, more
}

// shownIn names the roots that show a problem of a file outside of them, for the
// end of a line: " in clusters/eu, clusters/us".
func shownIn(problem *schemas.Problem, roots []string) string {
	names, more := elsewhere(problem, roots, 3, func(name string) string { return name })
	if len(names) == 0 {
		return ""
	}
	text := " in " + strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func weight(problem *schemas.Problem) int {
	if problem.Severity == schemas.SeverityError {
		return 0
	}
	return 1
}

// budget is what an output has room for.
type budget struct {
	// room is how much there is of each thing that cost counts.
	room []int
	cost func(group) []int
}

// excerpt is what of the groups fits a budget.
type excerpt struct {
	groups []group
	// left counts the problems that are left out; pools and others the owners
	// that they are of.
	left          tally
	pools, others int
}

// take takes whole groups as long as they fit, in order, and passes over those
// that do not. Only the first is cut to what fits: otherwise a pool with many
// errors would hide that there are any.
func (b budget) take(all []group) excerpt {
	var taken excerpt
	for i, g := range all {
		shown := g
		if !b.fits(g) {
			shown.entries = nil
			if i == 0 {
				n := sort.Search(len(g.entries), func(n int) bool { return !b.fits(group{g.owner, g.entries[:n+1], g.whole}) })
				shown.entries = g.entries[:n]
			}
		}
		if len(shown.entries) > 0 {
			b.spend(shown)
			taken.groups = append(taken.groups, shown)
		}
		taken.leave(g, len(shown.entries))
	}
	return taken
}

func (b budget) fits(g group) bool {
	for i, cost := range b.cost(g) {
		if cost > b.room[i] {
			return false
		}
	}
	return true
}

func (b budget) spend(g group) {
	for i, cost := range b.cost(g) {
		b.room[i] -= cost
	}
}

// leave counts what of a group is left out when its first n problems are shown.
func (x *excerpt) leave(g group, n int) {
	if n == len(g.entries) {
		return
	}
	for _, e := range g.entries[n:] {
		x.left.add(e.Problem)
	}
	if g.owner.isPool() {
		x.pools++
	} else {
		x.others++
	}
}

// note says what is left out, and is empty where nothing is.
func (x *excerpt) note() string {
	if x.left.total() == 0 {
		return ""
	}
	var of []string
	if x.pools > 0 {
		of = append(of, count(x.pools, "pool"))
	}
	if x.others > 0 {
		of = append(of, count(x.others, "other place"))
	}
	return fmt.Sprintf("left out here: %s of %s; cloop fleet check shows all", x.left, strings.Join(of, " and "))
}
