package hub

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// silence is how long a peer may acknowledge nothing before the system ends the
// connection: as long as one write of a stream may take. Streams write every 15 s,
// and the system itself asks on connections on which nothing is said for as long.
const silence = 30 * time.Second

// endInSilence makes the system find out that a peer's machine is gone: to ask
// thousands of peers over HTTP/2 costs as much of the processor as the rest that
// their streams need while they wait.
func endInSilence(conn net.Conn) {
	socket, is := conn.(syscall.Conn)
	if !is {
		return
	}
	// Where it fails HTTP/2's own question, which is asked more seldom, finds out
	// the same.
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
		})
	}
}

// greeter is a listener whose connections have their TLS handshake behind them.
// It needs a deep stack, which the goroutine that serves a connection would keep
// for as long as that is open; so it has a goroutine of its own, which ends.
type greeter struct {
	net.Listener
	config  *tls.Config
	timeout time.Duration

	ready   chan accepted
	ctx     context.Context //nolint:containedctx // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// accepted is what Accept returns.
type accepted struct {
	conn net.Conn
	err  error
}

// greet begins to accept. A handshake takes no longer than the timeout.
func greet(listener net.Listener, config *tls.Config, timeout time.Duration) *greeter {
	g := &greeter{Listener: listener, config: config, timeout: timeout, ready: make(chan accepted)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.running.Go(g.accept)
	return g
}

// Accept returns the next connection after its handshake, as *tls.Conn, also
// where that failed: whoever serves it asks again and is told the same.
func (g *greeter) Accept() (net.Conn, error) {
	select {
	case a := <-g.ready:
		return a.conn, a.err
	case <-g.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close ends the handshakes in progress, too.
func (g *greeter) Close() error {
	g.cancel()
	err := g.Listener.Close()
	g.running.Wait()
	return err
}

func (g *greeter) accept() {
	for g.ctx.Err() == nil {
		conn, err := g.Listener.Accept()
		if err != nil {
			// Whoever serves waits a while before it accepts again.
			g.offer(accepted{err: err})
			continue
		}
		endInSilence(conn)
		g.running.Go(func() { g.shake(tls.Server(conn, g.config)) })
	}
}

func (g *greeter) shake(conn *tls.Conn) {
	ctx, cancel := context.WithTimeout(g.ctx, g.timeout)
	defer cancel()
	_ = conn.HandshakeContext(ctx) // which keeps how it ended
	if !g.offer(accepted{conn: conn}) {
		_ = conn.Close() // nobody serves it
	}
}

// offer says whether somebody took it.
func (g *greeter) offer(a accepted) bool {
	select {
	case g.ready <- a:
		return true
	case <-g.ctx.Done():
		return false
	}
}
