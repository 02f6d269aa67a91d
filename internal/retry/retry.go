// Package retry says how long to wait between the tries of what failed, and waits.
//
// It takes a count of failures and bounds and gives waits. It never counts or
// tries anything: its callers do, each with a clock of its own.
package retry

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"
)

// After is the wait after a failure that had so many failures in a row before
// it: first, twice as long with each of them, last at the most. Both bounds are
// positive.
func After(failures int, first, last time.Duration) time.Duration {
	wait := first
	for range failures {
		if wait > last/2 {
			// Twice as long is above the bound, or above what a Duration holds.
			return last
		}
		wait *= 2
	}
	return min(wait, last)
}

// Spread is a wait of half to all of it, so that many that failed together do
// not come back together.
func Spread(wait time.Duration) time.Duration {
	return wait/2 + rand.N(wait/2+1) //nolint:gosec // spreads load, guards nothing
}

// Sleep waits on a clock and says whether the time passed before the context ended.
func Sleep(ctx context.Context, clk clock.Clock, wait time.Duration) bool {
	timer := clk.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}
