package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

const (
	// maxCost bounds one evaluation, in an API server's units: a tenth of a
	// second.
	maxCost = celconfig.PerCallLimit
	// maxTotalCost bounds all evaluations of a check: what an API server lets those
	// of one object cost. A thousand pools with ten rules on themselves cost 50,000
	// and a tenth of a second; a hundred HubPools that each look at a thousand
	// pools cost 800,000; all that is allowed takes four seconds of one core.
	maxTotalCost = celconfig.RuntimeCELCostBudget
)

// Variables of an expression.
const (
	varObject   = "object"
	varOld      = "oldObject"
	varRoot     = "root"
	varCluster  = "cluster"
	varPools    = "pools"
	varHubPools = "hubPools"
)

// Rules are a repository's own, ready to judge the objects of one check. They
// are safe for concurrent use.
type Rules struct {
	rules []*rule
	// limit is what one evaluation may cost.
	limit uint64
	// budget is what all evaluations together may cost, spent what they did.
	budget int64
	spent  atomic.Int64
	// patience is how long one evaluation may take.
	patience time.Duration
	// exhausted says that the whole budget is spent.
	exhausted atomic.Bool
}

type rule struct {
	*Definition
	program cel.Program
	// severity is what the rule weighs here: the definition's, or the configuration's.
	severity schemas.Severity
	// across says that the expression looks at other objects.
	across bool
	// changes says that it looks at what the object replaces.
	changes bool
	spent   atomic.Int64
	// matched says that there was an object that the rule is about.
	matched atomic.Bool
	// stopped says that an evaluation cost too much.
	stopped atomic.Bool
}

// Input is an object that is judged.
type Input struct {
	Object *unstructured.Unstructured
	// Old is what it replaces; nil where nothing is known of that.
	Old *unstructured.Unstructured
	// Root is the path that renders it.
	Root string
}

// Compile makes rules of definitions. An expression that does not compile is a
// problem at its place in the file, and its rule does not count.
func Compile(definitions []*Definition) (*Rules, []schemas.Problem) {
	return compileAll(definitions, maxCost)
}

func compileAll(definitions []*Definition, limit uint64) (*Rules, []schemas.Problem) {
	rules := &Rules{limit: limit, budget: maxTotalCost, patience: maxTime}
	if len(definitions) == 0 {
		return rules, nil
	}
	env, err := environments()
	if err != nil {
		return rules, []schemas.Problem{definitions[0].at.problem("", err.Error(), "this build of cloop is broken; use another")}
	}
	var problems []schemas.Problem
	for _, definition := range definitions {
		compiled, found := compile(env, definition, limit)
		problems = append(problems, found...)
		if compiled != nil {
			rules.rules = append(rules.rules, compiled)
		}
	}
	return rules, problems
}

// environments is that of an API server, with its libraries and costs, and the
// variables of ours.
var environments = sync.OnceValues(func() (*cel.Env, error) {
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable(varObject, cel.DynType),
			cel.Variable(varOld, cel.OptionalType(cel.DynType)),
			cel.Variable(varRoot, cel.StringType),
			cel.Variable(varCluster, cel.StringType),
			cel.Variable(varPools, cel.ListType(cel.DynType)),
			cel.Variable(varHubPools, cel.ListType(cel.DynType)),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("prepare CEL: %w", err)
	}
	env := set.NewExpressionsEnv()
	env, err = env.Extend(cel.ClearMacros(), cel.Macros(boundedMacros(env)...))
	if err != nil {
		return nil, fmt.Errorf("prepare CEL: %w", err)
	}
	return env, nil
})

func compile(env *cel.Env, d *Definition, limit uint64) (*rule, []schemas.Problem) {
	const hint = "correct the expression; the rule does not count until then"
	checked, issues := env.Parse(d.Expression)
	if issues.Err() == nil {
		if nesting(ast.NavigateAST(checked.NativeRep())) > maxNesting {
			return nil, []schemas.Problem{d.expression.start.problem(d.expression.path, fmt.Sprintf("lists, maps and macros are nested more than %d deep", maxNesting), hint)}
		}
		checked, issues = env.Check(checked)
	}
	if issues.Err() != nil {
		const most = 5
		var problems []schemas.Problem
		for _, issue := range issues.Errors()[:min(len(issues.Errors()), most)] {
			at := d.expression.within(issue.Location.Line(), issue.Location.Column())
			problems = append(problems, at.problem(d.expression.path, issue.Message, hint))
		}
		return nil, problems
	}
	if kind := checked.OutputType(); !kind.IsExactType(cel.BoolType) && !kind.IsExactType(cel.DynType) {
		return nil, []schemas.Problem{d.expression.start.problem(d.expression.path, fmt.Sprintf("the expression gives %s and must give bool", kind), hint)}
	}
	limits, not, err := bound(env, checked, limit)
	if err != nil {
		return nil, []schemas.Problem{d.expression.start.problem(d.expression.path, err.Error(), hint)}
	}
	if len(not) > 0 {
		at := checked.NativeRep().SourceInfo().GetStartLocation(not[0].id)
		return nil, []schemas.Problem{d.expression.within(at.Line(), at.Column()).problem(d.expression.path, not[0].what, hint)}
	}
	program, err := env.Program(checked, append(limits.options(), cel.InterruptCheckFrequency(celconfig.CheckFrequency))...)
	if err != nil {
		return nil, []schemas.Problem{d.expression.start.problem(d.expression.path, err.Error(), hint)}
	}
	compiled := &rule{Definition: d, program: program, severity: d.Severity}
	for _, reference := range checked.NativeRep().ReferenceMap() {
		compiled.across = compiled.across || reference.Name == varPools || reference.Name == varHubPools
		compiled.changes = compiled.changes || reference.Name == varOld
	}
	return compiled, nil
}

