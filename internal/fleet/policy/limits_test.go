package policy_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloop.dev/cloop/internal/fleet/policy"
)

// processorTime is what this thread has used. The caller has locked it.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	const thread = 1 // RUSAGE_THREAD of Linux
	if err := syscall.Getrusage(thread, &usage); err != nil {
		t.Skip("no processor time of a thread:", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// judged evaluates an expression on an object with lists, maps and a long text, and
// returns what it took, and what became of it.
func judged(t testing.TB, expression string, limit uint64) (took time.Duration, outcome string) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := processorTime(t)
	definitions, problems := policy.ParseRules("r.cue", []byte(ruleOf(strconv.Quote(expression))), known.Known)
	rules, more := policy.CompileWithin(definitions, limit)
	if problems = append(problems, more...); len(problems) > 0 {
		return processorTime(t) - before, "refused: " + problems[0].Message
	}
	list := make([]any, 100)
	fields := map[string]any{}
	for i := range list {
		list[i] = int64(i)
		fields["f"+strconv.Itoa(i)] = map[string]any{"name": strconv.Itoa(i)}
	}
	object := pool("ExecutorPool", "gpu", nil)
	object.Object["l"], object.Object["m"], object.Object["lists"] = list, fields, []any{list, list, list}
	object.Object["s"] = strings.Repeat("a", 200_000)
	outcome = "done"
	if found := rules.Judge(t.Context(), policy.Input{Object: object}); len(found) > 0 {
		outcome = found[0].Message
	}
	if len(rules.Stopped()) > 0 {
		outcome = "stopped"
	}
	return processorTime(t) - before, outcome
}

func repeated(first, each string, times int, last string) string {
	return first + strings.Repeat(each, times) + last
}

// The race detector and a loaded machine multiply what this takes; without a bound
// it is hours.
const mostTime = 2 * time.Second

func TestExpressionsThatMultiplyEnd(t *testing.T) {
	const plain = "plain values only"
	for name, test := range map[string]struct{ expression, want string }{
		"lists of lists":          {repeated("[[1]]", ".map(a, [a,a])", 24, ".all(a, a == a)"), plain},
		"lists of unknown":        {repeated("object.lists", ".map(a, [a,a])", 24, ".all(a, a == a)"), plain},
		"maps of maps":            {repeated("object.lists", ".map(a, {'x':a,'y':a})", 24, ".all(a, a == a)"), plain},
		"maps made of maps":       {repeated("object.m", ".transformMap(k, v, {'x':v,'y':v})", 24, " == {}"), "transformMap is not available"},
		"in a list":               {repeated("[[1]]", ".map(a, [a,a])", 24, ".all(a, a in [a])"), plain},
		"flattened":               {repeated("[[1]]", ".map(a, [a,a])", 30, ".all(a, a.flatten(30).size() > 0)"), "flatten is not available"},
		"added lists":             {"(object.l.filter(a, true) + [1]) == [1]", "lists cannot be added"},
		"added lists of unknown":  {repeated("object.lists", ".map(a, a+a)", 24, ".all(a, a == a)"), "lists cannot be added"},
		"sorted":                  {"object.l.sort() == object.l", "sort is not available"},
		"is sorted":               {repeated("[dyn([1])]", ".map(a, [a,a])", 24, " == [dyn(1)].filter(a, dyn([a]).isSorted())"), plain},
		"optional":                {repeated("optional.of(object.l)", ".optMap(a, [a,a])", 24, ".hasValue()"), "optMap is not available"},
		"optional in a list":      {repeated("optional.of(object.l)", ".optMap(a, [optional.of(a),optional.of(a)])", 24, ".hasValue()"), "optMap is not available"},
		"optional elements":       {repeated("optional.of(dyn(object.l))", ".optMap(a, [?optional.of(a),?optional.of(a)])", 24, ".hasValue()"), "optMap is not available"},
		"messages":                {"google.protobuf.ListValue{values: [1]} == [1]", "messages cannot be made"},
		"the pools of each":       {"object.lists.all(a, object.lists.all(b, object.lists.map(c, a).size() > 0))", plain},
		"ranges":                  {"lists.range(1000000000).size() > 0", "lists.range is not available"},
		"sets":                    {"sets.contains(object.l, object.l)", "sets.contains is not available"},
		"formats":                 {"'%.100000000f'.format([1.0]) == ''", "format is not available"},
		"texts replaced":          {"object.s.replace('a', object.s) == ''", "stopped"},
		"texts replaced in again": {repeated("'a'", ".replace('', 'aaaaaaaa')", 24, " == ''"), "stopped"},
		"texts joined":            {"object.s.split('').join(object.s) == ''", "stopped"},
		"texts added":             {repeated("['a']", ".map(a, a+a)", 24, ".size() > 0"), "stopped"},
		"texts within texts":      {"object.s.indexOf(object.s.substring(1) + 'b') > 0", "stopped"},
		"patterns":                {"object.l.all(a, !object.s.matches('(b?){500}c'))", "stopped"},
		"made patterns":           {"object.l.all(a, !object.s.matches('((b?){500}){2}' + string(a)))", "stopped"},
		"patterns in a long text": {repeated("!object.s.matches('", "(b{999})", 50, "')"), "stopped"},
		"objects compared":        {"object.l.all(a, object.l.all(b, object.l.all(c, object == object)))", "stopped"},
		"the list in the lists":   {"object.l.all(a, object.l.all(b, object.l.all(c, object.l in object.lists)))", "stopped"},
		"long texts measured":     {"object.l.all(a, object.l.all(b, object.l.all(c, object.s.size() > 0)))", "stopped"},
		"times of zones":          {"object.l.all(a, object.l.all(b, object.l.all(c, timestamp('2026-01-01T00:00:00Z').getFullYear('Europe/Berlin') > 0)))", "stopped"},
		"many texts found":        {"object.l.all(a, object.l.all(b, object.l.all(c, object.s.findAll('a').size() > 0)))", "stopped"},
		"macros within macros":    {strings.Repeat("object.l.map(a,", 200) + "1" + strings.Repeat(")", 200) + " == []", "nested more than 50 deep"},
		"optional of optional":    {strings.Repeat("optional.of(", 200) + "1" + strings.Repeat(")", 200) + " == 1", "nested more than 50 deep"},
		"maps gone over":          {"object.l.all(a, object.l.all(b, object.l.all(c, object.m.exists(k, true))))", "stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			// A part of what is allowed, so that the race detector can follow.
			took, outcome := judged(t, test.expression, 20_000)
			if !strings.Contains(outcome, test.want) {
				t.Errorf("it is %q, want %q", outcome, test.want)
			}
			t.Logf("%v: %s", took, outcome)
			if took > mostTime {
				t.Errorf("it takes %v", took)
			}
		})
	}
}

