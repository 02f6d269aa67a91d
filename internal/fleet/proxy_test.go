package fleet_test

import (
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/secret"
)

// proxied is a proxy in front of one server, whatever it is asked for.
type proxied struct {
	*httptest.Server
	mu sync.Mutex
	// asked are the hosts that it was asked for, with the credential.
	asked []string
}

func serveProxy(t *testing.T, backend string, allow func(*http.Request) bool) *proxied {
	t.Helper()
	p := &proxied{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.asked = append(p.asked, r.Method+" "+r.Host+" "+r.Header.Get("Proxy-Authorization"))
		p.mu.Unlock()
		if !allow(r) {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		behind, err := net.Dial("tcp", backend)
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
	}))
	t.Cleanup(p.Close)
	return p
}

// Over a proxy the server is still who its certificate says, and gets the credential
// alone; the proxy's own is its alone.
func TestAProxyOfTheEnvironment(t *testing.T) {
	s := serve(t)
	s.Commit(repository, map[string]string{"a": "a"})
	s.RequireAuthorization("Bearer tok3n")
	login := "Basic " + base64.StdEncoding.EncodeToString([]byte("robot:hunter2"))
	p := serveProxy(t, strings.TrimPrefix(s.URL("")[:strings.LastIndex(s.URL(""), "/")], "https://"), func(r *http.Request) bool {
		return r.Method == http.MethodConnect && r.Header.Get("Proxy-Authorization") == login
	})
	auth := fleet.Auth{Bearer: secret.New("tok3n"), CABundle: s.CABundle()}
	visit := func(user string) error {
		t.Helper()
		t.Setenv("HTTPS_PROXY", strings.Replace(p.URL, "http://", "http://"+user, 1))
		// The name that the server's certificate has, and that nobody answers to.
		git, err := fleet.OpenGit(t.TempDir(), "https://example.com/"+repository+".git", auth)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := git.Checkout(t.Context(), fleet.Ref{})
		if err == nil {
			err = tree.Close()
		}
		return err
	}
	if err := visit("robot:hunter2@"); err != nil {
		t.Fatal(err)
	}
	if len(p.asked) == 0 || p.asked[0] != "CONNECT example.com:443 "+login {
		t.Errorf("the proxy was asked %q", p.asked)
	}
	err := visit("robot:wr0ng@")
	wantSource(t, err, "Proxy Authentication Required", "HTTPS_PROXY")
	if strings.Contains(err.Error(), "wr0ng") || strings.Contains(err.Error(), "tok3n") {
		t.Errorf("%v shows a credential", err)
	}
	p.Close()
	err = visit("robot:hunter2@")
	wantSource(t, err, "proxyconnect", "HTTPS_PROXY")
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v shows a credential", err)
	}
	t.Log(err)

	// Who needs no proxy goes without.
	t.Setenv("NO_PROXY", "127.0.0.1")
	checkout(t, open(t, s, t.TempDir(), auth), fleet.Ref{})
}
