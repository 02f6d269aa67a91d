package hubclient_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fake is a server that answers like a hub, over HTTP/2.
func fake(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func client(t *testing.T, s *httptest.Server, change func(*hubclient.Options)) *hubclient.Client {
	t.Helper()
	o := hubclient.Options{URL: s.URL, Pin: hubclient.Pin(s.Certificate()), Token: secret.New("cloop_adm1_test")}
	if change != nil {
		change(&o)
	}
	c, err := hubclient.New(o)
	check(t, err)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func TestOnlyHTTPSWithoutUserInformation(t *testing.T) {
	for url, want := range map[string]string{
		"http://hub.example.com":             "not https",
		"https://user:hunter2@hub.example":   "user information",
		"hub.example.com":                    "not https",
		"https://":                           "names no host",
		"https://hub.example.com?x=1":        "query",
		"https://user:hunter2@hub.exa mple/": "cannot be read",
	} {
		_, err := hubclient.New(hubclient.Options{URL: url})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, pin := range []string{"sha256:", "md5:abc", "sha256:AAAA", hubclient.Pin(fake(t, nil).Certificate()) + "x"} {
		if _, err := hubclient.New(hubclient.Options{URL: "https://h", Pin: pin}); err == nil {
			t.Errorf("the pin %q is accepted", pin)
		}
	}
	if _, err := hubclient.New(hubclient.Options{URL: "https://h", CABundle: []byte("nothing")}); err == nil {
		t.Error("a bundle without a certificate is accepted")
	}
}

func TestWhomTheClientTrusts(t *testing.T) {
	asked := 0
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		_, _ = w.Write([]byte(`{"items":[]}`))
	})
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	wrong := "sha256:" + strings.Repeat("A", 43) + "="
	for name, c := range map[string]struct {
		pin     string
		bundle  []byte
		trusted bool
	}{
		"the pin":               {hubclient.Pin(s.Certificate()), nil, true},
		"the bundle":            {"", bundle, true},
		"both":                  {hubclient.Pin(s.Certificate()), bundle, true},
		"another pin":           {wrong, nil, false},
		"bundle, another pin":   {wrong, bundle, false},
		"the system, not known": {"", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := asked
			_, err := client(t, s, func(o *hubclient.Options) { o.Pin, o.CABundle = c.pin, c.bundle }).ListPools(t.Context())
			if c.trusted != (err == nil) || !c.trusted && !errors.Is(err, hubclient.ErrUnavailable) {
				t.Fatalf("trusted: %v", err)
			}
			if !c.trusted && asked != before {
				t.Fatal("a request reached a server that is not trusted")
			}
			// Its address is one without a name.
			if c.pin == wrong && (!errors.Is(err, hubclient.ErrPinMismatch) || !strings.Contains(err.Error(), "the server at "+s.Listener.Addr().String()+" has sha256:")) {
				t.Errorf("%v does not say that the pin is wrong, and whose", err)
			}
		})
	}
}

func TestAPinWithABundleStillNeedsTheChain(t *testing.T) {
	s := fake(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(`{"items":[]}`)) })
	// A certificate authority that has not signed the server's certificate.
	stranger := `-----BEGIN CERTIFICATE-----
MIIBdzCCAR2gAwIBAgIBATAKBggqhkjOPQQDAjAKMQgwBgYDVQQDEwB4MB4XDTI2
-----END CERTIFICATE-----`
	if _, err := hubclient.New(hubclient.Options{URL: s.URL, Pin: hubclient.Pin(s.Certificate()), CABundle: []byte(stranger)}); err == nil {
		t.Error("a broken bundle is accepted")
	}
	// The name must be right too: the certificate is not for this one.
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	c := client(t, s, func(o *hubclient.Options) {
		o.URL, o.CABundle = strings.Replace(s.URL, "127.0.0.1", "localhost", 1), bundle
	})
	if _, err := c.ListPools(t.Context()); !errors.Is(err, hubclient.ErrUnavailable) {
		t.Errorf("with a bundle the name does not count: %v", err)
	}
}

