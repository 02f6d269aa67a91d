package fleet_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/gitserver"
	"cloop.dev/cloop/internal/pki"
	"cloop.dev/cloop/internal/secret"
)

// hostile is an https server that keeps what credentials reached it.
type hostile struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

func serveHostile(t *testing.T, handle http.HandlerFunc) *hostile {
	t.Helper()
	h := &hostile{}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.seen = append(h.seen, r.Header.Get("Authorization"))
		h.mu.Unlock()
		handle(w, r)
	}))
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.StartTLS()
	t.Cleanup(h.Close)
	return h
}

func (h *hostile) credentials() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var got []string
	for _, header := range h.seen {
		if header != "" {
			got = append(got, header)
		}
	}
	return got
}

func (h *hostile) requests() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seen)
}

func bundle(servers ...*hostile) []byte {
	var all []byte
	for _, server := range servers {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})...)
	}
	return all
}

// generous are for what is not to run out: nothing takes nearly as long, also on a busy
// machine. A test of a time that does run out shortens that one alone, so that no other
// comes before it.
var generous = fleet.Timeouts{Connect: time.Minute, Silence: time.Minute, Attempt: 2 * time.Minute}

// silence runs out of patience with a server that sends nothing, and attempt with one
// that never comes to an end.
func silence() fleet.Timeouts {
	limits := generous
	limits.Silence = 300 * time.Millisecond
	return limits
}

func attempt() fleet.Timeouts {
	limits := generous
	limits.Attempt = 3 * time.Second
	return limits
}

func resolve(t *testing.T, url string, auth fleet.Auth, limits fleet.Timeouts) error {
	t.Helper()
	t.Cleanup(fleet.SetTimeouts(limits))
	git, err := fleet.OpenGit(t.TempDir(), url, auth)
	if err != nil {
		t.Fatal(err)
	}
	_, err = git.Checkout(t.Context(), fleet.Ref{})
	return err
}

func advertise(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
	first := strings.Repeat("1", 40) + " refs/heads/main\x00shallow side-band-64k no-progress\n"
	_, _ = fmt.Fprintf(w, "001e# service=git-upload-pack\n0000%04x%s0000", len(first)+4, first)
}

// Whatever a server does, an attempt ends in bounded time and says what to do.
func TestEveryAttemptEnds(t *testing.T) {
	hang := func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	for name, test := range map[string]struct {
		handle http.HandlerFunc
		limits fleet.Timeouts
		says   []string
	}{
		"no answer": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, silence(),
			[]string{"the server sent nothing for 300ms", "check what answers at that address"}},
		"headers and then nothing": {hang, silence(), []string{"the server sent nothing for 300ms"}},
		"references cut off by silence": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = io.WriteString(w, "001e# service=git-upload-pack\n0000")
			hang(w, r)
		}, silence(), []string{"the server sent nothing for 300ms"}},
		"a pack that never comes": {func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				advertise(w)
				return
			}
			hang(w, r)
		}, silence(), []string{"the server sent nothing for 300ms"}},
		"a byte at a time": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "001e# service=git-upload-pack\n0000fff0")
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "x")
				w.(http.Flusher).Flush()
				time.Sleep(50 * time.Millisecond)
			}
		}, attempt(), []string{"the attempt took longer than 3s"}},
		"references without end": {func(w http.ResponseWriter, r *http.Request) {
			line := strings.Repeat("1", 40) + " refs/heads/b" + strings.Repeat("x", 900) + "\n"
			first := strings.Repeat("1", 40) + " refs/heads/main\x00shallow\n"
			_, _ = fmt.Fprintf(w, "001e# service=git-upload-pack\n0000%04x%s", len(first)+4, first)
			for r.Context().Err() == nil {
				if _, err := fmt.Fprintf(w, "%04x%s", len(line)+4, line); err != nil {
					return
				}
			}
		}, generous, []string{"too large"}},
		"not found":  {func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }, generous, []string{"correct the URL"}},
		"forbidden":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, generous, []string{"give a credential"}},
		"a web page": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>sign in</html>") }, generous, []string{"what answers there is no Git repository"}},
		"out of order": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "\x1b]0;owned\a"+strings.Repeat("<html>\n", 10_000))
		}, generous, []string{"502", "try again"}},
		"a loop": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.String(), http.StatusFound) }, generous,
			[]string{"redirects more than 5 times", "the URL that the repository has now"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := serveHostile(t, test.handle)
			began := time.Now()
			err := resolve(t, server.URL+"/fleet.git", fleet.Auth{CABundle: bundle(server)}, test.limits)
			if took := time.Since(began); took > generous.Silence/2 {
				t.Errorf("it took %s", took)
			}
			t.Log(err)
			wantSource(t, err, append(test.says, server.URL)...)
			if text := err.Error(); len(text) > 4096 || strings.Contains(text, "\x1b") {
				t.Errorf("the error is %d bytes long: %.200q", len(text), text)
			}
		})
	}
}

