package agent

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/agent/supervisor"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/retry"
)

// moment is a point in time on both of the agent's clocks: its own, and the
// machine's since boot, which its supervisor shares and which goes on while the
// machine sleeps.
type moment struct {
	at   time.Time
	boot supervisor.Instant
}

// momentOf is the present. Take it before a request is sent: whatever holds
// this process up afterwards, the lease that the request renews ends no later
// than the hub's own.
func momentOf(clk clock.PassiveClock) moment {
	return moment{boot: supervisor.Now(), at: clk.Now()}
}

// lease is how long the hub trusts this runner. It counts from when a heartbeat
// that the hub confirmed was sent, so it never ends later than the hub's own.
type lease struct {
	clock        clock.PassiveClock
	life, margin time.Duration

	mu   sync.Mutex // guards last
	last moment
}

func (l *lease) renew(sent moment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent.boot > l.last.boot {
		l.last = sent
	}
}

func (l *lease) contact() moment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// silent is how long ago the hub was last heard, by the clock that says longer.
func (l *lease) silent() time.Duration {
	last := l.contact()
	return max(l.clock.Since(last.at), supervisor.Now().Sub(last.boot))
}

// untilFence is how long a run may still live; zero or less: not at all.
func (l *lease) untilFence() time.Duration { return l.life - l.margin - l.silent() }

// lostAt is when the hub stops waiting for this runner, without its margin.
func (l *lease) lostAt() supervisor.Instant { return l.contact().boot.Add(l.life) }

// over says that the hub has settled without this runner by now.
func (l *lease) over() bool { return l.silent() > l.life+l.margin }

// guard sends, once for each loss of contact: on fenced when a run must not live
// any longer, on over when the hub has settled without this runner. It ends with
// the context.
func (l *lease) guard(ctx context.Context, clk clock.Clock, fenced, over chan<- struct{}) {
	var saidFenced, saidOver supervisor.Instant // of which contact
	for {
		contact, left := l.contact().boot, l.untilFence()
		var say chan<- struct{}
		switch {
		case left <= 0 && contact > saidFenced:
			say, saidFenced = fenced, contact
		case l.over() && contact > saidOver:
			say, saidOver = over, contact
		}
		if say != nil {
			select {
			case say <- struct{}{}:
			case <-ctx.Done():
				return
			}
			continue
		}
		if left <= 0 {
			// Contact may come back; look again soon.
			left = l.life / 10
		}
		if !retry.Sleep(ctx, clk, left) {
			return
		}
	}
}

// beat sends heartbeats until the context ends. Each confirmed one renews the
// lease and sends what the hub says the runner's state is; a session that ended
// sends its error and ends the loop.
func (r *runner) beat(ctx context.Context, states chan<- hubv1.RunnerState, ended chan<- error) {
	var backoff hubclient.Backoff
	for pause := r.heartbeat; ; {
		if !retry.Sleep(ctx, r.clock, pause) {
			return
		}
		sent := momentOf(r.clock)
		tryCtx, cancel := context.WithTimeout(ctx, max(r.heartbeat, minTry))
		answer, err := r.session.Heartbeat(tryCtx)
		cancel()
		switch {
		case err == nil:
			if backoff != (hubclient.Backoff{}) {
				r.log.Info("contact with the hub is back")
			}
			backoff.Reset()
			r.renew(sent, answer.State)
			pause = r.heartbeat
			select {
			case states <- answer.State:
			case <-ctx.Done():
				return
			}
		case ctx.Err() != nil:
			return
		case sessionEnded(err):
			select {
			case ended <- err:
			case <-ctx.Done():
			}
			return
		default:
			if backoff == (hubclient.Backoff{}) {
				r.log.Warn("heartbeat failed, trying again", "error", err)
			}
			pause = min(backoff.Next(), r.heartbeat)
		}
	}
}

// renew extends the lease by a confirmed heartbeat. The hub does not extend that
// of a runner that it lets go.
func (r *runner) renew(sent moment, state hubv1.RunnerState) {
	if letGo(state) {
		return
	}
	r.lease.renew(sent)
	if err := r.ready.supervisor.Renew(r.lease.lostAt()); err != nil {
		r.log.Debug("the supervisor is not told of the contact", "error", err)
	}
}

// letGo says that the hub wants the runner, or the run that it has, no more.
func letGo(state hubv1.RunnerState) bool {
	return state == hubv1.RunnerRetiring || state == hubv1.RunnerRetired
}

// minTry bounds one heartbeat from below: a slow hub is not a lost one.
const minTry = 2 * time.Second

// watch sends every snapshot until the context ends. It connects again whenever
// the stream breaks; the first snapshot of a new stream is whole.
func (r *runner) watch(ctx context.Context, snapshots chan<- hubv1.RunnerSnapshot, ended chan<- error) {
	var backoff hubclient.Backoff
	for {
		for snapshot, err := range r.session.RunnerWatch(ctx) {
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				backoff.Reset()
				select {
				case snapshots <- snapshot:
					continue
				case <-ctx.Done():
					return
				}
			}
			if sessionEnded(err) {
				select {
				case ended <- err:
				case <-ctx.Done():
				}
				return
			}
			if backoff == (hubclient.Backoff{}) {
				r.log.Info("the watch ended, connecting again", "error", err)
			}
		}
		if !retry.Sleep(ctx, r.clock, backoff.Next()) {
			return
		}
	}
}
