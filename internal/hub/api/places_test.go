package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/api"
)

// reader is the other end of a connection, which reads nothing until it is told to.
type reader struct {
	*httptest.ResponseRecorder
	// begun is closed when something is written to it, ended when the answer is over.
	begun, ended chan struct{}
	once         sync.Once
	reads        chan struct{}
}

func (r *reader) Write(data []byte) (int, error) {
	r.once.Do(func() { close(r.begun) })
	<-r.reads
	return r.ResponseRecorder.Write(data)
}

// FlushError, SetReadDeadline and SetWriteDeadline are what connections have.
func (r *reader) FlushError() error                { return nil }
func (r *reader) SetReadDeadline(time.Time) error  { return nil }
func (r *reader) SetWriteDeadline(time.Time) error { return nil }

// ask sends a request whose answer nobody reads yet.
func (h *hub) ask(ctx context.Context, token, method, path string) *reader {
	r := httptest.NewRequestWithContext(ctx, method, "https://hub.example.com"+path, http.NoBody)
	r.Header.Set("Authorization", "Bearer "+token)
	out := &reader{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), ended: make(chan struct{}), reads: make(chan struct{})}
	go func() {
		defer close(out.ended)
		h.handler.ServeHTTP(out, r)
	}()
	return out
}

// answered lets a reader read and says what it was answered with.
func (r *reader) answered(t *testing.T) (int, hubv1.Problem) {
	t.Helper()
	close(r.reads)
	<-r.ended
	var p hubv1.Problem
	if r.Code >= 400 {
		check(t, json.Unmarshal(r.Body.Bytes(), &p))
	}
	return r.Code, p
}

// waits asks for what has to stand in line, until it does.
func waits(t *testing.T, clock *testclock.FakeClock, ask func() *reader) *reader {
	t.Helper()
	before := clock.Waiters()
	out := ask()
	for clock.Waiters() == before {
		if t.Context().Err() != nil {
			t.Fatal("the test is over")
		}
		runtime.Gosched()
	}
	return out
}

// One user, or all together, cannot take the hub's memory with answers that nobody
// reads.
func TestTheAnswersUnderWayAreBounded(t *testing.T) {
	var clock *testclock.FakeClock
	var mu sync.Mutex
	var limited []api.Limit
	h := newHub(t, validatorOf(t), func(o *api.Options) {
		o.Rates.Answers = api.Answers{PerUser: 2, All: 3}
		o.Limited = func(l api.Limit) {
			mu.Lock()
			defer mu.Unlock()
			limited = append(limited, l)
		}
		clock = o.Clock.(*testclock.FakeClock)
	})
	admin := h.tokens["/api/v1"]
	alice, bob := h.user("alice", "admin"), h.user("bob", "admin")
	var other hubv1.Token
	h.must("POST", "/api/v1/tokens", hubv1.CreateTokenRequest{Name: "another", User: "alice"}, &other)
	run := "/api/v1/runs/" + h.names["run"]
	timers := clock.Waiters()
	inLine := func(ctx context.Context, token, method, path string) *reader {
		t.Helper()
		return waits(t, clock, func() *reader { return h.ask(ctx, token, method, path) })
	}
	holds := func(token, path string) *reader {
		t.Helper()
		out := h.ask(t.Context(), token, http.MethodGet, path)
		<-out.begun
		return out
	}

	first, second := holds(alice, "/api/v1/runs"), holds(other.Secret, run)
	for _, late := range []struct{ method, path string }{{http.MethodGet, "/api/v1/tokens"}, {http.MethodPost, run + "/cancel"}} {
		third := inLine(t.Context(), alice, late.method, late.path)
		clock.Step(5 * time.Second)
		code, p := third.answered(t)
		if code != http.StatusTooManyRequests || p.Code != hubv1.CodeRateLimited || p.RetryAfterSeconds != 5 || third.Header().Get("Retry-After") != "5" ||
			p.Detail != "2 answers of the same user are under way, which is as many as the hub keeps for one" || !strings.Contains(p.Remedy, "limits.answers.perUser") {
			t.Errorf("%s %s, one too many of a user's, is answered with %d %+v", late.method, late.path, code, p)
		}
	}
	// Others are served, and what changes something is.
	fourth := holds(bob, "/api/v1/pools")
	h.must("POST", "/api/v1/groups", hubv1.CreateGroupRequest{Name: "still"}, nil)
	none := inLine(t.Context(), admin, http.MethodGet, "/api/v1/runs")
	clock.Step(5 * time.Second)
	if code, p := none.answered(t); code != http.StatusServiceUnavailable || p.Code != hubv1.CodeUnavailable || !p.Unchanged || p.RetryAfterSeconds != 5 ||
		p.Detail != "3 answers are under way, which is as many as the hub keeps at a time" || !strings.Contains(p.Remedy, "limits.answers.all") {
		t.Errorf("one too many of all is answered with %d %+v", code, p)
	}
	mu.Lock()
	if want := []api.Limit{api.LimitAnswers, api.LimitAnswers, api.LimitAnswers}; !slices.Equal(limited, want) {
		t.Errorf("the refusals are counted as %v", limited)
	}
	mu.Unlock()

	// Who gives up stands in nobody's way, and a place goes to the first whom it fits.
	ctx, giveUp := context.WithCancel(t.Context())
	gone := inLine(ctx, admin, http.MethodGet, "/api/v1/runs")
	giveUp()
	gone.answered(t)
	ofAlice, ofAdmin := inLine(t.Context(), alice, http.MethodGet, run), inLine(t.Context(), admin, http.MethodGet, "/api/v1/users")
	if code, _ := fourth.answered(t); code != http.StatusOK {
		t.Errorf("who reads late is answered with %d", code)
	}
	<-ofAdmin.begun
	select {
	case <-ofAlice.begun:
		t.Error("a user has a place more than there are for one")
	default:
	}
	first.answered(t)
	<-ofAlice.begun
	for _, r := range []*reader{second, ofAlice, ofAdmin} {
		if code, _ := r.answered(t); code != http.StatusOK {
			t.Errorf("who waited is answered with %d %s", code, r.Body)
		}
	}

	// Every place is given back, and no timer is left.
	if clock.Waiters() != timers {
		t.Errorf("%d timers are left of %d", clock.Waiters(), timers)
	}
	all := []*reader{holds(alice, run), holds(alice, "/api/v1/audit"), holds(bob, "/api/v1/projects")}
	for _, r := range all {
		r.answered(t)
	}
}

