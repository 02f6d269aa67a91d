package fleet

import (
	"regexp"
	"strconv"
	"strings"

	"cloop.dev/cloop/internal/secret"
	"cloop.dev/cloop/schemas"
)

// notShown stands for a value that is a secret by where it is.
const notShown = "[not shown]"

// quotedText is a text in quotes, or what stands for it.
func quotedText(text string, hidden bool) string {
	if hidden {
		return notShown
	}
	return strconv.Quote(text)
}

// verdictValue is the value that an API server's message begins with.
var verdictValue = regexp.MustCompile(`^(\w+ value: )("(?:\\.|[^"\\])*"|[^:]*)`)

// withoutSecret hides the value in the message of a problem with a Secret, or with
// a field whose name speaks of one, such as a label token.
func withoutSecret(kind string, problem schemas.Problem) schemas.Problem {
	name := strings.TrimRight(problem.Path, "]")
	if cut := strings.LastIndexAny(name, ".["); cut >= 0 {
		name = name[cut+1:]
	}
	if kind == "Secret" || secret.Named(name) && !strings.HasSuffix(name, "Ref") {
		problem.Message = verdictValue.ReplaceAllString(problem.Message, "${1}"+notShown)
	}
	return problem
}
