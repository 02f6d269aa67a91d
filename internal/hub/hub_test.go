package hub_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hub/api"
	"cloop.dev/cloop/internal/hub/doctor"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

// patience bounds every wait of these tests; nothing takes nearly as long.
const patience = time.Minute

// running is a hub in this process, served over TLS.
type running struct {
	t     testing.TB
	dir   string
	addr  string
	pin   string
	log   *syncBuffer
	clock *testclock.FakeClock
	// admin is a client with the first admin token.
	admin *hubclient.Client
	stop  func()
}

type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// serve starts a hub on a free port with a clock that stands still.
func serve(t testing.TB, change func(*hub.Options)) *running {
	t.Helper()
	return serveIn(t, t.TempDir(), change)
}

func serveIn(t testing.TB, dir string, change func(*hub.Options)) *running {
	t.Helper()
	r := &running{t: t, dir: dir, log: &syncBuffer{}, clock: testclock.NewFakeClock(time.Now())}
	ready := make(chan struct{})
	tokenFile := filepath.Join(dir, "admin-token")
	o := hub.Options{
		Addr: "127.0.0.1:0", DataDir: filepath.Join(dir, "hub"), AdminTokenFile: tokenFile, Clock: r.clock,
		Log: slog.New(slog.NewTextHandler(r.log, nil)),
		// The machine's own disk may be nearly full.
		Room: func(string) doctor.Disk { return doctor.Disk{Free: 50 << 30, Total: 100 << 30} },
		// No test's project is anywhere, unless it says so.
		Projects: hub.ProjectsConfig{Hosts: []string{"nowhere.invalid"}},
		// The clock stands still, so what was taken would not come back.
		Rates: api.Rates{Users: api.Rate{PerSecond: -1}, Machines: api.Rate{PerSecond: -1}, Failures: api.Rate{PerSecond: -1}},
		Ready: func(addr, pin string) { r.addr, r.pin = addr, pin; close(ready) },
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- hub.Run(ctx, o) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the hub ended with %v", err)
			}
		})
	}
	t.Cleanup(r.stop)
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatalf("the hub does not start: %v", err)
	}
	r.admin = r.client(r.firstToken())
	return r
}

// firstToken is the one that the hub made when it started first.
func (r *running) firstToken() string {
	r.t.Helper()
	token, err := os.ReadFile(filepath.Join(r.dir, "admin-token"))
	check(r.t, err)
	return strings.TrimSpace(string(token))
}

