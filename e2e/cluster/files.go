package cluster

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockPoll is how often a lock that somebody else holds is tried.
const lockPoll = 100 * time.Millisecond

// lockFile takes an exclusive lock that ends with the process at the latest.
// waiting is called once if somebody else has it.
func lockFile(ctx context.Context, name string, waiting func()) (release func(), err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if err != syscall.EWOULDBLOCK && err != syscall.EINTR {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		if first && waiting != nil {
			waiting()
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("wait for the lock %s: %w", name, ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}
