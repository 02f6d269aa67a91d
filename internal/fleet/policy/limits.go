package policy

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
)

// Why an evaluation ends. CEL charges a list by the number of its elements,
// whatever they are, so that a list of a list twice, and that twice again, costs
// nothing to make and all the time there is to compare. Here no value is larger
// than what the expression was given:
//
//   - A list or map that an expression writes, or makes with map(), holds plain
//     values. Only filter() takes elements over, each once. So nothing that is
//     made holds anything twice, and a value has at most as many parts as the
//     object, or pools, or the evaluation has had steps.
//   - What would break that is not there: lists are not added, flattened or sorted.
//   - A call is charged for all that it goes over, and one that would go over more
//     than an evaluation may cost is not begun: see work.
//
// Then every step takes a time that its cost bounds.

// maxTime bounds one evaluation besides, in case that a library takes more time
// than it is charged for.
const maxTime = 5 * time.Second

// unavailable functions of the API server make values that hold one thing more
// than once, or take more than linear time, or make texts of any length.
var unavailable = map[string]string{
	"flatten": "flatten", "distinct": "distinct", "sort": "sort", "@sortByAssociatedKeys": "sortBy", "reverse": "reverse", "slice": "slice",
	"lists.range": "lists.range", "sets.contains": "sets.contains", "sets.equivalent": "sets.equivalent", "sets.intersects": "sets.intersects",
	"format": "format", "cel.@mapInsert": "transformMap",
}

// bounds are those of one expression.
type bounds struct {
	// appends are the additions by which filter and map build their list, over
	// the elements that filter takes over: expression id → it is one.
	appends, over map[int64]bool
	bindings      map[string]*functions.Overload
	limit         uint64
}

// options make a program keep to the bounds.
func (b *bounds) options() []cel.ProgramOption {
	return []cel.ProgramOption{
		cel.CostLimit(b.limit), cel.CostTracking(costs{limit: b.limit}),
		cel.CustomDecoratorV2(b.decorate),
	}
}

// decorate puts the bounds around the parts of a program.
func (b *bounds) decorate(part interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch inner := part.(type) {
	case interpreter.InterpretableConst:
		return part, nil
	case interpreter.InterpretableConstructor:
		if b.over[inner.ID()] || constant(inner.InitVals()) {
			return part, nil
		}
		return plainValues{inner}, nil
	case interpreter.InterpretableCall:
		return b.call(inner)
	}
	return part, nil
}

func constant(parts []interpreter.InterpretableV2) bool {
	for _, part := range parts {
		if _, ok := part.(interpreter.InterpretableConst); !ok {
			return false
		}
	}
	return true
}

// plainValues is a list or map that must hold nothing that has parts.
type plainValues struct {
	interpreter.InterpretableConstructor
}

func (p plainValues) Eval(vars interpreter.Activation) ref.Val {
	return p.Exec(interpreter.AsFrame(vars))
}

func (p plainValues) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	made := p.InterpretableConstructor.Exec(frame)
	switch all := made.(type) {
	case traits.Lister:
		for it := all.Iterator(); it.HasNext() == types.True; {
			if !isPlain(it.Next()) {
				return types.NewErrWithNodeID(p.ID(), "a list that is written, or made by map(), holds plain values only, no lists and maps")
			}
		}
	case traits.Mapper:
		for it := all.Iterator(); it.HasNext() == types.True; {
			if !isPlain(all.Get(it.Next())) {
				return types.NewErrWithNodeID(p.ID(), "a map that is written holds plain values only, no lists and maps")
			}
		}
	}
	return made
}

// isPlain says that a value has no parts.
func isPlain(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper, *types.Optional:
		return false
	}
	return true
}

