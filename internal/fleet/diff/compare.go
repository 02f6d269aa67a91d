package diff

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/closure"
	"cloop.dev/cloop/internal/secret"
	"cloop.dev/cloop/schemas"
)

// Options say what to compare.
type Options struct {
	// Dir is the work tree: absolute, without symbolic links.
	Dir string
	// Base is the revision to compare with, as `git diff` takes it: exactly that
	// one, and not where the two lines part.
	Base string
	// Paths narrow the comparison to what lies in them, relative to Dir with
	// slashes; none means all.
	Paths []string
	// Variables are values for both revisions that the repository does not have.
	Variables *fleet.Variables
	// Tracked are the files of the work tree that are read; nil: all.
	Tracked *fleet.Tracked
}

// Compare says what the work tree, as it is, would do where the base is in
// effect. A revision of an overlay that cannot be rendered is in the report; an
// error means that nothing could be compared, and says what to do. The caller
// calls Judge.
func Compare(ctx context.Context, o Options) (*Report, error) {
	base, err := OpenBase(ctx, o.Dir, o.Base)
	if err != nil {
		return nil, err
	}
	defer base.Close()
	work, err := openWorkTree(o.Dir)
	if err != nil {
		return nil, err
	}
	defer work.close()
	c := &comparison{
		options: o, base: base.tree, head: work, extract: base.out, same: map[string]bool{}, missing: base.repo.absent,
		report: &Report{Base: Revision{Name: secret.Redact(o.Base), Commit: base.commit}, Overlays: []Overlay{}, Notes: base.repo.notes(),
			clone: cloneOf(o.Dir, fleet.RemotesOf(base.repo.settings))},
	}
	return c.report, c.run(ctx, base.Dir)
}

// comparison is one call of Compare.
type comparison struct {
	options Options
	base    *closure.Commit
	head    *workTree
	extract *extract
	// was and now render the base and the work tree.
	was, now *fleet.Renderer
	// same: path → whether both revisions have the same there.
	same map[string]bool
	// moves are the paths that go on to be applied from another place, and visited the
	// roots that are compared.
	moves   []move
	visited map[string]bool
	// appliers of the work tree, and the ApplicationSets of both revisions.
	appliers          []fleet.Way
	wereSets, areSets []fleet.Way
	// compared are those of them whose two paths were.
	compared []move
	// missing explains why something of the base cannot be read.
	missing func(base string, err error) error
	report  *Report
}

func (c *comparison) run(ctx context.Context, scratch string) (err error) {
	if c.was, err = fleet.NewRenderer(scratch, c.options.Variables); err != nil {
		return err
	}
	defer c.was.Close()
	if c.now, err = fleet.NewRenderer(c.options.Dir, c.options.Variables); err != nil {
		return err
	}
	defer c.now.Close()
	c.now.Track(c.options.Tracked)
	c.was.CopyOf(c.now)
	overlays, err := c.overlays(ctx)
	if err != nil {
		return err
	}
	for _, overlay := range overlays {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.overlay(ctx, overlay); err != nil {
			return err
		}
	}
	c.report.settleMoves(c.compared)
	c.report.settleWithin()
	c.report.settleKept()
	c.report.settleLoose()
	return nil
}

// overlays are what either revision renders by itself, by path.
func (c *comparison) overlays(ctx context.Context) ([]string, error) {
	var all []string
	for _, revision := range []struct {
		*fleet.Renderer
		files closure.Files
	}{{c.now, c.head}, {c.was, c.base}} {
		roots, err := revision.Roots(ctx)
		if err != nil {
			return nil, err
		}
		if slices.Equal(roots, []string{"."}) && !closure.Of(revision.files, ".").Any() {
			// There is nothing: that is no root to compare the other one's with.
			continue
		}
		all = append(all, roots...)
	}
	if err := c.findMoves(ctx); err != nil {
		return nil, err
	}
	c.now.Adopt(c.was)
	c.was.Adopt(c.now)
	slices.Sort(all)
	all = slices.Compact(all)
	whole := slices.Clone(all)
	all = slices.DeleteFunc(all, func(overlay string) bool {
		return !c.wanted(overlay) || c.head.inModule(overlay)
	})
	for _, name := range c.options.Paths {
		if !slices.ContainsFunc(all, func(overlay string) bool { return inside(overlay, name) || inside(name, overlay) }) {
			return nil, c.nothingIn(name, whole)
		}
	}
	c.visited = map[string]bool{}
	for _, name := range all {
		c.visited[name] = true
	}
	return all, nil
}

