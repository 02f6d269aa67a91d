package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

// RulesFile is where a repository has rules of its own.
const RulesFile = ".cloop/rules.cue"

// Bounds on a rules file.
const (
	maxRules      = 100
	maxExpression = 8 << 10
	maxMessage    = 1 << 10
	maxMatches    = 50
)

// Definition is a rule of the repository's own, as it is written.
type Definition struct {
	ID       string
	Severity schemas.Severity
	// Message says what is wrong, Hint what to do; Hint may be empty.
	Message, Hint string
	// At is the field that a finding is put at, as a Problem's Path is written;
	// empty: the object.
	At string
	// Expression is CEL that is true of a good object.
	Expression string

	// kinds, roots and names that it is about; empty: all of cloop.dev, all, all.
	kinds        []string
	roots, names []pattern
	// at is where the rule stands; expression the text with its place.
	at         place
	expression *value
}

// Place is where the rule stands.
func (d *Definition) Place() (file string, line, column int) {
	return d.at.file, d.at.line, d.at.column
}

var (
	ruleID    = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	fieldPath = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*([.\[][A-Za-z0-9./_-]+\]?)*$`)
)

// ParseRules reads a rules file: data in CUE, with a struct of rules by id.
//
//	rules: "large-pools-have-owners": {
//		message:    "a pool of more than 20 runners needs an owner"
//		expression: "object.spec.maxRunners <= 20 || has(object.spec.owner)"
//		match: kinds: ["HubPool"]
//	}
//
// What cannot be meant is a problem at its place, and its rule does not count.
// Ids that taken has are somebody else's.
func ParseRules(file string, data []byte, taken func(id string) bool) ([]*Definition, []schemas.Problem) {
	top, problems := readCUE(file, data)
	if top == nil {
		return nil, problems
	}
	r := &definitionReader{}
	var definitions []*Definition
	for _, f := range r.fields(top, "rules") {
		for _, rule := range r.fields(f) {
			before := r.failed
			definition := r.definition(rule, taken)
			switch {
			case r.failed > before:
			case len(definitions) == maxRules:
				r.fail(rule, fmt.Sprintf("there are more than %d rules", maxRules), "put several into one expression")
				return definitions, r.problems
			default:
				definitions = append(definitions, definition)
			}
		}
	}
	return definitions, r.problems
}

type definitionReader struct {
	problems []schemas.Problem
	failed   int
}

// fail counts the problems even where there are more than anybody reads.
func (r *definitionReader) fail(v *value, message, hint string) {
	if r.failed++; r.failed > maxFailures {
		return
	}
	r.problems = append(r.problems, v.problem(v.path, message, hint))
}

// fields are those of a struct that are among the names; without names, all.
func (r *definitionReader) fields(v *value, names ...string) []*value {
	if v.kind != aStruct {
		r.fail(v, fmt.Sprintf("this is %s and must be %s", v.kind, aStruct), "write it as docs/rules.md shows")
		return nil
	}
	var good []*value
	for _, f := range v.fields {
		if len(names) > 0 && !isOne(f.name, names) {
			r.fail(f, "unknown field", "the fields here are "+strings.Join(names, ", "))
			continue
		}
		good = append(good, f)
	}
	return good
}

func (r *definitionReader) definition(rule *value, taken func(string) bool) *Definition {
	d := &Definition{ID: rule.name, Severity: schemas.SeverityError, at: rule.place}
	switch {
	case len(d.ID) > 63 || !ruleID.MatchString(d.ID):
		r.fail(rule, quoted(d.ID)+" is no id for a rule", "use lowercase letters, digits and dashes, at most 63")
	case taken(d.ID):
		r.fail(rule, d.ID+" is a rule of cloop", "give the rule another id")
	}
	for _, f := range r.fields(rule, "severity", "message", "hint", "at", "expression", "match") {
		switch f.name {
		case "severity":
			d.Severity = schemas.Severity(r.text(f, maxMessage))
			if d.Severity != schemas.SeverityError && d.Severity != schemas.SeverityWarning && f.kind == aText {
				r.fail(f, quoted(f.text)+" is no severity", "write error or warning")
			}
		case "message":
			d.Message = r.text(f, maxMessage)
		case "hint":
			d.Hint = r.text(f, maxMessage)
		case "at":
			if d.At = r.text(f, maxMessage); d.At != "" && !fieldPath.MatchString(d.At) {
				r.fail(f, quoted(d.At)+" is no field", "write it as spec.maxRunners is written")
			}
		case "expression":
			d.Expression, d.expression = r.text(f, maxExpression), f
		case "match":
			r.match(f, d)
		}
	}
	for _, needed := range []string{"message", "expression"} {
		if rule.kind == aStruct && rule.field(needed) == nil {
			r.fail(&value{place: rule.place, path: rule.path + "." + needed}, "this is required", "add it to the rule")
		}
	}
	return d
}

func (r *definitionReader) text(v *value, most int) string {
	switch {
	case v.kind != aText:
		r.fail(v, fmt.Sprintf("this is %s and must be %s", v.kind, aText), "put it in quotes")
	case strings.TrimSpace(v.text) == "":
		r.fail(v, "this must not be empty", "say it, or remove the field")
	case len(v.text) > most:
		r.fail(v, fmt.Sprintf("this is longer than %d bytes", most), "shorten it")
	default:
		return v.text
	}
	return ""
}

// match reads what a rule is about.
func (r *definitionReader) match(v *value, d *Definition) {
	for _, f := range r.fields(v, "kinds", "roots", "names") {
		texts := r.texts(f)
		switch f.name {
		case "kinds":
			d.kinds = texts
			for _, item := range f.items {
				if ours := misspelt(item.text); ours != "" {
					r.fail(item, "there is no kind "+quoted(item.text), "write "+ours)
				}
			}
		case "roots":
			d.roots = r.patterns(f, texts)
		case "names":
			d.names = r.patterns(f, texts)
		}
	}
}

// misspelt is the kind of cloop.dev that a name all but is; empty: it is one, or
// another kind altogether.
func misspelt(kind string) string {
	const near = 2
	ours := []string{v1alpha1.ExecutorPoolKind, v1alpha1.HubPoolKind, v1alpha1.PoolSyncKind}
	if slices.Contains(ours, kind) {
		return ""
	}
	for _, one := range ours {
		if distance(strings.ToLower(kind), strings.ToLower(one)) <= near {
			return one
		}
	}
	return ""
}

// distance is how many letters have to be put in, removed or replaced.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}

func (r *definitionReader) texts(v *value) []string {
	if v.kind != aList || len(v.items) == 0 || len(v.items) > maxMatches {
		r.fail(v, fmt.Sprintf("this must be a list of 1 to %d texts", maxMatches), "to match all, leave the field out")
		return nil
	}
	var texts []string
	for _, item := range v.items {
		if text := r.text(item, maxPattern); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

func (r *definitionReader) patterns(v *value, texts []string) []pattern {
	var patterns []pattern
	for _, text := range texts {
		one, err := newPattern(text)
		if err != nil {
			r.fail(v, err.Error(), "write patterns such as clusters/* or gpu-*")
			continue
		}
		patterns = append(patterns, one)
	}
	return patterns
}
