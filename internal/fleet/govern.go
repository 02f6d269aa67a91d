package fleet

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	"cloop.dev/cloop/internal/fleet/policy"
	"cloop.dev/cloop/schemas"
)

// government is a check under what the repository says of it: package policy.
// The zero value is a repository that says nothing.
type government struct {
	policy *policy.Policy
	rules  *policy.Rules
	// comments of the files that were read.
	comments *comments
	// now is the time by which ignores expire; zero: none does. A commit that was
	// merged must not stop being applied because a day passes.
	now time.Time
	// whole says that the whole repository is looked at: otherwise nobody knows
	// what an ignore was for, or what a rule across pools would have seen.
	whole bool
	ctx   context.Context
	base  *baseline
	// judged are the objects that rules across pools look at, in order.
	judged []*facts
}

// Suppressed is a finding that the repository bears.
type Suppressed struct {
	schemas.Problem
	// Ignored says by whose word.
	Ignored Ignored `json:"ignored"`
}

// Ignored says by whose word.
type Ignored struct {
	// By is "comment" or "config".
	By string `json:"by"`
	// Reason that was given.
	Reason string `json:"reason"`
	// File and Line are where it stands.
	File string `json:"file"`
	Line int    `json:"line"`
	// Until is the last day on which it counts, as 2027-03-31; empty: it has no end.
	Until string `json:"until,omitempty"`
}

// comments are those that turn rules off, of the files that a builder read.
type comments struct {
	mu sync.Mutex // guards files
	// files: name → what its comments say.
	files map[string]commented
}

type commented struct {
	ignores  []*policy.Ignore
	problems []schemas.Problem
}

// note reads the comments of a file. Nil notes nothing.
func (c *comments) note(name string, data []byte) {
	if c == nil {
		return
	}
	ignores, problems := policy.Comments(name, data)
	if len(ignores)+len(problems) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil {
		c.files = map[string]commented{}
	}
	c.files[name] = commented{ignores, problems}
}

// builtIn are the rules of this package, as package policy asks about them.
type builtIn struct{}

func (builtIn) Known(id string) bool { _, ok := rules[id]; return ok }
func (builtIn) Fixed(id string) bool { return rules[id].Fixed }

// governed puts the check under the policy of the builder's repository. By a nil
// clock no ignore expires.
func (c *checker) governed(ctx context.Context, b *builder, by clock.PassiveClock, whole bool) {
	c.government = government{policy: b.law(), comments: b.comments, whole: whole, ctx: ctx}
	c.government.rules = c.government.policy.Rules
	if by != nil {
		c.government.now = by.Now()
	}
	for _, definition := range c.government.rules.Definitions() {
		c.report.Rules = append(c.report.Rules, ownRule(definition))
	}
}

func ownRule(d *policy.Definition) Rule {
	file, line, _ := d.Place()
	remedy := d.Hint
	if remedy == "" {
		remedy = "see the message"
	}
	return Rule{ID: d.ID, Severity: d.Severity, Meaning: d.Message, Remedy: remedy, File: file, Line: line}
}

// judgeOwn applies the repository's rules to an object that an API server takes:
// of another nobody knows what its fields are. It is safe for concurrent use.
func (r *rootChecker) judgeOwn(o *renderedObject, f *facts) (cost policy.Cost) {
	own := &r.government
	if own.rules == nil || len(r.checker.report.Rules) == 0 || hasError(f.verdict) || o.without != nil && (o.unread() || o.unchanged("")) {
		return nil
	}
	in := policy.Input{Object: r.defaulted(o.Object), Root: r.path}
	var others []*unstructured.Unstructured
	if own.rules.Changes() {
		if old := own.base.find(own.ctx, way{r.path, r.by, r.in}, o.Object); len(old) > 0 {
			in.Old, others = r.defaulted(old[0]), old[1:]
		}
	}
	problems, cost := own.rules.JudgeCosting(own.ctx, in)
	for _, old := range others {
		other := in
		other.Old = r.defaulted(old)
		problems = append(problems, own.rules.Judge(own.ctx, other)...)
	}
	for _, problem := range problems {
		problem.Object = f.object
		f.verdict = append(f.verdict, o.locate(problem))
	}
	if !own.whole || !own.rules.Across() {
		return cost
	}
	f.own = &in
	for _, definition := range own.rules.Definitions() {
		f.keepAlso(o, definition.At)
	}
	return cost
}

// defaulted is the object as an API server keeps it.
func (c *checker) defaulted(object *unstructured.Unstructured) *unstructured.Unstructured {
	whole := object.DeepCopy()
	if c.validator.Default(whole) != nil {
		// Every verdict tells of it: the definitions do not load.
		return object
	}
	return whole
}

// judgeAcross applies the repository's rules across pools.
func (c *checker) judgeAcross() {
	own := &c.government
	if len(own.judged) == 0 || c.lost {
		return
	}
	inputs := make([]policy.Input, len(own.judged))
	for i, f := range own.judged {
		inputs[i] = *f.own
	}
	fleet := policy.NewFleet(inputs)
	for i, f := range own.judged {
		for _, problem := range own.rules.JudgeAcross(own.ctx, inputs[i], fleet) {
			problem.Object = f.object
			c.find(f.subject, f.place(problem))
		}
	}
	own.judged = nil
}