// client trusts the hub by its pin.
func (r *running) client(token string) *hubclient.Client {
	r.t.Helper()
	c, err := hubclient.New(hubclient.Options{URL: "https://" + r.addr, Pin: r.pin, Token: secret.New(token)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.CloseIdleConnections)
	return c
}

func (r *running) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

// pool makes a pool and returns it with its controller's client.
func (r *running) pool(name string, maximum int32) (hubv1.Pool, *hubclient.Client) {
	r.t.Helper()
	out, err := r.admin.CreatePool(r.ctx(), hubv1.CreatePoolRequest{Name: name, PoolDefinition: hubv1.PoolDefinition{MaxRunners: maximum}})
	if err != nil {
		r.t.Fatal(err)
	}
	return out.Pool, r.client(out.Credential.Secret)
}

// project makes a project that is bound to the pool.
func (r *running) project(name string, pool hubv1.Pool) {
	r.t.Helper()
	must(r.t)(r.admin.CreateProject(r.ctx(), hubv1.CreateProjectRequest{Name: name, Remote: "https://git.example.com/" + name + ".git"}))
	must(r.t)(r.admin.BindProject(r.ctx(), name, "pool:"+pool.ID))
}

func (r *running) run(project string) hubv1.Run {
	r.t.Helper()
	run, err := r.admin.StartRun(r.ctx(), hubv1.StartRunRequest{Project: project, Command: []string{"true"}}, "")
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}

// enroll mints and redeems a token.
func (r *running) enroll(controller *hubclient.Client, key string) (id string, runner *hubclient.Client) {
	r.t.Helper()
	minted, err := controller.MintRunner(r.ctx(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	enrolled, err := r.client("").Enroll(r.ctx(), hubv1.EnrollRequest{Token: minted.Token, Name: key, Build: "test", Features: []string{hubv1.FeatureRequirements}})
	if err != nil {
		r.t.Fatal(err)
	}
	return minted.RunnerID, r.client(enrolled.Session)
}

// must fails the test on an error; the value is for readers only.
func must(t testing.TB) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantCode fails unless the error is a problem of the code.
func wantCode(t testing.TB, err error, code hubv1.Code) *hubv1.Problem {
	t.Helper()
	var p *hubv1.Problem
	if !errors.As(err, &p) || p.Code != code {
		t.Fatalf("got error %v, want a problem %s", err, code)
	}
	return p
}

// until reads snapshots until one fits.
func until[T any](t testing.TB, snapshots func(func(T, error) bool), what string, fits func(T) bool) (last T) {
	t.Helper()
	for snapshot, err := range snapshots {
		if err != nil {
			t.Fatalf("waiting until %s: %v", what, err)
		}
		if fits(snapshot) {
			return snapshot
		}
	}
	t.Fatalf("the watch ended before %s", what)
	return last
}

func (r *running) untilRun(id string, state hubv1.RunState) hubv1.Run {
	r.t.Helper()
	return until(r.t, r.admin.WatchRun(r.ctx(), id), "run is "+string(state), func(run hubv1.Run) bool { return run.State == state })
}

func (r *running) untilPool(id, what string, fits func(hubv1.Pool) bool) hubv1.Pool {
	r.t.Helper()
	return until(r.t, r.admin.WatchPool(r.ctx(), id), what, fits)
}

func TestARunGoesFromTheQueueToItsResult(t *testing.T) {
	r := serve(t, nil)
	pool, controller := r.pool("gpu", 2)
	r.project("app", pool)
	run := r.run("app")
	if run.State != hubv1.RunQueued || !strings.Contains(run.Reason, "gpu") {
		t.Fatalf("a run without a runner is %s: %s", run.State, run.Reason)
	}
	until(t, controller.PoolWatch(r.ctx(), hubclient.Hello{Instance: "c-1", Build: "b1", Features: []string{"runner-states"}}),
		"the demand is 1", func(s hubv1.PoolSnapshot) bool { return s.Queued == 1 })

	id, runner := r.enroll(controller, "runner-one")
	got := until(t, runner.RunnerWatch(r.ctx()), "the runner has the run", func(s hubv1.RunnerSnapshot) bool { return s.Run != nil })
	if got.State != hubv1.RunnerBusy || got.Run.RunID != run.ID || got.Run.Ref != "main" || got.Run.Remote != "https://git.example.com/app.git" {
		t.Fatalf("the runner got %+v with %+v", got, got.Run)
	}
	check(t, runner.RunStarted(r.ctx(), run.ID, hubv1.StartedRequest{Attempt: 1, Commit: strings.Repeat("abcd", 10), StartedAt: r.clock.Now()}))
	next, err := runner.AppendLog(r.ctx(), run.ID, 0, []byte("hello\n"))
	check(t, err)
	_, err = runner.AppendLog(r.ctx(), run.ID, 3, []byte("again"))
	if p := wantCode(t, err, hubv1.CodeLogOffset); p.Offset == nil || *p.Offset != next {
		t.Fatalf("the hub wants the log from %v, want %d", p.Offset, next)
	}
	zero := int32(0)
	result := hubv1.ResultRequest{Attempt: 1, ExitCode: &zero, FinishedAt: r.clock.Now()}
	check(t, runner.RunResult(r.ctx(), run.ID, result))
	check(t, runner.RunResult(r.ctx(), run.ID, result)) // repeating is harmless
	settled := r.untilRun(run.ID, hubv1.RunSucceeded)
	if settled.ExitCode == nil || *settled.ExitCode != 0 || settled.Runner != id || settled.StartedAt == nil || settled.FirstLogAt == nil {
		t.Fatalf("settled as %+v", settled)
	}
	log, err := r.admin.Logs(r.ctx(), run.ID, 0, true)
	check(t, err)
	text, err := io.ReadAll(log)
	check(t, err)
	if string(text) != "hello\n" {
		t.Fatalf("the log is %q", text)
	}
	check(t, runner.Bye(r.ctx(), "done"))
	_, err = runner.Heartbeat(r.ctx())
	wantCode(t, err, hubv1.CodeRunnerRetired)
	r.untilPool(pool.ID, "no runner is left", func(p hubv1.Pool) bool { return p.Runners == (hubv1.RunnerCounts{}) && p.Queued == 0 })
}

func TestTheServerKeepsItsBases(t *testing.T) {
	r := serve(t, nil)
	_, controller := r.pool("gpu", 1)
	_, err := controller.ListPools(r.ctx())
	wantCode(t, err, hubv1.CodeUnauthenticated)
	_, err = r.admin.MintRunner(r.ctx(), "some-key")
	wantCode(t, err, hubv1.CodeUnauthenticated)
	_, err = r.client("").ListPools(r.ctx())
	wantCode(t, err, hubv1.CodeUnauthenticated)
	_, err = controller.Heartbeat(r.ctx())
	wantCode(t, err, hubv1.CodeUnauthenticated)
	_, err = r.client("").Enroll(r.ctx(), hubv1.EnrollRequest{Token: "cloop_run1_nonsense", Name: "x", Build: "x"})
	wantCode(t, err, hubv1.CodeTokenRefused)
	_, err = r.admin.GetPool(r.ctx(), "nowhere")
	wantCode(t, err, hubv1.CodeNotFound)
	_, err = r.admin.CreatePool(r.ctx(), hubv1.CreatePoolRequest{Name: "Not Legal"})
	if p := wantCode(t, err, hubv1.CodeInvalid); len(p.Errors) == 0 || p.Errors[0].Location != "body.name" || p.Remedy == "" {
		t.Fatalf("an invalid name is refused with %+v", p)
	}
}

func TestPlainPagesAndTheDescription(t *testing.T) {
	r := serve(t, nil)
	pool, _ := r.pool("gpu", 1)
	r.project("app", pool)
	r.run("app")
	for path, want := range map[string]string{
		"/healthz": "ok", "/readyz": "ok", "/openapi.json": `"openapi":"3.1.0"`,
		"/metrics": `cloop_executor_pool_demand{pool="gpu"} 1`, "/nowhere": `"code":"not_found"`,
	} {
		if body := r.page(path); !strings.Contains(body, want) {
			t.Errorf("%s does not hold %s: %.300s", path, want, body)
		}
	}
}

// page reads a page without a credential.
func (r *running) page(path string) string {
	r.t.Helper()
	transport := pinned(r.t, r.pin)
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(r.ctx(), http.MethodGet, "https://"+r.addr+path, nil)
	check(r.t, err)
	response, err := transport.RoundTrip(request)
	check(r.t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	check(r.t, err)
	return string(body)
}
