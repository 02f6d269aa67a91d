package hubclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/tmaxmax/go-sse"

	"cloop.dev/cloop/internal/retry"
)

// maxEvent bounds one snapshot, in bytes: a pool of 100,000 runners fits.
const maxEvent = 64 << 20

// silence is how long a watch may bring nothing. The hub writes a comment every 15 s:
// three that do not come are of a hub that hangs, or of something before it that keeps
// the connection and no longer has anything behind it.
const silence = 45 * time.Second

// watch yields the snapshots of one stream, the first at once. It ends with one
// error: the hub's problem, ErrUnavailable when the stream broke or fell silent or the
// hub closed or never began it, or the context's error.
func watch[T any](ctx context.Context, c *Client, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		// Pings, which a proxy answers too, do not tell of a hub that says nothing.
		patience := time.AfterFunc(c.timeout, func() { cancel(errTimeout) })
		defer patience.Stop()
		in := call{method: http.MethodGet, path: path, query: query, accept: "text/event-stream"}
		response, err := c.send(ctx, in)
		patience.Stop()
		if err != nil {
			yield(none, err)
			return
		}
		// Closed without reading on: the rest of a watch never ends.
		defer func() { _ = response.Body.Close() }()
		for event, err := range sse.Read(attended{response.Body, patience}, &sse.ReadConfig{MaxEventSize: maxEvent}) {
			if err != nil {
				yield(none, streamError(ctx, path, err))
				return
			}
			if event.Data == "" {
				continue
			}
			var snapshot T
			if err := json.Unmarshal([]byte(event.Data), &snapshot); err != nil {
				yield(none, fmt.Errorf("%w: read a snapshot of %s: %w", ErrUnavailable, path, err))
				return
			}
			if !yield(snapshot, nil) {
				return
			}
		}
		yield(none, streamError(ctx, path, nil))
	}
}

// attended is a stream of which a read that takes too long sets off the timer; who
// reads it may take any time between two reads.
type attended struct {
	io.Reader
	patience *time.Timer
}

// Read is io.Reader's.
func (a attended) Read(p []byte) (int, error) {
	a.patience.Reset(silence)
	defer a.patience.Stop()
	return a.Reader.Read(p)
}

func streamError(ctx context.Context, path string, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), errTimeout):
		return fmt.Errorf("%w: watch %s: nothing has come for %s: check the hub, and that what stands before it passes each line on at once: %w", ErrUnavailable, path, silence, errTimeout)
	case ctx.Err() != nil:
		return fmt.Errorf("watch %s: %w", path, ctx.Err())
	case err != nil:
		return fmt.Errorf("%w: watch %s: %w", ErrUnavailable, path, err)
	}
	return fmt.Errorf("%w: watch %s: the hub closed the stream", ErrUnavailable, path)
}

// Bounds of Backoff.
const (
	backoffFirst = 100 * time.Millisecond
	backoffLast  = 10 * time.Second
)

// Backoff paces the retries of one loop: 100 ms, doubling up to 10 s, each
// spread over half to all of it so that many clients of a restarted hub do not
// come back at once. The zero value is ready; it is for one goroutine.
type Backoff struct{ failures int }

// Next counts a failure and returns how long to wait before the next try.
func (b *Backoff) Next() time.Duration {
	wait := retry.After(b.failures, backoffFirst, backoffLast)
	b.failures++
	return retry.Spread(wait)
}

// Reset forgets the failures after a success.
func (b *Backoff) Reset() { b.failures = 0 }