// What people write goes on.
func TestPlainExpressionsCount(t *testing.T) {
	for _, expression := range []string{
		"has(object.spec) && object.kind == 'ExecutorPool'",
		"object.l.filter(a, a > 10).map(a, a * 2).sum() == 9790",
		"object.m.all(k, object.m[k].name in ['0', '1'] || k.startsWith('f'))",
		"object.l.exists_one(a, a == 3) && object.l.exists(a, a == 3)",
		"object.lists.filter(a, a.size() == 100) == object.lists",
		"object.lists.all(a, a == object.l)",
		"{'gpu': ['a', 'b'], 'cpu': ['c']}['gpu'].exists(a, a == 'b')",
		"[string(object.kind), 'x'].join('-').replace('x', 'y') == 'EyecutorPool-y'",
		"'a-b'.split('-') == ['a', 'b'] && 'a-b'.find('[b-z]') == 'b' && 'ab'.matches('^a')",
		"object.?spec.?owner.orValue('none') == 'none'",
		"object.kind.lowerAscii().indexOf('pool') == 8 && ['a', 'b'].indexOf('b') == 1",
		"object.l.transformList(i, v, i == v).all(x, x)",
		"object.l != [1] && !(object.l == [1]) && 1 in object.l && 'f1' in object.m && object.kind + 'x' != ''",
		"object.l.max() == 99 && object.l.min() == 0 && object.l.isSorted() && b'a' + b'b' == b'ab'",
		"quantity('1Gi').isGreaterThan(quantity('1Mi')) && semver('1.2.3').major() == 1 && url('https://a/b').getHost() == 'a'",
		"timestamp('2026-01-01T00:00:00Z') + duration('1h') > timestamp('2026-01-01T00:00:00Z') && 1 + 1 == 2 && 1.5 + 1.5 == 3.0",
	} {
		if _, outcome := judged(t, expression, 1_000_000); outcome != "done" && !strings.HasPrefix(outcome, "refused: found no matching overload") {
			t.Errorf("%s: %s", expression, outcome)
		}
	}
}

