package store_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/secret"
)

// retention is short, so that random stories outlive it, and goes in batches of
// three.
var retention = store.Retention{
	Logs: 10 * time.Minute, Runs: 20 * time.Minute, RunsPerProject: 2, Runners: 5 * time.Minute, Tokens: 15 * time.Minute, Audit: time.Hour, Batch: 3,
}

// kept are the rows that must survive: query → times in hours before now that
// its arguments are.
var kept = []struct {
	what, query string
	ages        []time.Duration
}{
	{"runs that are not settled", "SELECT * FROM runs WHERE settled_at IS NULL", nil},
	{"runs", `SELECT id, project_id, pool_id, ref, commit_hash, command, state, reason, exit_code, signal, attempt, started_by, log_bytes,
		COALESCE(runner_id, former_runner), queued_at, handed_at, started_at, first_log_at, settled_at FROM runs r
		WHERE settled_at > ? OR ` + newest, []time.Duration{retention.Runs}},
	{"logs", `SELECT r.id, r.log_pruned_at, l.start, l.data FROM runs r LEFT JOIN run_logs l ON l.run_id = r.id
		WHERE r.settled_at IS NULL OR r.settled_at > ? AND (r.settled_at > ? OR ` + newest + ")", []time.Duration{retention.Logs, retention.Runs}},
	{"runners", "SELECT * FROM runners WHERE retired_at IS NULL OR retired_at > ?", []time.Duration{retention.Runners}},
	{"credentials", "SELECT * FROM credentials WHERE revoked_at IS NULL OR revoked_at > ?", []time.Duration{retention.Runners}},
	{"audit rows", "SELECT * FROM audit WHERE action <> 'retention.prune' AND (action NOT LIKE 'run.%' AND action NOT LIKE 'executor_pool.runner.%' OR at > ?)", []time.Duration{retention.Audit}},
	{"tokens", "SELECT * FROM tokens WHERE COALESCE(revoked_at, expires_at) IS NULL OR COALESCE(revoked_at, expires_at) > ?", []time.Duration{retention.Tokens}},
	{"users", "SELECT * FROM users WHERE removed_at IS NULL OR removed_at > ?", []time.Duration{retention.Tokens}},
	{"pools", "SELECT * FROM pools", nil},
	{"projects", "SELECT * FROM projects", nil},
	{"requests", "SELECT * FROM idempotency", nil},
}

const newest = "r.seq IN (SELECT n.seq FROM runs n WHERE n.project_id = r.project_id ORDER BY n.seq DESC LIMIT 2)"

// due are the rows that must go.
var due = []struct {
	what, query string
	ages        []time.Duration
}{
	{"runs", "SELECT COUNT(*) FROM runs r WHERE settled_at <= ? AND NOT " + newest, []time.Duration{retention.Runs}},
	{"chunks of logs", "SELECT COUNT(*) FROM run_logs l JOIN runs r ON r.id = l.run_id WHERE r.settled_at <= ?", []time.Duration{retention.Logs}},
	{"runners", "SELECT COUNT(*) FROM runners WHERE retired_at <= ?", []time.Duration{retention.Runners}},
	{"credentials", "SELECT COUNT(*) FROM credentials k WHERE revoked_at <= ? AND NOT EXISTS (SELECT 1 FROM runners r WHERE r.credential_id = k.id)",
		[]time.Duration{retention.Runners}},
	{"tokens", "SELECT COUNT(*) FROM tokens WHERE COALESCE(revoked_at, expires_at) <= ?", []time.Duration{retention.Tokens}},
	{"audit rows", "SELECT COUNT(*) FROM audit WHERE (action LIKE 'run.%' OR action LIKE 'executor_pool.runner.%') AND at <= ?", []time.Duration{retention.Audit}},
	{"logs that are being removed", "SELECT COUNT(*) FROM pruned_logs", nil},
}

func before(now time.Time, ages []time.Duration) (args []any) {
	for _, age := range ages {
		args = append(args, now.Add(-age).UnixNano())
	}
	return args
}