// What goes on after its operation has returned keeps its place as long.
func TestALogThatIsReadHasAPlaceUntilItsEnd(t *testing.T) {
	var clock *testclock.FakeClock
	h := newHub(t, validatorOf(t), func(o *api.Options) {
		o.Rates.Answers = api.Answers{PerUser: 1}
		clock = o.Clock.(*testclock.FakeClock)
	})
	var minted hubv1.MintResponse
	h.must("POST", "/pool/v1/runners", hubv1.MintRequest{Key: "runner-two"}, &minted)
	var enrolled hubv1.EnrollResponse
	h.must("POST", "/runner/v1/enroll", hubv1.EnrollRequest{Token: minted.Token, Name: "two", Build: "test", Features: []string{hubv1.FeatureRequirements}}, &enrolled)
	h.tokens["/runner/v1"] = enrolled.Session
	runner, err := h.store.AuthRunner(t.Context(), enrolled.Session)
	check(t, err)
	detach, err := h.store.Attach(t.Context(), runner) // which hands it the run
	check(t, err)
	defer detach()
	admin, run := h.tokens["/api/v1"], h.names["run"]
	if got := h.send(request{method: http.MethodPost, target: "/runner/v1/runs/" + run + "/logs?offset=0", contentType: "application/octet-stream", body: []byte("hello\n")}); got.Code/100 != 2 {
		t.Fatalf("a log is taken with %d %s", got.Code, got.Body)
	}
	log := "/api/v1/runs/" + run + "/logs"
	slow := h.ask(t.Context(), admin, http.MethodGet, log)
	<-slow.begun
	second := waits(t, clock, func() *reader { return h.ask(t.Context(), admin, http.MethodGet, "/api/v1/runs") })
	if code, _ := slow.answered(t); code != http.StatusOK || slow.Body.String() != "hello\n" {
		t.Errorf("the log is answered with %d %q", code, slow.Body)
	}
	if code, _ := second.answered(t); code != http.StatusOK {
		t.Errorf("who waited for the log's end is answered with %d %s", code, second.Body)
	}
	h.must("GET", "/api/v1/runs", nil, nil)
}

// A reader that stands still is cut off, and the connection of one that does not
// serves the next answer for as long as that takes.
func TestEachPieceOfAnAnswerHasItsTime(t *testing.T) {
	h := newHub(t, validatorOf(t), nil)
	long := strings.Repeat("a", hubv1.MaxCommandBytes-1)
	for range 12 {
		h.must("POST", "/api/v1/runs", hubv1.StartRunRequest{Project: "app", Command: []string{long}}, nil)
	}
	answer := &pieces{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://hub.example.com/api/v1/runs", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+h.tokens["/api/v1"])
	h.handler.ServeHTTP(answer, r)
	var page hubv1.RunList
	check(t, json.Unmarshal(answer.Body.Bytes(), &page))
	if answer.untimed > 0 || answer.largest > 1<<20 || answer.writes < 2 || answer.timed || len(page.Items) == 0 {
		t.Errorf("of %d writes of up to %d bytes %d have no time, and the connection's next answer is timed: %v", answer.writes, answer.largest, answer.untimed, answer.timed)
	}
}

// pieces looks at how an answer is written.
type pieces struct {
	*httptest.ResponseRecorder
	timed                    bool
	writes, untimed, largest int
}

func (p *pieces) SetWriteDeadline(at time.Time) error {
	p.timed = !at.IsZero()
	return nil
}

func (p *pieces) Write(data []byte) (int, error) {
	p.writes++
	p.largest = max(p.largest, len(data))
	if !p.timed {
		p.untimed++
	}
	p.timed = p.timed && len(data) == 0 // the next piece has a time of its own
	return p.ResponseRecorder.Write(data)
}
