package hub

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/internal/hub/store"
)

// retryTimers is how long to wait after the database refused to answer.
const retryTimers = time.Second

// timers carries out what is due by the clock, until the context ends. It
// sleeps to the next deadline that the database knows and is woken when a
// change brings a nearer one.
func timers(ctx context.Context, s *store.Store, c clock.WithTicker, log *slog.Logger) {
	failing := false
	for ctx.Err() == nil {
		wait, err := due(ctx, s)
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			if !failing {
				log.Error("timers cannot read or write the database, trying again", "error", err)
			}
			wait = retryTimers
		}
		failing = err != nil
		if !sleep(ctx, c, wait, s.Deadline()) {
			return
		}
	}
}

// never is longer than any deadline is away.
const never = 24 * time.Hour

// due carries out what is due and returns how long nothing will be.
func due(ctx context.Context, s *store.Store) (time.Duration, error) {
	for {
		at, some, err := s.NextDeadline(ctx)
		if err != nil {
			return 0, err
		}
		if !some {
			return never, nil
		}
		if wait := at.Sub(s.Now()); wait > 0 {
			return min(wait, never), nil
		}
		if err := s.Expire(ctx); err != nil {
			return 0, err
		}
	}
}

// sleep waits for the time, a wake-up or the end of the context, which alone is
// false.
func sleep(ctx context.Context, c clock.WithTicker, wait time.Duration, wake <-chan struct{}) bool {
	timer := c.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-wake:
		return true
	case <-ctx.Done():
		return false
	}
}