// Definitions lists the rules that count, in the order of the file.
func (r *Rules) Definitions() []*Definition {
	list := make([]*Definition, len(r.rules))
	for i := range r.rules {
		list[i] = r.rules[i].Definition
	}
	return list
}

// Weigh gives rules another severity. An object that a rule cannot be evaluated on
// stays an error.
func (r *Rules) Weigh(severities map[string]schemas.Severity) {
	for _, one := range r.rules {
		if severity, ok := severities[one.ID]; ok {
			one.severity = severity
		}
	}
}

// Unused are the problems with rules whose match has matched nothing. They are
// for the end of a check of everything.
func (r *Rules) Unused() []schemas.Problem {
	var problems []schemas.Problem
	for _, one := range r.rules {
		if one.matched.Load() || len(one.kinds)+len(one.roots)+len(one.names) == 0 {
			continue
		}
		problem := one.at.problem("", fmt.Sprintf("rule %s is about no object here", one.ID), "correct its match, or remove it")
		problem.Rule, problem.Severity = RuleUnusedRule, schemas.SeverityWarning
		problems = append(problems, problem)
	}
	return problems
}

// Across says whether a rule looks at other objects than the one that it judges.
func (r *Rules) Across() bool {
	return slices.ContainsFunc(r.rules, func(one *rule) bool { return one.across })
}

// Changes says whether a rule looks at what an object replaces.
func (r *Rules) Changes() bool {
	return slices.ContainsFunc(r.rules, func(one *rule) bool { return one.changes })
}

// Judge applies the rules that look at one object alone. The problems have no
// place yet: Path is the field to put them at.
func (r *Rules) Judge(ctx context.Context, in Input) []schemas.Problem {
	problems, _ := r.judge(ctx, in, nil)
	return problems
}

// Cost is what it cost to judge an object: rule → its part, or -1 where the rule
// is not about the object. Nil: no rule is.
type Cost []int64

// JudgeCosting is Judge, with what it cost.
func (r *Rules) JudgeCosting(ctx context.Context, in Input) ([]schemas.Problem, Cost) {
	return r.judge(ctx, in, nil)
}

// Charge takes what it cost to judge an object before as if it were judged again,
// by rules of the same text: what a check may cost does not depend on what of it
// is known already.
func (r *Rules) Charge(cost Cost) {
	for i, of := range cost {
		if of >= 0 && i < len(r.rules) {
			r.rules[i].matched.Store(true)
			r.charge(r.rules[i], of)
		}
	}
}

func (r *Rules) charge(one *rule, cost int64) {
	one.spent.Add(cost)
	if r.spent.Add(cost) > r.budget {
		r.exhausted.Store(true)
	}
}

// Cut says that a rule was stopped, so that not all was judged.
func (r *Rules) Cut() bool {
	return r.exhausted.Load() || slices.ContainsFunc(r.rules, func(one *rule) bool { return one.stopped.Load() })
}

// Fleet is every pool of a repository, for rules across them.
type Fleet struct{ pools, hubPools ref.Val }

// NewFleet gathers the objects that are a half of a pool.
func NewFleet(objects []Input) *Fleet {
	var pools, hubPools []ref.Val
	for _, in := range objects {
		if in.Object.GroupVersionKind().Group != v1alpha1.Group {
			continue
		}
		member := converted(map[string]any{varObject: in.Object.Object, varRoot: in.Root, varCluster: clusterOf(in.Root)})
		switch in.Object.GetKind() {
		case v1alpha1.ExecutorPoolKind:
			pools = append(pools, member)
		case v1alpha1.HubPoolKind:
			hubPools = append(hubPools, member)
		}
	}
	return &Fleet{types.NewRefValList(types.DefaultTypeAdapter, pools), types.NewRefValList(types.DefaultTypeAdapter, hubPools)}
}

// converted is a value of JSON as CEL has it, all the way down. CEL would convert
// each part whenever an expression comes to it, which for a thousand pools that
// are each held against a thousand takes most of the time.
func converted(native any) ref.Val {
	switch v := native.(type) {
	case map[string]any:
		fields := make(map[ref.Val]ref.Val, len(v))
		for name, field := range v {
			fields[types.String(name)] = converted(field)
		}
		return types.NewRefValMap(types.DefaultTypeAdapter, fields)
	case []any:
		items := make([]ref.Val, len(v))
		for i := range v {
			items[i] = converted(v[i])
		}
		return types.NewRefValList(types.DefaultTypeAdapter, items)
	}
	return types.DefaultTypeAdapter.NativeToValue(native)
}

