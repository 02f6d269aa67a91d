package hub_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/forge"
	"cloop.dev/cloop/internal/forge/forgetest"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/postgrestest"
	"cloop.dev/cloop/internal/secret"
)

// canaries: what it is → a credential that may be shown nowhere.
type canaries map[string]string

// in fails the test for each credential that a text holds, whole or in part.
func (c canaries) in(t *testing.T, where string, text []byte) {
	t.Helper()
	for what, canary := range c {
		encoded := base64.StdEncoding.EncodeToString([]byte(canary))
		parts := []string{canary, encoded[:len(encoded)-4]}
		if len(canary) > 32 {
			parts = append(parts, canary[12:32])
		}
		for _, part := range parts {
			if bytes.Contains(text, []byte(part)) {
				t.Errorf("%s is in %s", what, where)
				break
			}
		}
	}
}

// Through a whole run every credential passes, and those who hold one put it
// where texts go: none is kept in clear, logged, counted or shown.
func TestNoCredentialIsFoundAnywhere(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		noCredentialIsFound(t, func(*hub.Options) {}, func(f *forged, planted canaries) {
			planted.inFiles(t, filepath.Join(f.dir, "hub"), 2)
		})
	})
	t.Run("postgres", func(t *testing.T) {
		server := postgrestest.Shared(t)
		name := server.NewDatabase(t, "")
		t.Cleanup(func() { check(t, server.Drop(name)) })
		const password = "canary-of-the-database-password-0c4e"
		noCredentialIsFound(t, func(o *hub.Options) {
			o.Clock = clock.RealClock{} // members of a database go by its own
			o.DatabaseURL = secret.New(strings.Replace(server.TCP(name), "@", ":"+password+"@", 1))
		}, func(f *forged, planted canaries) {
			planted["the database's password"] = password
			planted.in(t, "the log", []byte(f.log.String()))
			planted.inDatabase(t, server.URL(name))
			planted.inFiles(t, filepath.Join(f.dir, "hub"), 1)
		})
	})
}

