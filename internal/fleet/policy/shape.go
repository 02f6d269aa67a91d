package policy

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// refused is a part of an expression that is not taken.
type refused struct {
	id   int64
	what string
}

// boundedMacros are those of an environment that give the parser no more than was
// written. The others repeat what they are called on, so that a chain of forty has
// more parts than there is memory, before anybody could ask what it costs.
func boundedMacros(env *cel.Env) []cel.Macro {
	repeating := map[string]int{"optMap": 2, "optFlatMap": 2, "sortBy": 2}
	macros := slices.DeleteFunc(slices.Clone(env.Macros()), func(m cel.Macro) bool { return repeating[m.Function()] > 0 })
	for name, args := range repeating {
		macros = append(macros, cel.ReceiverMacro(name, args, func(f cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
			return nil, f.NewError(args[0].ID(), name+isUnavailable)
		}))
	}
	return macros
}

const isUnavailable = " is not available here: what it makes, or the time that it takes, has no bound"

// maxNesting bounds lists, maps and macros within each other: to find their types
// takes the cube of the depth.
const maxNesting = 50

// nesting is how deep they are.
func nesting(e ast.NavigableExpr) int {
	deepest := 0
	for _, child := range e.Children() {
		deepest = max(deepest, nesting(child))
	}
	switch e.Kind() {
	case ast.ListKind, ast.MapKind, ast.StructKind, ast.ComprehensionKind:
		deepest++
	case ast.CallKind:
		switch strings.TrimPrefix(e.AsCall().FunctionName(), "optional.") {
		case "of", "ofNonZeroValue", "type":
			deepest++
		}
	}
	return deepest
}

// bound looks at an expression for what the bounds need to know of it, and for
// what is not taken, in the order of the text.
func bound(env *cel.Env, checked *cel.Ast, limit uint64) (*bounds, []refused, error) {
	bindings, err := bindingsOf(env)
	if err != nil {
		return nil, nil, err
	}
	b := &bounds{appends: map[int64]bool{}, over: map[int64]bool{}, bindings: bindings, limit: limit}
	var not []refused
	tree := checked.NativeRep()
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.StructKind:
			not = append(not, refused{e.ID(), "messages cannot be made here"})
		case ast.CallKind:
			if name, ok := unavailable[e.AsCall().FunctionName()]; ok {
				not = append(not, refused{e.ID(), name + isUnavailable})
			}
		case ast.ComprehensionKind:
			b.appending(e.AsComprehension())
		}
	}))
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		not = append(not, b.holding(tree, e)...)
	}))
	return b, not, nil
}

// appending notes by which addition a comprehension builds its list, and whether
// it takes the elements of another over as they are.
func (b *bounds) appending(fold ast.ComprehensionExpr) {
	step := fold.LoopStep()
	if step.Kind() == ast.CallKind && step.AsCall().FunctionName() == operators.Conditional {
		step = step.AsCall().Args()[1]
	}
	if step.Kind() != ast.CallKind || step.AsCall().FunctionName() != operators.Add {
		return
	}
	args := step.AsCall().Args()
	if len(args) != 2 || !isVariable(args[0], fold.AccuVar()) || args[1].Kind() != ast.ListKind || args[1].AsList().Size() != 1 {
		return
	}
	b.appends[step.ID()] = true
	element := args[1].AsList().Elements()[0]
	b.over[args[1].ID()] = isVariable(element, fold.IterVar()) || fold.HasIterVar2() && isVariable(element, fold.IterVar2())
}

func isVariable(e ast.Expr, name string) bool {
	return e.Kind() == ast.IdentKind && e.AsIdent() == name
}

// holding tells of lists and maps within those that an expression makes, as far as
// their types are known before it is evaluated.
func (b *bounds) holding(tree *ast.AST, e ast.Expr) (not []refused) {
	known := func(part ast.Expr) bool {
		kind := tree.GetType(part.ID()).Kind()
		return kind == types.ListKind || kind == types.MapKind
	}
	switch {
	case isConstant(e), b.over[e.ID()]:
	case e.Kind() == ast.ListKind:
		for _, element := range e.AsList().Elements() {
			if known(element) {
				not = append(not, refused{element.ID(), "a list that is written, or made by map(), holds plain values only, no lists and maps"})
			}
		}
	case e.Kind() == ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			if value := entry.AsMapEntry().Value(); known(value) {
				not = append(not, refused{value.ID(), "a map that is written holds plain values only, no lists and maps"})
			}
		}
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Add && !b.appends[e.ID()] && known(e):
		not = append(not, refused{e.ID(), "lists cannot be added here"})
	}
	return not
}

// isConstant says that a literal has nothing in it but literals.
func isConstant(e ast.Expr) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return true
	case ast.ListKind:
		return len(e.AsList().OptionalIndices()) == 0 && !slices.ContainsFunc(e.AsList().Elements(), func(one ast.Expr) bool { return !isConstant(one) })
	case ast.MapKind:
		return !slices.ContainsFunc(e.AsMap().Entries(), func(one ast.EntryExpr) bool {
			entry := one.AsMapEntry()
			return entry.IsOptional() || !isConstant(entry.Key()) || !isConstant(entry.Value())
		})
	}
	return false
}

var implementations struct {
	sync.Once
	all map[string]*functions.Overload
	err error
}

// bindingsOf are the implementations of the guarded functions: by overload, and
// by name where the overload is not known before the evaluation.
func bindingsOf(env *cel.Env) (map[string]*functions.Overload, error) {
	implementations.Do(func() {
		implementations.all = map[string]*functions.Overload{}
		for name := range guarded {
			declared := env.Functions()[name]
			if declared == nil {
				implementations.err = fmt.Errorf("there is no function %s", name)
				return
			}
			found, err := declared.Bindings()
			if err != nil {
				implementations.err = err
				return
			}
			for _, one := range found {
				implementations.all[one.Operator] = one
			}
		}
	})
	return implementations.all, implementations.err
}

func isPattern(function string) bool {
	return function == "matches" || function == "find" || function == "findAll"
}

// pattern charges a search: a text times the steps of a regular expression, and
// those for preparing it.
func (m *meter) pattern(args []ref.Val) {
	text, isText := args[1].(types.String)
	if !isText {
		return
	}
	m.use(float64(len(text)) / bytesPerUnit)
	if m.left < 0 {
		return
	}
	const stepsPerUnit = 50
	steps := float64(stepsOf(string(text)))
	m.use(steps + float64(length(args[0])+1)*steps/stepsPerUnit)
}

// knownSteps keeps how many steps patterns have.
var knownSteps struct {
	sync.Mutex // guards steps
	steps      map[string]int
}

func stepsOf(text string) int {
	const most = 256
	knownSteps.Lock()
	defer knownSteps.Unlock()
	if steps, ok := knownSteps.steps[text]; ok {
		return steps
	}
	if knownSteps.steps == nil || len(knownSteps.steps) >= most {
		knownSteps.steps = map[string]int{}
	}
	steps := 1
	if parsed, err := syntax.Parse(text, syntax.Perl); err == nil {
		if program, err := syntax.Compile(parsed.Simplify()); err == nil {
			steps = len(program.Inst)
		}
	}
	knownSteps.steps[text] = steps
	return steps
}
