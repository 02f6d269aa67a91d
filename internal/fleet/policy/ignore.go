package policy

import (
	"fmt"
	"strconv"
	"time"

	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/schemas"
)

// Ignore turns a rule off: at a place of a source file where a comment says so,
// or for files where the configuration does.
type Ignore struct {
	// Rule is the id of the rule; Reason is why, never empty.
	Rule, Reason string
	// Comment tells one in a source file from one in the configuration.
	Comment bool
	// File, Line and Column are where it stands.
	File         string
	Line, Column int
	// Until is the last day on which it counts, in UTC; zero: it has no end.
	Until time.Time

	// from and to are the lines of File that a comment means.
	from, to int
	// paths of the configuration.
	paths []pattern
}

// Covers says whether the ignore means a finding, whatever the day.
func (i *Ignore) Covers(p schemas.Problem) bool {
	if i.Rule != p.Rule || p.File == "" {
		return false
	}
	if i.Comment {
		return p.File == i.File && i.from <= p.Line && p.Line <= i.to
	}
	return matchAny(i.paths, p.File)
}

// Expired says whether the ignore's last day is over. A zero time is before
// every end.
func (i *Ignore) Expired(now time.Time) bool {
	return !i.Until.IsZero() && now.UTC().After(i.Until.AddDate(0, 0, 1).Add(-time.Nanosecond))
}

// Unused is the problem with an ignore that covered nothing. elsewhere is a file that a
// finding of its rule names; empty: there is none.
func (i *Ignore) Unused(elsewhere string) schemas.Problem {
	if !i.Comment && elsewhere != "" {
		return i.problem(RuleUnusedIgnore, fmt.Sprintf("no finding of %s names a file of these paths; one names %s", i.Rule, elsewhere),
			"name that file, which has the value that counts, or remove this")
	}
	return i.problem(RuleUnusedIgnore, fmt.Sprintf("nothing here breaks %s", i.Rule), "remove it, or move it to the line that it is meant for")
}

// Overdue is the problem with an ignore that has expired.
func (i *Ignore) Overdue() schemas.Problem {
	return i.problem(RuleExpiredIgnore, fmt.Sprintf("%s was to be ignored until %s", i.Rule, i.Until.Format(time.DateOnly)),
		"do what it was waiting for and remove it, or give it another day")
}

func (i *Ignore) problem(rule, message, hint string) schemas.Problem {
	problem := place{i.File, i.Line, i.Column}.problem("", message, hint)
	problem.Rule, problem.Severity = rule, schemas.SeverityWarning
	return problem
}

func quoted(text string) string {
	const most = 80
	return strconv.Quote(printable.Clip(text, most))
}
