package schemas

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seeds are texts of the corpus. Every test run tries them all.
func seeds(f *testing.F, patterns ...string) []string {
	f.Helper()
	var all []string
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join("testdata", pattern))
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			all = append(all, string(data))
		}
	}
	if len(all) == 0 {
		f.Fatal("the corpus has moved")
	}
	return all
}

// FuzzValidate holds that a verdict is the same each time, leaves the document
// alone, and that what is good stays good once its defaults are written out.
func FuzzValidate(f *testing.F) {
	for _, seed := range seeds(f, "documents/*/*.yaml") {
		f.Add(seed)
	}
	validator := mustValidator(f)
	f.Fuzz(func(t *testing.T, text string) {
		documents, _ := Decode("f", []byte(text))
		for _, document := range documents {
			before := document.Object.DeepCopy()
			problems := validator.Validate(document)
			if diff := cmp.Diff(before.Object, document.Object.Object); diff != "" {
				t.Errorf("the document changed:\n%s", diff)
			}
			if diff := cmp.Diff(problems, validator.Validate(document)); diff != "" {
				t.Errorf("the second verdict is another:\n%s", diff)
			}
			if len(problems) > 0 {
				continue
			}
			filled := document
			filled.Object = before
			if err := validator.Default(filled.Object); err != nil {
				t.Fatal(err)
			}
			once := filled.Object.DeepCopy()
			if err := validator.Default(filled.Object); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(once.Object, filled.Object.Object); diff != "" {
				t.Errorf("defaults are filled in twice:\n%s", diff)
			}
			if problems := validator.Validate(filled); len(problems) > 0 {
				t.Errorf("with its defaults written out it is bad: %v", problems)
			}
		}
	})
}

// FuzzValidateUpdate holds that a change is judged no harder than a creation but
// by rules on changes, and that putting back what is stored is never wrong.
func FuzzValidateUpdate(f *testing.F) {
	all := seeds(f, "documents/whole/*.yaml", "updates/*.yaml")
	for i, seed := range all {
		f.Add(seed, all[(i+1)%len(all)])
		f.Add(seed, seed)
	}
	validator := mustValidator(f)
	f.Fuzz(func(t *testing.T, old, text string) {
		stored, _ := Decode("old", []byte(old))
		documents, _ := Decode("new", []byte(text))
		for i := range min(len(stored), len(documents)) {
			was, is := stored[i].Object, documents[i]
			before, after := was.DeepCopy(), is.Object.DeepCopy()
			onChange := validator.ValidateUpdate(was, is)
			if diff := cmp.Diff([]any{before.Object, after.Object}, []any{was.Object, is.Object.Object}); diff != "" {
				t.Errorf("an object changed:\n%s", diff)
			}
			onCreate := validator.Validate(is)
			for _, problem := range onChange {
				if judgesChanges(problem) || slices.ContainsFunc(onCreate, func(p Problem) bool { return p.Path == problem.Path && p.Message == problem.Message }) {
					continue
				}
				t.Errorf("only the change breaks: %v", problem)
			}
			for _, problem := range validator.ValidateUpdate(was, stored[i]) {
				// A server finds no old one for an entry that has not its key.
				inList := strings.Contains(problem.Path, "[")
				if !inList && !judgesChanges(problem) && problem.Rule != RuleUnknownField && problem.Rule != RuleUnknownKind {
					t.Errorf("what is stored is refused: %v", problem)
				}
			}
		}
	})
}

// judgesChanges says whether a problem may come of a change alone: metadata that
// may not change, rules on changes, and the note that rules were not evaluated.
func judgesChanges(p Problem) bool {
	return p.Rule == RuleMetadata || p.Rule == RuleCEL
}

// FuzzPosition holds that every field of a document is found where it is
// written, by its pointer and by the path that a server prints, and that no path
// leads out of the text.
func FuzzPosition(f *testing.F) {
	for _, seed := range seeds(f, "documents/whole/*.yaml", "documents/text/*.yaml") {
		f.Add(seed, "spec.template.env[0].name")
		f.Add(seed, "/spec/template/env/0")
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		lines := strings.Count(text, "\n") + strings.Count(text, "\r") + strings.Count(text, "\u0085") +
			strings.Count(text, "\u2028") + strings.Count(text, "\u2029") + 1
		documents, _ := Decode("f", []byte(text))
		for _, document := range documents {
			for _, find := range []func(string) (int, int){document.Position, document.positionOf} {
				if line, column := find(path); line < 1 || line > lines || column < 1 {
					t.Errorf("%q is at %d:%d of %d lines", path, line, column, lines)
				}
			}
			eachPointer("", document.Object.Object, func(pointer string) {
				line, _ := document.Position(pointer)
				if line < document.Line {
					t.Errorf("%s is on line %d, before its document on line %d", pointer, line, document.Line)
				}
			})
		}
	})
}

// eachPointer visits the JSON pointer of everything below a value.
func eachPointer(pointer string, value any, visit func(pointer string)) {
	visit(pointer)
	switch value := value.(type) {
	case map[string]any:
		for name, child := range value {
			eachPointer(pointer+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), child, visit)
		}
	case []any:
		for i := range value {
			eachPointer(pointer+"/"+strconv.Itoa(i), value[i], visit)
		}
	}
}
