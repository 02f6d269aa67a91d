package fleet

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/fluxcd/pkg/envsubst"
	"github.com/fluxcd/pkg/envsubst/parse"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/schemas"
)

// colonless is a variable with a default, or another operator, as a shell takes it
// and Flux does not: without the colon.
var colonless = regexp.MustCompile(`(?:^|[^$])\$\{([_a-zA-Z][_a-zA-Z0-9]*)([-+?])([^}]*)\}`)

// unparsed says what is wrong with a text whose variables cannot be read, and what
// to write instead. The library, which is a parser of shell's expressions, takes
// ${NAME=x}, ${NAME:=x} and ${NAME:-x} for defaults, and behind the name no other
// character that is neither the end nor one of its operators.
func unparsed(text string, err error) (why, remedy string) {
	switch match := colonless.FindStringSubmatch(text); {
	case errors.Is(err, parse.ErrMissingClosingBrace) && match != nil && match[2] == "-":
		return fmt.Sprintf("a default stands behind := or :-, and a name has no dash (in ${%s-%s})", match[1], match[3]),
			fmt.Sprintf("write ${%[1]s:=%[2]s} for a default, or ${%[1]s_%[2]s} where it is all a name; $${%[1]s-%[2]s} is the text itself", match[1], match[3])
	case errors.Is(err, parse.ErrMissingClosingBrace) && match != nil:
		return fmt.Sprintf("there is no operator %s (in ${%s%s%s})", match[2], match[1], match[2], match[3]),
			fmt.Sprintf("write ${%[1]s:=%[2]s} for a default; $${%[1]s%[3]s%[2]s} is the text itself", match[1], match[3], match[2])
	case errors.Is(err, parse.ErrMissingClosingBrace):
		return "behind the name of a variable there is neither a brace nor an operator",
			"close the brace behind the name, or write a default as ${NAME:=value}; $${NAME} is the text itself"
	case errors.Is(err, parse.ErrParseVariableName):
		return "there is no name behind ${", "write a name of letters, digits and underscores right behind the brace, as in ${NAME}; $${ is the text itself"
	case errors.Is(err, parse.ErrBadSubstitution), errors.Is(err, parse.ErrParseFuncSubstitution), errors.Is(err, parse.ErrParseDefaultFunction):
		return err.Error(), "write ${NAME}, or ${NAME:=value} with a default; $${NAME} is the text itself"
	}
	return err.Error(), ""
}

// errNoObject is what an object's text becomes that was within the bounds.
var errNoObject = errors.New("with its variables replaced it is no object")

// unreplaced is an object that is none once its variables are replaced: it is put
// at the field that is no YAML then, or at the value if the field is one variable.
func (o *renderedObject) unreplaced(v *Variables, err error) schemas.Problem {
	problem := o.locate(o.about(RuleSubstitution, "", err.Error()))
	if !errors.Is(err, errNoObject) {
		// It may be beyond the bounds, and is not replaced here either.
		return problem
	}
	eachText(o.Object.Object, "", func(pointer, text string) {
		if problem.Path != "" || !strings.Contains(text, "$") {
			return
		}
		after, err := envsubst.Eval(text, func(name string) (string, bool) {
			value, ok := v.values[name]
			return value.text, ok
		})
		if err != nil {
			return
		}
		if _, err = yaml.YAMLToJSON([]byte("value: " + after)); err == nil {
			return
		}
		path := printPath(o.Object.Object, pointer)
		problem = o.locate(o.about(RuleSubstitution, path, fmt.Sprintf("with its variables replaced it is no YAML: %q", printable.Clip(after, maxQuoted))))
		problem.Hint = "give the value quotes of its own: it is put into the object's text as it is"
		if match := whole.FindStringSubmatch(text); match != nil {
			if given := v.values[match[1]].at; given.file != "" {
				problem.File, problem.Line, problem.Column = given.file, int(given.line), int(given.column)
			}
		}
	})
	return problem
}

// ownQuotes is what to do about a variable that was to be a text.
const ownQuotes = `a variable's value is read as YAML, without the quotes around the variable: give it quotes of its own, such as '"12"'`

// hintVariables says of values that were to be texts how a variable makes one:
// its value is read as YAML, whatever quotes stand around the variable.
func (o *renderedObject) hintVariables(problems []schemas.Problem) {
	for i := range problems {
		p := &problems[i]
		if o.variables == nil || p.Hint != "" || !strings.Contains(p.Message, "must be of type string") {
			continue
		}
		if pointer, _ := pointerOf(o.Object.Object, p.Field()); pointer != "" {
			if _, ok := o.madeWhole(pointer); ok {
				p.Hint = ownQuotes
			}
		}
	}
}

// hintNotReplaced says of values with a variable that what applies the object replaces
// none.
func (o *renderedObject) hintNotReplaced(problems []schemas.Problem, by string) {
	field := "spec.substitute"
	if strings.HasPrefix(by, "Kustomization ") {
		field = "spec.postBuild"
	}
	for i := range problems {
		p := &problems[i]
		pointer, _ := pointerOf(o.Object.Object, p.Field())
		value, _ := lookup(o.Object.Object, pointer)
		text, _ := value.(string)
		if !strings.Contains(text, "${") {
			continue
		}
		p.Hint = fmt.Sprintf("%s is not replaced, since %s has no %s: give it one, with the value", printable.Clip(text, maxQuoted), by, field)
	}
}