// nothingIn says why there is nothing to compare in a path, and what to name.
func (c *comparison) nothingIn(name string, roots []string) error {
	for _, root := range roots {
		for _, f := range []closure.Files{c.head, c.base} {
			for dependency := range closure.Of(f, root).Names {
				if inside(dependency, name) && f.Lstat(dependency) == closure.Regular {
					return fmt.Errorf("nothing to compare in %s by itself: it is a part of other roots, such as %s; name one of those, or no path for all", name, root)
				}
			}
		}
	}
	return fmt.Errorf("nothing to compare in %s: neither revision has a root there; name a directory with a kustomization, or with pools", name)
}

func (c *comparison) wanted(overlay string) bool {
	return len(c.options.Paths) == 0 || slices.ContainsFunc(c.options.Paths, func(name string) bool { return inside(overlay, name) })
}

// inside says whether a path is another one or lies in it.
func inside(name, dir string) bool {
	return dir == "." || name == dir || strings.HasPrefix(name, dir+"/")
}

// inModule says whether a path lies in another repository.
func (w *workTree) inModule(name string) bool {
	for at := name; at != "."; at = path.Dir(at) {
		if w.Lstat(at) == closure.Module {
			return true
		}
	}
	return false
}

// overlay compares one path, in each way in which it is applied.
func (c *comparison) overlay(ctx context.Context, name string) error {
	before, err := c.was.Ways(ctx, name)
	if err != nil {
		return err
	}
	after, err := c.now.Ways(ctx, name)
	if err != nil {
		return err
	}
	before, after = made(before, c.wereSets, name, c.base), made(after, c.areSets, name, c.head)
	if done, err := c.movedAt(ctx, name, &before, &after); done || err != nil {
		return err
	}
	return c.between(ctx, move{from: name, to: name}, before, after)
}

// between compares what some apply from one path of the base with what they apply from
// one of the work tree: the same path or, of a move by one of them, another.
func (c *comparison) between(ctx context.Context, m move, before, after []fleet.Way) error {
	from, to := closureOf(c.base, m.from, before), closureOf(c.head, m.to, after)
	unchanged := m.by == "" && c.unchanged(to)
	if m.by == "" {
		c.unrendered(before, after, false)
	}
	if unchanged && slices.EqualFunc(before, after, sameWay) {
		c.report.Overlays = append(c.report.Overlays, Overlay{Path: m.to, Unchanged: true, appliers: appliersOf(after)})
		return nil
	}
	if err := c.extract.closure(ctx, from); err != nil {
		return c.missing(c.options.Base, err)
	}
	was, now, same := before, after, []fleet.Way(nil)
	if unchanged {
		was, now, same = apart(before, after)
	}
	old, err := c.render(ctx, revision{AtBase, c.was, from}, m.from, was)
	if err != nil {
		return err
	}
	current, err := c.render(ctx, revision{AtHead, c.now, to}, m.to, now)
	if err != nil {
		return err
	}
	for i := range same {
		c.report.Overlays = append(c.report.Overlays, Overlay{Path: m.to, By: same[i].By, In: same[i].In, Unchanged: true, appliers: appliersOf(same)})
	}
	units := c.paired(m, old, current, same)
	if len(units)+len(same) == 0 {
		c.report.Overlays = append(c.report.Overlays, Overlay{Path: m.to, Unchanged: true, appliers: appliersOf(after)})
	}
	for _, pair := range units {
		overlay := c.differ(pair)
		overlay.appliers = appliersOf(before, after)
		c.unrendered(before, after, !overlay.Unchanged)
		c.report.Overlays = append(c.report.Overlays, overlay)
	}
	return nil
}

// made are the ways of a path, that of an ApplicationSet which may make an Application of it
// where nothing else applies it.
func made(ways, sets []fleet.Way, name string, files closure.Files) []fleet.Way {
	if len(ways) != 1 || ways[0].By != "" {
		return ways
	}
	if at := slices.IndexFunc(sets, func(w fleet.Way) bool { return w.Makes(name, files.List) }); at >= 0 {
		return []fleet.Way{ways[0].As(sets[at])}
	}
	return ways
}

// closureOf is what the ways of a path depend on.
func closureOf(f closure.Files, name string, ways []fleet.Way) *closure.Closure {
	var more []string
	for i := range ways {
		more = append(more, ways[i].Components(name)...)
	}
	if slices.ContainsFunc(ways, func(w fleet.Way) bool { return w.ReadsJSON() }) {
		return closure.OfJSON(f, name, more...)
	}
	return closure.Of(f, name, more...)
}

