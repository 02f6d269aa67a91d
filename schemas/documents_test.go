package schemas

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what is found into the headers of testdata/documents")

const expectation = "# expect "

// Every document under testdata says in its header what is wrong with it: rule,
// line:column, path, message. A name that begins with good- has no error.
func TestDocuments(t *testing.T) {
	validator := mustValidator(t)
	files, err := filepath.Glob("testdata/documents/*.yaml")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d documents, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				data = rewriteHeader(t, validator, file, data)
			}
			want := header(data)
			got := findings(validator, file, data)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("expected (-) and found (+):\n%s", diff)
			}
			if good := strings.HasPrefix(filepath.Base(file), "good-"); good != (len(want) == 0) {
				t.Errorf("the name says good=%v, the header expects %d problems", good, len(want))
			}
		})
	}
}

// findings lists what Decode and Validate say, as a header spells it.
func findings(validator *Validator, file string, data []byte) []string {
	var lines []string
	documents, problems := Decode(file, data)
	for _, document := range documents {
		problems = append(problems, validator.Validate(document)...)
	}
	for _, problem := range problems {
		line := fmt.Sprintf("%s %d:%d ", problem.Rule, problem.Line, problem.Column)
		if problem.Severity != SeverityError {
			line = string(problem.Severity) + " " + line
		}
		if problem.Path != "" {
			line += problem.Path + ": "
		}
		lines = append(lines, line+strings.ReplaceAll(problem.Message, "\n", `\n`))
	}
	return lines
}

func header(data []byte) []string {
	var lines []string
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, expectation); ok {
			lines = append(lines, strings.TrimSuffix(text, "\n"))
		}
	}
	return lines
}

// rewriteHeader replaces the header. Its own length moves the lines, so that
// it is written twice.
func rewriteHeader(t *testing.T, validator *Validator, file string, data []byte) []byte {
	t.Helper()
	for len(data) > 0 && bytes.HasPrefix(data, []byte(expectation)) {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	body := data
	for range 2 {
		var text bytes.Buffer
		for _, line := range findings(validator, file, data) {
			text.WriteString(expectation + line + "\n")
		}
		data = append(text.Bytes(), body...)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return data
}

func mustValidator(t testing.TB) *Validator {
	t.Helper()
	validator, err := NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	return validator
}
