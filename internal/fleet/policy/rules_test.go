package policy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue/cuecontext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"cloop.dev/cloop/internal/fleet/policy"
	"cloop.dev/cloop/schemas"
)

func parse(t testing.TB, text string) (*policy.Rules, []schemas.Problem) {
	t.Helper()
	definitions, problems := policy.ParseRules("r.cue", []byte(text), known.Known)
	rules, more := policy.Compile(definitions)
	return rules, append(problems, more...)
}

// ruleOf is a file with one rule, whose expression is on line 2 from column 14.
func ruleOf(expression string, more ...string) string {
	return "rules: r: {\n\texpression: " + expression + "\n\tmessage: \"m\"\n" + strings.Join(more, "\n") + "\n}\n"
}

func TestRulesNameWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"nothing":                {"", nil},
		"comments":               {"// later\npackage x\n", nil},
		"no CUE":                 {"rules: {\n", []string{"1:9 rules: the file ends in the middle of something"}},
		"an import":              {"import \"strings\"\nrules: {}\n", []string{"1:1 : imports are not taken here"}},
		"an unknown field":       {"rule: {}\n", []string{"1:1 rule: unknown field"}},
		"a definition":           {"#R: {}\n", []string{"1:1 #R: unknown field"}},
		"a reference":            {"rules: a\n", []string{"1:8 rules: references are not taken here"}},
		"a call":                 {"rules: len(1)\n", []string{"1:8 rules: references are not taken here"}},
		"a comprehension":        {"rules: {for x in [1] {a: 1}}\n", []string{"1:9 rules: only names, texts, lists and structs are taken here"}},
		"an interpolation":       {ruleOf(`"\(1)"`), []string{"2:14 rules.r.expression: interpolations are not taken here"}},
		"a let":                  {"let x = 1\n", []string{"1:1 : only names, texts, lists and structs are taken here"}},
		"an attribute":           {"rules: {} @x(y)\n", []string{"1:11 rules: attributes are not taken here"}},
		"an optional field":      {"rules?: {}\n", []string{"1:1 rules: only plain names with a value are taken for a field"}},
		"a pattern":              {"rules: [string]: {}\n", []string{"1:9 rules[0]: only names, texts, lists and structs are taken here"}},
		"bytes":                  {ruleOf("'true'"), []string{"2:14 rules.r.expression: only texts in double quotes are taken here"}},
		"rules of no struct":     {"rules: []\n", []string{"1:1 rules: this is a list and must be a struct"}},
		"a rule of no struct":    {"rules: r: \"true\"\n", []string{"1:8 rules.r: this is a text and must be a struct"}},
		"nothing in a rule":      {"rules: r: {}\n", []string{"1:8 rules.r.message: this is required", "1:8 rules.r.expression: this is required"}},
		"an id":                  {"rules: \"R 1\": {message: \"m\", expression: \"true\"}\n", []string{`1:8 rules.R 1: "R 1" is no id for a rule`}},
		"an id that is taken":    {"rules: schema: {message: \"m\", expression: \"true\"}\n", []string{"1:8 rules.schema: schema is a rule of cloop"}},
		"a severity":             {ruleOf(`"true"`, `severity: "fatal"`), []string{`4:1 rules.r.severity: "fatal" is no severity`}},
		"a field":                {ruleOf(`"true"`, `at: "spec maxRunners"`), []string{`4:1 rules.r.at: "spec maxRunners" is no field`}},
		"an unknown match":       {ruleOf(`"true"`, `match: kind: "HubPool"`), []string{"4:8 rules.r.match.kind: unknown field"}},
		"a match of a text":      {ruleOf(`"true"`, `match: kinds: "HubPool"`), []string{"4:8 rules.r.match.kinds: this must be a list of 1 to 50 texts"}},
		"a match of nothing":     {ruleOf(`"true"`, `match: roots: []`), []string{"4:8 rules.r.match.roots: this must be a list of 1 to 50 texts"}},
		"a match outside":        {ruleOf(`"true"`, `match: roots: ["../x"]`), []string{"4:8 rules.r.match.roots: the path must be relative to the root of the repository and inside it"}},
		"a kind misspelt":        {ruleOf(`"true"`, `match: kinds: ["Secret", "Executorpool"]`), []string{`4:26 rules.r.match.kinds[1]: there is no kind "Executorpool"`}},
		"kinds in the plural":    {ruleOf(`"true"`, `match: kinds: ["HubPools"]`), []string{`4:16 rules.r.match.kinds[0]: there is no kind "HubPools"`}},
		"lists of lists":         {ruleOf(`"[[1]].map(a, [a, a]).size() > 0"`), []string{"2:28 rules.r.expression: a list that is written, or made by map(), holds plain values only, no lists and maps"}},
		"what is not available":  {ruleOf(`"object.l.sort() == []"`), []string{"2:28 rules.r.expression: sort is not available here: what it makes, or the time that it takes, has no bound"}},
		"a macro that repeats":   {ruleOf(`"object.?x.optMap(a, a).hasValue()"`), []string{"2:32 rules.r.expression: optMap is not available here: what it makes, or the time that it takes, has no bound"}},
		"an empty message":       {"rules: r: {message: \" \", expression: \"true\"}\n", []string{"1:12 rules.r.message: this must not be empty"}},
		"two values":             {"rules: r: message: \"m\"\nrules: r: message: \"n\"\nrules: r: expression: \"true\"\n", []string{"2:11 rules.r.message: it has another value on line 1"}},
		"a syntax error":         {ruleOf(`"object.spec. == 1"`), []string{"2:28 rules.r.expression: Syntax error: no viable alternative at input '. =='"}},
		"behind an emoji":        {ruleOf(`"'🙂' == nope"`), []string{"2:22 rules.r.expression: undeclared reference to 'nope' (in container '')"}},
		"in a raw text":          {ruleOf(`#"nope.matches(r"\d")"#`), []string{"2:16 rules.r.expression: undeclared reference to 'nope' (in container '')"}},
		"in a text of lines":     {ruleOf("\"\"\"\n\t\ttrue &&\n\t\t  nope\n\t\t\"\"\""), []string{"4:5 rules.r.expression: undeclared reference to 'nope' (in container '')"}},
		"in a text with escapes": {ruleOf(`"\u0074rue && nope"`), []string{"2:14 rules.r.expression: undeclared reference to 'nope' (in container '')"}},
		"a number for an answer": {ruleOf(`"1 + 1"`), []string{"2:14 rules.r.expression: the expression gives int and must give bool"}},
		"more than is read":      {"//" + strings.Repeat("x", 32<<10), []string{"1:1 : the file is larger than 32 KiB"}},
		"a list too long":        {ruleOf(`"true"`, "match: names: ["+strings.Repeat("\"a\",", 51)+"]"), []string{"4:216 rules.r.match.names: a list has at most 50 elements"}},
		"too deep":               {strings.Repeat("a: ", 40), []string{"1:97 " + strings.Repeat("a.", 32) + "a: this is nested more than 32 deep"}},
		"too many values":        {strings.Repeat("a:{}\n", 6000), []string{"5001:1 a: the file has more than 5000 values"}},
		"no escape":              {ruleOf(`"\q"`), []string{"2:16 : unknown escape sequence"}},
		"half a character":       {ruleOf(`"\ud800"`), []string{`2:14 rules.r.expression: "\\ud800" is no character`}},
		"wrong indentation":      {ruleOf("\"\"\"\n\ttrue\n\t\t\"\"\""), []string{"2:14 : non-matching whitespace for multiline strings"}},
		"no UTF-8":               {"// \xff\n", []string{"1:1 : the file is not UTF-8"}},
		"more rules than count":  {manyRules(101), []string{`101:8 rules.r100: there are more than 100 rules`}},
		"an expression too long": {ruleOf(`"true` + strings.Repeat(" ", 8<<10) + `"`), []string{"2:2 rules.r.expression: this is longer than 8192 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			rules, problems := parse(t, test.text)
			if got := lines(t, "r.cue", problems); !slices.Equal(got, test.want) {
				t.Errorf("problems\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			if count := len(rules.Definitions()); count > 0 && name != "more rules than count" {
				t.Errorf("%d rules count", count)
			}
		})
	}
}

