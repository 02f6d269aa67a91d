package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

// checker gathers what the roots say.
type checker struct {
	validator *schemas.Validator
	// variables were given; see Checking.
	variables *Variables
	report    *Report
	findings  []finding
	// spans: root of the report → where its findings begin and end.
	spans      [][2]int
	suppressed []suppressed
	government government
	// syncs are the PoolSyncs and Kustomizations of Flux, cluster by cluster; see twice.
	syncs [][]*facts
	// applied: root, and who applies it → what of it a PoolSync applies.
	applied map[way][]*facts
	// files: root and file → index of the subject.
	files map[[2]string]int
	// pools and hubPools of all roots, for the rules between them.
	pools    []*half
	hubPools []*half
	unjudged []unjudged
	// named are the hub pools that the halves speak of.
	named map[string]bool
	// others are the roots in which nothing is of cloop.dev, and that nobody is known to
	// apply: what they have is not a PoolSync's where there are pools elsewhere.
	others map[string]bool
	// ours: path of a root → it has documents of cloop.dev.
	ours map[string]bool
	// spent counts the documents; omits says which kinds of those that were not rendered
	// for their number were told of.
	spent spent
	omits map[schemas.Severity]bool
	// memo of earlier verdicts; nil: there is none.
	memo *memo
	// appliers of the repository; nil where a PoolSync is who asks. doubts are why
	// there may be others, or why they may say something else.
	appliers *[]applier
	doubts   []schemas.Problem
	// lost says that objects may not be there, so that nobody knows what others lack.
	lost bool
}

func newChecker(v *schemas.Validator) *checker {
	return &checker{validator: v, named: map[string]bool{}, ours: map[string]bool{}, omits: map[schemas.Severity]bool{}, others: map[string]bool{}, files: map[[2]string]int{},
		report: &Report{Roots: []RootReport{}, Problems: []schemas.Problem{}, Subjects: []Subject{}}}
}

// result is the report, once every root was added.
func (c *checker) result() *Report {
	if c.report.Judged > 0 && len(c.others) > 0 {
		c.sift(func(f *finding) bool {
			return f.problem.Rule != RuleKindNotApplied || !c.others[c.report.Subjects[f.subject].Root]
		})
	}
	c.settleDoubts()
	c.between()
	c.govern()
	c.bear()
	c.finish()
	return c.report
}

// root checks one root: in each way in which it is applied, where that makes a
// difference.
func (c *checker) root(ctx context.Context, b *builder, at root) error {
	if c.omit(b, at, variant{}) {
		return nil
	}
	// The root as it is, and as it comes to those who apply it.
	bare := at
	if c.appliers != nil {
		all := b.leavesOf(*c.appliers, at.path)
		at = b.without(at, all[0])
		at.several = at.several || len(all) > 1
	}
	if c.appliers != nil && (at.several || slices.ContainsFunc(*c.appliers, func(a applier) bool { return a.applies(at.path) && (a.alters() != nil || len(a.unknown) > 0) })) {
		return c.each(ctx, b, at, func(v variant) error {
			at := b.without(bare, b.leavesBy(*c.appliers, bare.path, v.of))
			if at.kustomization == "" && v.of.alters() == nil {
				return c.plainRoot(ctx, b, at.as(v.of), v)
			}
			out, err := c.render(ctx, b, at, v.of)
			if err == nil {
				c.kustomized(at, v, out)
			}
			return err
		})
	}
	if at.kustomization == "" {
		err := c.plainRoot(ctx, b, at, variant{})
		if !errors.Is(err, errVariables) {
			return err
		}
		return c.each(ctx, b, at, func(v variant) error { return c.plainRoot(ctx, b, at, v) })
	}
	out, err := c.render(ctx, b, at, nil)
	if err != nil {
		return err
	}
	if !out.hasVariables() {
		c.kustomized(at, variant{}, out)
		return nil
	}
	return c.each(ctx, b, at, func(v variant) error {
		c.kustomized(at, v, out)
		return nil
	})
}

// render renders a root as an applier has it.
func (c *checker) render(ctx context.Context, b *builder, at root, of *applier) (*rendering, error) {
	out, err := b.as(ctx, at, of)
	if err != nil {
		return nil, err
	}
	if len(out.objects) == 0 && len(out.problems) == 0 && at.kustomization != "" {
		out.problems = append(out.problems, b.nothing(at.kustomization))
	}
	return out, b.bearOthers(ctx, at.path, c.applicantOf(at.path), out)
}

