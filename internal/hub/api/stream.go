package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"cloop.dev/cloop/internal/hub/store"
)

const (
	// keepAlive is how often an open stream says that it is.
	keepAlive = 15 * time.Second
	// writeTimeout is how long one write may take.
	writeTimeout = 30 * time.Second
)

// snapshot is one message of a stream.
type snapshot[T any] struct {
	value T
	// id rises with every change.
	id int64
	// last says that nothing comes after it.
	last bool
	// also are topics that tell of what comes after it, beside the feed's.
	also []string
}

// feed is what a stream sends, and when.
type feed[T any] struct {
	topics []string
	read   func(context.Context) (snapshot[T], error)
	// tick, if set, runs at every keep-alive.
	tick func(context.Context)
	// done, if set, runs when the stream has ended.
	done func()
}

// next reads a snapshot of after all that the subscription would not wake for.
func (f feed[T]) next(ctx context.Context, sub *store.Subscription) (snapshot[T], error) {
	for {
		next, err := f.read(ctx)
		if err != nil || !sub.Also(next.also...) {
			return next, err
		}
	}
}

func (f feed[T]) close(sub *store.Subscription, release func()) {
	sub.Close()
	release()
	if f.done != nil {
		f.done()
	}
}

// stream answers with a feed. The first snapshot is read before the answer
// begins, so that a refusal is an ordinary problem document.
func stream[T any](ctx context.Context, s *server, f feed[T]) (*huma.StreamResponse, error) {
	release, err := s.watches.take(ctx)
	if err != nil {
		if f.done != nil {
			f.done()
		}
		return nil, err
	}
	sub := s.Store.Bus.Subscribe(f.topics...)
	first, err := f.next(ctx, sub)
	if err != nil {
		f.close(sub, release)
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no")
		w.WriteHeader(http.StatusOK)
		// Who comes back and has the newest snapshot already is sent no other, but
		// an answer that begins at once.
		e := &events[T]{server: s, feed: f, sub: sub, release: release, out: s.stretch(w), sent: hc.Header("Last-Event-ID")}
		goesOn := (e.sent == "" || e.out.comment() == nil) && e.send(first)
		ctx := hc.Context()
		last(w, func() { e.run(ctx, goesOn) })
	}}, nil
}

type events[T any] struct {
	server *server
	feed   feed[T]
	sub    *store.Subscription
	// release gives the stream's place back.
	release func()
	out     stretch
	// sent is the id of the snapshot that the reader has. Kept instead of the
	// snapshot: thousands of readers wait at a time.
	sent string
}

// run sends until the stream ends. Thousands wait in it at a time, so what needs a
// deep stack is done apart.
func (e *events[T]) run(ctx context.Context, goesOn bool) {
	defer e.feed.close(e.sub, e.release)
	ticker := e.server.Clock.NewTicker(keepAlive)
	defer ticker.Stop()
	for goesOn {
		select {
		case <-e.sub.C:
			apart(func() { goesOn = e.read(ctx) })
		case <-ticker.C():
			goesOn = e.keepAlive(ctx)
		case <-ctx.Done():
			return
		case <-e.server.Stopping:
			// The reader is gone if this fails, and needs no hint.
			_ = e.out.write(farewell())
			return
		}
	}
}

// read reads a snapshot, sends it, and says whether the stream goes on. Where
// reading fails it ends; who comes back is told why.
func (e *events[T]) read(ctx context.Context) bool {
	next, err := e.feed.next(ctx, e.sub)
	return err == nil && e.send(next)
}

// keepAlive says that the stream is open, to a reader that still may read it.
func (e *events[T]) keepAlive(ctx context.Context) bool {
	if e.out.comment() != nil || e.server.expelled(ctx) {
		return false
	}
	if e.feed.tick != nil {
		e.feed.tick(ctx)
	}
	return true
}

// comment is a line that says nothing but that the stream is open.
var comment = []byte(": keep-alive\n\n")

// farewell tells readers of a hub that stops to come back, and when: not all at
// once.
func farewell() []byte {
	wait := comeBack/2 + rand.N(comeBack) //nolint:gosec // spreads load, guards nothing
	return fmt.Appendf(nil, ": the hub stops, come back\nretry: %d\n\n", wait.Milliseconds())
}

// comeBack is the middle of the times after which readers come back to a hub
// that has stopped.
const comeBack = time.Second

// send writes a snapshot, unless the reader has it, and says whether the stream
// goes on.
func (e *events[T]) send(next snapshot[T]) bool {
	data, err := json.Marshal(next.value)
	if err != nil {
		return false
	}
	if id := eventID(next.id, data); id != e.sent {
		e.sent = id
		err = e.out.write(fmt.Appendf(nil, "id: %s\ndata: %s\n\n", id, data))
	}
	return err == nil && !next.last
}

// eventID names a snapshot: its revision, and what tells it from others of the
// same revision, such as why a run waits, which time alone changes.
func eventID(revision int64, data []byte) string {
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%d-%s", revision, hex.EncodeToString(sum[:8]))
}

// stretch writes at once, within the time that a write may take.
type stretch struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

func (s *server) stretch(w http.ResponseWriter) stretch {
	return stretch{w, http.NewResponseController(w), s.WriteTimeout}
}

// write is over when the reader's side has taken all of it.
func (s stretch) write(data []byte) error {
	if err := s.within(s.timeout, data); err != nil {
		return err
	}
	return s.control.SetWriteDeadline(time.Time{})
}

// comment is write for what comes again before the time is over, which spares
// one of the two deadlines: thousands of idle streams do nothing else.
func (s stretch) comment() error { return s.within(s.timeout+keepAlive, comment) }

func (s stretch) within(timeout time.Duration, data []byte) error {
	// The deadline is the connection's, so it needs the system's clock.
	if err := s.control.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := s.w.Write(data); err != nil {
		return err
	}
	return s.control.Flush()
}

// watchOp describes a stream of T.
func watchOp[T any](s *server, path, id, summary string) huma.Operation {
	o := op(http.MethodGet, path, id, summary)
	o.Description = "Server-Sent Events; the data of each message is a whole snapshot, the first comes at once, and a comment comes every 15 s. " +
		"Who sends Last-Event-ID with the id of the newest snapshot waits for the next one. A hub that stops ends the stream with a retry field."
	o.Parameters = append(o.Parameters, &huma.Param{
		Name: "Last-Event-ID", In: "header", Schema: &huma.Schema{Type: huma.TypeString},
		Description: "The id of the last snapshot that was received.",
	})
	o.Responses = map[string]*huma.Response{"200": {
		Description: "A stream of snapshots.",
		Content: map[string]*huma.MediaType{
			"text/event-stream": {Schema: s.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")},
		},
	}}
	return o
}
