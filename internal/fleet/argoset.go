package fleet

import (
	"io/fs"
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

// pathsMade are the paths that the Applications of an ApplicationSet may have.
type pathsMade struct {
	// template is that of its template; with leading it begins with the path of what its
	// generators of Git find, which is the first group.
	template *regexp.Regexp
	leading  bool
	// directories are found, other than those that are excluded, and those of files.
	directories, excluded, files []*regexp.Regexp
}

var (
	leadingPath = regexp.MustCompile(`^\{\{\s*\.?path(\.path)?\s*\}\}`)
	anyVariable = regexp.MustCompile(`\{\{.*?\}\}`)
)

func pathsMadeBy(obj *unstructured.Unstructured, template string) *pathsMade {
	made := &pathsMade{}
	made.gather(obj.Object["spec"])
	made.leading = leadingPath.MatchString(template) && len(made.directories)+len(made.files) > 0
	expression, rest := "^", 0
	for _, at := range anyVariable.FindAllStringIndex(template, -1) {
		expression += regexp.QuoteMeta(template[rest:at[0]]) + "(.+)"
		rest = at[1]
	}
	made.template = regexp.MustCompile(expression + regexp.QuoteMeta(template[rest:]) + "$")
	return made
}

// has says whether a path is one of them. list are the names in a directory.
func (m *pathsMade) has(name string, list func(dir string) []string) bool {
	match := m.template.FindStringSubmatch(name)
	if match == nil || !m.leading {
		return match != nil
	}
	dir := match[1]
	in := func(name string, among []*regexp.Regexp) bool {
		return slices.ContainsFunc(among, func(r *regexp.Regexp) bool { return r.MatchString(name) })
	}
	return in(dir, m.directories) && !in(dir, m.excluded) ||
		len(m.files) > 0 && slices.ContainsFunc(list(dir), func(file string) bool { return in(path.Join(dir, file), m.files) })
}

// gather adds what the generators of Git below a value find.
func (m *pathsMade) gather(value any) {
	switch value := value.(type) {
	case map[string]any:
		for field, inner := range value {
			list, _ := inner.([]any)
			for _, entry := range list {
				fields, _ := entry.(map[string]any)
				where, _ := fields["path"].(string)
				switch {
				case where == "":
				case field == "directories" && fields["exclude"] == true:
					m.excluded = append(m.excluded, globbed(where))
				case field == "directories":
					m.directories = append(m.directories, globbed(where))
				case field == "files" && fields["exclude"] != true:
					m.files = append(m.files, globbed(where))
				}
			}
			m.gather(inner)
		}
	case []any:
		for i := range value {
			m.gather(value[i])
		}
	}
}

// globbed is a pattern of a generator of Git as an expression.
func globbed(pattern string) *regexp.Regexp {
	text := regexp.QuoteMeta(path.Clean(pattern))
	text = strings.NewReplacer(`\*\*/`, "(?:.*/)?", `\*\*`, ".*", `\*`, "[^/]*", `\?`, "[^/]").Replace(text)
	return regexp.MustCompile("^" + text + "$")
}

// noteMade notes which plain roots an ApplicationSet may have Applications of, and nothing
// else of the repository applies.
func (b *builder) noteMade(roots []root, appliers []applier) []root {
	sets := slices.DeleteFunc(slices.Clone(appliers), func(a applier) bool { return a.elsewhere || a.made == nil })
	list := func(dir string) (names []string) {
		entries, _ := fs.ReadDir(b.root.FS(), dir)
		for _, entry := range entries {
			if b.gate.tracked.has(path.Join(dir, entry.Name())) {
				names = append(names, entry.Name())
			}
		}
		return names
	}
	for i := range roots {
		r := &roots[i]
		r.made = r.kustomization == "" && slices.ContainsFunc(sets, func(a applier) bool { return a.made.has(r.path, list) }) &&
			!slices.ContainsFunc(appliers, func(a applier) bool { return a.applies(r.path) })
	}
	return roots
}