// noCredentialIsFound looks at what a hub with the options keeps by look.
func noCredentialIsFound(t *testing.T, options func(*hub.Options), look func(*forged, canaries)) {
	planted := canaries{
		"the Git password": "canary-of-the-git-password-f3b1", "the webhook's secret": "canary-of-the-webhook-secret-a81c",
		"a remote's password": "canary-of-a-remote-password-77d0", "the forge's token": forgetest.Token,
	}
	f := followForge(t, forge.GitHub, func(c *hub.SyncConfig) {
		file := func(name, text string) string {
			path := filepath.Join(filepath.Dir(c.CAFile), name)
			check(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
			return path
		}
		c.Username, c.PasswordFile = "bot", file("password", planted["the Git password"])
		c.Webhook = &hub.WebhookConfig{SecretFile: file("hook", planted["the webhook's secret"])}
	}, options)
	f.git.RequireAuthorization("Basic " + base64.StdEncoding.EncodeToString([]byte("bot:"+planted["the Git password"])))
	planted["the admin token"] = f.firstToken()

	// Everybody who holds a credential.
	pool, err := f.admin.CreatePool(f.ctx(), hubv1.CreatePoolRequest{Name: "gpu", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 3}})
	check(t, err)
	planted["the pool's credential"] = pool.Credential.Secret
	more, err := f.admin.CreateCredential(f.ctx(), "gpu")
	check(t, err)
	planted["another credential of the pool"] = more.Secret
	must(t)(f.admin.CreateUser(f.ctx(), hubv1.CreateUserRequest{Name: "eve"}))
	planted["a user's token"] = f.token(f.admin, hubv1.CreateTokenRequest{Name: "t", User: "eve"}).Secret
	f.project("app", pool.Pool)
	run := f.run("app")
	controller := f.client(pool.Credential.Secret)
	minted, err := controller.MintRunner(f.ctx(), "runner-one")
	check(t, err)
	enrolled, err := f.client("").Enroll(f.ctx(), hubv1.EnrollRequest{Token: minted.Token, Name: "runner-one", Build: "test", Features: []string{hubv1.FeatureRequirements}})
	check(t, err)
	planted["the runner's token"], planted["the runner's session"] = minted.Token, enrolled.Session
	runner := f.client(enrolled.Session)

	// They put it where texts go, and where it is refused.
	all := strings.Join([]string{minted.Token, enrolled.Session, pool.Credential.Secret, planted["the admin token"]}, " ")
	check(t, controller.SetRefusal(f.ctx(), hubv1.Refusal{Message: "cannot start: " + all}))
	must(t)(f.admin.GetRun(f.ctx(), run.ID))
	check(t, controller.SetRefusal(f.ctx(), hubv1.Refusal{}))
	until(t, runner.RunnerWatch(f.ctx()), "the runner has the run", func(s hubv1.RunnerSnapshot) bool { return s.Run != nil })
	check(t, runner.RunStarted(f.ctx(), run.ID, hubv1.StartedRequest{Attempt: 1, Commit: strings.Repeat("abcd", 10), StartedAt: f.clock.Now()}))
	must(t)(runner.AppendLog(f.ctx(), run.ID, 0, []byte("hello\n")))
	check(t, runner.RunResult(f.ctx(), run.ID, hubv1.ResultRequest{Attempt: 1, Error: "failed with " + all, FinishedAt: f.clock.Now()}))
	check(t, runner.Bye(f.ctx(), "bye "+all))
	must(t)(f.admin.Cordon(f.ctx(), "gpu", "because of "+all))
	_, err = f.admin.CreateProject(f.ctx(), hubv1.CreateProjectRequest{Name: "leak", Remote: "https://bot:" + planted["a remote's password"] + "@git.example.com/x.git"})
	wantCode(t, err, hubv1.CodeInvalid)
	shown := [][]byte{[]byte(err.Error())}
	for _, secret := range planted {
		paths := []string{"/api/v1/self", "/pool/v1/snapshot", "/runner/v1/heartbeat", "/webhooks/fleet"}
		if strings.HasPrefix(secret, "cloop_") {
			paths = append(paths, "/"+secret)
		}
		for _, path := range paths {
			_, _, answer := f.ask(http.MethodPost, path, secret+"x", `{"a":`)
			shown = append(shown, answer)
		}
	}
	code, answer := f.send("fleet", f.pushEvent(forge.GitHub, planted["the webhook's secret"], "one", `{"ref":"refs/heads/main"}`), []byte(`{"ref":"refs/heads/main"}`))
	if code != http.StatusAccepted {
		t.Fatalf("the event is answered with %d %s", code, answer)
	}
	f.synced(f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", 1, "Revoke", "")}), hubv1.SyncReady)
	f.git.RequireAuthorization("Basic other")
	f.unreadable()

	// All that the hub shows.
	for _, path := range []string{"/metrics", "/openapi.json", "/readyz"} {
		shown = append(shown, []byte(f.page(path)))
	}
	for _, o := range f.operations() {
		path := o.at(map[string]string{"pool": "gpu", "project": "app", "run": run.ID, "user": "eve", "group": "none", "role": "admin", "sync": "fleet"})
		if o.method == http.MethodGet && !strings.HasSuffix(path, "/watch") && !strings.Contains(path, "{") {
			status, _, answer := f.ask(o.method, path+"?all=true&over=true", planted["the admin token"], "")
			if status >= 500 {
				t.Errorf("%s: %d %s", path, status, answer)
			}
			shown = append(shown, answer)
		}
	}
	export, err := f.admin.ExportAudit(f.ctx(), hubv1.AuditQuery{})
	check(t, err)
	trail, err := io.ReadAll(export)
	check(t, err)
	if n := bytes.Count(trail, []byte("\n")); n < 15 {
		t.Errorf("the audit trail has %d rows", n)
	}
	planted.in(t, "the audit trail", trail)
	for _, text := range shown {
		planted.in(t, "an answer", text)
	}
	if !bytes.Contains(bytes.Join(shown, nil), []byte("[redacted]")) {
		t.Error("what was planted in texts is not to be seen as redacted: the test plants nothing")
	}
	planted.in(t, "the log", []byte(f.log.String()))
	planted.inProcesses(t)
	look(f, planted)
	f.stop()
	look(f, planted)
}

// inDatabase looks through every row of every table of a PostgreSQL database.
func (c canaries) inDatabase(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	defer func() { check(t, conn.Close(context.Background())) }()
	texts := func(query string) []string {
		rows, err := conn.Query(t.Context(), query)
		check(t, err)
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		check(t, err)
		return all
	}
	tables := texts("SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'")
	if len(tables) < 15 {
		t.Errorf("the database has the tables %v", tables)
	}
	for _, table := range tables {
		for _, row := range texts("SELECT t::text FROM " + pgx.Identifier{table}.Sanitize() + " AS t") {
			c.in(t, "table "+table, []byte(row))
		}
	}
}

// unreadable waits until the sync cannot read its repository.
func (f *forged) unreadable() {
	f.t.Helper()
	must(f.t)(f.admin.ReconcileSync(f.ctx(), "fleet"))
	until(f.t, f.admin.WatchSync(f.ctx(), "fleet"), "the sync fails", func(s hubv1.Sync) bool { return s.State == hubv1.SyncFailed })
}

// inFiles looks through the hub's database, its journals and its clones, which
// are so many files at least.
func (c canaries) inFiles(t *testing.T, dir string, least int) {
	t.Helper()
	files := 0
	check(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil // a journal that went
		}
		files++
		c.in(t, filepath.Base(path), data)
		return err
	}))
	if files < least {
		t.Errorf("looked at %d files", files)
	}
}

// inProcesses looks at the command lines of all processes.
func (c canaries) inProcesses(t *testing.T) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	check(t, err)
	for _, line := range lines {
		// A process that has ended has none.
		if data, err := os.ReadFile(line); err == nil {
			c.in(t, "a command line", data)
		}
	}
}