// govern gives the findings the repository's severities, sets aside those that
// it bears, and adds what is wrong with its policy.
func (c *checker) govern() {
	own := &c.government
	if own.policy == nil {
		return
	}
	c.judgeAcross()
	ignores := c.ignores()
	c.sift(func(found *finding) bool {
		// The repository's own rules have theirs: an error where one has no answer.
		if severity, ok := own.policy.Config.Severities[found.problem.Rule]; ok && !own.policy.Own(found.problem.Rule) {
			found.problem.Severity = severity
		}
		by := covering(ignores[found.problem.Rule], found.problem, own.now)
		if by != nil {
			c.suppressed = append(c.suppressed, suppressed{*found, by})
		}
		return by == nil
	})
	for i, span := range c.spans {
		c.report.Roots[i].Failed = anyError(c.findings[span[0]:span[1]])
	}
	c.judgePolicy(ignores)
}

// noSubject is of what is about no object and no file of a root.
const noSubject = -1

type suppressed struct {
	finding
	by *policy.Ignore
}

// ignores are those of comments and configuration that can be meant: rule → its.
// The others become findings.
func (c *checker) ignores() map[string][]*claim {
	own := &c.government
	all := map[string][]*claim{}
	for _, commented := range own.comments.files {
		c.findPolicy(commented.problems...)
		for _, ignore := range commented.ignores {
			if problem := own.policy.JudgeComment(ignore); problem != nil {
				c.findPolicy(*problem)
				continue
			}
			all[ignore.Rule] = append(all[ignore.Rule], &claim{Ignore: ignore})
		}
	}
	for _, ignore := range own.policy.Config.Ignores {
		all[ignore.Rule] = append(all[ignore.Rule], &claim{Ignore: ignore})
	}
	return all
}

// claim is an ignore, and whether a finding has needed it.
type claim struct {
	*policy.Ignore
	used bool
}

// covering is the ignore that bears a finding. All that cover it count as used,
// so that a comment does not make an entry of the configuration look idle.
func covering(claims []*claim, problem schemas.Problem, now time.Time) (by *policy.Ignore) {
	for _, one := range claims {
		if !one.Covers(problem) {
			continue
		}
		one.used = true
		if by == nil && !one.Expired(now) {
			by = one.Ignore
		}
	}
	return by
}

// judgePolicy adds what is wrong with the policy itself.
func (c *checker) judgePolicy(ignores map[string][]*claim) {
	own := &c.government
	c.findPolicy(own.policy.Problems...)
	c.findPolicy(own.rules.Stopped()...)
	if !own.whole {
		return
	}
	blind := c.blind()
	if !blind {
		c.judgeUnused(ignores[policy.RuleUnusedRule])
	}
	for rule, claims := range ignores {
		for _, one := range claims {
			switch {
			case one.Expired(own.now):
				c.findPolicy(one.Overdue())
			case !one.used && !blind:
				c.findPolicy(one.Unused(c.fileBreaking(rule)))
			}
		}
	}
}

// fileBreaking is the first file that a finding of the rule names; empty: none does.
func (c *checker) fileBreaking(rule string) (first string) {
	for i := range c.findings {
		if found := &c.findings[i].problem; found.Rule == rule && found.File != "" && (first == "" || found.File < first) {
			first = found.File
		}
	}
	return first
}

// judgeUnused adds the repository's own rules that are about nothing, but for those
// that wait for an object with a reason.
func (c *checker) judgeUnused(ignores []*claim) {
	for _, problem := range c.government.rules.Unused() {
		if by := covering(ignores, problem, c.government.now); by != nil {
			c.suppressed = append(c.suppressed, suppressed{finding{problem, noSubject}, by})
			continue
		}
		c.findPolicy(problem)
	}
}

// blind says that something was not judged, so that nobody knows what an ignore
// is for: a sparse checkout, a root that is not rendered, an object that is not sound, a rule that
// does not compile.
func (c *checker) blind() bool {
	return c.report.Sparse || slices.ContainsFunc(c.findings, func(f finding) bool {
		return f.problem.Severity == schemas.SeverityError && rules[f.problem.Rule].Fixed
	})
}

// findPolicy adds problems with the policy. They are of no root.
func (c *checker) findPolicy(problems ...schemas.Problem) {
	for _, problem := range problems {
		if severity, ok := c.government.policy.Config.Severities[problem.Rule]; ok {
			problem.Severity = severity
		}
		c.find(c.fileSubject(noRoot, problem.File), problem)
	}
}

// noRoot is the root of what belongs to none.
const noRoot = "."

// bear makes the report's list of what is suppressed, sorted and each once.
func (c *checker) bear() {
	findings := make([]finding, len(c.suppressed))
	for i := range c.suppressed {
		findings[i] = finding{c.suppressed[i].problem, i}
	}
	sortFindings(findings)
	seen := map[place]bool{}
	for _, found := range findings {
		if key := placeOf(&found.problem); !seen[key] {
			seen[key] = true
			by := c.suppressed[found.subject].by
			c.report.Suppressed = append(c.report.Suppressed, Suppressed{found.problem, ignoredFor(by)})
		}
	}
}

func ignoredFor(by *policy.Ignore) Ignored {
	ignored := Ignored{By: "config", Reason: by.Reason, File: by.File, Line: by.Line}
	if by.Comment {
		ignored.By = "comment"
	}
	if !by.Until.IsZero() {
		ignored.Until = by.Until.Format(time.DateOnly)
	}
	return ignored
}
