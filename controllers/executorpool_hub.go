package controllers

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/pool"
	"cloop.dev/cloop/internal/secret"
)

// poolHub is what a controller asks of a hub.
type poolHub interface {
	PoolWatch(ctx context.Context, hello hubclient.Hello) iter.Seq2[hubv1.PoolSnapshot, error]
	MintRunner(ctx context.Context, key string) (hubv1.MintResponse, error)
	RetireRunner(ctx context.Context, runner string) (hubv1.RetireResponse, error)
	RunnerGone(ctx context.Context, runner string, request hubv1.GoneRequest) (hubv1.RetireResponse, error)
	SetRefusal(ctx context.Context, refusal hubv1.Refusal) error
	Succeed(ctx context.Context, earlier secret.String) error
}

// hubTarget is everything that a connection depends on; it is compared to see
// whether a connection still fits.
type hubTarget struct {
	url, pin, bundle string
	credential       secret.String
	// serves is the ExecutorPool as the hub is told of it.
	serves hubclient.Served
}

func (t hubTarget) address() hubAddress { return hubAddress{t.url, t.pin, t.bundle} }

// same says whether a connection to the one target serves the other.
func (t hubTarget) same(other hubTarget) bool {
	return t.address() == other.address() && t.credential.Equal(other.credential) &&
		t.serves == other.serves
}

// hubConnections holds one watch for each pool, and one connection for each hub. Starting, replacing and ending
// it is its job alone; Start ends all of them with the manager.
type hubConnections struct {
	hello hubclient.Hello
	fence *fence
	clock clock.PassiveClock
	// patience is how long a hub has for an answer; zero: as long as a client gives it.
	patience time.Duration
	// changed carries pools whose connection has news; it is never closed.
	changed chan event.GenericEvent

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex // guards conns and hubs
	conns map[types.NamespacedName]*hubConnection
	// hubs: hub → what the pools that it serves have in common.
	hubs map[hubAddress]*commonHub
}

// hubAddress is where a hub is and by what it is known.
type hubAddress struct{ url, pin, bundle string }

// commonHub is the way to one hub: over HTTP/2 the watches of all its pools are
// streams of one connection, and a request carries its own credential. Another one is
// opened where the hub allows no more streams, 250 for ours; of those that pools dial
// at the same instant the transport keeps what it needs.
type commonHub struct {
	client *hubclient.Client
	lane   *hubLane
	// pools that use it. With the last one it goes.
	pools int
}

// join returns the client for a target, one more pool of its hub, and the hub's lane.
func (h *hubConnections) join(target hubTarget) (*hubclient.Client, *hubLane, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := target.address()
	shared := h.hubs[at]
	if shared == nil {
		client, err := hubclient.New(hubclient.Options{
			URL: target.url, Pin: target.pin, CABundle: []byte(target.bundle), UserAgent: "cloop-executor-controller/" + h.hello.Build,
			Timeout: h.patience,
		})
		if err != nil {
			return nil, nil, fmt.Errorf("connect to the hub %s: %w", target.url, err)
		}
		shared = &commonHub{client: client, lane: newHubLane()}
		h.hubs[at] = shared
	}
	shared.pools++
	return shared.client.WithToken(target.credential), shared.lane, nil
}

// leave is for a pool that has ended its watch.
func (h *hubConnections) leave(target hubTarget) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := target.address()
	shared := h.hubs[at]
	if shared.pools--; shared.pools == 0 {
		delete(h.hubs, at)
		shared.client.CloseIdleConnections()
	}
}

func newHubConnections(hello hubclient.Hello, f *fence, c clock.PassiveClock) *hubConnections {
	ctx, cancel := context.WithCancel(context.Background())
	return &hubConnections{
		hello: hello, fence: f, clock: c, changed: make(chan event.GenericEvent, 256),
		ctx: ctx, cancel: cancel, conns: map[types.NamespacedName]*hubConnection{}, hubs: map[hubAddress]*commonHub{},
	}
}

// Start waits for the manager to stop and then ends every connection.
func (h *hubConnections) Start(ctx context.Context) error {
	<-ctx.Done()
	h.cancel()
	h.wg.Wait()
	return nil
}

// NeedLeaderElection says that only the leader connects: each watch counts at
// the hub as a controller that serves.
func (h *hubConnections) NeedLeaderElection() bool { return true }

// formerly is the credential with which a target was served until it became the
// other; empty where there was none, or it is not the same hub's.
func (t hubTarget) formerly(before hubTarget) secret.String {
	if t.address() != before.address() || t.credential.Equal(before.credential) {
		return secret.String{}
	}
	return before.credential
}

// ensure returns the pool's connection, made anew if the target has changed. A new
// one goes on with the runners of the target before.
func (h *hubConnections) ensure(name types.NamespacedName, target, before hubTarget) (*hubConnection, error) {
	if conn := h.get(name); conn != nil {
		if conn.target.same(target) {
			return conn, nil
		}
		h.close(name)
	}
	hub, lane, err := h.join(target)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(h.ctx)
	conn := &hubConnection{
		target: target, formerly: target.formerly(before), hub: fencedHub{hub, h.fence}, lane: lane, cancel: cancel,
		link: pool.Link{State: pool.LinkConnecting},
	}
	h.mu.Lock()
	h.conns[name] = conn
	h.mu.Unlock()
	h.wg.Go(func() {
		defer h.leave(target)
		h.serve(ctx, name, conn)
	})
	return conn, nil
}