func TestAServerThatOnlyAcceptsIsLeft(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	err = resolve(t, "https://"+listener.Addr().String()+"/fleet.git", fleet.Auth{}, silence())
	wantSource(t, err, "try again")
	t.Log(err)
}

// A redirect may lead to where the repository has moved; a credential never
// goes with it to another server, another port included.
func TestCredentialsStayWithTheirServer(t *testing.T) {
	auths := map[string]fleet.Auth{
		"basic":  {Username: "robot", Password: secret.New("hunter2")},
		"bearer": {Bearer: secret.New("hunter2")},
	}
	for kind, auth := range auths {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(kind+" on "+method, func(t *testing.T) {
				thief := serveHostile(t, func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						advertise(w)
					}
				})
				server := serveHostile(t, func(w http.ResponseWriter, r *http.Request) {
					if r.Method == method {
						http.Redirect(w, r, thief.URL+r.URL.RequestURI(), http.StatusTemporaryRedirect)
						return
					}
					advertise(w)
				})
				auth.CABundle = bundle(server, thief)
				err := resolve(t, server.URL+"/fleet.git", auth, generous)
				wantSource(t, err, server.URL, "the URL that the repository has now")
				t.Log(err)
				if got := thief.credentials(); len(got) > 0 {
					t.Errorf("the other server got %q", got)
				}
				if len(server.credentials()) == 0 {
					t.Error("the server itself got no credential")
				}
				if strings.Contains(err.Error(), "hunter2") {
					t.Errorf("the error shows the credential: %v", err)
				}
			})
		}
	}
}

func TestRedirects(t *testing.T) {
	local := serve(t)
	local.Commit(repository, map[string]string{"a": "a"})
	backend := gitserver.Handler(filepath.Dir(local.Path(repository)))
	moved := serveHostile(t, func(w http.ResponseWriter, r *http.Request) {
		if after, old := strings.CutPrefix(r.URL.RequestURI(), "/old"); old {
			http.Redirect(w, r, after, http.StatusMovedPermanently)
			return
		}
		backend.ServeHTTP(w, r)
	})
	robot := fleet.Auth{Username: "robot", Password: secret.New("hunter2")}
	for name, test := range map[string]struct {
		to, says string
		auth     fleet.Auth
	}{
		"to a file":                              {"file:///etc/passwd", "give the URL that the repository has now", robot},
		"to plain http":                          {"http://127.0.0.1:1/fleet.git/info/refs?service=git-upload-pack", "give the URL that the repository has now", robot},
		"to a user":                              {"https://user:hunter2@127.0.0.1:1/fleet.git/info/refs?service=git-upload-pack", "check the URL", fleet.Auth{}},
		"to a login page":                        {"/login", "give the URL that the repository has now", robot},
		"to another server without a credential": {moved.URL + "/fleet.git/info/refs?service=git-upload-pack", "", fleet.Auth{}},
		"to another name of the repository":      {"", "", robot},
	} {
		t.Run(name, func(t *testing.T) {
			server := serveHostile(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/login" {
					_, _ = io.WriteString(w, "<html>")
					return
				}
				http.Redirect(w, r, test.to, http.StatusFound)
			})
			url := server.URL + "/fleet.git"
			if test.to == "" {
				url = moved.URL + "/old/fleet.git"
			}
			test.auth.CABundle = bundle(server, moved)
			err := resolve(t, url, test.auth, generous)
			t.Log(err)
			if test.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantSource(t, err, test.says)
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a credential: %v", err)
			}
		})
	}
}

func TestAServerOfAnotherAuthorityGetsNoCredential(t *testing.T) {
	server := serveHostile(t, http.NotFound)
	other, err := pki.NewCA("another", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	err = resolve(t, server.URL+"/fleet.git", fleet.Auth{CABundle: other.Certificate, Bearer: secret.New("hunter2")}, generous)
	wantSource(t, err, "give the CA bundle that signed the server's certificate")
	if server.requests() > 0 {
		t.Error("the server was asked all the same")
	}
}
