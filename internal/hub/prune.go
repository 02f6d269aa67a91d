package hub

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/internal/hub/store"
)

const (
	// pruneEvery is how often what has been over for long is looked for. What is
	// kept for days is not missed for an hour.
	pruneEvery = time.Hour
	// firstPrune is how long after the start it is looked for first: a machine
	// that has just started may yet set its clock, and a hub that does not live for
	// long must come to it too.
	firstPrune = 30 * time.Second
	// retryPrune is how long to wait after the database refused.
	retryPrune = time.Minute
)

// prune removes what is over for longer than it is kept, until the context
// ends.
func prune(ctx context.Context, s *store.Store, c clock.WithTicker, log *slog.Logger) {
	failing := false
	for wait := firstPrune; sleep(ctx, c, wait, nil); {
		wait = pruneEvery
		if err := pruneAll(ctx, s); err != nil && ctx.Err() == nil {
			if !failing {
				log.Error("what is old is not removed, trying again", "error", err)
			}
			wait = retryPrune
			failing = true
		} else {
			failing = false
		}
	}
}

// pruneAll goes batch by batch, so that nobody waits long for the database.
func pruneAll(ctx context.Context, s *store.Store) error {
	for {
		if more, err := s.Prune(ctx); err != nil || !more {
			return err
		}
	}
}