// guarded functions take more time than the size of what they are given says, or
// go over all parts of it.
var guarded = map[string]bool{
	operators.Equals: true, operators.NotEquals: true, operators.In: true, operators.Add: true,
	"indexOf": true, "lastIndexOf": true, "isSorted": true, "sum": true, "min": true, "max": true, "join": true, "replace": true,
	"split": true, "matches": true, "find": true, "findAll": true,
	"url": true, "isURL": true, "quantity": true, "isQuantity": true, "semver": true, "isSemver": true,
}

// call is a call that is not begun where it would cost too much.
func (b *bounds) call(inner interpreter.InterpretableCall) (interpreter.InterpretableV2, error) {
	name := inner.Function()
	if !guarded[name] {
		return inner, nil
	}
	impl, err := b.implementation(name, inner.OverloadID())
	if err != nil {
		return nil, err
	}
	appends := b.appends[inner.ID()]
	args := inner.Args()
	if isPattern(name) {
		// A compiled pattern would not ask what it costs.
		args = []interpreter.InterpretableV2{args[0], opaque{args[1]}}
		args = append(args, inner.Args()[2:]...)
	}
	return interpreter.NewCall(inner.ID(), name, inner.OverloadID(), args, func(values ...ref.Val) ref.Val {
		if name == operators.Add && !appends {
			if _, ok := values[0].(traits.Lister); ok {
				return types.NewErr("lists cannot be added here")
			}
		}
		if cost, _ := work(name, values, b.limit); cost > b.limit {
			panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "one call costs too much"})
		}
		return impl(values...)
	}), nil
}

// opaque hides that a part is constant.
type opaque struct{ interpreter.InterpretableV2 }

// implementation is what a function does.
func (b *bounds) implementation(name, overload string) (functions.FunctionOp, error) {
	switch name {
	case operators.Equals:
		return func(v ...ref.Val) ref.Val { return types.Equal(v[0], v[1]) }, nil
	case operators.NotEquals:
		return func(v ...ref.Val) ref.Val { return types.Bool(types.Equal(v[0], v[1]) != types.True) }, nil
	}
	found := b.bindings[overload]
	if found == nil {
		found = b.bindings[name]
	}
	if found == nil {
		return nil, fmt.Errorf("function %s cannot be bounded", name)
	}
	return func(v ...ref.Val) ref.Val {
		switch {
		case found.OperandTrait != 0 && !v[0].Type().HasTrait(found.OperandTrait):
		case len(v) == 1 && found.Unary != nil:
			return found.Unary(v[0])
		case len(v) == 2 && found.Binary != nil:
			return found.Binary(v[0], v[1])
		case found.Function != nil:
			return found.Function(v...)
		}
		return types.MaybeNoSuchOverloadErr(v[0])
	}, nil
}

// costs charges calls by what they go over.
type costs struct{ limit uint64 }

var apiCosts = &library.CostEstimator{}

// CallCost implements interpreter.ActualCostEstimator.
func (c costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	theirs := apiCosts.CallCost(function, overload, args, result)
	cost, known := work(function, args, c.limit)
	if theirs != nil {
		cost = max(cost, *theirs)
	} else if !known {
		return nil
	}
	return &cost
}

// maxParsed bounds, in bytes, a text whose parsed form is compared at the price of
// a number.
const maxParsed = 2048

// zoneCost is what reading a time zone costs.
const zoneCost = 50

// bytesPerUnit is how many bytes of a text one unit of cost goes over.
const bytesPerUnit = 10

