// Package filelock keeps two processes from using one file or directory at once.
//
// In goes an open file, out comes an advisory lock on it that ends with the
// process at the latest. The lock is given back at once, also while a process
// that is being started still has a copy of the descriptor: closing alone would
// give it back only with the last copy.
package filelock

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrHeld says that somebody else has the lock.
var ErrHeld = errors.New("it is locked")

// Try takes the lock without waiting; with an error, which is ErrHeld where
// somebody else has it, the file is closed. Release gives the lock back and
// closes the file.
func Try(file *os.File) (release func(), err error) {
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() {
				_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
				_ = file.Close()
			}, nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			err = ErrHeld
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
	}
}
