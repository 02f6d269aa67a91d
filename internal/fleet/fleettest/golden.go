package fleettest

import (
	"os"
	"path/filepath"
	"testing"
)

// Golden holds what was made against a file that shows it, or writes the file.
func Golden(t testing.TB, file string, made []byte, update bool) {
	t.Helper()
	if update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, made, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(made) != string(want) {
		t.Errorf("%s is not what was made:\n%s\nwant\n%s\n(go test -run %s -update writes it)", file, made, want, t.Name())
	}
}
