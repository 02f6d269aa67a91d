package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// patient is how long something may take before the database is asked whether
	// it is there at all, and answering how long it has to say so. Their sum bounds
	// how long anybody waits for a database that is silent: a server that is frozen
	// keeps its connections, and no keepalive tells it from one that is slow.
	patient   = 2500 * time.Millisecond
	answering = 2500 * time.Millisecond
	// believed is how long one answer counts for all who ask.
	believed = 100 * time.Millisecond
)

// pulse tells a database that is slow from one that is silent.
type pulse struct {
	config *pgx.ConnConfig

	mu sync.Mutex // one asks at a time; guards the rest
	// at is when the database was last asked, and there what came of it.
	at    time.Time
	there bool
}

// errSilent is why what waits for a silent database ends.
var errSilent = errors.New("the database is silent")

// watched ends when the database turns out to be silent before stop is called.
// No pulse watches nothing.
func (p *pulse) watched(ctx context.Context) (bounded context.Context, stop func()) {
	if p == nil {
		return ctx, func() {}
	}
	inner, cancel := context.WithCancelCause(ctx)
	w := &watch{pulse: p, end: cancel}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(patient, w.look)
	return silenceable{inner}, w.stop
}

// watch is one wait for the database.
type watch struct {
	pulse *pulse
	end   context.CancelCauseFunc
	mu    sync.Mutex // guards the rest
	timer *time.Timer
	over  bool
}

func (w *watch) look() {
	there := w.pulse.beats()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.over:
	case there:
		w.timer.Reset(patient)
	default:
		w.end(errSilent)
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
	w.end(nil)
}

// silenceable is a context whose end by silence reads as that of a deadline:
// nobody has given up what waited.
type silenceable struct{ context.Context }

// Err is context.Context's.
func (c silenceable) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), errSilent) {
		return context.DeadlineExceeded
	}
	return err
}

// beats asks the database, on a connection of its own, whether it is there.
// What it refuses it has answered.
func (p *pulse) beats() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.at) < believed {
		return p.there
	}
	ctx, cancel := context.WithTimeout(context.Background(), answering)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, p.config)
	var refused *pgconn.PgError
	p.there = err == nil || errors.As(err, &refused)
	if err == nil {
		_ = conn.Close(ctx)
	}
	p.at = time.Now()
	return p.there
}