func TestErrorsAreOfThreeSorts(t *testing.T) {
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.URL.Path, "/api/v1/pools/") {
		case "refused":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"status":409,"code":"pool_exists","detail":"it exists"}`))
		case "broken":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"status":503,"code":"unavailable","detail":"stopping"}`))
		case "proxy":
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`<html>`))
		case "elsewhere":
			http.Redirect(w, r, "https://elsewhere.example.com/", http.StatusFound)
		case "nonsense":
			_, _ = w.Write([]byte(`{`))
		case "slow":
			<-r.Context().Done()
		}
	})
	c, hurried := client(t, s, nil), client(t, s, func(o *hubclient.Options) { o.Timeout = 200 * time.Millisecond })
	for name, want := range map[string]struct {
		code        hubv1.Code
		unavailable bool
	}{
		"refused": {hubv1.CodePoolExists, false}, "broken": {hubv1.CodeUnavailable, true}, "proxy": {hubv1.CodeNotFound, false},
		"elsewhere": {hubv1.CodeInvalid, false}, "nonsense": {"", true}, "slow": {"", true},
	} {
		c := c
		if name == "slow" {
			c = hurried
		}
		_, err := c.GetPool(t.Context(), name)
		var p *hubv1.Problem
		if got := errors.As(err, &p); got != (want.code != "") || got && p.Code != want.code {
			t.Errorf("%s: %v is no problem %q", name, err, want.code)
		}
		if errors.Is(err, hubclient.ErrUnavailable) != want.unavailable {
			t.Errorf("%s: unavailable is wrong for %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.GetPool(ctx, "slow"); !errors.Is(err, context.Canceled) || errors.Is(err, hubclient.ErrUnavailable) {
		t.Errorf("a call that was given up: %v", err)
	}
	s.Close()
	if _, err := c.GetPool(t.Context(), "x"); !errors.Is(err, hubclient.ErrUnavailable) || strings.Contains(err.Error(), "cloop_adm1") {
		t.Errorf("nobody there: %v", err)
	}
}

func TestWhatARequestCarries(t *testing.T) {
	var got *http.Request
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		body, _ := io.ReadAll(r.Body)
		got.Header.Set("Body", string(body))
		_, _ = w.Write([]byte(`{}`))
	})
	c := client(t, s, func(o *hubclient.Options) { o.UserAgent = "test/1" })
	_, err := c.StartRun(t.Context(), hubv1.StartRunRequest{Project: "p", Command: []string{"c"}}, "key-1")
	check(t, err)
	if got.ProtoMajor != 2 || got.Header.Get("Authorization") != "Bearer cloop_adm1_test" || got.Header.Get("Idempotency-Key") != "key-1" ||
		got.Header.Get("User-Agent") != "test/1" || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("a start carries %v over HTTP/%d", got.Header, got.ProtoMajor)
	}
	_, err = c.UpdatePool(t.Context(), "a/b", hubclient.ETag(hubv1.Pool{Revision: 7}), hubv1.UpdatePoolRequest{})
	check(t, err)
	if got.Method != http.MethodPatch || got.Header.Get("If-Match") != `"7"` || got.URL.EscapedPath() != "/api/v1/pools/a%2Fb" {
		t.Errorf("an update is %s %s with %v", got.Method, got.URL.EscapedPath(), got.Header)
	}
	_, err = c.WithToken(secret.New("cloop_ses1_x")).AppendLog(t.Context(), "run_1", 5, []byte{0, 255})
	check(t, err)
	if got.Header.Get("Authorization") != "Bearer cloop_ses1_x" || got.URL.RawQuery != "offset=5" || got.Header.Get("Body") != "\x00\xff" {
		t.Errorf("a log chunk is %s with %v", got.URL, got.Header)
	}
	if _, sent := got.Header["Idempotency-Key"]; sent {
		t.Error("a repeatable call sends a key")
	}
	if text := fmt.Sprintf("%v %+v", c, c); strings.Contains(text, "cloop_adm1_test") {
		t.Error("the client prints its token")
	}
}

func TestAWatchYieldsEachSnapshotAtOnceAndEndsWithAnError(t *testing.T) {
	next := make(chan string)
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for text := range next {
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
		}
	})
	c := client(t, s, nil)
	go func() { next <- "id: 1\ndata: {\"revision\":1}\n\n: keep-alive\n\n" }()
	var seen []int64
	var last error
	for snapshot, err := range c.PoolWatch(t.Context(), hubclient.Hello{Instance: "i", Build: "b"}) {
		if err != nil {
			last = err
			break
		}
		// The next message is written only once this one has come, so one that
		// waits in a buffer hangs the test.
		if seen = append(seen, snapshot.Revision); snapshot.Revision < 3 {
			next <- fmt.Sprintf("id: %d\ndata: {\"revision\":%d}\n\n", snapshot.Revision+1, snapshot.Revision+1)
		} else {
			close(next)
		}
	}
	if len(seen) != 3 || !errors.Is(last, hubclient.ErrUnavailable) {
		t.Fatalf("saw %v and then %v", seen, last)
	}
}

