package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"cloop.dev/cloop/internal/filelock"
)

// lockPoll is how often a lock that somebody else holds is tried.
const lockPoll = 100 * time.Millisecond

// lockFile takes an exclusive lock that ends with the process at the latest.
// waiting is called once if somebody else has it.
func lockFile(ctx context.Context, name string, waiting func()) (release func(), err error) {
	for first := true; ; first = false {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		release, err := filelock.Try(file)
		if !errors.Is(err, filelock.ErrHeld) {
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