// Prune removes some or all of what is old, and nothing else.
func (m *machine) Prune(t *rapid.T) {
	whole := rapid.Bool().Draw(t, "whole")
	keep := m.dump(t)
	for {
		more, err := m.s.Prune(background)
		m.ok(t, err)
		if now := m.dump(t); now != keep {
			t.Fatalf("pruning touched what must stay:\n%s\nis now\n%s", keep, now)
		}
		if !more || !whole {
			whole = !more
			break
		}
	}
	// Of two members one may take what was set twice, by half an hour at the other,
	// for one long jump.
	if whole && !m.s.Unsettled() {
		for _, d := range due {
			if n := m.count(t, d.query, before(m.clock.Now(), d.ages)...); n > 0 {
				t.Fatalf("%d %s are left", n, d.what)
			}
		}
	}
	// Runs that are gone are nobody's to ask for.
	m.runs = slices.DeleteFunc(m.runs, func(id string) bool { return m.count(t, "SELECT COUNT(*) FROM runs WHERE id = ?", id) == 0 })
}

// dump is all that must stay, as text.
func (m *machine) dump(t *rapid.T) string {
	var b strings.Builder
	for _, k := range kept {
		rows, err := m.look.Query(k.query, before(m.clock.Now(), k.ages)...)
		m.ok(t, err)
		m.ok(t, write(&b, k.what, rows))
	}
	lines := strings.SplitAfter(b.String(), "\n")
	slices.Sort(lines) // rows have no order
	return strings.Join(lines, "")
}

func write(b *strings.Builder, what string, rows *sql.Rows) error {
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			return err
		}
		fmt.Fprintf(b, "%s:", what)
		for _, value := range values {
			fmt.Fprintf(b, " %v", *value.(*any))
		}
		b.WriteByte('\n')
	}
	return rows.Err()
}

// ended is a run that wrote a log and succeeded.
func (w *world) ended(t testing.TB, key string) (hubv1.Run, store.Runner) {
	t.Helper()
	run, r := w.run(t), w.runner(t, key)
	w.started(t, r, w.get(t, run.ID))
	_, err := w.s.AppendLog(background, r, run.ID, 0, []byte("hello\n"))
	check(t, err)
	zero := int32(0)
	check(t, w.s.Result(background, r, run.ID, hubv1.ResultRequest{Attempt: 1, ExitCode: &zero}))
	check(t, w.s.Bye(background, r, "done"))
	return w.get(t, run.ID), r
}

func (w *world) prune(t testing.TB) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = w.s.Prune(background); err != nil {
			t.Fatal(err)
		}
	}
}

func TestALogThatWasRemovedIsNotAnEmptyOne(t *testing.T) {
	both(t, testALogThatWasRemovedIsNotAnEmptyOne)
}

func testALogThatWasRemovedIsNotAnEmptyOne(t *testing.T) {
	w := newWorld(t, 5)
	run, _ := w.ended(t, "key-one1")
	w.clock.Step(30*24*time.Hour - time.Second)
	w.prune(t)
	if data, _, err := w.s.ReadLog(background, run.ID, 0); err != nil || string(data) != "hello\n" {
		t.Fatalf("a second too early the log is %q, %v", data, err)
	}
	w.clock.Step(time.Second)
	w.prune(t)
	for _, offset := range []int64{0, 6, 100} {
		data, _, err := w.s.ReadLog(background, run.ID, offset)
		if codeOf(err) != hubv1.CodeLogRemoved || len(data) > 0 || !strings.Contains(err.Error(), "retention.logs") {
			t.Fatalf("from %d the log is %q, %v", offset, data, err)
		}
	}
	after := w.get(t, run.ID)
	if after.LogRemovedAt == nil || !after.LogRemovedAt.Equal(w.clock.Now()) || after.LogBytes != run.LogBytes {
		t.Errorf("the run is %+v", after)
	}
}

func TestARunOutlivesItsRunnersRow(t *testing.T) { both(t, testARunOutlivesItsRunnersRow) }

