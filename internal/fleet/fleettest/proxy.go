package fleettest

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// Proxy is an HTTP proxy in front of a Server, whatever host it is asked for. It wants
// basic authentication.
type Proxy struct {
	*httptest.Server
	backend, username, password string

	mu    sync.Mutex // guards asked
	asked []string
}

// ServeProxy serves a proxy until the test ends.
func (s *Server) ServeProxy(username, password string) *Proxy {
	p := &Proxy{backend: strings.TrimPrefix(s.http.URL, "https://"), username: username, password: password}
	p.Server = httptest.NewServer(p)
	s.t.Cleanup(p.Close)
	return p
}

// Asked are the hosts that it was asked for, each with the credential that came along.
func (p *Proxy) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// ServeHTTP makes a tunnel.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	shown := r.Header.Get("Proxy-Authorization")
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.Host+" "+shown)
	p.mu.Unlock()
	login := &http.Request{Header: http.Header{"Authorization": {shown}}}
	if username, password, _ := login.BasicAuth(); r.Method != http.MethodConnect || username != p.username || password != p.password {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	behind, err := net.Dial("tcp", p.backend)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer func() { _ = behind.Close() }()
	// The answer is written by hand: what the server would write after it belongs
	// to no tunnel.
	front, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = front.Close() }()
	if _, err := io.WriteString(front, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(front, behind)
		_ = front.Close()
	})
	both.Go(func() {
		_, _ = io.Copy(behind, buffered)
		_ = behind.Close()
	})
	both.Wait()
}
