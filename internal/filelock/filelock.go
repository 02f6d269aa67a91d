// Package filelock keeps two processes from using one file or directory at once.
//
// In goes an open file, out comes an advisory lock on it that ends with the
// process at the latest. The lock is given back at once, also while a process
// that is being started still has a copy of the descriptor: closing alone would
// give it back only with the last copy.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// ErrHeld says that somebody else has the lock.
var ErrHeld = errors.New("it is locked")

// Try takes the lock without waiting; with an error, which is ErrHeld where
// somebody else has it, the file is closed. Release gives the lock back and
// closes the file.
func Try(file *os.File) (release func(), err error) {
	if err := lock(file, syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() {
		_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
		_ = file.Close()
	}, nil
}

// Share takes the lock with others who share it, until the file is closed; nobody
// takes it alone meanwhile. It does not wait: with an error, which is ErrHeld where
// somebody has it alone, the file stays open.
func Share(file *os.File) error { return lock(file, syscall.LOCK_SH) }

func lock(file *os.File, how int) error {
	for {
		err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			err = ErrHeld
		}
		return fmt.Errorf("lock %s: %w", file.Name(), err)
	}
}

// lockPoll is how often a lock that somebody else holds is tried.
const lockPoll = 100 * time.Millisecond

// Wait takes an exclusive lock that ends with the process at the latest.
// waiting is called once if somebody else has it.
func Wait(ctx context.Context, name string, waiting func()) (release func(), err error) {
	for first := true; ; first = false {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		release, err := Try(file)
		if !errors.Is(err, ErrHeld) {
			return release, err
		}
		if first && waiting != nil {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the lock %s: %w", name, ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}
