// Package removaltest helps to test that what a run closed is removed.
package removaltest

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// nobody is a user to whom a file's mode means something.
const nobody = 65534

// Unprivileged runs do with a directory, on a thread to which modes of files
// mean something although root may run the test. It waits for the end.
func Unprivileged(t *testing.T, do func(dir string)) {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o777), os.Chmod(filepath.Dir(dir), 0o755)); err != nil { //nolint:gosec // nobody passes through and writes
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if dropRights() {
			do(dir)
		} else {
			t.Error("root may not give its rights up here")
		}
	}()
	<-done
}

func dropRights() bool {
	if os.Geteuid() != 0 {
		return true
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	_, _ = unix.SetfsuidRetUid(nobody)
	// An impossible id changes nothing and returns what is set.
	now, _ := unix.SetfsuidRetUid(-1)
	return now == nobody
}

// Close fills a directory as a run does that uses Go's module cache, and closes
// it: a file and a link in directories that may not be written, or not even read.
func Close(dir string) error {
	module := filepath.Join(dir, "go", "pkg", "mod")
	if err := os.MkdirAll(module, 0o700); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(module, "x.go"), nil, 0o400), os.Symlink("/", filepath.Join(module, "root")),
		os.Chmod(module, 0o500), os.Chmod(filepath.Join(dir, "go"), 0), //nolint:gosec // closed on purpose
	)
}
