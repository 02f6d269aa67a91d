package output_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/output"
	"cloop.dev/cloop/schemas"
)

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func checked(t *testing.T, dir string) *fleet.Report {
	t.Helper()
	validator, err := schemas.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	report, err := fleet.Check(t.Context(), validator, dir)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// A repository whose files and values are hostile is checked, and every output
// of that is valid.
func TestHostileRepository(t *testing.T) {
	dir := t.TempDir()
	for i, text := range hostile {
		name := strings.ReplaceAll(inRepository(text), "\x00", "")
		if len(name) < 200 && utf8.ValidString(name) {
			write(t, dir, "plain/"+name+"/pool.yaml", "kind: [\n")
		}
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\x00", `\0`, "\x1b", `\e`, "\b", `\b`).Replace(strings.ToValidUTF8(text, "?"))
		if len(quoted) < 200 {
			write(t, dir, "values/"+strings.Repeat("a", i+1)+".yaml", "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: \""+quoted+
				"\"}\nspec: {hubURL: \""+quoted+"\", \""+quoted+"\": 1}\n")
		}
	}
	report := checked(t, dir)
	if len(report.Problems) < 150 {
		t.Fatalf("%d problems", len(report.Problems))
	}
	rendered(t, output.Judge(report))
}