// unrendered notes what of those who apply a path is not applied here: where the
// path differs, and where only that does.
func (c *comparison) unrendered(before, after []fleet.Way, differs bool) {
	said := map[string]string{}
	for i := range before {
		_, said[before[i].By] = before[i].Unrendered()
	}
	for i := range after {
		places, alters := after[i].Unrendered()
		if was, known := said[after[i].By]; !differs && (!known || was == alters) {
			delete(said, after[i].By)
			continue
		}
		delete(said, after[i].By)
		for _, place := range places {
			c.report.note("%s is not applied to what is compared: what it changes is not shown", place)
		}
		if len(places) == 0 && !differs {
			c.report.note("%s had fields that are not applied to what is compared, and has none now: what that changes is not shown", after[i].By)
		}
	}
}

// appliersOf names the objects that apply a path in some ways.
func appliersOf(some ...[]fleet.Way) (names []string) {
	for _, ways := range some {
		for _, way := range ways {
			if way.By != "" {
				names = append(names, way.By)
			}
		}
	}
	return names
}

// differ is what becomes of one unit of the comparison.
func (c *comparison) differ(of both) Overlay {
	out := Overlay{Path: of.path, From: of.from, By: of.by, In: of.in}
	for _, r := range []*rendering{of.was, of.now} {
		if r.failure != nil {
			out.Failures = append(out.Failures, *r.failure)
		}
		if r.unresolved != "" {
			c.report.note("%s: %s; give values with --substitute", of.path, r.unresolved)
		}
		if r.unread != "" {
			c.report.note("%s: %s, so what comes of it is not compared", of.path, r.unread)
		}
	}
	if len(out.Failures) > 0 {
		return out
	}
	var notes []string
	out.Objects, notes = pairs(of.was.objects, of.now.objects)
	for _, note := range notes {
		c.report.note("%s: %s", of.path, note)
	}
	out.Unchanged = len(out.Objects) == 0
	if of.now.way.By == "" {
		out.left = siteOf(of.was.way)
	} else {
		out.goesOn = siteOf(of.now.way)
	}
	stays := false
	if !out.Unchanged || of.from != "" {
		out.Note, stays = of.note()
	}
	if stays && of.was.way.By == "" && of.now.way.By == "" && onlyApply(out.Objects) {
		// Who applies them is not in the repository, and is seldom a PoolSync.
		out.Note, stays = fileGoes, false
	}
	for i := range out.Objects {
		if o := &out.Objects[i]; stays || o.Change == Removed && of.leaves(o) {
			o.stay()
		}
	}
	return out
}

// leaves says whether who applies a path lets an object be that it does not have any more.
func (of both) leaves(o *Object) bool {
	if of.now.way.By == "" {
		return of.was.way.Fate.Spares(o.before.Unstructured)
	}
	return of.now.way.Fate.Leaves(o.before.Unstructured)
}

const fileGoes = "nothing of the repository applies it: whatever does may take away what it had"

// onlyApply says whether all objects are of kinds that have paths applied.
func onlyApply(objects []Object) bool {
	return !slices.ContainsFunc(objects, func(o Object) bool {
		return !fleet.AppliesPaths(o.either().Unstructured) && (o.Kind != v1alpha1.PoolSyncKind || !o.either().ours)
	})
}

// note says what it means that the overlay itself comes or goes, and whether all
// that it had applied stays as it is.
func (of both) note() (note string, stays bool) {
	was, now := of.was.way, of.now.way
	switch {
	case len(of.now.objects) > 0 && of.from != "":
		return now.By + " applies it in place of " + of.from + ": what both have stays as it is", false
	case len(of.now.objects) > 0 && !of.was.found && now.By == "":
		return "the path is new: something has to apply it", false
	case len(of.now.objects) > 0:
		return "", false
	case was.By == "" && now.By == "" && (path.Ext(of.path) == ".yaml" || path.Ext(of.path) == ".yml"):
		return fileGoes, false
	case was.By != "" && now.By == "":
		return of.left(), !was.Fate.Along
	case of.nothing && !now.Fate.Prunes:
		return now.By + " does not apply it any more, and does not prune", true
	case of.nothing:
		return now.By + " does not apply it any more: what it has applied goes, other than what it still applies from elsewhere", false
	case of.instead != "":
		return now.By + " applies " + of.instead + " in its place, which is not there: it keeps what it has applied until its path is corrected", true
	case !of.now.found && strings.Contains(now.Path, "{{") && now.Fate.Along:
		return "the path is gone: the Application that " + was.By + " makes of it may go, and all that has applied", false
	case !of.now.found:
		return "the path is gone: what applies it keeps what it has applied, and says that there is no such path, until it is changed or deleted itself", true
	case now.Fate.Empties:
		return "it renders nothing any more: " + now.By + " prunes what it has applied", false
	case now.By == "", strings.HasPrefix(now.By, v1alpha1.PoolSyncKind+" "):
		return "it renders nothing any more: hub and PoolSync take that for an accident and change nothing", true
	}
	return "it renders nothing any more: " + now.By + " prunes nothing by itself then", true
}