func (c *checker) each(ctx context.Context, b *builder, at root, check func(variant) error) error {
	appliers, err := b.appliers(ctx)
	if err != nil {
		return err
	}
	for _, v := range variants(appliers, at.path, c.variables) {
		if v.of != nil && len(v.of.unknown) > 0 {
			c.lost = true // nobody knows what its objects are called
		}
		if c.omit(b, at, v) {
			continue
		}
		if err := check(v); err != nil {
			return err
		}
	}
	return nil
}

// omit says whether a root is not rendered, in a way, because there is too much. The
// first is a problem, which says so of all.
func (c *checker) omit(b *builder, at root, v variant) bool {
	problem, omit := c.spent.omitted(b, at, v)
	if !omit {
		return false
	}
	ours := problem.Severity == schemas.SeverityError
	c.lost = c.lost || ours
	if c.omits[problem.Severity] {
		return true
	}
	c.omits[problem.Severity] = true
	r := c.begin(at.name(v), nil)
	r.broken([]schemas.Problem{problem})
	r.lose(ours)
	r.report.Incomplete = true
	r.end()
	return true
}

func (c *checker) kustomized(at root, v variant, out *rendering) {
	r := c.begin(at.name(v), v.variables)
	r.path, r.by, r.in, r.together, r.applicant = at.path, v.by, v.in, true, c.applicantOf(at.path)
	r.appliedBy = c.appliersOf(at.path, v)
	r.rendering(out)
	r.end()
}

func (c *checker) applicantOf(root string) applicant {
	switch {
	case c.appliers == nil:
		return poolSync
	case len(c.doubts) > 0 || c.report.Sparse:
		return another
	}
	return applicantOf(*c.appliers, root)
}

// appliersOf are what applies a root: in one way, or all where it is judged once for all.
func (c *checker) appliersOf(root string, v variant) (found []*applier) {
	if v.of != nil {
		return []*applier{v.of}
	}
	for i := 0; c.appliers != nil && i < len(*c.appliers); i++ {
		if a := &(*c.appliers)[i]; a.applies(root) {
			found = append(found, a)
		}
	}
	return found
}

func (c *checker) plainRoot(ctx context.Context, b *builder, at root, v variant) error {
	r := c.begin(at.name(v), v.variables)
	r.path, r.by, r.in, r.together, r.applicant = at.path, v.by, v.in, at.applied, c.applicantOf(at.path)
	r.appliedBy = c.appliersOf(at.path, v)
	r.decided, r.loose = v != (variant{}), at.loose
	if err := r.plain(ctx, b, at); err != nil {
		return err
	}
	r.end()
	return nil
}

// rootChecker takes in what one root renders, object by object in order.
type rootChecker struct {
	*checker
	report RootReport
	// path is the root's, and by the object that applies it, where that makes a
	// difference; in is the root or plain file that defines that.
	path, by, in string
	// together: one cluster gets the whole of it. A plain directory that nothing
	// applies may be a collection for several.
	together bool
	// loose: see root.
	loose  bool
	before int
	// variables of the root; decided says that they were looked for.
	variables *Variables
	decided   bool
	// applicant is who applies it, and appliedBy what of the repository does.
	applicant applicant
	appliedBy []*applier
	// seen: identity → the object that has it first.
	seen map[string]*facts
	// serving: hub and pool → how a problem names the first that serves it.
	serving map[string]string
	named   map[string]bool
	// subjects of the objects, in their order.
	subjects []int
}

func (c *checker) begin(name string, variables *Variables) *rootChecker {
	c.spent.begin()
	return &rootChecker{checker: c, applicant: poolSync, report: RootReport{Path: name}, path: name, before: len(c.findings), variables: variables,
		seen: map[string]*facts{}, serving: map[string]string{}, named: map[string]bool{}}
}

