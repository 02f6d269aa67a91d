package hub_test

import (
	"bufio"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
)

// sse reads a stream a line at a time.
type sse struct {
	t      *testing.T
	lines  *bufio.Reader
	closed func() error
}

// open opens a watch as somebody who has the snapshot of an id.
func (r *running) open(transport *http.Transport, path, last string) sse {
	r.t.Helper()
	request := r.request("GET", path, nil)
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response := r.send(transport, request)
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || kind != "text/event-stream" {
		r.t.Fatalf("a watch is answered %d with %s", response.StatusCode, kind)
	}
	return sse{r.t.(*testing.T), bufio.NewReader(response.Body), response.Body.Close}
}

// block is what comes until the next empty line.
func (s sse) block() string {
	s.t.Helper()
	text := ""
	for {
		line, err := s.lines.ReadString('\n')
		check(s.t, err)
		if line == "\n" {
			return text
		}
		text += line
	}
}

func idOf(t *testing.T, block string) string {
	t.Helper()
	id, _, _ := strings.Cut(block, "\n")
	if !regexp.MustCompile(`^id: \d+-[0-9a-f]{16}$`).MatchString(id) {
		t.Fatalf("an event begins with %q", id)
	}
	return strings.TrimPrefix(id, "id: ")
}

func TestAWatchGoesOnFromWhatItsReaderHas(t *testing.T) {
	r := serve(t, nil)
	pool, _ := r.pool("gpu", 1)
	transport := r.http2()
	watch := r.open(transport, "/api/v1/pools/gpu/watch", "")
	first := idOf(t, watch.block())
	check(t, watch.closed())

	// Nothing has changed: the stream begins and says no more.
	watch = r.open(transport, "/api/v1/pools/gpu/watch", first)
	if block := watch.block(); block != ": keep-alive\n" {
		t.Fatalf("who has the newest snapshot is sent %q", block)
	}
	must(t)(r.admin.Cordon(r.ctx(), pool.ID, "node upgrades"))
	block := watch.block()
	second := idOf(t, block)
	if second == first || !strings.Contains(block, "node upgrades") {
		t.Fatalf("after a change it is sent %q", block)
	}
	check(t, watch.closed())

	// Whoever missed something gets the whole snapshot at once.
	for _, stale := range []string{first, "nonsense", second + "0"} {
		watch = r.open(transport, "/api/v1/pools/gpu/watch", stale)
		if block := watch.block(); block != ": keep-alive\n" || idOf(t, watch.block()) != second {
			t.Errorf("who has %s is sent %q", stale, block)
		}
		check(t, watch.closed())
	}
}

func TestAnIdleWatchSaysThatItIsOpen(t *testing.T) {
	r := serve(t, nil)
	r.pool("gpu", 1)
	watch := r.open(r.http2(), "/api/v1/pools/gpu/watch", "")
	idOf(t, watch.block())
	blocks := make(chan string)
	go func() { blocks <- watch.block() }()
	// The stream may not have begun to wait: another 15 s pass then.
	for tries := 0; ; tries++ {
		r.clock.Step(15 * time.Second)
		select {
		case block := <-blocks:
			if block != ": keep-alive\n" {
				t.Errorf("it says %q", block)
			}
			return
		case <-time.After(100 * time.Millisecond):
			if tries == 50 {
				t.Fatal("it says nothing")
			}
		}
	}
}

