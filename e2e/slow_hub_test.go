package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/dev"
	"cloop.dev/cloop/internal/pki"
)

// distant is a hub behind a proxy that takes its time, and asks every fifth request to
// come back in a second.
type distant struct {
	*httptest.Server
	ca            *pki.CA
	asked, putOff atomic.Int64
}

const (
	hubLatency = 50 * time.Millisecond
	putOffEach = 5
)

func newDistant(t *testing.T, system *dev.System) *distant {
	t.Helper()
	authority, err := os.ReadFile(system.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	hub, err := url.Parse(system.HubURL)
	if err != nil {
		t.Fatal(err)
	}
	d := &distant{}
	if d.ca, err = pki.NewCA("a distant hub", time.Now()); err != nil {
		t.Fatal(err)
	}
	pair, err := d.ca.Server(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	// Watches are sent on as they come.
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(hub) }}
	d.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(hubLatency):
		case <-r.Context().Done():
			return
		}
		if d.asked.Add(1)%putOffEach == 0 {
			d.putOff.Add(1)
			w.Header().Set("Retry-After", "1")
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = fmt.Fprintf(w, `{"title":"Too Many Requests","status":429,"code":%q,"detail":"asked too often"}`, hubv1.CodeRateLimited)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	d.EnableHTTP2 = true
	d.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	d.StartTLS()
	t.Cleanup(func() {
		d.CloseClientConnections()
		d.Close()
	})
	return d
}

// TestADistantHub has controller and runners reach the hub in 50 ms, and be put off
// every fifth time: runs take longer, and nothing else is different.
func TestADistantHub(t *testing.T) {
	system := up(t)
	hub := newDistant(t, system)
	fleet, err := system.SeedFleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(hub.ca.Certificate)
	if block == nil {
		t.Fatal("the authority has no certificate")
	}
	own, err := os.ReadFile(system.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	indented := func(text []byte) string { return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n    ") }
	for _, change := range [][2]string{
		{"hubURL: " + system.HubURL, "hubURL: " + hub.URL},
		{"  hubCAPin: " + system.HubPin + "\n", ""},
		// Runners fetch projects by the same bundle.
		{indented(own), indented(own) + "\n    " + indented(hub.ca.Certificate)},
	} {
		data, err := fleet.Read("pools/base/agents.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), change[0]) {
			t.Fatalf("there is no %q in %s", change[0], data)
		}
		if err := fleet.Replace("pools/base/agents.yaml", change[0], change[1]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := fleet.Commit(t.Context(), "Reach the hub from far away"); err != nil {
		t.Fatal(err)
	}
	story := dev.Story{System: system, Done: log(t)}
	if err := story.RunUntil(t.Context(), dev.Steps()[0]); err != nil {
		t.Fatal(err)
	}
	if err := system.Bind(t.Context(), "agents"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		run, err := system.StartRun(t.Context(), "./check")
		if err != nil {
			t.Fatal(err)
		}
		if run, err = system.Settled(t.Context(), run.ID); err != nil || run.State != hubv1.RunSucceeded || run.Attempt > 1 {
			t.Fatalf("the run is %+v (%v)", run, err)
		}
	}
	expect(t, "the pool is Ready, and a runner waits", func(ctx context.Context) error {
		conditions, err := poolConditions(ctx, system, "agents")
		if err != nil {
			return err
		}
		pool, err := system.Hub.GetPool(ctx, "agents")
		if err == nil && pool.Runners.Idle != 1 {
			err = fmt.Errorf("its runners are %+v", pool.Runners)
		}
		if err != nil {
			return err
		}
		return hasCondition(conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonServing)
	})
	t.Logf("of %d requests %d were put off", hub.asked.Load(), hub.putOff.Load())
	if hub.putOff.Load() < 5 {
		t.Errorf("of %d requests %d were put off", hub.asked.Load(), hub.putOff.Load())
	}
}