// JudgeAcross applies the rules that look at others as well.
func (r *Rules) JudgeAcross(ctx context.Context, in Input, fleet *Fleet) []schemas.Problem {
	problems, _ := r.judge(ctx, in, fleet)
	return problems
}

func (r *Rules) judge(ctx context.Context, in Input, fleet *Fleet) (problems []schemas.Problem, costs Cost) {
	var variables map[string]any
	for i, one := range r.rules {
		if one.across != (fleet != nil) || !one.matches(in) {
			continue
		}
		one.matched.Store(true)
		if costs == nil {
			costs = slices.Repeat(Cost{-1}, len(r.rules))
		}
		costs[i] = 0
		if one.stopped.Load() || r.exhausted.Load() {
			continue
		}
		if variables == nil {
			variables = variablesOf(in, fleet)
		}
		problem, cost := r.apply(ctx, one, variables)
		costs[i] = cost
		if problem != nil {
			problems = append(problems, *problem)
		}
	}
	return problems, costs
}

func variablesOf(in Input, fleet *Fleet) map[string]any {
	variables := map[string]any{
		varObject: in.Object.Object, varOld: types.OptionalNone, varRoot: in.Root, varCluster: clusterOf(in.Root),
	}
	if in.Old != nil {
		variables[varOld] = types.OptionalOf(types.DefaultTypeAdapter.NativeToValue(in.Old.Object))
	}
	if fleet != nil {
		variables[varPools], variables[varHubPools] = fleet.pools, fleet.hubPools
	}
	return variables
}

// clusterOf is the cluster of a root clusters/NAME, and empty for others.
func clusterOf(root string) string {
	rest, ok := strings.CutPrefix(root, "clusters/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// apply evaluates a rule; nil: it holds. cost is in an API server's units.
func (r *Rules) apply(ctx context.Context, one *rule, variables map[string]any) (problem *schemas.Problem, cost int64) {
	limited, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	result, details, err := one.program.ContextEval(limited, variables)
	cancelled := interpreter.EvalCancelledError{}
	tooMuch := errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded
	switch {
	case tooMuch:
		cost = int64(r.limit)
	case limited.Err() != nil:
		// What took so long was not charged: a few such end all.
		cost = r.budget/4 + 1
	case details != nil && details.ActualCost() != nil:
		cost = int64(min(*details.ActualCost(), r.limit))
	}
	r.charge(one, cost)
	switch {
	case tooMuch:
		one.stopped.Store(true)
		return nil, cost
	case ctx.Err() != nil:
		// The check ends with the context's error.
		return nil, cost
	case limited.Err() != nil:
		one.stopped.Store(true)
		return nil, cost
	case err != nil:
		return one.failed(err.Error()), cost
	case result == types.True:
		return nil, cost
	case result != types.False:
		return one.failed(fmt.Sprintf("it gives %s, not true or false", result.Type().TypeName())), cost
	}
	return &schemas.Problem{Rule: one.ID, Severity: one.severity, Path: one.At, Message: one.Message, Hint: one.Hint}, cost
}

// failed is an object that the rule has no answer on. It is an error whatever
// the rule weighs: nobody knows what the answer would have been.
func (one *rule) failed(reason string) *schemas.Problem {
	return &schemas.Problem{Rule: one.ID, Severity: schemas.SeverityError, Path: one.At,
		Message: fmt.Sprintf("the rule cannot be evaluated: %s", reason),
		Hint:    fmt.Sprintf("test with has() what may be absent, in the expression at %s:%d", one.expression.start.file, one.expression.start.line)}
}

// matches says whether the rule is about an object.
func (d *Definition) matches(in Input) bool {
	if len(d.kinds) == 0 {
		if in.Object.GroupVersionKind().Group != v1alpha1.Group {
			return false
		}
	} else if !slices.Contains(d.kinds, in.Object.GetKind()) {
		return false
	}
	return anyMatches(d.roots, in.Root) && anyMatches(d.names, in.Object.GetName())
}

func anyMatches(patterns []pattern, text string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p pattern) bool { return p.matches(text) })
}

// Stopped are the problems with rules that cost too much. They are for the end
// of a check.
func (r *Rules) Stopped() []schemas.Problem {
	var problems []schemas.Problem
	for _, one := range r.rules {
		if one.stopped.Load() {
			problems = append(problems, one.expression.start.problem(one.expression.path,
				fmt.Sprintf("rule %s was stopped: on one object it costs more than %d, what an API server lets an expression cost", one.ID, r.limit),
				"go over fewer elements, above all in a list within a list"))
		}
	}
	if r.exhausted.Load() {
		worst := slices.MaxFunc(r.rules, func(a, b *rule) int { return cmp.Compare(a.spent.Load(), b.spent.Load()) })
		problems = append(problems, worst.expression.start.problem(worst.expression.path,
			fmt.Sprintf("the rules of the repository were stopped: together they cost more than %d, and rule %s the most", r.budget, worst.ID),
			"go over fewer elements, or match fewer objects"))
	}
	return problems
}
