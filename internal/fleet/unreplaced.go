package fleet

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fluxcd/pkg/envsubst"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/schemas"
)

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
				p.Hint = `a variable's value is read as YAML, without the quotes around the variable: give it quotes of its own, such as '"12"'`
			}
		}
	}
}
