package fleet

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"

	"cloop.dev/cloop/schemas"
)

// beyond is a bound that is passed at a place which is known.
type beyond struct {
	file    string
	at      position
	message string
	// remedy says what to do about it.
	remedy string
	// kind is errBounds, or errFile where it says nothing of other files.
	kind error
}

func (e *beyond) Error() string {
	return fmt.Sprintf("%v: %s: %s", e.kind, e.message, e.remedy)
}

func (e *beyond) Unwrap() error { return e.kind }

// beyondAt is a bound of the root that is passed at a node of a file.
func beyondAt(file string, node *yaml.Node, message, remedy string) error {
	return &beyond{file: file, at: whereIs(node), message: message, remedy: remedy, kind: errBounds}
}

// fileBeyond is a bound of one file that is passed.
func fileBeyond(file, format string, args ...any) error {
	return &beyond{file: file, message: fmt.Sprintf(format, args...), remedy: rules[RuleTooLarge].Remedy, kind: errFile}
}

// tooLarge is the problem that a passed bound is, in a file unless it knows its own.
func tooLarge(err error, file string) schemas.Problem {
	known := (*beyond)(nil)
	if !errors.As(err, &known) || known.file == "" {
		return located(broken(RuleTooLarge, err.Error()), file)
	}
	problem := broken(RuleTooLarge, fmt.Sprintf("%v: %s", known.kind, known.message))
	problem.File, problem.Line, problem.Column, problem.Hint = known.file, max(known.at.lines, 1), max(known.at.columns, 1), known.remedy
	return problem
}