// work is the cost of a call in the API server's units, saturating above most:
// one for each part of a value that it goes over, and one for ten bytes of a text.
// It is unknown where CEL charges enough by itself.
func work(function string, args []ref.Val, most uint64) (cost uint64, known bool) {
	m := meter{left: float64(most) + 1, most: float64(most) + 1}
	switch function {
	case operators.Equals, operators.NotEquals:
		if isPlain(args[0]) || isPlain(args[1]) {
			m.use(float64(min(length(args[0]), length(args[1]))) / bytesPerUnit)
			break
		}
		m.weigh(args[0])
		m.weigh(args[1])
	case operators.In, "isSorted", "sum", "min", "max":
		m.weighList(args[len(args)-1])
		m.weighList(args[0])
	case "indexOf", "lastIndexOf":
		m.weighList(args[0])
		if isPlain(args[0]) {
			m.use(float64(length(args[0])) * float64(length(args[1])) / bytesPerUnit)
		}
	case "join":
		m.weighList(args[0])
		if list, ok := args[0].(traits.Sizer); ok && len(args) > 1 {
			count, _ := list.Size().(types.Int)
			m.use(float64(count) * float64(length(args[1])) / bytesPerUnit)
		}
	case "replace", "split":
		m.pieces(function, args)
	case "findAll":
		// Each place may be one that is found, and kept.
		m.use(float64(length(args[0])))
		m.pattern(args)
	case "matches", "find":
		m.pattern(args)
	case "url", "isURL", "quantity", "isQuantity", "semver", "isSemver":
		if length(args[0]) > maxParsed {
			m.use(math.Inf(1))
		}
		m.use(float64(length(args[0])) / bytesPerUnit)
	default:
		if len(args) == 2 && strings.HasPrefix(function, "get") {
			// A time of another zone: its file is read whenever that is asked.
			m.use(zoneCost)
			return m.spent(), true
		}
		return m.texts(args)
	}
	return m.spent(), true
}

// meter counts cost down, to below zero at most.
type meter struct{ left, most float64 }

func (m *meter) use(cost float64) { m.left -= cost }

func (m *meter) spent() uint64 {
	return uint64(max(1, math.Ceil(m.most-max(m.left, 0))))
}

// texts charges the texts of a call.
func (m *meter) texts(args []ref.Val) (cost uint64, known bool) {
	total := 0
	for _, arg := range args {
		total += length(arg)
	}
	m.use(float64(total) / bytesPerUnit)
	return m.spent(), total > bytesPerUnit
}

// pieces charges what a text is cut into and, for replace, what it becomes.
func (m *meter) pieces(function string, args []ref.Val) {
	m.texts(args)
	text, isText := args[0].(types.String)
	old, isOld := args[1].(types.String)
	if !isText || !isOld || m.left < 0 {
		return
	}
	count := float64(strings.Count(string(text), string(old)))
	m.use(count)
	if function == "replace" {
		m.use(count * float64(length(args[2])) / bytesPerUnit)
	}
}

// length of a text in bytes; 0: it is none.
func length(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 0
}

func (m *meter) weighList(v ref.Val) {
	if list, ok := v.(traits.Lister); ok {
		m.weigh(list)
	}
}

// weigh charges all parts of a value.
func (m *meter) weigh(v any) {
	if m.left < 0 {
		return
	}
	m.left--
	switch v := v.(type) {
	case string:
		m.use(float64(len(v)) / bytesPerUnit)
	case map[string]any:
		for name, field := range v {
			m.use(float64(len(name)) / bytesPerUnit)
			m.weigh(field)
			if m.left < 0 {
				return
			}
		}
	case []any:
		for i := 0; i < len(v) && m.left >= 0; i++ {
			m.weigh(v[i])
		}
	case *types.Optional:
		if v.HasValue() {
			m.weigh(v.GetValue())
		}
	case traits.Lister:
		if native, ok := v.Value().([]any); ok {
			m.weigh(native)
			return
		}
		for it := v.Iterator(); m.left >= 0 && it.HasNext() == types.True; {
			m.weigh(it.Next())
		}
	case traits.Mapper:
		if native, ok := v.Value().(map[string]any); ok {
			m.weigh(native)
			return
		}
		for it := v.Iterator(); m.left >= 0 && it.HasNext() == types.True; {
			key := it.Next()
			m.use(float64(length(key)) / bytesPerUnit)
			m.weigh(v.Get(key))
		}
	case ref.Val:
		m.use(float64(length(v)) / bytesPerUnit)
	}
}