func testARunOutlivesItsRunnersRow(t *testing.T) {
	w := newWorld(t, 5)
	run, r := w.ended(t, "key-one1")
	w.clock.Step(7 * 24 * time.Hour)
	w.prune(t)
	if after := w.get(t, run.ID); after.Runner != r.ID {
		t.Errorf("the run names runner %q, was %q", after.Runner, r.ID)
	}
	if _, err := w.s.Heartbeat(background, r); codeOf(err) != hubv1.CodeRunnerRetired {
		t.Errorf("the runner is told %v", err)
	}
	if _, err := w.s.Gone(background, w.credential, r.ID, hubv1.GoneRequest{Reason: "Error"}); codeOf(err) != hubv1.CodeNotFound {
		t.Errorf("its controller is told %v", err)
	}
}

func TestTheNewestRunsOfAProjectStay(t *testing.T) { both(t, testTheNewestRunsOfAProjectStay) }

func testTheNewestRunsOfAProjectStay(t *testing.T) {
	w := newWorld(t, 5)
	check(t, w.s.Close())
	s, err := store.Open(background, at(t, w.dir, store.Options{Clock: w.clock, Limits: store.Limits{Retention: store.Retention{RunsPerProject: 3}}}))
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	w.s = s
	var want []string
	for i := range 5 {
		run, _ := w.ended(t, fmt.Sprintf("key-%04d", i))
		want = append([]string{run.ID}, want...)
	}
	w.clock.Step(91 * 24 * time.Hour)
	w.prune(t)
	runs, err := w.s.ListRuns(background, "", 100)
	check(t, err)
	var got []string
	for _, run := range runs {
		got = append(got, run.ID)
	}
	if !slices.Equal(got, want[:3]) {
		t.Fatalf("left are %v of %v", got, want)
	}
}

func TestRetentionOffKeepsEverything(t *testing.T) { both(t, testRetentionOffKeepsEverything) }

func testRetentionOffKeepsEverything(t *testing.T) {
	w := newWorld(t, 5)
	check(t, w.s.Close())
	forever := store.Retention{Logs: -1, Runs: -1, RunsPerProject: -1, Runners: -1, Tokens: -1, Audit: -1}
	s, err := store.Open(background, at(t, w.dir, store.Options{Clock: w.clock, Limits: store.Limits{Retention: forever}}))
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	w.s = s
	run, _ := w.ended(t, "key-one1")
	w.clock.Step(10 * 365 * 24 * time.Hour)
	version := w.dataVersion(t)
	was := version()
	w.prune(t)
	if version() != was {
		t.Error("something was removed")
	}
	if data, _, err := w.s.ReadLog(background, run.ID, 0); err != nil || !bytes.Equal(data, []byte("hello\n")) {
		t.Errorf("the log is %q, %v", data, err)
	}
}

// However much there is to remove, nobody waits behind more than a batch.
func TestPruningGoesInBatches(t *testing.T) { both(t, testPruningGoesInBatches) }

func testPruningGoesInBatches(t *testing.T) {
	w := newWorld(t, 5)
	run, r := w.run(t), w.runner(t, "key-one1")
	w.started(t, r, w.get(t, run.ID))
	const chunks = 150
	for i := range int64(chunks) {
		_, err := w.s.AppendLog(background, r, run.ID, i, []byte("x"))
		check(t, err)
	}
	check(t, w.s.Bye(background, r, "done"))
	_, err := w.s.CancelRun(background, admin, run.ID)
	check(t, err)
	w.clock.Step(31 * 24 * time.Hour)
	left := func() (n int) {
		check(t, looking(t, w.dir).QueryRow("SELECT COUNT(*) FROM run_logs").Scan(&n))
		return n
	}
	batches := 0
	for was, more := left(), true; more; batches++ {
		more, err = w.s.Prune(background)
		check(t, err)
		if now := left(); was-now > 64 {
			t.Fatalf("one transaction removed %d chunks", was-now)
		} else if was = now; now > 0 {
			if _, _, err := w.s.ReadLog(background, run.ID, 0); codeOf(err) != hubv1.CodeLogRemoved {
				t.Fatalf("half of the log is shown as if it were whole: %v", err)
			}
		}
	}
	if left() != 0 || batches < chunks/64 {
		t.Fatalf("%d chunks are left after %d batches", left(), batches)
	}
}