func TestARunsWatchEndsWithTheRun(t *testing.T) {
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "data: {\"state\":\"running\"}\n\ndata: {\"state\":\"failed\"}\n\n")
	})
	states := ""
	for run, err := range client(t, s, nil).WatchRun(t.Context(), "run_1") {
		check(t, err)
		states += string(run.State) + " "
	}
	if states != "running failed " {
		t.Fatalf("saw %s", states)
	}
}

func TestAWatchEndsWithItsContext(t *testing.T) {
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, err := range client(t, s, nil).RunnerWatch(ctx) {
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, hubclient.ErrUnavailable) {
			t.Fatalf("ended with %v", err)
		}
	}
}

func TestBackoff(t *testing.T) {
	var b hubclient.Backoff
	limit := 100 * time.Millisecond
	for i := range 20 {
		if wait := b.Next(); wait < limit/2 || wait > limit {
			t.Fatalf("wait %d is %s, want %s to %s", i, wait, limit/2, limit)
		}
		limit = min(2*limit, 10*time.Second)
	}
	b.Reset()
	if wait := b.Next(); wait > 100*time.Millisecond {
		t.Fatalf("after Reset: %s", wait)
	}
}

func TestFetchPin(t *testing.T) {
	s := fake(t, nil)
	pin, err := hubclient.FetchPin(t.Context(), s.URL)
	check(t, err)
	if pin != hubclient.Pin(s.Certificate()) {
		t.Fatalf("fetched %s", pin)
	}
	plain := httptest.NewServer(nil)
	defer plain.Close()
	if _, err := hubclient.FetchPin(t.Context(), strings.Replace(plain.URL, "http:", "https:", 1)); !errors.Is(err, hubclient.ErrUnavailable) {
		t.Errorf("no TLS there: %v", err)
	}
}

// A call whose answer was lost is sent again where that does no harm, and where
// it may have been carried out, its error says so.
func TestACallWhoseAnswerIsLostIsSentAgain(t *testing.T) {
	type call = func(context.Context, *hubclient.Client) error
	start := func(ctx context.Context, c *hubclient.Client) error {
		_, err := c.StartRun(ctx, hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, "k")
		return err
	}
	project := func(ctx context.Context, c *hubclient.Client) error {
		_, err := c.CreateProject(ctx, hubv1.CreateProjectRequest{Name: "app"})
		return err
	}
	pool := func(ctx context.Context, c *hubclient.Client) error {
		_, err := c.CreatePool(ctx, hubv1.CreatePoolRequest{Name: "gpu"})
		return err
	}
	cancel := func(ctx context.Context, c *hubclient.Client) error { _, err := c.CancelRun(ctx, "r"); return err }
	show := func(ctx context.Context, c *hubclient.Client) error { _, err := c.GetRun(ctx, "r"); return err }
	remove := func(ctx context.Context, c *hubclient.Client) error { return c.RemoveUser(ctx, "u") }
	update := func(ctx context.Context, c *hubclient.Client) error {
		_, err := c.UpdatePool(ctx, "gpu", `"7"`, hubv1.UpdatePoolRequest{})
		return err
	}
	define := func(ctx context.Context, c *hubclient.Client) error {
		_, err := c.DefinePool(ctx, "gpu", hubv1.DefinePoolRequest{})
		return err
	}
	const (
		reset     = 0 // instead of a status: the connection breaks
		unchanged = 1 // a 503 of a hub that knows that it has changed nothing
	)
	for name, test := range map[string]struct {
		do      call
		answers []int
		asked   int
		keyed   bool
		unknown bool
		failed  bool
	}{
		"a run":                       {start, []int{reset, reset, 200}, 3, true, false, false},
		"a project":                   {project, []int{reset, 200}, 2, true, false, false},
		"cancelling":                  {cancel, []int{reset, 503, 200}, 3, true, false, false},
		"an update":                   {update, []int{reset, 200}, 2, true, false, false},
		"an update, then not of that": {update, []int{reset, 412}, 2, true, true, true},
		"an update of another":        {update, []int{412}, 1, true, false, true},
		"a definition":                {define, []int{reset, 200}, 2, false, false, false},
		"a run, in vain":              {start, []int{reset, reset, reset, reset}, 4, true, true, true},
		"a hub that stops":            {start, []int{503, 503, 503, 503}, 4, true, true, true},
		"refused at last":             {start, []int{reset, 409}, 2, true, false, true},
		"a user, who is gone by then": {remove, []int{reset, 404}, 2, true, false, false},
		"a user who never was":        {remove, []int{404}, 1, true, false, true},
		"a user, then not allowed":    {remove, []int{reset, 403}, 2, true, true, true},
		"a run, then too often":       {start, []int{reset, 429}, 2, true, true, true},
		"nothing was changed":         {start, []int{unchanged}, 1, true, false, true},
		"refused":                     {start, []int{409}, 1, true, false, true},
		"asked too often":             {start, []int{429}, 1, true, false, true},
		"a pool, whose secret is new": {pool, []int{reset}, 1, false, true, true},
		"nothing is changed":          {show, []int{reset}, 1, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			keys := make(chan string, 10)
			var asked atomic.Int32
			s := fake(t, func(w http.ResponseWriter, r *http.Request) {
				keys <- r.Header.Get("Idempotency-Key")
				status := test.answers[min(int(asked.Add(1)), len(test.answers))-1]
				switch status {
				case reset:
					panic(http.ErrAbortHandler)
				case http.StatusOK:
				case unchanged:
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = w.Write([]byte(`{"code":"member_too_old","unchanged":true}`))
					return
				default:
					w.WriteHeader(status)
				}
				_, _ = w.Write([]byte(`{}`))
			})
			c := client(t, s, func(o *hubclient.Options) {
				o.Retry = hubclient.Retry{Tries: 4, First: time.Microsecond, Last: time.Microsecond}
			})
			err := test.do(t.Context(), c)
			if (err != nil) != test.failed || errors.Is(err, hubclient.ErrOutcomeUnknown) != test.unknown {
				t.Errorf("it ends with %v", err)
			}
			close(keys)
			first, count := "", 0
			for key := range keys {
				if count++; count == 1 {
					first = key
				}
				if key != first || (key != "") != test.keyed {
					t.Errorf("request %d has the key %q after %q", count, key, first)
				}
			}
			if count != test.asked {
				t.Errorf("the hub was asked %d times, want %d", count, test.asked)
			}
		})
	}
	// Whoever was never reached did nothing.
	s := fake(t, nil)
	c := client(t, s, func(o *hubclient.Options) {
		o.Retry = hubclient.Retry{Tries: 4, First: time.Microsecond, Last: time.Microsecond}
	})
	s.Close()
	if err := start(t.Context(), c); !errors.Is(err, hubclient.ErrUnavailable) || errors.Is(err, hubclient.ErrOutcomeUnknown) {
		t.Errorf("nobody there: %v", err)
	}
}

