package hub_test

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/postgrestest"
	"cloop.dev/cloop/internal/secret"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// Two hubs on one PostgreSQL database are one: whoever asks, runs and watches at
// which of them.
func TestTwoHubsOnOneDatabase(t *testing.T) {
	server := postgrestest.Shared(t)
	name := server.NewDatabase(t, "")
	t.Cleanup(func() { check(t, server.Drop(name)) })
	shared := func(o *hub.Options) {
		o.DatabaseURL, o.Clock = secret.New(strings.Replace(server.TCP(name), "@", ":hunter2@", 1)), clock.RealClock{}
	}
	first := serve(t, shared)
	// The second makes no other admin token.
	dir := t.TempDir()
	token, err := os.ReadFile(filepath.Join(first.dir, "admin-token"))
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, "admin-token"), token, 0o600))
	second := serveIn(t, dir, shared)

	// They would go on while somebody at the machine replaces the admin token.
	o := hub.Options{DataDir: t.TempDir(), AdminTokenFile: filepath.Join(t.TempDir(), "token"), Log: slog.New(slog.DiscardHandler)}
	shared(&o)
	if err := hub.ResetAdmin(first.ctx(), o); err == nil || !strings.Contains(err.Error(), "stop them first") {
		t.Errorf("the admin token is reset beside two hubs: %v", err)
	}

	pool, controller := first.pool("gpu", 2)
	first.project("app", pool)
	hello := hubclient.Hello{Instance: "c-1", Build: "b1", Features: []string{hubv1.FeatureRunnerStates}}
	until(t, controller.PoolWatch(first.ctx(), hello), "the pool is there", func(hubv1.PoolSnapshot) bool { return true })

	// The runner comes up at the second, and waits there.
	minted, err := controller.MintRunner(first.ctx(), "runner-one")
	check(t, err)
	enrolled, err := second.client("").Enroll(second.ctx(), hubv1.EnrollRequest{Token: minted.Token, Name: "r", Build: "test", Features: []string{hubv1.FeatureRequirements}})
	check(t, err)
	runner := second.client(enrolled.Session)
	var run hubv1.Run
	got := until(t, runner.RunnerWatch(second.ctx()), "the runner has the run", func(s hubv1.RunnerSnapshot) bool {
		if run.ID == "" {
			run = first.run("app") // once it listens
		}
		return s.Run != nil
	})
	if got.Run.RunID != run.ID {
		t.Fatalf("the runner got %+v", got.Run)
	}
	check(t, runner.RunStarted(second.ctx(), run.ID, hubv1.StartedRequest{Attempt: 1, Commit: strings.Repeat("abcd", 10), StartedAt: time.Now()}))
	log, err := first.admin.Logs(first.ctx(), run.ID, 0, true)
	check(t, err)
	_, err = runner.AppendLog(second.ctx(), run.ID, 0, []byte("hello\n"))
	check(t, err)
	zero := int32(0)
	check(t, runner.RunResult(second.ctx(), run.ID, hubv1.ResultRequest{Attempt: 1, ExitCode: &zero, FinishedAt: time.Now()}))
	text, err := io.ReadAll(log)
	check(t, err)
	if string(text) != "hello\n" {
		t.Errorf("followed at the first, the log is %q", text)
	}
	first.untilRun(run.ID, hubv1.RunSucceeded)
	first.stop()
	second.untilRun(run.ID, hubv1.RunSucceeded)
	if page := second.page("/readyz"); page != "ok\n" {
		t.Errorf("without the first the second is ready as %q", page)
	}
	if log := first.log.String() + second.log.String(); strings.Contains(log, "hunter2") || strings.Contains(log, "postgres://") {
		t.Errorf("the database's URL is logged:\n%s", log)
	}
}
