package schemas

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says whether a problem makes the answer "no".
type Severity string

// Severities of a Problem.
const (
	// SeverityError is a document that an API server refuses, or that cannot
	// mean what its author wants.
	SeverityError Severity = "error"
	// SeverityWarning is worth a look and refuses nothing.
	SeverityWarning Severity = "warning"
)

// Rules that this package reports. They are stable: SARIF and scripts use them.
const (
	// RuleSyntax is text that is no YAML or JSON, or no object.
	RuleSyntax = "syntax"
	// RuleDuplicateKey is a key written twice in one mapping.
	RuleDuplicateKey = "duplicate-key"
	// RuleTypeMeta is a document without apiVersion or kind.
	RuleTypeMeta = "type-meta"
	// RuleUnknownKind is a kind or version that cloop.dev does not have.
	RuleUnknownKind = "unknown-kind"
	// RuleUnknownField is a field that the kind does not have.
	RuleUnknownField = "unknown-field"
	// RuleMetadata is a breach of the rules that hold for every object's
	// metadata: names, labels, annotations.
	RuleMetadata = "metadata"
	// RuleSchema is a breach of a type, bound, pattern, enum or required field.
	RuleSchema = "schema"
	// RuleCEL is a breach of a rule that looks at several fields or elements.
	RuleCEL = "cel"
)

// Problem is one thing that is wrong with a document.
type Problem struct {
	// Rule is the id of a rule: of a Rule… constant, of a package that builds on
	// this one, or of the repository.
	Rule string `json:"rule"`
	// Severity is error or warning.
	Severity Severity `json:"severity"`
	// File as it was given to Decode; Line and Column count from 1, in
	// characters, and are 0 where no position is known.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Object is "Kind namespace/name", "Kind name" without a namespace.
	Object string `json:"object,omitempty"`
	// Path is the field as the API server prints it: spec.env[0].name.
	Path string `json:"path,omitempty"`
	// At is the field to change where that is more precise than Path: an API
	// server names the object that a rule over several of its fields is on.
	At string `json:"-"`
	// Fields are those that a rule over several looks at, as Path has them: the
	// one that was written last is the one to change.
	Fields []string `json:"-"`
	// Message is the API server's own message, without path.
	Message string `json:"message"`
	// Hint says what to do about it; may be empty.
	Hint string `json:"hint,omitempty"`
}

// uncheckedRules is the API server's remark on an object with other errors.
const uncheckedRules = "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"

// Unchecked says whether the problem is only that rules wait for others to be
// corrected.
func (p Problem) Unchecked() bool { return p.Rule == RuleCEL && p.Message == uncheckedRules }

// String prints the problem on one line:
// file:line:col: object: path: message (hint).
func (p Problem) String() string {
	parts := make([]string, 0, 4)
	if position := p.position(); position != "" {
		parts = append(parts, position)
	}
	for _, part := range []string{p.Object, p.Path} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	// A message that quotes a whole value may hold line breaks.
	parts = append(parts, strings.ReplaceAll(p.Message, "\n", `\n`))
	text := strings.Join(parts, ": ")
	if p.Hint != "" {
		text += " (" + p.Hint + ")"
	}
	return text
}

// Field is the field to change: At, or else Path.
func (p Problem) Field() string { return cmp.Or(p.At, p.Path) }

func (p Problem) position() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.File == "":
		return fmt.Sprintf("%d:%d", p.Line, p.Column)
	default:
		return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	}
}

// sortProblems orders by position, and by text where several are at one place,
// because the API server's own order is that of a Go map.
func sortProblems(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Message, b.Message),
		)
	})
}