// Small files that a parser of the whole language takes seconds over are refused
// at the first thing that is no data.
func TestHostileRulesFilesAreRefused(t *testing.T) {
	for _, part := range []string{
		"{", "rules: [", "a: ", "a:1\n", ",", "@", "@a(", ")\n", "\"", "#", "-", "a: 1|", "a: \"\\(", "f(", "for a in b {", "let a = a\n", "a=b:", "...", "if a ", "a: \"\"\"\n",
	} {
		rules, problems := parse(t, strings.Repeat(part, (32<<10)/len(part)))
		if len(rules.Definitions()) > 0 || len(problems) != 1 {
			t.Errorf("of %q: %d rules, problems %v", part, len(rules.Definitions()), problems)
		}
		lines(t, "r.cue", problems)
	}
}

func manyRules(count int) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, "rules: r%d: {message: \"m\", expression: \"true\"}\n", i)
	}
	return b.String()
}

func pool(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cloop.dev/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

func TestRulesJudge(t *testing.T) {
	for name, test := range map[string]struct {
		expression string
		more       []string
		in         policy.Input
		want       string
	}{
		"holds":              {`"object.spec.maxRunners <= 20"`, nil, policy.Input{}, ""},
		"is broken":          {`"object.spec.maxRunners > 20"`, nil, policy.Input{}, "error : m"},
		"a warning at":       {`"false"`, []string{`severity: "warning"`, `at: "spec.x"`}, policy.Input{}, "warning spec.x: m"},
		"another kind":       {`"false"`, []string{`match: kinds: ["HubPool"]`}, policy.Input{}, ""},
		"the kind":           {`"false"`, []string{`match: kinds: ["ExecutorPool"]`}, policy.Input{}, "error : m"},
		"another root":       {`"false"`, []string{`match: roots: ["clusters/us"]`}, policy.Input{}, ""},
		"the root":           {`"false"`, []string{`match: roots: ["clusters/*"]`}, policy.Input{}, "error : m"},
		"another name":       {`"false"`, []string{`match: names: ["cpu-*"]`}, policy.Input{}, ""},
		"root and cluster":   {`"root == 'clusters/eu' && cluster == 'eu'"`, nil, policy.Input{}, ""},
		"no cluster":         {`"cluster == ''"`, nil, policy.Input{Root: "hub"}, ""},
		"nothing before":     {`"!oldObject.hasValue()"`, nil, policy.Input{}, ""},
		"what was before":    {`"object.spec.maxRunners <= oldObject.?spec.maxRunners.orValue(0)"`, nil, policy.Input{Old: pool("ExecutorPool", "gpu", map[string]any{"maxRunners": int64(2)})}, "error : m"},
		"the API's library":  {`"quantity('1Gi').isGreaterThan(quantity('1Mi')) && url('https://a').getHost() == 'a'"`, nil, policy.Input{}, ""},
		"what is not there":  {`"object.spec.owner == ''"`, []string{`severity: "warning"`}, policy.Input{}, "error : the rule cannot be evaluated: no such key: owner"},
		"no truth":           {`"object.spec.maxRunners"`, nil, policy.Input{}, "error : the rule cannot be evaluated: it gives int, not true or false"},
		"not of cloop":       {`"false"`, nil, policy.Input{Object: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}}, ""},
		"named, of others":   {`"false"`, []string{`match: kinds: ["Secret"]`}, policy.Input{Object: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}}, "error : m"},
		"across has its own": {`"pools.size() == 0"`, nil, policy.Input{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			rules, problems := parse(t, ruleOf(test.expression, test.more...))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			if test.in.Object == nil {
				test.in.Object = pool("ExecutorPool", "gpu", map[string]any{"maxRunners": int64(4)})
			}
			if test.in.Root == "" {
				test.in.Root = "clusters/eu"
			}
			got := ""
			for _, p := range rules.Judge(t.Context(), test.in) {
				got += fmt.Sprintf("%s %s: %s", p.Severity, p.Path, p.Message)
			}
			if got != test.want {
				t.Errorf("it says %q, want %q", got, test.want)
			}
		})
	}
}

