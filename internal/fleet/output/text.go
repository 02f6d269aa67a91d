package output

import (
	"strings"

	"cloop.dev/cloop/schemas"
)

// text has a line for each problem, which editors and terminals make a link of,
// and the summary last, where eyes are.
func text(result *Result, options Options) ([]byte, error) {
	var b strings.Builder
	roots := rootsOf(result.Report)
	for i, problem := range result.Report.Problems {
		shown := shownIn(&problem, roots[i])
		if options.Spell != nil {
			problem.File = options.Spell(problem.File)
		}
		line := cleaned(problem).String() + shown
		if problem.Severity == schemas.SeverityWarning {
			line = "warning: " + line
		}
		b.WriteString(logged(line+" ["+visible(problem.Rule)+"]") + "\n")
	}
	if note := result.sparse(); note != "" {
		b.WriteString("note: " + note + "\n")
	}
	if result.failure == nil {
		b.WriteString(result.Summary() + "\n")
	}
	return []byte(b.String()), nil
}
