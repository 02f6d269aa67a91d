package api

import (
	"context"
	"sync"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// holder is where a request has the name by which its credential is counted.
type holder struct{}

// openWatches counts the streams that are open with each credential.
type openWatches struct {
	most int
	// refused is called for each that is one too many.
	refused func()

	mu sync.Mutex // guards open
	// open: credential's name → its streams.
	open map[string]int
}

// watchAgain is when who has too many streams open may try again, in seconds.
const watchAgain = 10

// take counts a stream of the credential that a request came with until release is
// called, once.
func (w *openWatches) take(ctx context.Context) (release func(), err error) {
	name, _ := ctx.Value(holder{}).(string)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[name] >= w.most {
		w.refused()
		p := problem.New(hubv1.CodeTooManyWatches, "%d watches are open with this credential, which is as many as the hub serves", w.open[name])
		p.RetryAfterSeconds = watchAgain
		return nil, p
	}
	w.open[name]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open[name]--; w.open[name] == 0 {
			delete(w.open, name)
		}
	}, nil
}