func TestRulesJudgeAcrossPools(t *testing.T) {
	rules, problems := parse(t, ruleOf(`"pools.filter(p, p.cluster == cluster).size() <= 1 && hubPools.exists(h, h.object.metadata.name == object.metadata.name)"`, `match: kinds: ["ExecutorPool"]`))
	if len(problems) > 0 || !rules.Across() {
		t.Fatal(problems)
	}
	objects := []policy.Input{
		{Object: pool("ExecutorPool", "a", nil), Root: "clusters/eu"}, {Object: pool("ExecutorPool", "b", nil), Root: "clusters/us"},
		{Object: pool("ExecutorPool", "a", nil), Root: "clusters/us"}, {Object: pool("HubPool", "a", nil), Root: "hub"},
	}
	fleet := policy.NewFleet(objects)
	for i, want := range []int{0, 1, 1, 0} {
		if got := rules.JudgeAcross(t.Context(), objects[i], fleet); len(got) != want {
			t.Errorf("of object %d it says %v, want %d problems", i, got, want)
		}
		if got := rules.Judge(t.Context(), objects[i]); got != nil {
			t.Errorf("a rule across pools judges one alone: %v", got)
		}
	}
}

// A runaway expression ends, once, with a message that says which it is.
func TestRunawayRulesAreStopped(t *testing.T) {
	const runaway = `"object.l.all(a, object.l.all(b, object.l.all(c, object.l.all(d, a + b + c + d >= 0))))"`
	definitions, problems := policy.ParseRules("r.cue", []byte(ruleOf(runaway)+"rules: good: {message: \"m\", expression: \"false\"}\n"), known.Known)
	rules, more := policy.CompileWithin(definitions, 10_000)
	if len(problems)+len(more) > 0 {
		t.Fatal(problems, more)
	}
	object := pool("ExecutorPool", "gpu", nil)
	list := make([]any, 1000)
	for i := range list {
		list[i] = int64(i)
	}
	object.Object["l"] = list
	for range 100 {
		if got := rules.Judge(t.Context(), policy.Input{Object: object}); len(got) != 1 || got[0].Rule != "good" {
			t.Fatalf("it says %v, want the good rule's", got)
		}
	}
	want := []string{"2:14 rules.r.expression: rule r was stopped: on one object it costs more than 10000, what an API server lets an expression cost"}
	if got := lines(t, "r.cue", rules.Stopped()); !slices.Equal(got, want) {
		t.Errorf("stopped: %v", got)
	}
}