func TestRunsAreReadPageByPage(t *testing.T) {
	var asked []string
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		switch r.URL.Query().Get("cursor") {
		case "":
			_, _ = fmt.Fprint(w, `{"items":[{"id":"c"},{"id":"b"}],"next":2}`)
		case "2":
			_, _ = fmt.Fprint(w, `{"items":[{"id":"a"}]}`)
		}
	})
	for limit, want := range map[int]string{
		0: "[limit=1000 cursor=2&limit=1000]", 2: "[limit=2]", 3: "[limit=3 cursor=2&limit=1]", 5000: "[limit=1000 cursor=2&limit=1000]",
	} {
		asked = nil
		runs, err := client(t, s, nil).ListRuns(t.Context(), "", limit)
		check(t, err)
		if most := 3; limit == 2 && len(runs) != 2 || limit != 2 && len(runs) != most || fmt.Sprint(asked) != want {
			t.Errorf("with the limit %d there are %d runs after %v", limit, len(runs), asked)
		}
	}
}

func TestTokensAreReadPageByPage(t *testing.T) {
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.RawQuery {
		case "over=true":
			_, _ = fmt.Fprint(w, `{"items":[],"next":"2.b"}`) // the page has only what may not be seen
		case "cursor=2.b&over=true":
			_, _ = fmt.Fprint(w, `{"items":[{"id":"a"}]}`)
		}
	})
	tokens, err := client(t, s, nil).ListTokens(t.Context(), hubclient.TokenQuery{Over: true})
	if err != nil || len(tokens) != 1 {
		t.Errorf("there are %d, %v", len(tokens), err)
	}
}

// What stands before a hub may answer with what it was sent.
func TestNoErrorQuotesTheToken(t *testing.T) {
	s := fake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"code":"forbidden","title":"no","detail":"not with %[1]s","remedy":"%[1]s","errors":[{"location":"%[1]s","message":"%[1]s"}]}`, r.Header.Get("Authorization"))
	})
	c := client(t, s, func(o *hubclient.Options) { o.Token = secret.New("of-another-make") })
	for _, c := range []*hubclient.Client{c, c.WithToken(secret.New("another-of-that-make"))} {
		_, err := c.Self(t.Context())
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), "make") || !strings.Contains(err.Error(), "[redacted]") {
			t.Errorf("it says %v", err)
		}
		var problem *hubv1.Problem
		if !errors.As(err, &problem) || strings.Contains(fmt.Sprint(problem.Errors, problem.Remedy, problem.Detail), "make") {
			t.Errorf("it holds %+v", problem)
		}
	}
}