// The database itself refuses, should the code ever err.
func TestWhatIsNotOverCannotBeRemoved(t *testing.T) { both(t, testWhatIsNotOverCannotBeRemoved) }

func testWhatIsNotOverCannotBeRemoved(t *testing.T) {
	w := newWorld(t, 5)
	run, r := w.run(t), w.runner(t, "key-one1")
	w.started(t, r, w.get(t, run.ID))
	_, err := w.s.AppendLog(background, r, run.ID, 0, []byte("x"))
	check(t, err)
	db := looking(t, w.dir)
	root(t, w.s)
	for _, table := range []string{"runs", "runners", "credentials", "run_logs", "tokens", "users"} {
		if _, err := db.Exec("DELETE FROM " + table); err == nil || !strings.Contains(err.Error(), "is not removed") {
			t.Errorf("removing live rows of %s: %v", table, err)
		}
	}
}

// Tokens that ended go, and users who were removed; the audit trail says for
// ever what they were.
func TestTokensThatEndedAreForgotten(t *testing.T) { both(t, testTokensThatEndedAreForgotten) }

func testTokensThatEndedAreForgotten(t *testing.T) {
	w := newWorld(t, 5)
	boss := root(t, w.s)
	people(t, w.s)
	until := w.clock.Now().Add(time.Hour)
	_, revoked := caller(t, w.s, boss, hubv1.CreateTokenRequest{Name: "revoked"})
	_, expired := caller(t, w.s, boss, hubv1.CreateTokenRequest{Name: "expired", ExpiresAt: &until})
	later := w.clock.Now().Add(1000 * 24 * time.Hour)
	_, lasting := caller(t, w.s, boss, hubv1.CreateTokenRequest{Name: "lasting", ExpiresAt: &later})
	_, eves := caller(t, w.s, boss, hubv1.CreateTokenRequest{Name: "eves", User: "eve"})
	check(t, w.s.RevokeToken(background, boss, revoked.ID))
	run, err := w.s.StartRun(background, "user:eve", "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Undemanding(""))
	check(t, err)
	r := w.runner(t, "key-one1")
	w.started(t, r, w.get(t, run.ID))
	check(t, w.s.RemoveUser(background, admin, "eve"))
	left := func() (ids []string) {
		all, err := w.s.ListTokens(background, "", true, "")
		check(t, err)
		for _, token := range all.Items {
			if token.ID != boss.Token.ID {
				ids = append(ids, token.Name)
			}
		}
		slices.Sort(ids)
		return ids
	}
	removed := func() (n int) {
		check(t, looking(t, w.dir).QueryRow("SELECT COUNT(*) FROM users WHERE name = 'eve'").Scan(&n))
		return n
	}
	w.clock.Step(90*24*time.Hour - time.Second)
	w.prune(t)
	if got := left(); !slices.Equal(got, []string{"eves", "expired", "lasting", "revoked"}) {
		t.Fatalf("a little too early left are %v", got)
	}
	w.clock.Step(time.Hour + time.Second)
	w.prune(t)
	if got := left(); !slices.Equal(got, []string{"lasting"}) {
		t.Fatalf("left are %v", got)
	}
	if removed() != 1 {
		t.Error("a user is forgotten whose run goes on: it might start again")
	}
	must(t)(w.s.AuthUser(background, lasting.Secret))
	zero := int32(0)
	check(t, w.s.Result(background, r, run.ID, hubv1.ResultRequest{Attempt: 1, ExitCode: &zero}))
	w.prune(t)
	if removed() != 0 {
		t.Error("a user who was removed long ago is still there")
	}
	for _, token := range []hubv1.Token{revoked, expired, eves} {
		page, err := w.s.Audit(background, hubv1.AuditQuery{Object: token.ID, Action: store.ActionTokenCreate})
		if err != nil || len(page.Items) != 1 || !strings.Contains(page.Items[0].Detail, token.Name) {
			t.Errorf("of token %s the audit trail has %+v, %v", token.Name, page.Items, err)
		}
		if _, err := w.s.AuthUser(background, token.Secret); codeOf(err) != hubv1.CodeUnauthenticated {
			t.Errorf("token %s is accepted: %v", token.Name, err)
		}
	}
	// Nobody gets another first token because all users are gone.
	for _, user := range []string{"bob", "admin"} {
		check(t, w.s.RemoveUser(background, admin, user))
	}
	w.clock.Step(91 * 24 * time.Hour)
	w.prune(t)
	check(t, w.s.EnsureAdmin(background, func(secret.String) error { t.Error("another first token"); return nil }))
}

// A SQLite database of the first schema, with what it may hold, is brought up to date.
func TestADatabaseFromBeforeRetentionIsBroughtUpToDate(t *testing.T) {
	dir := t.TempDir()
	first, err := os.ReadFile("migrations/sqlite/0001_init.sql")
	check(t, err)
	db := looking(t, dir)
	for _, statement := range []string{
		"CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT", string(first),
		"INSERT INTO schema_version VALUES (1, 'migrations/sqlite/0001_init.sql')",
		`INSERT INTO pools (id, name, state, definition, revision, feed, created_at) VALUES ('p', 'gpu', 'active', '{"maxRunners":1}', 1, 1, 1)`,
		"INSERT INTO credentials (id, pool_id, hash, created_at) VALUES ('c', 'p', 'h', 1)",
		`INSERT INTO runners (id, pool_id, credential_id, key, state, token_hash, token_expires_at, created_at, retired_at, revision)
			VALUES ('r', 'p', 'c', 'key', 'retired', 't', 1, 1, 2, 1)`,
		"INSERT INTO projects (id, name, remote, default_ref, pool_id, created_at) VALUES ('j', 'app', 'https://h/r', 'main', 'p', 1)",
		`INSERT INTO runs (id, project_id, pool_id, ref, command, state, reason, failover, runner_id, started_by, log_bytes, revision, queued_at, settled_at)
			VALUES ('run', 'j', 'p', 'main', '["true"]', 'succeeded', '', 'once', 'r', 'user:a', 6, 1, 1, 2)`,
		"INSERT INTO run_logs VALUES ('run', 0, CAST('hello' AS BLOB))",
		`INSERT INTO audit (at, actor, action, pool, object) VALUES (1, 'user:a', 'pool.create', 'gpu', 'p'), (1, 'user:a', 'credential.create', 'gpu', 'c'),
			(1, 'hub', 'runner.mint', 'gpu', 'r'), (1, 'user:a', 'project.create', '', 'j'), (1, 'user:a', 'run.queue', 'gpu', 'run')`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%.60s: %v", statement, err)
		}
	}
	w := &world{s: open(t, dir, newClock()), clock: newClock(), dir: dir}
	if run := w.get(t, "run"); run.Runner != "r" || run.LogRemovedAt != nil {
		t.Errorf("the run is %+v", run)
	}
	audited := func(want ...string) {
		t.Helper()
		rows, err := db.Query("SELECT action FROM audit WHERE action <> 'retention.prune' ORDER BY id")
		check(t, err)
		defer func() { _ = rows.Close() }()
		var got []string
		for rows.Next() {
			var action string
			check(t, rows.Scan(&action))
			got = append(got, action)
		}
		check(t, rows.Err())
		if !slices.Equal(got, want) {
			t.Errorf("audited is %v, want %v", got, want)
		}
	}
	audited("executor_pool.create", "executor_pool.credential.create", "executor_pool.runner.mint", "project.create", "run.queue")
	w.prune(t)
	audited("executor_pool.create", "executor_pool.credential.create", "project.create")
	if run := w.get(t, "run"); run.Runner != "r" || run.LogRemovedAt == nil {
		t.Errorf("after pruning the run is %+v", run)
	}
}