func TestStreamsAndRequestsAreCountedByRoute(t *testing.T) {
	r := serve(t, nil)
	r.pool("gpu", 1)
	watch := r.open(r.http2(), "/api/v1/pools/gpu/watch", "")
	watch.block()
	must(t)(r.admin.GetPool(r.ctx(), "gpu"))
	_, _ = r.admin.GetPool(r.ctx(), "some-secret-name")
	_ = r.page("/a/path/that/nobody/serves")
	page := r.page("/metrics")
	for _, want := range []string{
		`cloop_http_streams{route="GET /api/v1/pools/{pool}/watch"} 1`,
		`cloop_http_requests_total{route="GET /api/v1/pools/{pool}",status="200"} 1`,
		`cloop_http_requests_total{route="GET /api/v1/pools/{pool}",status="404"} 1`,
		`cloop_http_requests_total{route="other",status="404"} 1`,
		`cloop_http_request_duration_seconds_count{route="GET /api/v1/pools/{pool}"} 2`,
		`cloop_store_commit_seconds_count `, `cloop_store_commit_changes_bucket{le="1"} `, `cloop_hub_ready 1`, `cloop_hub_database_writable 1`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %s", want)
		}
	}
	if strings.Contains(page, "some-secret-name") || strings.Contains(page, "nobody") {
		t.Error("a label holds what a request said")
	}
	check(t, watch.closed())
	for strings.Contains(r.page("/metrics"), `cloop_http_streams{route="GET /api/v1/pools/{pool}/watch"} 1`) { //nolint:revive // it waits
	}
}

// Who waits for a pool hears of it when it comes, under a new name too, and of a pool
// that has another name now that there is none; also with a token for some names alone.
func TestAWatchFollowsANameWithAndWithoutAPool(t *testing.T) {
	r := serve(t, nil)
	token := r.token(r.admin, hubv1.CreateTokenRequest{
		Name: "eu", Ceiling: &hubv1.Ceiling{Names: []string{"eu-*"}}, Scopes: []hubv1.Permission{hubv1.PermissionExecutorRead},
	})
	for name, client := range map[string]*hubclient.Client{"all": r.admin, "some": r.client(token.Secret)} {
		t.Run(name, func(t *testing.T) {
			was, now := "eu-"+name, "eu-"+name+"-now"
			atOld, stop := pullPool(client.WatchPool(r.ctx(), was))
			defer stop()
			atNew, stop := pullPool(client.WatchPool(r.ctx(), now))
			defer stop()
			if old, other := atOld(), atNew(); old.ID != "" || old.Name != was || other.ID != "" {
				t.Fatalf("before there is a pool, it is said to be %+v and %+v", old, other)
			}
			define := func(name, from string, runners int32) hubv1.Pool {
				pool, err := r.admin.DefinePool(r.ctx(), name, hubv1.DefinePoolRequest{
					Definition: hubv1.PoolDefinition{MaxRunners: runners}, Provenance: hubv1.Provenance{Sync: hubv1.ClusterOwner("one", "fleet", name)}, MovedFrom: from,
				})
				check(t, err)
				return pool
			}
			made := define(was, "", 1)
			if pool := atOld(); pool.ID != made.ID || pool.MaxRunners != 1 {
				t.Fatalf("once it is made, it is said to be %+v", pool)
			}
			define(was, "", 2)
			if pool := atOld(); pool.MaxRunners != 2 {
				t.Fatalf("once it has changed, it is said to be %+v", pool)
			}
			define(now, was, 3)
			if pool := atNew(); pool.ID != made.ID || pool.Name != now || pool.MaxRunners != 3 {
				t.Fatalf("under the new name it is said to be %+v", pool)
			}
			if pool := atOld(); pool.ID != "" || pool.Name != was {
				t.Fatalf("under the old name it is said to be %+v", pool)
			}
			again := define(was, "", 4)
			if pool := atOld(); pool.ID != again.ID || again.ID == made.ID {
				t.Fatalf("another pool of the old name is said to be %+v", pool)
			}
		})
	}
	// Nobody is told of a name that its token does not cover, nor that does not ask.
	for path, secret := range map[string]string{"us-one/watch?absent=true": token.Secret, "eu-none/watch": token.Secret} {
		if status, _, answer := r.ask("GET", "/api/v1/pools/"+path, secret, ""); status != http.StatusNotFound {
			t.Errorf("%s is answered %d %s", path, status, answer)
		}
	}
}
