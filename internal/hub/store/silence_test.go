package store_test

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/postgrestest"
)

// relay passes on what goes to and from a server until it is told to hold its
// tongue: the connections stay, and new ones are taken, as by a server that is
// frozen.
type relay struct {
	listener net.Listener
	to       string
	mu       sync.RWMutex // locked for writing while it is silent
	done     sync.WaitGroup
	connsMu  sync.Mutex // guards conns
	conns    []net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	r := &relay{listener: listener, to: to}
	r.done.Go(r.serve)
	t.Cleanup(func() {
		check(t, listener.Close())
		r.connsMu.Lock()
		for _, conn := range r.conns {
			_ = conn.Close()
		}
		r.connsMu.Unlock()
		r.done.Wait()
	})
	return r
}

func (r *relay) serve() {
	for {
		from, err := r.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", r.to) //nolint:noctx // it ends with the listener
		if err != nil {
			_ = from.Close()
			continue
		}
		r.connsMu.Lock()
		r.conns = append(r.conns, from, to)
		r.connsMu.Unlock()
		r.done.Go(func() { r.pass(from, to) })
		r.done.Go(func() { r.pass(to, from) })
	}
}

func (r *relay) pass(from, to net.Conn) {
	_, _ = io.Copy(heeding{to, &r.mu}, from)
	_ = to.Close()
}

// heeding writes while it may speak.
type heeding struct {
	net.Conn
	mu *sync.RWMutex
}

func (h heeding) Write(data []byte) (int, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.Conn.Write(data)
}

// About PostgreSQL: a server that goes silent keeps nobody waiting, also not who
// gets a connection that was good before, and all goes on when it speaks again.
func TestASilentServerKeepsNobodyWaiting(t *testing.T) {
	server := postgrestest.Shared(t)
	name := server.NewDatabase(t, "")
	t.Cleanup(func() { check(t, server.Drop(name)) })
	address, err := url.Parse(server.TCP(name))
	check(t, err)
	relay := newRelay(t, address.Host)
	address.Host = relay.listener.Addr().String()
	s, err := store.Open(background, store.Options{URL: address.String(), Clock: newClock()})
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	w := &world{s: s, clock: newClock()}
	w.furnish(t, 1)
	_, user := caller(t, s, root(t, s), hubv1.CreateTokenRequest{Name: "t"})
	acts := map[string]func() error{
		"ready":        func() error { return s.Ping(background) },
		"a question":   func() error { return errOf(s.ListRuns(background, "app", 10)) },
		"one row":      func() error { return errOf(s.FindProject(background, "app")) },
		"a person":     func() error { return errOf(s.AuthUser(background, user.Secret)) },
		"a change":     func() error { return errOf(s.Cordon(background, admin, "gpu", "x")) },
		"a deadline":   func() error { _, _, err := s.NextDeadline(background); return err },
		"a controller": func() error { return errOf(s.AuthPool(background, w.secret)) },
	}
	all := func(judge func(what string, took time.Duration, err error)) {
		var asked sync.WaitGroup
		var mu sync.Mutex // guards what judge touches
		for what, act := range acts {
			for range 2 { // each kind of connection is used, and then again while it is idle
				asked.Go(func() {
					began := time.Now()
					err := act()
					mu.Lock()
					defer mu.Unlock()
					judge(what, time.Since(began), err)
				})
			}
		}
		asked.Wait()
	}
	works := func(what string, _ time.Duration, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	all(works)
	relay.mu.Lock()
	all(func(what string, took time.Duration, err error) {
		trouble := store.Trouble(err)
		if trouble == nil || trouble.Code != hubv1.CodeStorageUnavailable && trouble.Code != hubv1.CodeUnavailable {
			t.Errorf("%s: %v", what, err)
		}
		// 5 s are promised; the machine may be busy, and a change waits for the one before it.
		if took > patience/2 {
			t.Errorf("%s took %s", what, took)
		}
	})
	relay.mu.Unlock()
	for s.Ping(background) != nil { //nolint:revive // the writer finds out by itself
	}
	all(works)
}
