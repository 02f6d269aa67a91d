package fleet

import (
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// keepsApplications says whether an ApplicationSet deletes no Application that it does
// not make any more.
func keepsApplications(obj *unstructured.Unstructured) bool {
	return obj.GetKind() == kindApplicationSet && slices.Contains([]string{"create-only", "create-update"}, textAt(obj, "spec", "syncPolicy", "applicationsSync"))
}

// MakesFewer says whether an ApplicationSet may not make an Application any more that it
// made: its generators do not find all that they found, or the Applications have other
// names. What such an Application has applied goes with it, or else it stays too.
func MakesFewer(before, after *unstructured.Unstructured) bool {
	if before.GetKind() != kindApplicationSet || before.GroupVersionKind().Group != argoGroup || !fateBy(after).Along {
		return false
	}
	name := textAt(before, "spec", "template", "metadata", "name")
	was, _, _ := unstructured.NestedSlice(before.Object, "spec", "generators")
	now, _, _ := unstructured.NestedSlice(after.Object, "spec", "generators")
	return name != textAt(after, "spec", "template", "metadata", "name") || !allStill(was, now, name)
}

// allStill says whether a list of generators, or of what one finds, still has all that it
// had, and excludes nothing more. name is what the names of Applications are made by.
func allStill(was, now []any, name string) bool {
	still := func(one any, among []any) bool {
		return slices.ContainsFunc(among, func(other any) bool { return findsStill(one, other, name) })
	}
	return !slices.ContainsFunc(was, func(one any) bool { return !excludes(one) && !still(one, now) }) &&
		!slices.ContainsFunc(now, func(one any) bool { return excludes(one) && !still(one, was) })
}

func excludes(found any) bool {
	fields, _ := found.(map[string]any)
	return fields["exclude"] == true
}

// findsStill is like it for one of them.
func findsStill(was, now any, name string) bool {
	from, isMap := was.(map[string]any)
	to, areMaps := now.(map[string]any)
	if !isMap || !areMaps {
		return reflect.DeepEqual(was, now)
	}
	for _, fields := range []map[string]any{from, to} {
		for field := range fields {
			old, _ := from[field].([]any)
			list, _ := to[field].([]any)
			var same bool
			switch field {
			case "requeueAfterSeconds", "template":
				same = true
			case "elements":
				same = allStill(namedBy(name, old), namedBy(name, list), name)
			case "directories", "files":
				same = allStill(old, list, name)
			case "generators":
				// Those of a matrix, or of a merge, each with all others.
				same = slices.EqualFunc(old, list, func(a, b any) bool { return findsStill(a, b, name) })
			case "values":
				same = reflect.DeepEqual(namedBy(name, []any{from[field]}), namedBy(name, []any{to[field]}))
			default:
				same = findsStill(from[field], to[field], name)
			}
			if !same {
				return false
			}
		}
	}
	return true
}

// namedBy are elements with those of their fields alone that a name is made by; with all
// where it is made by none.
func namedBy(name string, elements []any) []any {
	reduced := make([]any, len(elements))
	for i := range elements {
		reduced[i] = elements[i]
		named := map[string]any{}
		fields, _ := elements[i].(map[string]any)
		for field, value := range fields {
			if regexp.MustCompile(`\b` + regexp.QuoteMeta(field) + `\b`).MatchString(name) {
				named[field] = value
			}
		}
		if len(named) > 0 {
			reduced[i] = named
		}
	}
	return reduced
}

// leading is the variable of a git generator that is the path of what it finds.
var leading = regexp.MustCompile(`^\{\{\s*\.?path(\.path)?\s*\}\}`)

var anyVariable = regexp.MustCompile(`\{\{.*?\}\}`)

// pathsMade matches the paths that the Applications of an ApplicationSet may have, by the
// path of its template.
func pathsMade(obj *unstructured.Unstructured, template string) *regexp.Regexp {
	var found []string
	gather(obj.Object["spec"], &found)
	variable := leading.FindString(template)
	expression := ""
	if variable != "" && len(found) > 0 {
		expression, template = "(?:"+strings.Join(found, "|")+")", strings.TrimPrefix(template, variable)
	}
	rest := 0
	for _, at := range anyVariable.FindAllStringIndex(template, -1) {
		expression += regexp.QuoteMeta(template[rest:at[0]]) + ".+"
		rest = at[1]
	}
	made, err := regexp.Compile("^" + expression + regexp.QuoteMeta(template[rest:]) + "$")
	if err != nil {
		return anyVariable
	}
	return made
}

// gather adds what the generators of Git below a value may give as a path.
func gather(value any, found *[]string) {
	switch value := value.(type) {
	case map[string]any:
		for field, inner := range value {
			list, _ := inner.([]any)
			for _, entry := range list {
				fields, _ := entry.(map[string]any)
				where, _ := fields["path"].(string)
				switch {
				case where == "" || fields["exclude"] == true:
				case field == "directories":
					*found = append(*found, globbed(where))
				case field == "files":
					*found = append(*found, globbed(path.Dir(where)))
				}
			}
			gather(inner, found)
		}
	case []any:
		for i := range value {
			gather(value[i], found)
		}
	}
}

// globbed is a pattern of a git generator as an expression.
func globbed(pattern string) string {
	text := regexp.QuoteMeta(path.Clean(pattern))
	text = strings.ReplaceAll(text, `\*\*`, ".*")
	text = strings.ReplaceAll(text, `\*`, "[^/]*")
	return strings.ReplaceAll(text, `\?`, "[^/]")
}
