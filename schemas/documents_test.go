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
// line:column, path, message. Then a comment says why. A name that begins with
// good- has no error. Folders are subjects; manifests in whole have every field.
func TestDocuments(t *testing.T) {
	files, err := filepath.Glob("testdata/documents/*/*.yaml")
	if err != nil || len(files) < 200 {
		t.Fatalf("%d documents, %v", len(files), err)
	}
	checkCorpus(t, files, findings)
}

// An update has two documents: what is stored, and what takes its place.
func TestUpdates(t *testing.T) {
	files, err := filepath.Glob("testdata/updates/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d updates, %v", len(files), err)
	}
	checkCorpus(t, files, func(validator *Validator, file string, data []byte) []string {
		documents, problems := Decode(file, data)
		if len(documents) != 2 || len(problems) > 0 {
			t.Fatalf("%s: %d documents, %v", file, len(documents), problems)
		}
		return spell(validator.ValidateUpdate(documents[0].Object, documents[1]))
	})
}

func checkCorpus(t *testing.T, files []string, findings func(validator *Validator, file string, data []byte) []string) {
	validator := mustValidator(t)
	for _, file := range files {
		name, _ := filepath.Rel("testdata", file)
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				data = rewriteHeader(t, file, data, func(data []byte) []string { return findings(validator, file, data) })
			}
			want := header(data)
			got := findings(validator, file, data)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("expected (-) and found (+):\n%s", diff)
			}
			if good := strings.HasPrefix(filepath.Base(file), "good-"); good != (len(want) == 0) {
				t.Errorf("the name says good=%v, the header expects %d problems", good, len(want))
			}
			if !bytes.HasPrefix(data[headerLength(data):], []byte("# ")) {
				t.Error("no comment says why")
			}
		})
	}
}

// findings lists what Decode and Validate say.
func findings(validator *Validator, file string, data []byte) []string {
	documents, problems := Decode(file, data)
	for _, document := range documents {
		problems = append(problems, validator.Validate(document)...)
	}
	return spell(problems)
}

// spell prints problems as a header has them.
func spell(problems []Problem) []string {
	var lines []string
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
func rewriteHeader(t *testing.T, file string, data []byte, findings func(data []byte) []string) []byte {
	t.Helper()
	body := data[headerLength(data):]
	for range 2 {
		var text bytes.Buffer
		for _, line := range findings(data) {
			text.WriteString(expectation + line + "\n")
		}
		data = append(text.Bytes(), body...)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return data
}

func headerLength(data []byte) int {
	length := 0
	for bytes.HasPrefix(data[length:], []byte(expectation)) {
		length += bytes.IndexByte(data[length:], '\n') + 1
	}
	return length
}

func mustValidator(t testing.TB) *Validator {
	t.Helper()
	validator, err := NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	return validator
}
