package agent_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/agent"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

// system is a real hub with a pool and a project that is bound to it.
type system struct {
	t                 testing.TB
	url, pin          string
	admin, controller *hubclient.Client
	// gitCA is the file of certificates that runners trust for Git, if it is not
	// that of the project.
	gitCA string
	// hubCA is the file of the certificates of the hub's own authority.
	hubCA string
	// change, where it is set, changes a runner's options.
	change func(*agent.Options)
}

func startHub(t testing.TB) *system {
	t.Helper()
	dir := t.TempDir()
	s := &system{t: t, hubCA: hub.CAFile(dir)}
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	tokenFile := filepath.Join(dir, "admin")
	go func() {
		done <- hub.Run(ctx, hub.Options{
			Addr: "127.0.0.1:0", DataDir: dir, AdminTokenFile: tokenFile, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Ready: func(addr, pin string) {
				s.url, s.pin = "https://"+addr, pin
				close(ready)
			},
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the hub ended with %v", err)
		}
	})
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatalf("the hub does not start: %v", err)
	}
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	s.admin = s.client(strings.TrimSpace(string(token)))
	pool, err := s.admin.CreatePool(ctx, hubv1.CreatePoolRequest{Name: "demo", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 100}})
	if err != nil {
		t.Fatal(err)
	}
	s.controller = s.client(pool.Credential.Secret)
	remote, _, _ := agent.ProjectForTest(t)
	if _, err := s.admin.CreateProject(ctx, hubv1.CreateProjectRequest{Name: "demo", Remote: remote}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.admin.BindProject(ctx, "demo", "pool:"+pool.Pool.ID); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *system) client(token string) *hubclient.Client {
	s.t.Helper()
	c, err := hubclient.New(hubclient.Options{URL: s.url, Pin: s.pin, Token: secret.New(token)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.CloseIdleConnections)
	return c
}

// runner mints a token and starts a runner; the channel gets what Run returns.
func (s *system) runner(ctx context.Context, key string) (agent.Options, <-chan error) {
	s.t.Helper()
	minted, err := s.controller.MintRunner(ctx, key)
	if err != nil {
		s.t.Fatal(err)
	}
	o := agent.OptionsForTest(s.t)
	if err := os.WriteFile(o.TokenFile, []byte(minted.Token), 0o600); err != nil {
		s.t.Fatal(err)
	}
	_, caFile, _ := agent.ProjectForTest(s.t)
	if s.gitCA != "" {
		caFile = s.gitCA
	}
	o.HubURL, o.HubCAPin, o.GitCAFile = s.url, s.pin, caFile
	o.Log = slog.New(slog.NewTextHandler(s.t.Output(), nil))
	if s.change != nil {
		s.change(&o)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended, over := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(over)
		ended <- agent.Run(ctx, o)
	}()
	// It logs to the test, also where that has failed and waits for nothing more.
	s.t.Cleanup(func() {
		cancel()
		<-over
	})
	return o, ended
}

func (s *system) start(ctx context.Context, argv ...string) hubv1.Run {
	s.t.Helper()
	run, err := s.admin.StartRun(ctx, hubv1.StartRunRequest{Project: "demo", Command: argv}, "")
	if err != nil {
		s.t.Fatal(err)
	}
	return run
}

func (s *system) await(ctx context.Context, run string, holds func(hubv1.Run) bool) hubv1.Run {
	s.t.Helper()
	for now, err := range s.admin.WatchRun(ctx, run) {
		if err != nil {
			s.t.Fatal(err)
		}
		if holds(now) {
			return now
		}
	}
	s.t.Fatal("the watch of the run ended")
	return hubv1.Run{}
}

func settled(run hubv1.Run) bool { return run.State.Terminal() }

func (s *system) log(ctx context.Context, run string) string {
	s.t.Helper()
	reader, err := s.admin.Logs(ctx, run, 0, true)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	data, err := io.ReadAll(reader)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(data)
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// A runner trusts the bundle that it is given for the hub beside what the system
// trusts: either may be what vouches for the hub, and for the Git server.
func TestARunnerTrustsItsBundleBesideTheSystem(t *testing.T) {
	_, gitCA, _ := agent.ProjectForTest(t)
	for name, c := range map[string]struct{ system, bundle func(*system) string }{
		"the bundle for the hub, the system for Git": {func(*system) string { return gitCA }, func(s *system) string { return s.hubCA }},
		"the system for the hub, the bundle for Git": {func(s *system) string { return s.hubCA }, func(*system) string { return gitCA }},
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx := startHub(t), within(t)
			t.Setenv("SSL_CERT_FILE", c.system(s))
			s.change = func(o *agent.Options) { o.HubCAPin, o.GitCAFile, o.HubCAFile = "", "", c.bundle(s) }
			_, ended := s.runner(ctx, "runner-one")
			run := s.start(ctx, "./hello")
			if run = s.await(ctx, run.ID, settled); run.State != hubv1.RunSucceeded {
				t.Errorf("the run ended as %s: %s", run.State, run.Reason)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestARunOverARealHub(t *testing.T) {
	s, ctx := startHub(t), within(t)
	o, ended := s.runner(ctx, "runner-one")
	run := s.start(ctx, "sh", "-c", "./hello; exit 3")
	run = s.await(ctx, run.ID, settled)
	_, _, commit := agent.ProjectForTest(t)
	if run.State != hubv1.RunFailed || run.ExitCode == nil || *run.ExitCode != 3 || run.Commit != commit || run.StartedAt == nil {
		t.Errorf("the run ended as %+v", run)
	}
	if got := s.log(ctx, run.ID); got != "from the repository\n" {
		t.Errorf("log %q", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	report, err := os.ReadFile(o.TerminationLog)
	if err != nil || !strings.Contains(string(report), `"outcome":"reported"`) {
		t.Errorf("termination report %s, %v", report, err)
	}
	if runners, err := s.admin.ListPoolRunners(ctx, "demo"); err != nil || len(runners) > 0 {
		t.Errorf("runners left at the hub: %v, %v", runners, err)
	}
}

func TestACancelOverARealHub(t *testing.T) {
	s, ctx := startHub(t), within(t)
	_, ended := s.runner(ctx, "runner-one")
	run := s.start(ctx, "sh", "-c", "echo up; sleep 600")
	s.await(ctx, run.ID, func(now hubv1.Run) bool { return now.LogBytes > 0 })
	if _, err := s.admin.CancelRun(ctx, run.ID); err != nil {
		t.Fatal(err)
	}
	if run = s.await(ctx, run.ID, settled); run.State != hubv1.RunCancelled {
		t.Errorf("the run ended as %+v", run)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A run can be cancelled at any time: while it waits, while its runner prepares
// for it, and while its command runs (above).
func TestACancelBeforeTheCommandOverARealHub(t *testing.T) {
	s, ctx := startHub(t), within(t)
	asked := make(chan struct{}, 16)
	never := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then is it known when the client leaves
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer never.Close()
	defer never.CloseClientConnections()
	s.gitCA = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(s.gitCA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: never.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	project, err := s.admin.GetProject(ctx, "demo")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.admin.CreateProject(ctx, hubv1.CreateProjectRequest{Name: "slow", Remote: never.URL + "/slow.git"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.admin.BindProject(ctx, "slow", project.ExecutorID); err != nil {
		t.Fatal(err)
	}
	request := hubv1.StartRunRequest{Project: "slow", Command: []string{"true"}}
	waits, err := s.admin.StartRun(ctx, request, "")
	if err != nil {
		t.Fatal(err)
	}
	if waits, err = s.admin.CancelRun(ctx, waits.ID); err != nil || waits.State != hubv1.RunCancelled {
		t.Fatalf("while it waits: %+v, %v", waits, err)
	}
	_, ended := s.runner(ctx, "runner-one")
	handed, err := s.admin.StartRun(ctx, request, "")
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked:
	case <-ctx.Done():
		t.Fatal("the runner does not fetch")
	}
	if now := s.await(ctx, handed.ID, func(now hubv1.Run) bool { return now.State != hubv1.RunQueued }); now.State != hubv1.RunHanded {
		t.Fatalf("while its runner fetches: %+v", now)
	}
	if _, err := s.admin.CancelRun(ctx, handed.ID); err != nil {
		t.Fatal(err)
	}
	if handed = s.await(ctx, handed.ID, settled); handed.State != hubv1.RunCancelled || handed.StartedAt != nil || !strings.Contains(handed.Reason, "cancelled by ") {
		t.Errorf("the run ended as %+v", handed)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A runner that is told to end gives its run back, and the next one takes it.
func TestAnInterruptedRunStartsAgainOnTheNextRunner(t *testing.T) {
	s, ctx := startHub(t), within(t)
	first, stop := context.WithCancel(ctx)
	_, ended := s.runner(first, "runner-one")
	gate := filepath.Join(t.TempDir(), "gate")
	run := s.start(ctx, "sh", "-c", "if [ -e "+gate+" ]; then echo up; else touch "+gate+"; echo up; sleep 600; fi")
	s.await(ctx, run.ID, func(now hubv1.Run) bool { return now.LogBytes > 0 })
	stop()
	if err := <-ended; err == nil {
		t.Error("an interrupted runner is a success")
	}
	_, ended = s.runner(ctx, "runner-two")
	if run = s.await(ctx, run.ID, settled); run.State != hubv1.RunSucceeded || run.Attempt != 2 {
		t.Errorf("the run ended as %+v", run)
	}
	if got := s.log(ctx, run.ID); strings.Count(got, "up\n") != 2 {
		t.Errorf("log %q", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// BenchmarkQueuedToStarted is what a person waits for where a runner is idle:
// from the run's place in the queue to its command, as the hub records both.
func BenchmarkQueuedToStarted(b *testing.B) {
	s, ctx := startHub(b), context.Background()
	var took []time.Duration
	for b.Loop() {
		_, ended := s.runner(ctx, fmt.Sprintf("runner-%06d", len(took)))
		for idle := false; !idle; time.Sleep(time.Millisecond) {
			runners, err := s.admin.ListPoolRunners(ctx, "demo")
			if err != nil {
				b.Fatal(err)
			}
			idle = slices.ContainsFunc(runners, func(r hubv1.PoolRunner) bool { return r.State == hubv1.RunnerIdle })
		}
		time.Sleep(20 * time.Millisecond) // its watch is open
		run := s.start(ctx, "true")
		run = s.await(ctx, run.ID, settled)
		if run.StartedAt == nil {
			b.Fatalf("the run ended as %+v", run)
		}
		took = append(took, run.StartedAt.Sub(run.QueuedAt))
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
	b.ReportMetric(0, "ns/op")
}
