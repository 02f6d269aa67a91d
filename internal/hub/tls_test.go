package hub_test

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hubclient"
)

// pinned is a plain transport that trusts one key, for pages that the client
// does not know.
func pinned(t testing.TB, pin string) *http.Transport {
	t.Helper()
	return &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the pin decides
		VerifyConnection: func(state tls.ConnectionState) error {
			if hub.Pin(state.PeerCertificates[0]) != pin {
				return errors.New("another key")
			}
			return nil
		},
	}}
}

func TestTheCertificateIsKeptAndTrustedByPinOrBundle(t *testing.T) {
	dir := t.TempDir()
	r := serveIn(t, dir, nil)
	fetched, err := hubclient.FetchPin(r.ctx(), "https://"+r.addr)
	check(t, err)
	if fetched != r.pin || !strings.Contains(r.log.String(), r.pin) {
		t.Fatalf("fetched %s, served %s", fetched, r.pin)
	}
	bundle, err := os.ReadFile(hub.CAFile(filepath.Join(dir, "hub")))
	check(t, err)
	for name, o := range map[string]hubclient.Options{"bundle": {CABundle: bundle}, "both": {CABundle: bundle, Pin: r.pin}} {
		o.URL = "https://" + r.addr
		c, err := hubclient.New(o)
		check(t, err)
		if _, err := c.ListPools(r.ctx()); errors.Is(err, hubclient.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		c.CloseIdleConnections()
	}
	r.stop()

	// The next start shows the same key for another name.
	again := serveIn(t, dir, func(o *hub.Options) { o.Names = []string{"hub.example.com", "192.0.2.7"} })
	if again.pin != r.pin {
		t.Fatalf("the pin changed from %s to %s", r.pin, again.pin)
	}
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(again.ctx(), "tcp", again.addr) //nolint:gosec // looked at only
	check(t, err)
	defer func() { _ = conn.Close() }()
	leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	for _, name := range []string{"localhost", "127.0.0.1", "hub.example.com", "192.0.2.7"} {
		if err := leaf.VerifyHostname(name); err != nil {
			t.Errorf("the certificate is not for %s: %v", name, err)
		}
	}
}

func TestASecondHubIsKeptOffTheData(t *testing.T) {
	r := serve(t, nil)
	err := hub.Run(r.ctx(), hub.Options{Addr: "127.0.0.1:0", DataDir: filepath.Join(r.dir, "hub")})
	if err == nil || !strings.Contains(err.Error(), "a hub uses") {
		t.Fatalf("a second hub on the same data: %v", err)
	}
}

func TestOptionsNameEveryProblem(t *testing.T) {
	err := hub.Run(t.Context(), hub.Options{TLSCert: "x", ConfigFile: filepath.Join(t.TempDir(), "none.yaml"), Lease: 1})
	for _, want := range []string{"data directory", "certificate needs its key", "none.yaml", "heartbeats"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer func() { _ = listener.Close() }()
	if err := hub.Run(t.Context(), hub.Options{Addr: listener.Addr().String(), DataDir: t.TempDir(), AdminTokenFile: filepath.Join(t.TempDir(), "a"), Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("a taken port is no error")
	}
}