// left says that what applied an overlay does so no more.
func (of both) left() string {
	switch by := of.was.way.By; {
	case !of.now.found:
		return "the path is gone, and " + by + " does not apply it any more"
	case of.empty:
		return "nothing is left of the path, and " + by + " does not apply it any more"
	default:
		return by + " does not apply it any more"
	}
}

// rendering is what one revision of an overlay renders in one way.
type rendering struct {
	// way in which it is applied.
	way     fleet.Way
	objects map[key]*item
	// found says that the revision has the path.
	found bool
	// failure is why it could not be rendered.
	failure *Failure
	// unresolved says which variable has no value; empty where all have. unread says
	// what of it, which is another team's, is elsewhere.
	unresolved, unread string
}

// revision is one of the two that are compared.
type revision struct {
	name     string
	renderer *fleet.Renderer
	from     *closure.Closure
}

const maxProblems = 5

// render renders one revision of an overlay. What is wrong with it is a failure
// of the rendering; the error is the context's.
func (c *comparison) render(ctx context.Context, r revision, name string, ways []fleet.Way) ([]*rendering, error) {
	all := make([]*rendering, len(ways))
	for i := range ways {
		all[i] = &rendering{way: ways[i]}
	}
	if len(r.from.Modules) > 0 {
		for i := range all {
			all[i].failure = &Failure{Revision: r.name, Problems: []schemas.Problem{anotherRepository(r.from.Modules[0])}}
		}
		return all, nil
	}
	rendered, err := r.renderer.Render(ctx, name, ways)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, fleet.ErrPathNotFound):
		return all, nil
	case err != nil:
		return nil, err
	}
	for i := range rendered {
		all[i].take(r.name, &rendered[i])
	}
	return all, nil
}

func anotherRepository(file string) schemas.Problem {
	return schemas.Problem{
		Rule: fleet.RuleMissingReference, Severity: schemas.SeverityError, File: file,
		Message: "it is another repository, such as a submodule, whose files no sync fetches",
		Hint:    "copy what the root needs of it into this repository",
	}
}

func (r *rendering) take(revision string, from *fleet.Rendering) {
	problems := slices.Clone(from.Problems)
	problems = slices.DeleteFunc(problems, func(p schemas.Problem) bool {
		// What speaks of it is compared as it is written.
		if p.Rule == fleet.RuleUnresolvedVariable {
			r.unresolved = p.Message
		}
		return p.Rule == fleet.RuleUnresolvedVariable
	})
	r.found = true
	if !slices.ContainsFunc(problems, func(p schemas.Problem) bool { return p.Severity == schemas.SeverityError }) {
		for _, p := range problems {
			r.unread = secret.Redact(bounded(p.Message))
		}
		r.objects = indexed(from.Objects)
		return
	}
	for i := range problems {
		p := &problems[i]
		for _, text := range []*string{&p.File, &p.Object, &p.Path, &p.Message} {
			*text = secret.Redact(*text)
		}
		p.Message = bounded(p.Message)
	}
	r.failure = &Failure{Revision: revision, Problems: problems[:min(len(problems), maxProblems)], More: max(0, len(problems)-maxProblems)}
}

// unchanged says whether both revisions have the same at every path that what is
// rendered may depend on.
func (c *comparison) unchanged(of *closure.Closure) bool {
	if of.Unbounded || len(of.Modules) > 0 {
		return false
	}
	for name := range of.Names {
		if !c.sameAt(name) {
			return false
		}
	}
	return c.sameBelow(of)
}

// sameBelow compares the names in the plain directories of an overlay: what only
// the base has, no path of the work tree leads to.
func (c *comparison) sameBelow(of *closure.Closure) bool {
	for _, dir := range of.Plain {
		if !slices.Equal(of.Definitions(c.base, dir), of.Definitions(c.head, dir)) {
			return false
		}
	}
	return true
}

func (c *comparison) sameAt(name string) bool {
	same, known := c.same[name]
	if !known {
		same = c.compareAt(name)
		c.same[name] = same
	}
	return same
}

func (c *comparison) compareAt(name string) bool {
	was, now := c.base.Lstat(name), c.head.Lstat(name)
	if was != now {
		return false
	}
	switch was {
	case closure.Regular:
		hash, _ := c.base.Sum(name, "")
		sum, err := c.head.Sum(name, hash)
		return err == nil && sum == hash
	case closure.Link:
		before, err := c.base.Target(name)
		after, headErr := c.head.Target(name)
		return err == nil && headErr == nil && before == after
	}
	return was == closure.Nothing || was == closure.Directory
}
