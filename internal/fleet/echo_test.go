package fleet_test

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/secret"
)

// What a server or a proxy answers is quoted in conditions, Events and logs: it may
// have in it what was sent.
func TestAnswersThatEchoTheCredential(t *testing.T) {
	const user, password = "robot", `hunter2 "SECRET"<PW>`
	basic := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	packet := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	refuse := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, text, r.Header.Get("Authorization"))
		}
	}
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		says   string
	}{
		"the header":     {refuse(http.StatusForbidden, "go away %s"), "go away Basic [redacted]"},
		"of a line":      {refuse(http.StatusUnauthorized, "GET / HTTP/1.1\nAuthorization: %s\nHost: x"), "Authorization: Basic [redacted] Host: x"},
		"what is in it":  {refuse(http.StatusNotFound, "no access for "+user+":"+password+" (%s)"), "no access for robot:[redacted] (Basic [redacted])"},
		"a page":         {refuse(http.StatusForbidden, "hunter2 &#34;SECRET&#34;&lt;PW&gt; %s"), "[redacted]"},
		"escaped":        {refuse(http.StatusForbidden, strings.ReplaceAll(url.QueryEscape(password), "%", "%%")+", %s"), "[redacted]"},
		"at the bound":   {refuse(http.StatusForbidden, "no"+strings.Repeat(" ", 4<<10-9)+"hunter2 %s"), "no [redacted]"},
		"of a long page": {refuse(http.StatusForbidden, strings.Repeat("x\n", 1000)+"%s"), "x x x"},
		"within the protocol": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, packet("# service=git-upload-pack\n"), "0000", packet("ERR denied for "+password+", "+r.Header.Get("Authorization")+"\n"))
		}, "the server says: denied for [redacted], Basic [redacted]"},
		"in front of the pack": {func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				advertise(w)
				return
			}
			_, _ = fmt.Fprint(w, packet("ERR denied for "+r.Header.Get("Authorization")+"\n"))
		}, "denied for Basic [redacted]"},
		"in the pack": {func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				advertise(w)
				return
			}
			_, _ = fmt.Fprint(w, packet("NAK\n"), packet("\x03denied for "+password+"\n"), "0000")
		}, ""},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://"+base64.RawURLEncoding.EncodeToString([]byte(password))+".example.com/x", http.StatusFound)
		}, "redirects"},
	} {
		t.Run(name, func(t *testing.T) {
			server := serveHostile(t, c.handle)
			git, err := fleet.OpenGit(t.TempDir(), server.URL+"/fleet.git", fleet.Auth{Username: user, Password: secret.New(password), CABundle: bundle(server)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = git.Checkout(t.Context(), fleet.Ref{Branch: "main"})
			wantSource(t, err, c.says)
			for _, leak := range []string{"hunter2", "SECRET", basic[:12]} {
				if strings.Contains(err.Error(), leak) {
					t.Errorf("it shows the credential: %v", err)
				}
			}
			if len(err.Error()) > 1000 {
				t.Errorf("it is %d bytes long", len(err.Error()))
			}
		})
	}
}

// A proxy's words come in the line of its status.
func TestAProxyThatEchoesTheCredential(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 403 no wr0ng and no %s\r\n\r\n", r.Header.Get("Proxy-Authorization"))
		_ = conn.Close()
	})}
	go func() { _ = proxy.Serve(listener) }()
	t.Cleanup(func() { _ = proxy.Close() })
	at := listener.Addr().String()
	basic := base64.StdEncoding.EncodeToString([]byte("robot:wr0ng"))
	for name, named := range map[string]*fleet.Proxy{
		"named":              {Address: "http://" + at, Username: "robot", Password: secret.New("wr0ng")},
		"of the environment": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HTTPS_PROXY", "http://robot:wr0ng@"+at)
			git, err := fleet.OpenGit(t.TempDir(), "https://example.com/fleet.git", fleet.Auth{Proxy: named})
			if err != nil {
				t.Fatal(err)
			}
			_, err = git.Resolve(t.Context(), fleet.Ref{Branch: "main"})
			wantSource(t, err, "no [redacted] and no Basic [redacted]")
			if strings.Contains(err.Error(), "wr0ng") || strings.Contains(err.Error(), basic) {
				t.Errorf("it shows the credential: %v", err)
			}
		})
	}
}
