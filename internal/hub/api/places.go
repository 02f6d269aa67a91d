package api

import (
	"container/list"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/hub/problem"
)

// Answers bound how many answers to people are under way at a time: each is in
// memory from when it is asked for until its reader has taken it, and may have
// several megabytes. The zero value stands for the defaults.
type Answers struct {
	// PerUser is how many of them one user may have: 8.
	PerUser int
	// All is how many there may be: 64.
	All int
}

func (a *Answers) defaults() {
	if a.PerUser == 0 {
		a.PerUser = 8
	}
	if a.All == 0 {
		a.All = 64
	}
}

const (
	// placeWait is how long a request waits for a place: answers that are read take
	// milliseconds, so who waits longer waits for readers that stand still.
	placeWait = 5 * time.Second
	// placeAgain is when who found none may try again, in seconds.
	placeAgain = 5
)

// largeKey marks an operation of which the answer may be large; what people read
// is taken for that.
const largeKey = "large"

// large marks what changes something and answers with what may be large.
func large(o huma.Operation) huma.Operation {
	if o.Metadata == nil {
		o.Metadata = map[string]any{}
	}
	o.Metadata[largeKey] = true
	return o
}

func isLarge(o huma.Operation) bool {
	return ofUsers(o.Path) && (o.Method == http.MethodGet || o.Metadata[largeKey] != nil)
}

// places are those of the answers that are under way.
type places struct {
	bounds Answers
	clock  clock.Clock
	// refused is called for each request that found none.
	refused func()

	mu  sync.Mutex // guards the rest
	all int
	// of: user → its places; those without any are left out.
	of map[string]int
	// waiting holds *claim, who came first in front. None of them fits.
	waiting *list.List
}

// claim is a request that waits for a place.
type claim struct {
	user string
	// granted is closed when it has one.
	granted chan struct{}
}

func newPlaces(bounds Answers, o Options) *places {
	return &places{bounds: bounds, clock: o.Clock, refused: func() { o.Limited(LimitAnswers) }, of: map[string]int{}, waiting: list.New()}
}

// take waits for a place for an answer to a user. Who has it gives it back, once.
func (p *places) take(ctx context.Context, user string) (giveBack func(), err error) {
	giveBack = func() { p.giveBack(user) }
	p.mu.Lock()
	if p.grant(user) {
		p.mu.Unlock()
		return giveBack, nil
	}
	mine := &claim{user, make(chan struct{})}
	element := p.waiting.PushBack(mine)
	p.mu.Unlock()

	over := p.clock.NewTimer(placeWait)
	defer over.Stop()
	select {
	case <-mine.granted:
		return giveBack, nil
	case <-over.C():
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-mine.granted: // at the last moment
		return giveBack, nil
	default:
	}
	p.waiting.Remove(element)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.refused()
	return nil, p.none(user)
}

// grant takes a place if there is one. The caller holds the lock.
func (p *places) grant(user string) bool {
	if p.all >= p.bounds.All || p.of[user] >= p.bounds.PerUser {
		return false
	}
	p.all++
	p.of[user]++
	return true
}

// giveBack hands a user's place on to the first whom it fits.
func (p *places) giveBack(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.of[user]--; p.of[user] == 0 {
		delete(p.of, user)
	}
	for element := p.waiting.Front(); element != nil; element = element.Next() {
		if next := element.Value.(*claim); p.grant(next.user) {
			p.waiting.Remove(element)
			close(next.granted)
			return // there was one place
		}
	}
}

// none says whose places are taken. The caller holds the lock.
func (p *places) none(user string) (out *hubv1.Problem) {
	if p.of[user] >= p.bounds.PerUser {
		out = problem.New(hubv1.CodeRateLimited, "%s of the same user %s under way, which is as many as the hub keeps for one", count.Of(p.of[user], "answer"), count.Is(p.of[user]))
		out.Remedy = fmt.Sprintf("read the answers that were asked for, or end those requests, and try again in %d s; limits.answers.perUser of the hub's configuration says how many", placeAgain)
	} else {
		out = problem.Refusal(hubv1.CodeUnavailable, "%s %s under way, which is as many as the hub keeps at a time", count.Of(p.all, "answer"), count.Is(p.all))
		out.Remedy = fmt.Sprintf("try again in %d s; whoever runs the hub can raise limits.answers.all of its configuration, or revoke the tokens of those who do not read what they ask for", placeAgain)
	}
	out.RetryAfterSeconds = placeAgain
	return out
}

// place is what an answer under way has.
type place struct{ giveBack func() }

type placeKey struct{}

// placed serves a request once its answer has a place, and until its body is
// written.
func (s *server) placed(ctx huma.Context, next func(huma.Context)) {
	giveBack, err := s.answers.take(ctx.Context(), callerOf(ctx.Context()).User)
	if err != nil {
		s.refuse(ctx, err)
		return
	}
	held := &place{giveBack}
	defer func() { held.giveBack() }()
	next(huma.WithValue(ctx, placeKey{}, held))
}

// keepPlace leaves the place of a request to what follows its operation, which
// gives it back.
func keepPlace(ctx context.Context) (giveBack func()) {
	held, ok := ctx.Value(placeKey{}).(*place)
	if !ok {
		return func() {}
	}
	giveBack, held.giveBack = held.giveBack, func() {}
	return giveBack
}

// timely writes an answer in pieces each of which its reader takes in time: one
// that stands still would keep the whole answer for ever.
type timely struct {
	io.Writer
	timeout time.Duration
}

const (
	// pieceBytes is as much as one write of a log has.
	pieceBytes = maxLogChunk
	// bufferedBytes fit into what net/http has before a connection, whose reader
	// then holds up nothing. Most answers of machines have no more.
	bufferedBytes = 2 << 10
)

func (t timely) Write(data []byte) (written int, err error) {
	w, ok := t.Writer.(http.ResponseWriter)
	if !ok || len(data) <= bufferedBytes {
		return t.Writer.Write(data)
	}
	control := http.NewResponseController(w)
	for err == nil && written < len(data) {
		// The deadline is the connection's, so it needs the system's clock. What has
		// none, as in tests, has no reader that stands still.
		_ = control.SetWriteDeadline(time.Now().Add(t.timeout))
		var n int
		n, err = w.Write(data[written:min(written+pieceBytes, len(data))])
		written += n
	}
	if err == nil {
		_ = control.SetWriteDeadline(time.Time{}) // the connection's next answer may not be one of these
	}
	return written, err
}