// judgeWith replaces an object's variables and judges it; one with a variable
// that has no value is only told of that.
func (r *rootChecker) judgeWith(o *renderedObject, variables *Variables) *facts {
	object := *o
	problems := object.substitute(variables)
	object.finish()
	if r.spent.add(&object); len(problems) > 0 {
		f := &facts{identity: identity(o.Object), object: describe(o.Object), file: o.File, line: o.Line,
			ours: o.Object.GroupVersionKind().Group == v1alpha1.GroupVersion.Group, verdict: problems}
		f.keep(o, "metadata.name")
		if isKind(o.Object, v1alpha1.ExecutorPoolKind) || isKind(o.Object, v1alpha1.HubPoolKind) {
			f.unjudged = &unjudged{o.Object.GetKind(), HubPoolName(o.Object)}
		}
		f.verdict = slices.DeleteFunc(f.verdict, o.mayFollow)
		return f
	}
	cost, sound := r.memo.wasSound(&object)
	if sound {
		r.government.rules.Charge(cost)
		return r.judge(&object, nil)
	}
	f := r.judge(&object, slices.DeleteFunc(r.verdict(&object), object.mayFollow))
	found := len(f.verdict)
	if !r.applicant.refuses(object.Object.GroupVersionKind().Group) {
		f.verdict = slices.DeleteFunc(f.verdict, func(p schemas.Problem) bool { return p.Rule == RuleKindNotApplied })
	}
	f.verdict = append(f.verdict, r.refusedNulls(&object)...)
	object.hintVariables(f.verdict)
	if variables == nil && r.by != "" {
		object.hintNotReplaced(f.verdict, r.by)
	}
	if cost = r.judgeOwn(&object, f); found+len(f.verdict) == 0 {
		r.memo.noteSound(&object, cost)
	}
	return f
}

// rendering adds all of a rendering.
func (r *rootChecker) rendering(out *rendering) {
	r.broken(out.problems)
	r.lose(out.lost)
	judged := make([]*facts, len(out.objects))
	var judges errgroup.Group
	judges.SetLimit(runtime.GOMAXPROCS(0))
	const together = 32
	for from := 0; from < len(out.objects); from += together {
		judges.Go(func() error {
			for i := from; i < min(from+together, len(out.objects)); i++ {
				judged[i] = r.judgeWith(&out.objects[i], r.variables)
			}
			return nil
		})
	}
	// No judge fails.
	_ = judges.Wait()
	for _, f := range judged {
		r.object(f)
	}
}

// broken adds problems that are with no object.
func (r *rootChecker) broken(problems []schemas.Problem) {
	for _, problem := range problems {
		r.find(r.fileSubject(r.report.Path, problem.File), problem)
	}
}

// lose notes that the root may lack objects.
func (r *rootChecker) lose(lost bool) {
	r.lost, r.report.Incomplete = r.lost || lost, r.report.Incomplete || lost
}

// object adds an object that was judged.
func (r *rootChecker) object(f *facts) {
	r.report.Documents++
	if f.ours {
		r.report.Judged++
	}
	subject := r.objectSubject(r.report.Path, f)
	r.subjects = append(r.subjects, subject)
	if f.unjudged != nil {
		r.unjudged = append(r.unjudged, *f.unjudged)
	}
	r.find(subject, f.verdict...)
	f.verdict = nil
	if first, ok := r.seen[f.identity]; ok {
		r.find(subject, f.problem(RuleDuplicateObject, "metadata.name", fmt.Sprintf("also defined at %s:%d", first.file, first.line)))
		return
	}
	r.seen[f.identity] = f
	f.subject = subject
	if f.own != nil {
		r.government.judged = append(r.government.judged, f)
	}
	if f.half == nil {
		return
	}
	r.named[f.half.hubPool] = true
	f.half.root = r.report.Path
	if !f.half.executor {
		r.hubPools = append(r.hubPools, f.half)
		return
	}
	r.pools = append(r.pools, f.half)
	if f.half.unsure {
		return
	}
	key := f.half.serves()
	if first, ok := r.serving[key]; ok {
		r.find(subject, f.problem(RuleDuplicatePool, f.half.field, fmt.Sprintf("hub pool %s is served by %s already", f.half.hubPool, first)))
		return
	}
	r.serving[key] = f.object
}

func (r *rootChecker) end() {
	r.spent.end(r.report.Judged > 0)
	r.claimedTwice()
	if r.applicant == anybody && r.report.Judged == 0 && r.government.whole {
		r.others[r.report.Path] = true
	}
	r.spans = append(r.spans, [2]int{r.before, len(r.findings)})
	r.report.Failed, r.report.Pools = anyError(r.findings[r.before:]), len(r.named)
	r.report.found = r.report.found || len(r.findings) > r.before
	maps.Copy(r.checker.named, r.named)
	r.ours[r.path] = r.ours[r.path] || r.report.Judged > 0
	r.keepSyncs()
	total := r.checker.report
	total.Roots = append(total.Roots, r.report)
	total.Documents += r.report.Documents
	total.Judged += r.report.Judged
	total.Pools = len(r.checker.named)
}
