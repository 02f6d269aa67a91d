package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/internal/fleet/policy"
	"cloop.dev/cloop/schemas"
)

// rules are those that the tests know: true stands for fixed.
type rules map[string]bool

func (r rules) Known(id string) bool { _, ok := r[id]; return ok }
func (r rules) Fixed(id string) bool { return r[id] }

var known = rules{"maximum-above-hub": false, "labels-disagree": false, "schema": true}

// lines are problems as "line:column path: message", and hold each to have what
// it needs.
func lines(t testing.TB, file string, problems []schemas.Problem) []string {
	t.Helper()
	var got []string
	for _, p := range problems {
		if p.Rule != policy.RuleConfig || p.Severity != schemas.SeverityError || p.File != file || p.Line < 1 || p.Column < 1 || p.Message == "" || p.Hint == "" {
			t.Errorf("the problem lacks something: %+v", p)
		}
		got = append(got, fmt.Sprintf("%d:%d %s: %s", p.Line, p.Column, p.Path, p.Message))
	}
	return got
}

func TestConfig(t *testing.T) {
	config, problems := policy.ParseConfig("c.yaml", []byte(`severities:
  labels-disagree: error
ignore:
- rule: maximum-above-hub
  paths: [clusters/eu, pools/*/gpu.yaml]
  reason: the hub follows
  until: 2027-03-31
`), known)
	if len(problems) > 0 || len(config.Ignores) != 1 || config.Severities["labels-disagree"] != schemas.SeverityError {
		t.Fatalf("config is %+v, problems %v", config, problems)
	}
	ignore := config.Ignores[0]
	for file, want := range map[string]bool{
		"clusters/eu": true, "clusters/eu/a/b.yaml": true, "clusters/europe/b.yaml": false, "x/clusters/eu/b.yaml": false,
		"pools/base/gpu.yaml": true, "pools/a/b/gpu.yaml": false, "pools/base/gpu.yaml.bak": false, "": false,
	} {
		if got := ignore.Covers(schemas.Problem{Rule: "maximum-above-hub", File: file}); got != want {
			t.Errorf("covers %q: %t, want %t", file, got, want)
		}
	}
	if ignore.Covers(schemas.Problem{Rule: "labels-disagree", File: "clusters/eu"}) {
		t.Error("another rule is covered")
	}
	end := time.Date(2027, 3, 31, 23, 59, 59, 0, time.UTC)
	if ignore.Expired(end) || ignore.Expired(time.Time{}) || !ignore.Expired(end.Add(time.Second)) {
		t.Error("it does not end with its last day")
	}
	if p := ignore.Overdue(); p.Line != 4 || p.Rule != policy.RuleExpiredIgnore || !strings.Contains(p.Message, "2027-03-31") {
		t.Errorf("overdue is %+v", p)
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	entry := func(text string) string { return "ignore:\n- " + strings.ReplaceAll(text, "\n", "\n  ") + "\n" }
	good := "rule: labels-disagree\npaths: [a]\nreason: r"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"nothing":             {"", nil},
		"comments":            {"# later\n", nil},
		"empty fields":        {"severities: {}\nignore: []\n", nil},
		"a list":              {"- a\n", []string{"1:1 : this must be a mapping"}},
		"no YAML":             {"severities:\n  a: [\n", []string{"2:1 : did not find expected node content"}},
		"two documents":       {"ignore: []\n---\nignore: []\n", []string{"2:1 : the file has more than one document"}},
		"an exclude without":  {"exclude: [{reason: x}]\n", []string{"1:11 exclude[0].paths: this is required"}},
		"excludes of files":   {"exclude: {paths: [x]}\n", []string{"1:10 exclude: this must be a list"}},
		"an unknown field":    {"ignores: []\n", []string{"1:1 ignores: unknown field"}},
		"a field twice":       {"ignore: []\nignore: []\n", []string{"2:1 ignore: the field is there twice"}},
		"an alias":            {"severities: &a {}\nignore: *a\n", []string{"2:9 : there is an alias"}},
		"a severity":          {"severities: {labels-disagree: off}\n", []string{`1:31 severities.labels-disagree: "off" is no severity`}},
		"a severity's rule":   {"severities: {nope: error}\n", []string{`1:14 severities.nope: there is no rule "nope"`}},
		"a fixed severity":    {"severities: {schema: warning}\n", []string{"1:14 severities.schema: rule schema cannot be turned off: the API server, the hub or kustomize refuses the document anyway"}},
		"a fixed rule":        {entry(strings.Replace(good, "labels-disagree", "schema", 1)), []string{"2:9 ignore[0].rule: rule schema cannot be turned off: the API server, the hub or kustomize refuses the document anyway"}},
		"an unknown rule":     {entry(strings.Replace(good, "labels-disagree", "nope", 1)), []string{`2:9 ignore[0].rule: there is no rule "nope"`}},
		"no reason":           {entry("rule: labels-disagree\npaths: [a]"), []string{"2:3 ignore[0].reason: this is required"}},
		"an empty reason":     {entry(strings.Replace(good, "reason: r", "reason: ' '", 1)), []string{"4:11 ignore[0].reason: this must not be empty"}},
		"a reason's type":     {entry(strings.Replace(good, "reason: r", "reason: 1", 1)), []string{"4:11 ignore[0].reason: this must be a text"}},
		"no rule, no paths":   {entry("reason: r"), []string{"2:3 ignore[0].rule: this is required", "2:3 ignore[0].paths: this is required"}},
		"a path of no list":   {entry(strings.Replace(good, "[a]", "a", 1)), []string{"3:10 ignore[0].paths: this must be a list of at most 50 paths"}},
		"a path outside":      {entry(strings.Replace(good, "[a]", "[../a, /b]", 1)), []string{"3:11 ignore[0].paths[0]: the path must be relative to the root of the repository and inside it", "3:17 ignore[0].paths[1]: the path must be relative to the root of the repository and inside it"}},
		"no day":              {entry(good + "\nuntil: soon"), []string{`5:10 ignore[0].until: "soon" is no day`}},
		"a moment":            {entry(good + "\nuntil: 2027-03-31T00:00:00Z"), []string{`5:10 ignore[0].until: "2027-03-31T00:00:00Z" is no day`}},
		"an entry of no kind": {"ignore: [1]\n", []string{"1:10 ignore[0]: this must be a mapping"}},
		"more than is read":   {"#" + strings.Repeat("x", 64<<10), []string{"1:1 : the file is larger than 64 KiB"}},
	} {
		t.Run(name, func(t *testing.T) {
			config, problems := policy.ParseConfig("c.yaml", []byte(test.text), known)
			if got := lines(t, "c.yaml", problems); !slices.Equal(got, test.want) {
				t.Errorf("problems\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			if len(config.Ignores)+len(config.Severities) > 0 {
				t.Errorf("what is wrong counts: %+v", config)
			}
		})
	}
}

// A wrong entry takes nothing from the others.
func TestConfigKeepsWhatIsRight(t *testing.T) {
	config, problems := policy.ParseConfig("c.yaml", []byte("severities: {labels-disagree: error, nope: error}\nignore:\n- {rule: labels-disagree, paths: [a], reason: r}\n- {rule: schema, paths: [a], reason: r}\n"), known)
	if len(problems) != 2 || len(config.Ignores) != 1 || len(config.Severities) != 1 {
		t.Errorf("config is %+v, problems %v", config, problems)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("severities: {labels-disagree: error}\nignore:\n- {rule: maximum-above-hub, paths: ['a/**'], reason: r, until: 2027-01-01}\n")
	f.Add("ignore: [[[{}]]]\n---\n")
	f.Add("ignore: &a [*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		config, problems := policy.ParseConfig("c.yaml", []byte(text), known)
		lines(t, "c.yaml", problems)
		for _, ignore := range config.Ignores {
			if ignore.Rule == "" || ignore.Reason == "" || known.Fixed(ignore.Rule) || ignore.Line < 1 {
				t.Errorf("the ignore lacks something: %+v", ignore)
			}
			ignore.Covers(schemas.Problem{Rule: ignore.Rule, File: text})
		}
	})
}

func TestComments(t *testing.T) {
	const file = `# cloop:ignore labels-disagree: the whole of it
apiVersion: a
spec: # cloop:ignore maximum-above-hub all of spec

  a: 1
# not indented, and no end
  list:
  - x: 1 # cloop:ignore labels-disagree an entry

    y: 2
  - z: 1
  # cloop:ignore labels-disagree the next field
  # and more words
  deep:
  - 1
  - 2
  other: 1
status: 1
# cloop:ignore labels-disagree nothing follows
---
a: b
c: "# cloop:ignored x"  # see cloop:ignore
`
	ignores, problems := policy.Comments("f.yaml", []byte(file))
	if len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	var got []string
	for _, ignore := range ignores {
		from, to := 0, 0
		for line := 1; line <= strings.Count(file, "\n"); line++ {
			if ignore.Covers(schemas.Problem{Rule: ignore.Rule, File: "f.yaml", Line: line}) {
				if from == 0 {
					from = line
				}
				to = line
			}
		}
		got = append(got, fmt.Sprintf("%d:%d %s %q %d-%d", ignore.Line, ignore.Column, ignore.Rule, ignore.Reason, from, to))
	}
	want := []string{
		`1:3 labels-disagree "the whole of it" 2-19`,
		`3:9 maximum-above-hub "all of spec" 3-17`,
		`8:12 labels-disagree "an entry" 8-10`,
		`12:5 labels-disagree "the next field" 14-16`,
		`19:3 labels-disagree "nothing follows" 0-0`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("comments\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCommentsOfSeveralDocuments(t *testing.T) {
	ignores, _ := policy.Comments("f.yaml", []byte("# cloop:ignore a first\r\n---\r\nx: 1\r\ny: 1\r\n---\r\n\r\n# cloop:ignore b second\r\nx: 1\r\ny: 1"))
	if len(ignores) != 2 {
		t.Fatalf("%d ignores, want 2", len(ignores))
	}
	for i, want := range [][]int{{3, 4}, {8, 9}} {
		for line := 1; line <= 9; line++ {
			if got := ignores[i].Covers(schemas.Problem{Rule: ignores[i].Rule, File: "f.yaml", Line: line}); got != (line >= want[0] && line <= want[1]) {
				t.Errorf("comment %d covers line %d: %t, want lines %v", i, line, got, want)
			}
		}
	}
}

// covered are the lines that each comment means, as "comment:from-to".
func covered(t *testing.T, file, text string, count int) (got []string) {
	t.Helper()
	ignores, problems := policy.Comments(file, []byte(text))
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%d is wrong: %s", p.Line, p.Message))
	}
	for _, ignore := range ignores {
		from, to := 0, 0
		for line := 1; line <= count; line++ {
			if ignore.Covers(schemas.Problem{Rule: ignore.Rule, File: file, Line: line}) {
				if from == 0 {
					from = line
				}
				to = line
			}
		}
		got = append(got, fmt.Sprintf("%d:%d-%d", ignore.Line, from, to))
	}
	return got
}

// The value of an operation of a JSON patch is found at the operation.
func TestCommentsOfOperations(t *testing.T) {
	for text, want := range map[string]string{
		"- op: replace\n  path: /a\n  value: 5 # cloop:ignore a b\n- op: add\n  path: /c\n":                     "3:1-3",
		"- op: add\n  path: /a\n  value:\n    b: 1 # cloop:ignore a b\n    c: 2\n":                              "4:4-4",
		"- value: # cloop:ignore a b\n    b: 1\n  op: add\n  path: /a\n":                                        "1:1-4",
		"x: 1\nlist:\n- path: /a\n\n  # cloop:ignore a b\n  value:\n    b: 1\n  op: add\n- op: test\n":          "5:3-8",
		"-   op: remove\n    path: /a # cloop:ignore a b\n-   op: add\n    path: /b\n":                          "2:1-2",
		"- name: x\n  value: 5 # cloop:ignore a b\n":                                                            "2:2-2",
		"- op: x\n  path: /a\n  other: 5 # cloop:ignore a b\n":                                                  "3:3-3",
		"- op: x\n  path: /a\nvalue: 5 # cloop:ignore a b\n":                                                    "3:3-3",
		"- a:\n  - op: x\n    path: /a\n  value: 5 # cloop:ignore a b\n":                                        "4:4-4",
		"- op: x\n  path: /a\n---\n  value: 5 # cloop:ignore a b\n":                                             "4:4-4",
		"- value: 1 # cloop:ignore a b\n":                                                                       "1:1-1",
		"patches:\n- patch: |-\n    - op: replace\n      path: /a\n      value: 5 # cloop:ignore a b\n  x: 1\n": "5:3-5",
	} {
		file := "kustomization.yaml"
		if got := covered(t, file, text, strings.Count(text, "\n")); !slices.Equal(got, []string{want}) {
			t.Errorf("of\n%s%v, want %s", text, got, want)
		}
	}
}

// What a comment means ends with its document, however that ends.
func TestCommentsEndWithTheirDocument(t *testing.T) {
	for _, end := range []string{"---", "--- # next", "---\t# next", "--- \t", "...", "... # over", "...\t# over", "--- {}"} {
		for _, newline := range []string{"\n", "\r\n", "\r", "\u2028"} {
			text := strings.Join([]string{"# cloop:ignore a b", "x: 1", end, "y: 1"}, newline)
			if got := covered(t, "f.yaml", text, 4); !slices.Equal(got, []string{"1:2-2"}) {
				t.Errorf("of %q: %v", text, got)
			}
		}
	}
}

// Only comments of YAML are comments.
func TestTextsAreNoComments(t *testing.T) {
	for name, test := range map[string]struct {
		file, text string
		want       []string
	}{
		"a literal":            {"f.yaml", "data:\n  a: |\n    x: 1 # cloop:ignore a b\n    # cloop:ignore\n\n    y\n  b: 1 # cloop:ignore a b\n", []string{"7:7-7"}},
		"a folded text":        {"f.yaml", "a: >-\n  # cloop:ignore\nb: 1\n", nil},
		"behind the indicator": {"f.yaml", "a: | # cloop:ignore a b\n  # cloop:ignore\nb: 1\n", []string{"1:1-2"}},
		"with an anchor":       {"f.yaml", "a: &x !!str |\n  # cloop:ignore\nb: 1\n", nil},
		"with an indentation":  {"f.yaml", "a: |1\n    # cloop:ignore\n  # cloop:ignore\nb: 1\n", nil},
		"in a list":            {"f.yaml", "a:\n- |\n  # cloop:ignore\n- b: |\n    # cloop:ignore\n  c: 1 # cloop:ignore a b\n", []string{"6:6-6"}},
		"less indented":        {"f.yaml", "a:\n  b: |\n      x\n  # cloop:ignore a b\n  c: 1\n", []string{"4:5-5"}},
		"in double quotes":     {"f.yaml", "a: \"x # cloop:ignore \\\" # cloop:ignore\n  # cloop:ignore\n  y\" # cloop:ignore a b\n", []string{"3:3-3"}},
		"in single quotes":     {"f.yaml", "é: 'x '' # cloop:ignore\n\n  # cloop:ignore' # cloop:ignore a b\n", []string{"3:3-3"}},
		"a key":                {"f.yaml", "\"# cloop:ignore\": 1 # cloop:ignore a b\n", []string{"1:1-1"}},
		"the document":         {"f.yaml", "--- |\n# cloop:ignore\n---\na: 1 # cloop:ignore a b\n", []string{"4:4-4"}},
		"in a flow":            {"f.yaml", "{a: \"# cloop:ignore\", b: [' # cloop:ignore']} # cloop:ignore a b\n", []string{"1:1-1"}},
		"an inline patch":      {"k/kustomization.yaml", "patches:\n- patch: |-\n    spec:\n      a: 1 # cloop:ignore a b\n      t: |\n        # cloop:ignore\n", []string{"4:4-4"}},
		"an entry of patches":  {"kustomization.yml", "patchesStrategicMerge:\n- |\n  spec:\n    a: 1 # cloop:ignore a b\n", []string{"4:4-4"}},
		"no patch of it":       {"kustomization.yaml", "configMapGenerator:\n- name: x\n  literals:\n  - |\n    # cloop:ignore\n", nil},
		"no kustomization":     {"f.yaml", "patches:\n- patch: |-\n    # cloop:ignore\n", nil},
		"no YAML":              {"f.yaml", "a: [ # cloop:ignore a b\n", []string{"1:1-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := covered(t, test.file, test.text, strings.Count(test.text, "\n")); !slices.Equal(got, test.want) {
				t.Errorf("comments %v, want %v", got, test.want)
			}
		})
	}
}

func TestCommentsNeedARuleAndAReason(t *testing.T) {
	ignores, problems := policy.Comments("f.yaml", []byte("a: 1 # cloop:ignore\nb: 1 # cloop:ignore labels-disagree\nc: 1 #cloop:ignore labels-disagree:\nd: é # cloop:ignore\n"))
	want := []string{"1:8 : cloop:ignore names no rule", `2:8 : cloop:ignore "labels-disagree" has no reason`, `3:7 : cloop:ignore "labels-disagree" has no reason`, "4:8 : cloop:ignore names no rule"}
	if got := lines(t, "f.yaml", problems); !slices.Equal(got, want) || len(ignores) > 0 {
		t.Errorf("%d ignores, problems\n%s\nwant\n%s", len(ignores), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCommentsAreBounded(t *testing.T) {
	ignores, problems := policy.Comments("f.yaml", []byte(strings.Repeat("# cloop:ignore a b\n", 5000)))
	if len(ignores) != 100 || len(problems) != 1 {
		t.Errorf("%d ignores, %d problems", len(ignores), len(problems))
	}
}

func FuzzComments(f *testing.F) {
	f.Add("# cloop:ignore a b\na: 1\n")
	f.Add("kustomization: |2\n  # cloop:ignore a b\n'x': &a !b \"# cloop:ignore\n\" # cloop:ignore a b\r---\t# x\n")
	f.Add("- # cloop:ignore a: b\n  - x\n---\n\xff\n")
	f.Fuzz(func(t *testing.T, text string) {
		ignores, problems := policy.Comments("f.yaml", []byte(text))
		lines(t, "f.yaml", problems)
		count := strings.Count(text, "\n") + strings.Count(text, "\r") + strings.Count(text, "\u0085") + strings.Count(text, "\u2028") + strings.Count(text, "\u2029") + 1
		for _, ignore := range ignores {
			if ignore.Rule == "" || ignore.Reason == "" || ignore.Line > count {
				t.Errorf("the ignore lacks something: %+v", ignore)
			}
			if ignore.Covers(schemas.Problem{Rule: ignore.Rule, File: "f.yaml", Line: count + 1}) {
				t.Errorf("it reaches beyond the file: %+v", ignore)
			}
		}
	})
}
