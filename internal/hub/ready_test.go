package hub_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub"
)

// request makes one with the first admin token.
func (r *running) request(method, path string, body io.Reader) *http.Request {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.ctx(), method, "https://"+r.addr+path, body)
	check(r.t, err)
	request.Header.Set("Authorization", "Bearer "+r.firstToken())
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return request
}

// http2 is a transport with one connection, as controllers have.
func (r *running) http2() *http.Transport {
	r.t.Helper()
	transport := pinned(r.t, r.pin)
	transport.ForceAttemptHTTP2 = true
	r.t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func (r *running) send(transport *http.Transport, request *http.Request) *http.Response {
	r.t.Helper()
	response, err := transport.RoundTrip(request)
	check(r.t, err)
	r.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

func TestAHubThatStopsSaysSoFirstAndLetsGoInOrder(t *testing.T) {
	r := serve(t, func(o *hub.Options) { o.DrainDelay, o.DrainTime = time.Minute, patience })
	pool, _ := r.pool("gpu", 1)
	transport := r.http2()
	watch := bufio.NewReader(r.send(transport, r.request("GET", "/api/v1/pools/gpu/watch", nil)).Body)
	if first, err := watch.ReadString('\n'); err != nil || !strings.HasPrefix(first, "id: ") {
		t.Fatalf("the watch begins with %q, %v", first, err)
	}
	// A request whose body comes slowly is in progress.
	body, writer := io.Pipe()
	answered := make(chan *http.Response, 1)
	slow := r.request("POST", "/api/v1/projects", body)
	go func() {
		response, err := transport.RoundTrip(slow)
		if err != nil {
			t.Errorf("the request in progress: %v", err)
		}
		answered <- response
	}()
	must(t)(io.WriteString(writer, `{"name":"app",`))
	// Behind the request's beginning on the same connection.
	_ = r.send(transport, r.request("GET", "/api/v1/pools/gpu", nil))

	stopped := make(chan struct{})
	go func() { defer close(stopped); r.stop() }()
	for page := ""; !strings.Contains(page, "stopping"); page = r.page("/readyz") { //nolint:revive // it waits
	}
	// It serves for as long as others may not know yet.
	if page := r.page("/healthz"); page != "ok\n" {
		t.Errorf("it lives as %q", page)
	}
	must(t)(r.admin.Cordon(r.ctx(), pool.ID, "still here"))
	if response := r.send(transport, r.request("GET", "/readyz", nil)); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("ready with %d", response.StatusCode)
	}
	if page := r.page("/metrics"); !strings.Contains(page, "cloop_hub_ready 0") {
		t.Error("the metric says that it is ready")
	}

	r.clock.Step(time.Minute)
	rest, err := io.ReadAll(watch)
	if err != nil || !strings.Contains(string(rest), "still here") || !strings.Contains(string(rest), "\nretry: ") {
		t.Errorf("the watch ended with %q, %v", rest, err)
	}
	must(t)(io.WriteString(writer, `"remote":"https://git.example.com/app.git"}`))
	check(t, writer.Close())
	if response := <-answered; response != nil {
		if response.StatusCode != http.StatusCreated {
			t.Errorf("the request in progress is answered with %d", response.StatusCode)
		}
		_ = response.Body.Close()
	}
	<-stopped
	if again := serveIn(t, r.dir, nil); again != nil {
		must(t)(again.admin.GetProject(again.ctx(), "app"))
	}
}

func TestARequestThatNeverEndsDoesNotKeepTheHubFromStopping(t *testing.T) {
	r := serve(t, func(o *hub.Options) { o.DrainTime = 50 * time.Millisecond })
	transport := r.http2()
	body, writer := io.Pipe()
	cut := make(chan error, 1)
	go func() {
		_, err := transport.RoundTrip(r.request("POST", "/api/v1/projects", body)) //nolint:bodyclose // there is none
		cut <- err
	}()
	must(t)(io.WriteString(writer, `{`))
	_ = r.send(transport, r.request("GET", "/api/v1/pools", nil))
	r.stop()
	if err := <-cut; err == nil {
		t.Error("the request was answered")
	}
}

func TestSyncsThatFailDoNotMakeTheHubUnready(t *testing.T) {
	r := serve(t, func(o *hub.Options) {
		o.Syncs = []hub.SyncConfig{{Name: "fleet", URL: "https://127.0.0.1:1/fleet.git"}}
	})
	until(t, r.admin.WatchSync(r.ctx(), "fleet"), "it has failed", failedSync)
	if page := r.page("/readyz"); page != "ok\n" {
		t.Errorf("ready as %q", page)
	}
}

func TestWhatIsBesideTheAPISaysWhichMethodsItTakesToo(t *testing.T) {
	r := serve(t, nil)
	for path, allow := range map[string]string{"/metrics": "GET, HEAD", "/readyz": "GET, HEAD", "/healthz": "GET, HEAD"} {
		if status, refused := r.raw(http.MethodPost, path, "{}"); status != http.StatusMethodNotAllowed || refused.Code != hubv1.CodeMethodNotAllowed || !strings.Contains(refused.Detail, allow) {
			t.Errorf("POST %s is answered %d %+v", path, status, refused)
		}
	}
	if status, refused := r.raw(http.MethodPut, "/webhooks/fleet", "{}"); status != http.StatusMethodNotAllowed || !strings.Contains(refused.Detail, "takes POST") {
		t.Errorf("PUT /webhooks/fleet is answered %d %+v", status, refused)
	}
}