// expressionOf is an expression that puts together what there is at random.
func expressionOf(r *rand.Rand, depth int, names []string) string {
	if depth == 0 || r.IntN(12) == 0 {
		leaves := append([]string{"object.l", "object.lists", "object.m", "object.s", "[1]", "['a']", "[[1], [2]]", "1", "'a'"}, names...)
		return leaves[r.IntN(len(leaves))]
	}
	sub := func(more ...string) string {
		return expressionOf(r, depth-1, append(names[:len(names):len(names)], more...))
	}
	name := fmt.Sprintf("v%d", depth)
	switch r.IntN(16) {
	case 0, 1:
		return fmt.Sprintf("dyn(%s).map(%s, %s)", sub(), name, sub(name, name, name))
	case 2:
		return fmt.Sprintf("dyn(%s).filter(%s, %s == %s)", sub(), name, sub(name), sub(name))
	case 3:
		return fmt.Sprintf("dyn(%s).all(%s, dyn(%s) == dyn(%s))", sub(), name, sub(name, name), sub(name, name))
	case 4:
		x := sub()
		return fmt.Sprintf("[dyn(%s), dyn(%s)]", x, x)
	case 5:
		x := sub()
		return fmt.Sprintf("{'x': dyn(%s), 'y': dyn(%s)}", x, x)
	case 6:
		return fmt.Sprintf("(dyn(%s) + dyn(%s))", sub(), sub())
	case 7:
		return fmt.Sprintf("(dyn(%s) in dyn(%s))", sub(), sub())
	case 8:
		return fmt.Sprintf("optional.of(dyn(%s)).orValue(dyn(%s))", sub(), sub())
	case 9:
		return fmt.Sprintf("(dyn(%s) == dyn(%s) ? dyn(%s) : dyn(%s))", sub(), sub(), sub(), sub())
	case 10:
		return fmt.Sprintf("dyn(%s).replace('a', string(dyn(%s)))", sub(), sub())
	case 11:
		return fmt.Sprintf("dyn(%s).split('').join(string(dyn(%s)))", sub(), sub())
	case 12:
		return fmt.Sprintf("dyn(%s).transformList(i%s, %s, dyn(%s))", sub(), name, name, sub(name, name))
	case 13:
		return fmt.Sprintf("dyn(%s).indexOf(dyn(%s))", sub(), sub())
	case 14:
		return fmt.Sprintf("dyn(%s).exists(%s, dyn(%s) != dyn(%s))", sub(), name, sub(name, name), sub(name, name))
	}
	return fmt.Sprintf("[?optional.of(dyn(%s)), dyn(%s)]", sub(), sub())
}

// Whatever is put together, one evaluation ends within what it may cost.
func TestRandomExpressionsEnd(t *testing.T) {
	outcomes := map[string]int{}
	var worst time.Duration
	for seed := range uint64(60) {
		expression := "dyn(" + expressionOf(rand.New(rand.NewPCG(seed, 1)), 4, nil) + ") == dyn(1)"
		took, outcome := judged(t, expression, 20_000)
		if worst = max(worst, took); took > mostTime {
			t.Errorf("seed %d takes %v: %s", seed, took, expression)
		}
		outcome, _, _ = strings.Cut(outcome, ":")
		outcomes[outcome]++
	}
	t.Logf("worst %v of %v", worst, outcomes)
	if outcomes["done"]+outcomes["stopped"]+outcomes["m"] < 5 {
		t.Errorf("too few count for anything: %v", outcomes)
	}
}

// An evaluation that takes longer than its cost says is stopped, and a few such
// stop all.
func TestEvaluationsThatTakeLongAreStopped(t *testing.T) {
	rules, problems := parse(t, manyRules(20))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	rules.SetPatience(time.Nanosecond)
	if found := rules.Judge(t.Context(), policy.Input{Object: pool("ExecutorPool", "gpu", nil)}); len(found) > 0 {
		t.Error(found)
	}
	if stopped := rules.Stopped(); len(stopped) != 5 || !strings.Contains(stopped[4].Message, "the rules of the repository were stopped") {
		t.Errorf("stopped are %v", stopped)
	}
}

func FuzzExpressionsEnd(f *testing.F) {
	f.Add(uint64(1), 6)
	f.Fuzz(func(t *testing.T, seed uint64, depth int) {
		expression := "dyn(" + expressionOf(rand.New(rand.NewPCG(seed, 2)), min(max(depth, 1), 8), nil) + ") == dyn(1)"
		if took, outcome := judged(t, expression, 1_000_000); took > mostTime {
			t.Errorf("%v, %s: %s", took, outcome, expression)
		}
	})
}
