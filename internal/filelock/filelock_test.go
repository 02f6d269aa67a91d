package filelock_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"cloop.dev/cloop/internal/filelock"
)

func TestALockThatWasGivenBackIsFree(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	try := func() (func(), *os.File, error) {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		release, err := filelock.Try(file)
		return release, file, err
	}
	release, file, err := try()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := try(); !errors.Is(err, filelock.ErrHeld) {
		t.Fatalf("a second time: %v", err)
	}
	// A process that is being started has a copy until it executes its program.
	copied, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(copied) }()
	release()
	again, _, err := try()
	if err != nil {
		t.Fatalf("given back, and yet %v", err)
	}
	again()
}
