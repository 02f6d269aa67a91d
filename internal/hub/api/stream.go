package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
	// writeTimeout is how long one write may take: who reads slower than this
	// is cut off and comes back for a whole snapshot.
	writeTimeout = 30 * time.Second
)

// snapshot is one message of a stream.
type snapshot[T any] struct {
	value T
	// id rises with every change.
	id int64
	// last says that nothing comes after it.
	last bool
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

func (f feed[T]) close(sub *store.Subscription) {
	sub.Close()
	if f.done != nil {
		f.done()
	}
}

// stream answers with a feed. The first snapshot is read before the answer
// begins, so that a refusal is an ordinary problem document.
func stream[T any](ctx context.Context, s *server, f feed[T]) (*huma.StreamResponse, error) {
	sub := s.Store.Bus.Subscribe(f.topics...)
	first, err := f.read(ctx)
	if err != nil {
		f.close(sub)
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer f.close(sub)
		_, w := humago.Unwrap(hc)
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no")
		w.WriteHeader(http.StatusOK)
		(&events[T]{server: s, feed: f, sub: sub, out: flusher(w)}).run(hc.Context(), first)
	}}, nil
}

type events[T any] struct {
	server *server
	feed   feed[T]
	sub    *store.Subscription
	out    func([]byte) error
	sent   []byte
}

func (e *events[T]) run(ctx context.Context, next snapshot[T]) {
	ticker := e.server.Clock.NewTicker(keepAlive)
	defer ticker.Stop()
	for {
		if err := e.send(next); err != nil || next.last {
			return
		}
		select {
		case <-e.sub.C:
			var err error
			if next, err = e.feed.read(ctx); err != nil {
				// The stream ends; who comes back is told why.
				return
			}
		case <-ticker.C():
			if e.out([]byte(": keep-alive\n\n")) != nil {
				return
			}
			if e.feed.tick != nil {
				e.feed.tick(ctx)
			}
		case <-ctx.Done():
			return
		case <-e.server.Stopping:
			return
		}
	}
}

// send writes a snapshot, unless it is what was written last.
func (e *events[T]) send(next snapshot[T]) error {
	data, err := json.Marshal(next.value)
	if err != nil {
		return err
	}
	if bytes.Equal(data, e.sent) {
		return nil
	}
	e.sent = data
	return e.out(fmt.Appendf(nil, "id: %d\ndata: %s\n\n", next.id, data))
}

// flusher writes at once, within the time that a write may take.
func flusher(w http.ResponseWriter) func([]byte) error {
	control := http.NewResponseController(w)
	return func(data []byte) error {
		// The deadline is the connection's, so it needs the system's clock.
		if err := control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		if err := control.Flush(); err != nil {
			return err
		}
		return control.SetWriteDeadline(time.Time{})
	}
}

// watchOp describes a stream of T.
func watchOp[T any](s *server, path, id, summary string) huma.Operation {
	o := op(http.MethodGet, path, id, summary)
	o.Description = "Server-Sent Events; the data of each message is a whole snapshot, the first comes at once, and a comment comes every 15 s."
	o.Responses = map[string]*huma.Response{"200": {
		Description: "A stream of snapshots.",
		Content: map[string]*huma.MediaType{
			"text/event-stream": {Schema: s.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")},
		},
	}}
	return o
}
