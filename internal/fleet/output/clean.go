package output

import (
	"strings"

	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/schemas"
)

const (
	// maxMessage bounds a text in bytes: a message may quote a value of a
	// megabyte.
	maxMessage = 2000
	// maxName bounds the name of a file, an object or a field in a text that
	// has room for few of them. A place in the repository is never shortened.
	maxName = 300
)

// visible is text on one line in which everything can be seen: what is not
// UTF-8, control characters, line breaks, and characters that only direct how
// others are shown become escapes. It is fit for XML too.
func visible(text string) string { return printable.Line(text) }

// cleaned is the problem with each of its texts visible and bounded.
func cleaned(problem schemas.Problem) schemas.Problem {
	problem.File = visible(problem.File)
	problem.Object = printable.Abridge(visible(problem.Object), maxName)
	problem.Path = printable.Abridge(visible(problem.Path), maxName)
	problem.Message = printable.Abridge(visible(problem.Message), maxMessage)
	problem.Hint = printable.Abridge(visible(problem.Hint), maxMessage)
	problem.Rule = printable.Abridge(visible(problem.Rule), maxName)
	return problem
}

// described is a problem without its place: object: field: message (hint), and
// the roots that show it.
func described(e entry) string {
	problem := cleaned(*e.Problem)
	problem.File, problem.Line = "", 0
	return problem.String() + shownIn(e.Problem, e.roots)
}

// logged is a line for the log of a CI job that no runner takes for a command.
// GitHub's reads a line that begins with :: and, like others, brackets after ##
// anywhere in it.
func logged(line string) string {
	line = strings.ReplaceAll(line, "##", `#\u0023`)
	if strings.HasPrefix(strings.TrimSpace(line), "::") {
		return "./" + strings.TrimSpace(line)
	}
	return line
}
