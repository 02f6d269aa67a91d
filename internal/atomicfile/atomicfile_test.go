package atomicfile_test

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"cloop.dev/cloop/internal/atomicfile"
)

func TestAReaderKeepsTheOldContentAndTheNextOneFindsTheNew(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state")
	if err := atomicfile.Write(name, []byte("a long old content"), 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	if err := atomicfile.Write(name, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if old, err := io.ReadAll(reader); err != nil || string(old) != "a long old content" {
		t.Errorf("the reader that was there before found %q (%v)", old, err)
	}
	if now, err := os.ReadFile(name); err != nil || string(now) != "new" {
		t.Errorf("the file holds %q (%v)", now, err)
	}
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v", info.Mode())
	}
	if entries, err := os.ReadDir(filepath.Dir(name)); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
}

func TestWriteFailsWithoutADirectory(t *testing.T) {
	if err := atomicfile.Write(filepath.Join(t.TempDir(), "none", "state"), nil, 0o600); !os.IsNotExist(err) {
		t.Errorf("error %v", err)
	}
}

func TestFailureLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "name")
	// A directory that is not empty cannot be replaced.
	if err := os.MkdirAll(filepath.Join(name, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, write := range []func(string, []byte, fs.FileMode) error{atomicfile.Write, atomicfile.WriteUnsynced} {
		if err := write(name, []byte("content"), 0o600); err == nil {
			t.Error("a directory was replaced")
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("the directory has %v (%v)", entries, err)
		}
	}
}
