package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet/policy"
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
	// ours: path of a root → it has documents of cloop.dev.
	ours map[string]bool
	// spent counts the documents, and omits those that were not rendered for their number.
	spent spent
	omits int
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
	return &checker{validator: v, named: map[string]bool{}, ours: map[string]bool{}, files: map[[2]string]int{},
		report: &Report{Roots: []RootReport{}, Problems: []schemas.Problem{}, Subjects: []Subject{}}}
}

// result is the report, once every root was added.
func (c *checker) result() *Report {
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
	if c.omit(at, variant{}) {
		return nil
	}
	if at.kustomization == "" {
		err := c.plainRoot(ctx, b, at, variant{})
		if !errors.Is(err, errVariables) {
			return err
		}
		return c.each(ctx, b, at, func(v variant) error { return c.plainRoot(ctx, b, at, v) })
	}
	if c.appliers != nil && slices.ContainsFunc(*c.appliers, func(a applier) bool { return a.applies(at.path) && a.alters() != nil }) {
		return c.each(ctx, b, at, func(v variant) error {
			out, err := c.render(ctx, b, at, v.of)
			if err == nil {
				c.kustomized(at, v, out)
			}
			return err
		})
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
	out, err := b.as(ctx, at.path, at.kustomization, of)
	if err != nil {
		return nil, err
	}
	if len(out.objects) == 0 && len(out.problems) == 0 {
		out.problems = append(out.problems, b.nothing(at.kustomization))
	}
	return out, b.bearRemote(ctx, at.path, c.applicantOf(at.path), out)
}

func (c *checker) each(ctx context.Context, b *builder, at root, check func(variant) error) error {
	appliers, err := b.appliers(ctx)
	if err != nil {
		return err
	}
	for _, v := range variants(appliers, at.path, c.variables) {
		if c.omit(at, v) {
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
func (c *checker) omit(at root, v variant) bool {
	problem, omit := c.spent.omitted(at, v)
	if !omit {
		return false
	}
	if c.lost = true; c.omits == 0 {
		r := c.begin(at.name(v), nil)
		r.broken([]schemas.Problem{problem})
		r.lose(true)
		r.end()
	}
	c.omits++
	return true
}

func (c *checker) kustomized(at root, v variant, out *rendering) {
	r := c.begin(at.name(v), v.variables)
	r.path, r.by, r.together, r.applicant = at.path, v.by, true, c.applicantOf(at.path)
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

func (c *checker) plainRoot(ctx context.Context, b *builder, at root, v variant) error {
	r := c.begin(at.name(v), v.variables)
	r.path, r.by, r.together, r.applicant = at.path, v.by, at.applied, c.applicantOf(at.path)
	r.decided = v != (variant{})
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
	// difference.
	path, by string
	// together: one cluster gets the whole of it. A plain directory that nothing
	// applies may be a collection for several.
	together bool
	before   int
	// variables of the root; decided says that they were looked for.
	variables *Variables
	decided   bool
	// applicant is who applies it.
	applicant applicant
	// seen: identity → the object that has it first.
	seen map[string]*facts
	// serving: hub and pool → how a problem names the first that serves it.
	serving map[string]string
	named   map[string]bool
	// subjects of the objects, in their order.
	subjects []int
}

func (c *checker) begin(name string, variables *Variables) *rootChecker {
	return &rootChecker{checker: c, applicant: poolSync, report: RootReport{Path: name}, path: name, before: len(c.findings), variables: variables,
		seen: map[string]*facts{}, serving: map[string]string{}, named: map[string]bool{}}
}

// judgeWith replaces an object's variables and judges it; one with a variable
// that has no value is only told of that.
func (r *rootChecker) judgeWith(o *renderedObject, variables *Variables) *facts {
	object := *o
	problems := object.substitute(variables)
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
	object.hintVariables(f.verdict)
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
	r.spans = append(r.spans, [2]int{r.before, len(r.findings)})
	r.report.Failed, r.report.Pools = anyError(r.findings[r.before:]), len(r.named)
	r.report.found = len(r.findings) > r.before
	maps.Copy(r.checker.named, r.named)
	r.ours[r.path] = r.ours[r.path] || r.report.Judged > 0
	r.keepSyncs()
	total := r.checker.report
	total.Roots = append(total.Roots, r.report)
	total.Documents += r.report.Documents
	total.Judged += r.report.Judged
	total.Pools = len(r.checker.named)
}

// facts are what is kept of an object that was judged: what the rules between
// objects look at, and where a problem with it would be put. The object, its
// text and its nodes are let go, which for thousands of files makes the
// difference between tens and hundreds of megabytes.
type facts struct {
	// identity is equal for documents that are one object to an API server.
	identity string
	// object is how a Problem names it.
	object string
	// file and line define it.
	file string
	line int
	// ours: it is of cloop.dev.
	ours    bool
	verdict []schemas.Problem
	places  []placed
	// of is the object itself, where it stays anyway: then places are looked for
	// when there is a problem, and are not kept.
	of *renderedObject
	// subject is its index in the report.
	subject int
	// own is what the repository's rules across pools see; nil where there are none.
	own *policy.Input
	// unjudged is a half that was not judged, for want of a variable's value; nil
	// where the object was, or is none.
	unjudged *unjudged
	// half is nil unless the object is one.
	half *half
	// sync is nil unless the object is a PoolSync or a Kustomization of Flux.
	sync *synced
}

// placed is where a problem with a field is put.
type placed struct {
	path, file   string
	line, column int32
}

// half is one half of a pool.
type half struct {
	*facts
	// executor tells an ExecutorPool from a HubPool.
	executor bool
	// hubPool is the name that both halves share, field the one that says it.
	hubPool, field string
	hubURL         string
	// maximum is spec.maxRunners, where limited says that it is there.
	maximum int64
	limited bool
	// labels are the hub's, or the runner labels; nil where there are none.
	labels map[string]string
	root   string
	// unsure: what of it is compared with others may be otherwise; see leftOut.
	unsure bool
}

// judge keeps the facts of an object with the API server's verdict on it. It is
// safe for concurrent use.
func (c *checker) judge(o *renderedObject, verdict []schemas.Problem) *facts {
	f := &facts{
		identity: identity(o.Object), object: describe(o.Object), file: o.File, line: o.Line,
		ours: o.Object.GroupVersionKind().Group == v1alpha1.GroupVersion.Group, verdict: verdict,
	}
	if c.memo != nil {
		f.of = o
	}
	executor := isKind(o.Object, v1alpha1.ExecutorPoolKind)
	// One without a name has a problem already, and speaks of no pool.
	if !executor && !isKind(o.Object, v1alpha1.HubPoolKind) || HubPoolName(o.Object) == "" {
		f.keep(o, "metadata.name")
		if isKind(o.Object, v1alpha1.PoolSyncKind) || isFlux(o.Object) {
			f.sync = syncOf(o.Object)
			f.keepAlso(o, "spec.path")
		}
		return f
	}
	f.half = &half{facts: f, executor: executor, hubPool: HubPoolName(o.Object), field: "metadata.name", unsure: !o.comparable()}
	f.half.maximum, f.half.limited, _ = unstructured.NestedInt64(o.Object.Object, "spec", "maxRunners")
	if !executor {
		f.half.hubURL, _, _ = unstructured.NestedString(o.Object.Object, "spec", "hub", "url")
		f.half.labels = labelsOf(o.Object, "labels")
		f.keep(o, "metadata.name")
		return f
	}
	hub, _, _ := unstructured.NestedString(o.Object.Object, "spec", "hubURL")
	f.half.hubURL = strings.TrimRight(hub, "/")
	f.half.field = hubPoolField(o.Object)
	f.half.labels = labelsOf(o.Object, "runnerLabels")
	paths := []string{"metadata.name", "spec.maxRunners", "spec.hubURL"}
	if f.half.field != "metadata.name" {
		paths = append(paths, f.half.field)
	}
	// No API server takes more labels.
	for key := range f.half.labels {
		if len(f.half.labels) <= maxLabels {
			paths = append(paths, labelPath(key))
		}
	}
	f.keep(o, paths...)
	return f
}

func labelPath(key string) string { return "spec.runnerLabels[" + key + "]" }

// verdict is the API server's, at the source.
func (c *checker) verdict(o *renderedObject) []schemas.Problem {
	gvk := o.Object.GroupVersionKind()
	if !Applicable(gvk) {
		problem := broken(RuleKindNotApplied, fmt.Sprintf("%s is not applied by a PoolSync", gvk.Kind))
		problem.Object, problem.Path = describe(o.Object), "kind"
		return []schemas.Problem{o.locate(problem)}
	}
	problems := slices.Concat(c.validator.Validate(o.Document), applied(o.Object), principals(o.Object))
	// That rules wait for the rest to be right is no finding: there is one already.
	problems = slices.DeleteFunc(problems, schemas.Problem.Unchecked)
	for i := range problems {
		problems[i] = withoutSecret(gvk.Kind, problems[i])
		// A document that is its only layer has positions of its own.
		if len(o.layers) > 0 || o.variables != nil || problems[i].Rule == schemas.RuleMetadata {
			problems[i] = o.locate(problems[i])
		}
	}
	return problems
}

// serversOwn are fields of metadata by which an apply is refused, or does what
// nobody meant: they come from an object that was read back from a cluster.
var serversOwn = []string{"managedFields", "resourceVersion", "uid"}

// applied is what an apply needs beyond what an API server takes of a document
// that it creates.
func applied(object *unstructured.Unstructured) (problems []schemas.Problem) {
	wrong := func(field, message, hint string) {
		problems = append(problems, schemas.Problem{Rule: schemas.RuleMetadata, Severity: schemas.SeverityError,
			Object: describe(object), Path: "metadata." + field, Message: message, Hint: hint})
	}
	if object.GetName() == "" && object.GetGenerateName() != "" {
		wrong("generateName", "an object that is applied needs a name: each commit would make another one", "write metadata.name")
	}
	for _, field := range serversOwn {
		if _, there, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", field); there {
			wrong(field, "the field is the cluster's, and none that is applied", "remove it")
		}
	}
	if value, there := object.GetAnnotations()[v1alpha1.AnnotationObserve]; there && value != "true" && value != "false" {
		wrong("annotations["+v1alpha1.AnnotationObserve+"]", `must be "true" or "false"`, `write "true", in quotes, to have the object compared and not applied; else "false", or remove it`)
	}
	return problems
}

// principals are those of a HubPool that the hub can call nobody; what is no principal
// at all is the schema's.
func principals(object *unstructured.Unstructured) (problems []schemas.Problem) {
	if !isKind(object, v1alpha1.HubPoolKind) {
		return nil
	}
	judge := func(path, name string) {
		kind, called, _ := strings.Cut(name, ":")
		formed := (kind == "user" || kind == "group" || kind == "role") && called != "" && !strings.ContainsFunc(called, unicode.IsSpace)
		if formed && !hubv1.CanBePrincipal(name) {
			problem := broken(RulePrincipalName, fmt.Sprintf("no user, group or role can be called %q", called))
			problem.Object, problem.Path = describe(object), path
			problems = append(problems, problem)
		}
	}
	audience, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "audience")
	for i, name := range audience {
		judge(fmt.Sprintf("spec.audience[%d]", i), name)
	}
	judge("spec.owner", textAt(object, "spec", "owner"))
	return problems
}

// keep notes where problems with fields are put.
func (f *facts) keep(o *renderedObject, paths ...string) {
	if f.of != nil {
		return
	}
	f.places = make([]placed, 0, len(paths))
	f.keepAlso(o, paths...)
}

func (f *facts) keepAlso(o *renderedObject, paths ...string) {
	if f.of != nil {
		return
	}
	for _, path := range paths {
		at := o.locate(schemas.Problem{Path: path})
		f.places = append(f.places, placed{path, at.File, int32(at.Line), int32(at.Column)})
	}
}

// problem is a broken rule about a field that was kept.
func (f *facts) problem(rule, path, message string) schemas.Problem {
	problem := broken(rule, message)
	problem.Object, problem.Path = f.object, path
	return f.place(problem)
}

// place puts a problem where its field was kept to be.
func (f *facts) place(problem schemas.Problem) schemas.Problem {
	if f.of != nil {
		return f.of.locate(problem)
	}
	problem.File, problem.Line, problem.Column = f.file, f.line, 1
	for _, at := range f.places {
		if at.path == problem.Path {
			problem.File, problem.Line, problem.Column = at.file, int(at.line), int(at.column)
		}
	}
	return problem
}

func describe(obj *unstructured.Unstructured) string {
	name := obj.GetName()
	if namespace := obj.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(obj.GetKind() + " " + name)
}

// identity is equal for documents that are one object to an API server.
func identity(obj *unstructured.Unstructured) string {
	return strings.Join([]string{obj.GroupVersionKind().Group, obj.GetKind(), obj.GetNamespace(), obj.GetName()}, "|")
}