// Many expensive evaluations end too.
func TestRulesHaveABudgetTogether(t *testing.T) {
	rules, problems := parse(t, ruleOf(`"object.l.all(a, object.l.all(b, a + b >= 0))"`)+"rules: cheap: {message: \"m\", expression: \"true\"}\n")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	object := pool("ExecutorPool", "gpu", nil)
	rules.SetBudget(10_000)
	list := make([]any, 30)
	for i := range list {
		list[i] = int64(i)
	}
	object.Object["l"] = list
	for i := 0; len(rules.Stopped()) == 0; i++ {
		if i > 1000 {
			t.Fatal("nothing is stopped")
		}
		if got := rules.Judge(t.Context(), policy.Input{Object: object}); got != nil {
			t.Fatal(got)
		}
	}
	if got := lines(t, "r.cue", rules.Stopped()); len(got) != 1 || !strings.Contains(got[0], "together they cost more than 10000, and rule r the most") {
		t.Errorf("stopped: %v", got)
	}
}

// FuzzRules holds the reader to an end, and to what CUE itself says of the
// files that it takes.
func FuzzRules(f *testing.F) {
	f.Add("rules: r: {message: \"m\", expression: #\"object.x.matches(\"\\d\")\"#}\n")
	f.Add("rules: r: message: \"m\"\nrules: \"r\": {expression: \"\"\"\n\ttrue\n\t\"\"\", match: kinds: [\"A\", \"B\"]}\n")
	f.Add("package x\nimport \"y\"\nrules: {a: b: [1, {c: \"\\(d)\"}], ...}\n")
	f.Fuzz(func(t *testing.T, text string) {
		definitions, problems := policy.ParseRules("r.cue", []byte(text), known.Known)
		lines(t, "r.cue", problems)
		if _, more := policy.Compile(definitions); more != nil {
			lines(t, "r.cue", more)
		}
		if len(problems) > 0 || len(definitions) == 0 {
			return
		}
		var theirs struct {
			Rules map[string]struct{ Message, Expression, Hint, At, Severity string } `json:"rules"`
		}
		data, err := cuecontext.New().CompileString(text).MarshalJSON()
		if err == nil {
			err = json.Unmarshal(data, &theirs)
		}
		if err != nil || len(theirs.Rules) != len(definitions) {
			t.Fatalf("CUE says %v of what is read as %d rules", err, len(definitions))
		}
		for _, d := range definitions {
			if one := theirs.Rules[d.ID]; one.Message != d.Message || one.Expression != d.Expression || one.Hint != d.Hint || one.At != d.At {
				t.Errorf("CUE reads %+v, we %+v", one, d)
			}
		}
	})
}

func TestRulesHaveTheBoundsOfAnAPIServer(t *testing.T) {
	rules, _ := parse(t, ruleOf(`"true"`))
	if each, all := rules.Bounds(); each != celconfig.PerCallLimit || all != celconfig.RuntimeCELCostBudget {
		t.Errorf("one evaluation may cost %d, all %d", each, all)
	}
}

// What it cost to judge an object counts the same where it is known already.
func TestWhatIsKnownIsCharged(t *testing.T) {
	text := ruleOf(`"object.spec.maxRunners < 5"`, `match: kinds: ["ExecutorPool"]`)
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cloop.dev/v1alpha1", "kind": "ExecutorPool", "spec": map[string]any{"maxRunners": int64(4)}}}
	judged, _ := parse(t, text)
	problems, cost := judged.JudgeCosting(t.Context(), policy.Input{Object: object})
	if len(problems) > 0 || len(cost) != 1 || cost[0] <= 0 || judged.Cut() {
		t.Fatalf("problems %v, cost %v", problems, cost)
	}
	charged, _ := parse(t, text)
	if len(charged.Unused()) != 1 {
		t.Error("the rule is about nothing yet")
	}
	charged.Charge(cost)
	if len(charged.Unused()) != 0 || charged.Cut() {
		t.Error("the rule was about an object")
	}
	charged.Charge(policy.Cost{celconfig.RuntimeCELCostBudget})
	if !charged.Cut() || len(charged.Stopped()) != 1 {
		t.Error("what is known counts for nothing")
	}
}