// get returns the pool's connection, nil if there is none.
func (h *hubConnections) get(name types.NamespacedName) *hubConnection {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[name]
}

// poolID is the id of the hub pool that the ExecutorPool serves, empty while
// that is unknown.
func (h *hubConnections) poolID(name types.NamespacedName) string {
	conn := h.get(name)
	if conn == nil {
		return ""
	}
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if conn.snapshot == nil {
		return ""
	}
	return conn.snapshot.Pool.ID
}

// close ends the pool's connection, if there is one.
func (h *hubConnections) close(name types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if conn := h.conns[name]; conn != nil {
		conn.cancel()
		delete(h.conns, name)
	}
}

// serve keeps a watch open until the context ends.
func (h *hubConnections) serve(ctx context.Context, name types.NamespacedName, conn *hubConnection) {
	var backoff hubclient.Backoff
	hello := h.hello
	hello.Serves = conn.target.serves
	for ctx.Err() == nil {
		answered := false
		for snapshot, err := range conn.snapshots(ctx, hello) {
			if err != nil {
				// A stream that worked and broke is opened again before
				// anybody is told.
				if ctx.Err() == nil && conn.failed(h.clock.Now(), err, !answered) {
					h.notify(ctx, name)
				}
				break
			}
			answered = true
			backoff.Reset()
			conn.received(h.clock.Now(), snapshot)
			h.notify(ctx, name)
		}
		wait := backoff.Next()
		if conn.refusedSince(time.Time{}) {
			// Only a new credential helps; the reconciler brings it.
			wait = 30*time.Second + rand.N(30*time.Second) //nolint:gosec // jitter
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// notify has the pool reconciled.
func (h *hubConnections) notify(ctx context.Context, name types.NamespacedName) {
	object := &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	select {
	case h.changed <- event.GenericEvent{Object: object}:
	case <-ctx.Done():
	}
}

// hubConnection is one pool's connection to its hub.
type hubConnection struct {
	target hubTarget
	// formerly is the credential before this one's, until the hub knows that its
	// runners are this controller's: the first snapshot has them then. Only what
	// serves the connection touches it.
	formerly secret.String
	hub      poolHub
	lane     *hubLane
	cancel   context.CancelFunc

	mu        sync.Mutex // guards what follows
	link      pool.Link
	snapshot  *hubv1.PoolSnapshot // never changed once it is here
	at        time.Time           // when the snapshot arrived
	refusedAt time.Time
}

// snapshots shows the hub the credential before, if there was one, and watches.
func (c *hubConnection) snapshots(ctx context.Context, hello hubclient.Hello) iter.Seq2[hubv1.PoolSnapshot, error] {
	if !c.formerly.Empty() {
		err := c.hub.Succeed(ctx, c.formerly)
		if code := problemCode(err); err != nil && (code == "" || code == hubv1.CodeUnauthenticated) {
			return func(yield func(hubv1.PoolSnapshot, error) bool) { yield(hubv1.PoolSnapshot{}, err) }
		}
		// A hub that refuses it has revoked it, with its runners, or is too old.
		if err != nil {
			logf.FromContext(ctx).Info("the hub does not take the credential before: how runners end that it minted is not told", "error", secret.Redact(err.Error()))
		}
		c.formerly = secret.String{}
	}
	return c.hub.PoolWatch(ctx, hello)
}

// state returns the link and the newest snapshot.
func (c *hubConnection) state() (pool.Link, *hubv1.PoolSnapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link, c.snapshot
}

// since is when the newest snapshot arrived.
func (c *hubConnection) since() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// received takes a snapshot in. Whatever its revision: a hub that was restored
// from a backup may count from an older one.
func (c *hubConnection) received(now time.Time, snapshot hubv1.PoolSnapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link, c.snapshot, c.at = pool.Link{State: pool.LinkUp}, &snapshot, now
}

// failed takes a failure in and says whether it is news. Of an outage only the
// first error is kept, so that the status does not change with each try.
func (c *hubConnection) failed(now time.Time, err error, show bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	link := pool.Link{State: pool.LinkDown, Reason: v1alpha1.ReasonHubUnavailable, Message: secret.Redact(err.Error()), Since: now}
	if refused(err) {
		link.State, link.Reason = pool.LinkRefused, v1alpha1.ReasonHubRefused
		if c.link.State != pool.LinkRefused {
			c.refusedAt = now
		}
	} else if !show {
		return false
	}
	if c.link.State == link.State {
		return false
	}
	c.link = link
	return true
}

// refusedSince says whether the hub has refused the credential, and did so no
// earlier than the given time.
func (c *hubConnection) refusedSince(at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link.State == pool.LinkRefused && !c.refusedAt.Before(at)
}

// refused says whether the error is the hub's refusal of the credential.
func refused(err error) bool {
	var problem *hubv1.Problem
	return errors.As(err, &problem) && problem.Status == http.StatusUnauthorized
}

// problemCode is the code of the hub's problem, empty for any other error.
func problemCode(err error) hubv1.Code {
	var problem *hubv1.Problem
	if errors.As(err, &problem) && !errors.Is(err, hubclient.ErrUnavailable) {
		return problem.Code
	}
	return ""
}
