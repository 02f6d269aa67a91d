package api

import (
	"container/list"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// Rate is how often something may happen: PerSecond in the long run, and Burst
// at once. The zero value stands for a default; less than 0 per second is no
// bound.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Rates bound what one client may ask of the hub.
type Rates struct {
	// Users bounds the requests with one user's token: 200 a second, 2,000 at
	// once.
	Users Rate
	// Machines bounds the requests of one controller or runner: 1,000 a second,
	// 5,000 at once. A runner sends a heartbeat each 10 s and its log in parts of
	// up to a megabyte, a controller one request for each runner that comes or
	// goes.
	Machines Rate
	// Failures bounds the credentials of one address that are not accepted: 1 a
	// second, 60 at once.
	Failures Rate
	// Watches bounds how many streams are open at a time with one credential, each
	// of which takes some 50 KiB at either end; 1,000 where it is 0.
	Watches int
	// Answers bound what is in memory for people at a time.
	Answers Answers
}

// Defaults returns the rates where the zero value stands for the default.
func (r Rates) Defaults() Rates {
	def := func(rate *Rate, perSecond float64, burst int) {
		if rate.PerSecond == 0 {
			rate.PerSecond = perSecond
		}
		if rate.Burst == 0 {
			rate.Burst = burst
		}
	}
	def(&r.Users, 200, 2000)
	def(&r.Machines, 1000, 5000)
	def(&r.Failures, 1, 60)
	if r.Watches == 0 {
		r.Watches = 1000
	}
	r.Answers.defaults()
	return r
}

// Limit names one of the Rates, as in the hub's configuration.
type Limit string

// The limits.
const (
	LimitUsers    Limit = "users"
	LimitMachines Limit = "machines"
	LimitFailures Limit = "failures"
	LimitWatches  Limit = "watches"
	LimitAnswers  Limit = "answers"
)

// maxCounted bounds how many clients a limiter remembers, some hundred bytes
// each. The one that was not seen for longest is forgotten, and begins anew.
const maxCounted = 10_000

// limiter holds each client to one rate.
type limiter struct {
	rate  Rate
	clock clock.PassiveClock
	// refused is called for each event that is one too many.
	refused func()

	mu sync.Mutex // guards the next two
	// counted: client → its element of order.
	counted map[string]*list.Element
	// order holds *client, the one seen last in front.
	order *list.List
}

type client struct {
	key    string
	bucket *rate.Limiter
}

func newLimiter(name Limit, r Rate, o Options) *limiter {
	return &limiter{
		rate: r, clock: o.Clock, refused: func() { o.Limited(name) },
		counted: map[string]*list.Element{}, order: list.New(),
	}
}

// take counts one event of a client. Where it is one too many, wait is how long
// until the next is not.
func (l *limiter) take(key string) (wait time.Duration, ok bool) {
	if l.rate.PerSecond < 0 {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	element, known := l.counted[key]
	if !known {
		element = l.order.PushFront(&client{key, rate.NewLimiter(rate.Limit(l.rate.PerSecond), l.rate.Burst)})
		l.counted[key] = element
		if l.order.Len() > maxCounted {
			oldest := l.order.Back()
			delete(l.counted, l.order.Remove(oldest).(*client).key)
		}
	}
	l.order.MoveToFront(element)
	now := l.clock.Now()
	reserved := element.Value.(*client).bucket.ReserveN(now, 1)
	if wait := reserved.DelayFrom(now); wait > 0 {
		reserved.CancelAt(now)
		l.refused()
		return wait, false
	}
	return 0, true
}

// tooMany tells a client how long to wait.
func tooMany(wait time.Duration, what string) *hubv1.Problem {
	seconds := max(1, int(math.Ceil(wait.Seconds())))
	p := problem.New(hubv1.CodeRateLimited, "%s", what)
	p.Remedy = fmt.Sprintf("try again in %d s, and less often; limits of the hub's configuration says how often", seconds)
	p.RetryAfterSeconds = seconds
	return p
}
