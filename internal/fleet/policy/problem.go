package policy

import "cloop.dev/cloop/schemas"

// Rules that this package reports. They are stable, as those of package schemas.
const (
	// RuleConfig is something of a repository's own that cannot be meant.
	RuleConfig = "config"
	// RuleUnusedIgnore is an ignore that no finding needs.
	RuleUnusedIgnore = "unused-ignore"
	// RuleExpiredIgnore is an ignore whose day has passed.
	RuleExpiredIgnore = "expired-ignore"
	// RuleUnusedRule is a rule of the repository's own that is about nothing.
	RuleUnusedRule = "unused-rule"
)

// place is where something stands in a file of the repository.
type place struct {
	file         string
	line, column int
}

// problem is an error of a file that this package reads. Path may be empty.
func (p place) problem(path, message, hint string) schemas.Problem {
	return schemas.Problem{Rule: RuleConfig, Severity: schemas.SeverityError, File: p.file, Line: max(p.line, 1), Column: max(p.column, 1),
		Path: path, Message: message, Hint: hint}
}

// Known says what a rule's id stands for.
type Known interface {
	// Known says whether there is such a rule.
	Known(id string) bool
	// Fixed says that the rule is the verdict of whoever applies the document,
	// which nobody can turn off.
	Fixed(id string) bool
}

// judgeID says what is wrong with turning a rule off or giving it another
// severity; an empty message: nothing.
func judgeID(known Known, id string) (message, hint string) {
	switch {
	case !known.Known(id):
		return "there is no rule " + quoted(id), "docs/reference/rules.md lists the rules, .cloop/rules.cue has the repository's own"
	case known.Fixed(id):
		return "rule " + id + " cannot be turned off: the API server, the hub or kustomize refuses the document anyway", "correct the document, and remove this"
	}
	return "", ""
}
