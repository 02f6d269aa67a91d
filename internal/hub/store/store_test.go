package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/secret"
)

const admin = "user:admin"

func open(t testing.TB, dir string, clock *testclock.FakeClock) *store.Store {
	t.Helper()
	s, err := store.Open(context.Background(), at(t, dir, store.Options{Clock: clock}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newClock() *testclock.FakeClock { return testclock.NewFakeClock(time.Unix(1_800_000_000, 0)) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must fails the test on an error; the value is for readers only.
func must(t testing.TB) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		check(t, err)
	}
}

func codeOf(err error) hubv1.Code {
	var p *hubv1.Problem
	if errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// world is a pool with a bound project.
type world struct {
	s          *store.Store
	clock      *testclock.FakeClock
	dir        string
	pool       hubv1.Pool
	credential store.Credential
	secret     string
	// held is a run of interest.
	held string
	// detach: runner id → what ends its watch.
	detach map[string]func()
}

func newWorld(t testing.TB, maximum int32) *world {
	t.Helper()
	return newWorldIn(t, t.TempDir(), maximum)
}

func newWorldIn(t testing.TB, dir string, maximum int32) *world {
	t.Helper()
	w := &world{clock: newClock(), dir: dir}
	w.s = open(t, w.dir, w.clock)
	w.furnish(t, maximum)
	return w
}

// furnish makes the pool and the project.
func (w *world) furnish(t testing.TB, maximum int32) {
	t.Helper()
	ctx := context.Background()
	check(t, w.s.Empower(ctx, admin, access.RoleAdmin)) // who may start runs
	out, err := w.s.CreatePool(ctx, admin, "", hubv1.CreatePoolRequest{Name: "gpu", PoolDefinition: hubv1.PoolDefinition{MaxRunners: maximum}})
	check(t, err)
	w.pool, w.secret = out.Pool, out.Credential.Secret
	w.credential, err = w.s.AuthPool(ctx, w.secret)
	check(t, err)
	_, err = w.s.CreateProject(ctx, admin, "", hubv1.CreateProjectRequest{Name: "app", Remote: "https://git.example.com/app"})
	check(t, err)
	_, err = w.s.BindProject(ctx, admin, "app", "pool:"+w.pool.ID, store.Undemanding(""))
	check(t, err)
}

func (w *world) run(t testing.TB) hubv1.Run {
	t.Helper()
	run, err := w.s.StartRun(context.Background(), admin, "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Undemanding(""))
	check(t, err)
	return run
}

// runner mints, enrolls and listens.
func (w *world) runner(t testing.TB, key string) store.Runner {
	t.Helper()
	r, _ := w.enrolled(t, key)
	return r
}

// enrolled is runner with its session.
func (w *world) enrolled(t testing.TB, key string) (r store.Runner, session string) {
	t.Helper()
	ctx := context.Background()
	minted, err := w.s.Mint(ctx, w.credential, key)
	check(t, err)
	enrolled, err := w.s.Enroll(ctx, hubv1.EnrollRequest{Token: minted.Token, Name: key})
	check(t, err)
	r, err = w.s.AuthRunner(ctx, enrolled.Session)
	check(t, err)
	stop, err := w.s.Attach(ctx, r)
	check(t, err)
	if w.detach == nil {
		w.detach = map[string]func(){}
	}
	w.detach[r.ID] = stop
	return r, enrolled.Session
}

func (w *world) get(t testing.TB, id string) hubv1.Run {
	t.Helper()
	run, err := w.s.GetRun(context.Background(), id)
	check(t, err)
	return run
}

func (w *world) started(t testing.TB, r store.Runner, run hubv1.Run) {
	t.Helper()
	check(t, w.s.Started(context.Background(), r, run.ID, hubv1.StartedRequest{Attempt: run.Attempt, Commit: "abc", StartedAt: w.clock.Now()}))
}

func TestNoCredentialIsAtRestInClear(t *testing.T) { both(t, testNoCredentialIsAtRestInClear) }

func testNoCredentialIsAtRestInClear(t *testing.T) {
	w := newWorld(t, 2)
	ctx := context.Background()
	var canaries []string
	canaries = append(canaries, w.secret)
	check(t, w.s.EnsureAdmin(ctx, func(token secret.String) error { canaries = append(canaries, token.Reveal()); return nil }))
	minted, err := w.s.Mint(ctx, w.credential, "key-one1")
	check(t, err)
	enrolled, err := w.s.Enroll(ctx, hubv1.EnrollRequest{Token: minted.Token, Name: "r"})
	check(t, err)
	canaries = append(canaries, minted.Token, enrolled.Session)
	if len(canaries) != 4 {
		t.Fatalf("there are %d canaries", len(canaries))
	}
	places := map[string][]byte{}
	if onPostgres(t) {
		places = rows(t, w.dir) // which is what replicas and backups are made of
	}
	check(t, w.s.Close())
	if !onPostgres(t) {
		places = files(t, w.dir)
	}
	for place, data := range places {
		for i, canary := range canaries {
			if bytes.Contains(data, []byte(canary)) || bytes.Contains(data, []byte(canary[12:40])) {
				t.Errorf("canary %d is in %s", i, place)
			}
		}
	}
	if len(places) == 0 {
		t.Fatal("nothing was looked at")
	}
}

// files are a directory's, which nobody else may read.
func files(t *testing.T, dir string) map[string][]byte {
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	check(t, err)
	out := map[string][]byte{}
	for _, name := range names {
		out[name], err = os.ReadFile(name)
		check(t, err)
		if info, err := os.Stat(name); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v (%v)", name, info.Mode(), err)
		}
	}
	return out
}

// rows are the tables of a PostgreSQL database as text.
func rows(t *testing.T, dir string) map[string][]byte {
	db := looking(t, dir)
	tables, err := db.Query("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
	check(t, err)
	defer func() { _ = tables.Close() }()
	var names []string
	for tables.Next() {
		var name string
		check(t, tables.Scan(&name))
		names = append(names, name)
	}
	check(t, tables.Err())
	out := map[string][]byte{}
	for _, name := range names {
		found, err := db.Query("SELECT * FROM " + name)
		check(t, err)
		var text strings.Builder
		check(t, write(&text, name, found))
		out[name] = []byte(text.String())
	}
	return out
}

func TestANewerDatabaseIsRefused(t *testing.T) { both(t, testANewerDatabaseIsRefused) }

func testANewerDatabaseIsRefused(t *testing.T) {
	dir := t.TempDir()
	check(t, open(t, dir, newClock()).Close())
	db := looking(t, dir)
	if _, err := db.Exec("INSERT INTO schema_version (version, name) VALUES (9998, 'from the future'), (9999, 'from further')"); err != nil {
		t.Fatal(err)
	}
	_, err := store.Open(context.Background(), at(t, dir, store.Options{Clock: newClock()}))
	if !errors.Is(err, store.ErrNewer) || !strings.Contains(err.Error(), "version 9999") {
		t.Fatalf("opened a newer database, or does not say how new it is: %v", err)
	}
}

func TestTheFirstAdminTokenIsMadeOnce(t *testing.T) { both(t, testTheFirstAdminTokenIsMadeOnce) }

func testTheFirstAdminTokenIsMadeOnce(t *testing.T) {
	s := open(t, t.TempDir(), newClock())
	ctx := context.Background()
	failing := errors.New("disk full")
	if err := s.EnsureAdmin(ctx, func(secret.String) error { return failing }); !errors.Is(err, failing) {
		t.Fatalf("EnsureAdmin: %v", err)
	}
	var tokens []string
	for range 2 {
		check(t, s.EnsureAdmin(ctx, func(token secret.String) error { tokens = append(tokens, token.Reveal()); return nil }))
	}
	if len(tokens) != 1 {
		t.Fatalf("%d tokens were delivered", len(tokens))
	}
	if who, err := s.AuthUser(ctx, tokens[0]); err != nil || who.Actor() != admin {
		t.Fatalf("AuthUser: %q, %v", who.User, err)
	}
}

func TestRepeatingAMintReplacesTheTokenOfTheSameSlot(t *testing.T) {
	both(t, testRepeatingAMintReplacesTheTokenOfTheSameSlot)
}

func testRepeatingAMintReplacesTheTokenOfTheSameSlot(t *testing.T) {
	w := newWorld(t, 1)
	ctx := context.Background()
	first, err := w.s.Mint(ctx, w.credential, "key-one1")
	check(t, err)
	second, err := w.s.Mint(ctx, w.credential, "key-one1")
	check(t, err)
	if first.RunnerID != second.RunnerID || first.Token == second.Token {
		t.Fatalf("minted %s and %s", first.RunnerID, second.RunnerID)
	}
	if _, err := w.s.Mint(ctx, w.credential, "key-two2"); codeOf(err) != hubv1.CodePoolAtMaximum {
		t.Fatalf("a second runner of one: %v", err)
	}
	if _, err := w.s.Enroll(ctx, hubv1.EnrollRequest{Token: first.Token}); codeOf(err) != hubv1.CodeTokenRefused {
		t.Fatalf("the replaced token: %v", err)
	}
	_, err = w.s.Enroll(ctx, hubv1.EnrollRequest{Token: second.Token})
	check(t, err)
	if _, err := w.s.Mint(ctx, w.credential, "key-one1"); codeOf(err) != hubv1.CodeTokenRedeemed {
		t.Fatalf("minting a redeemed key: %v", err)
	}
	must(t)(w.s.Gone(ctx, w.credential, second.RunnerID, hubv1.GoneRequest{Reason: "Error"}))
	if _, err := w.s.Mint(ctx, w.credential, "key-one1"); codeOf(err) != hubv1.CodeRunnerRetired {
		t.Fatalf("minting a retired key: %v", err)
	}
	_, err = w.s.Mint(ctx, w.credential, "key-two2")
	check(t, err)
}

func TestAnExpiredTokenEnrollsNobodyAndFreesItsSlot(t *testing.T) {
	both(t, testAnExpiredTokenEnrollsNobodyAndFreesItsSlot)
}

func testAnExpiredTokenEnrollsNobodyAndFreesItsSlot(t *testing.T) {
	w := newWorld(t, 1)
	ctx := context.Background()
	minted, err := w.s.Mint(ctx, w.credential, "key-one1")
	check(t, err)
	w.clock.Step(w.s.Limits.TokenTTL)
	if _, err := w.s.Enroll(ctx, hubv1.EnrollRequest{Token: minted.Token}); codeOf(err) != hubv1.CodeTokenRefused {
		t.Fatalf("enrolled with an expired token: %v", err)
	}
	_, err = w.s.Mint(ctx, w.credential, "key-two2") // before the timer has run
	check(t, err)
	check(t, w.s.Expire(ctx))
	if _, err := w.s.Mint(ctx, w.credential, "key-one1"); codeOf(err) != hubv1.CodeRunnerRetired {
		t.Fatalf("minting an expired key: %v", err)
	}
}

func TestALostRunnersRunStartsAgainOnce(t *testing.T) { both(t, testALostRunnersRunStartsAgainOnce) }

func testALostRunnersRunStartsAgainOnce(t *testing.T) {
	w := newWorld(t, 3)
	ctx := context.Background()
	run := w.run(t)
	for attempt := int32(1); attempt <= 2; attempt++ {
		r := w.runner(t, "key-"+strings.Repeat("x", int(attempt)+3))
		held := w.get(t, run.ID)
		if held.State != hubv1.RunHanded || held.Attempt != attempt || held.Runner != r.ID {
			t.Fatalf("attempt %d: %+v", attempt, held)
		}
		w.started(t, r, held)
		if _, err := w.s.AppendLog(ctx, r, run.ID, 0, []byte("line\n")); err != nil {
			t.Fatalf("the log of attempt %d begins at 0: %v", attempt, err)
		}
		w.clock.Step(w.s.Limits.Lease)
		check(t, w.s.Expire(ctx))
		if state := w.get(t, run.ID).State; state != hubv1.RunRunning {
			t.Fatalf("the hub acts before its margin: %s", state)
		}
		w.clock.Step(w.s.Limits.Margin)
		check(t, w.s.Expire(ctx))
		if err := w.s.Result(ctx, r, run.ID, hubv1.ResultRequest{Attempt: attempt}); codeOf(err) != hubv1.CodeRunnerRetired {
			t.Fatalf("a lost runner reports: %v", err)
		}
	}
	lost := w.get(t, run.ID)
	if lost.State != hubv1.RunLost || !strings.Contains(lost.Reason, "silent") {
		t.Fatalf("after two lost runners: %s, %s", lost.State, lost.Reason)
	}
	data, _, err := w.s.ReadLog(ctx, run.ID, 0)
	check(t, err)
	if string(data) != "line\n" || lost.LogBytes <= 10 {
		t.Fatalf("log %q of %d bytes", data, lost.LogBytes)
	}
}

func TestARunThatNeverStartsEnds(t *testing.T) { both(t, testARunThatNeverStartsEnds) }

func testARunThatNeverStartsEnds(t *testing.T) {
	w := newWorld(t, 100)
	ctx := context.Background()
	run := w.run(t)
	for i := range w.s.Limits.MaxHandOffs {
		if state := w.get(t, run.ID).State; state != hubv1.RunQueued {
			t.Fatalf("before hand-off %d: %s", i, state)
		}
		r := w.runner(t, "key-"+strings.Repeat("x", i+4))
		for range 3 {
			w.clock.Step(w.s.Limits.StartTimeout / 3)
			_, err := w.s.Heartbeat(ctx, r)
			check(t, err)
			check(t, w.s.Expire(ctx))
		}
		// The hub waits for it to let go.
		if held := w.get(t, run.ID); held.State != hubv1.RunHanded || held.Runner != r.ID || !strings.Contains(held.Reason, "did not start it") {
			t.Fatalf("after hand-off %d: %+v", i, held)
		}
		check(t, w.s.Bye(ctx, r, "let go"))
	}
	if ended := w.get(t, run.ID); ended.State != hubv1.RunFailed || ended.Attempt != 1 {
		t.Fatalf("ended %s: %s", ended.State, ended.Reason)
	}
}

func TestCancelling(t *testing.T) { both(t, testCancelling) }

func testCancelling(t *testing.T) {
	w := newWorld(t, 3)
	ctx := context.Background()
	waiting := w.run(t)
	cancelled, err := w.s.CancelRun(ctx, admin, waiting.ID)
	check(t, err)
	if cancelled.State != hubv1.RunCancelled {
		t.Fatalf("a queued run is %s", cancelled.State)
	}
	again, err := w.s.CancelRun(ctx, admin, waiting.ID)
	check(t, err)
	if again.Revision != cancelled.Revision {
		t.Fatal("cancelling a settled run changed it")
	}

	stopped, r := w.run(t), w.runner(t, "key-one1")
	w.started(t, r, w.get(t, stopped.ID))
	_, err = w.s.CancelRun(ctx, admin, stopped.ID)
	check(t, err)
	if snapshot, err := w.s.RunnerSnapshot(ctx, r); err != nil || !snapshot.Cancel {
		t.Fatalf("the runner is told %+v, %v", snapshot, err)
	}
	check(t, w.s.Result(ctx, r, stopped.ID, hubv1.ResultRequest{Attempt: 1, Signal: "terminated", Cancelled: true}))
	if got := w.get(t, stopped.ID); got.State != hubv1.RunCancelled || !strings.Contains(got.Reason, admin) {
		t.Fatalf("stopped as %s: %s", got.State, got.Reason)
	}

	ignored, deaf := w.run(t), w.runner(t, "key-two2")
	w.started(t, deaf, w.get(t, ignored.ID))
	_, err = w.s.CancelRun(ctx, admin, ignored.ID)
	check(t, err)
	for range 4 {
		w.clock.Step(w.s.Limits.CancelTimeout / 4)
		if _, err := w.s.Heartbeat(ctx, deaf); err != nil && codeOf(err) != hubv1.CodeRunnerRetired {
			t.Fatal(err)
		}
		check(t, w.s.Expire(ctx))
	}
	if got := w.get(t, ignored.ID); got.State != hubv1.RunCancelled {
		t.Fatalf("a runner that ignores the cancellation leaves the run %s", got.State)
	}
	if _, err := w.s.Heartbeat(ctx, deaf); codeOf(err) != hubv1.CodeRunnerRetired {
		t.Fatalf("its session: %v", err)
	}
}

func TestRevokingStopsEverything(t *testing.T) { both(t, testRevokingStopsEverything) }

func testRevokingStopsEverything(t *testing.T) {
	w := newWorld(t, 3)
	ctx := context.Background()
	running, r := w.run(t), w.runner(t, "key-one1")
	w.started(t, r, w.get(t, running.ID))
	idle := w.runner(t, "key-two2")
	token, err := w.s.Mint(ctx, w.credential, "key-three3")
	check(t, err)
	// No runner of this build takes it, so it waits.
	waiting, err := w.s.StartRun(ctx, admin, "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Source{Unknown: "not reached"})
	check(t, err)
	if waiting.State != hubv1.RunQueued {
		t.Fatalf("it is %s", waiting.State)
	}
	pool, err := w.s.RevokePool(ctx, admin, "gpu")
	check(t, err)
	if pool.State != hubv1.PoolRevoked || pool.Runners != (hubv1.RunnerCounts{}) {
		t.Fatalf("the pool is %+v", pool)
	}
	if got := w.get(t, running.ID); got.State != hubv1.RunCancelled || !strings.Contains(got.Reason, "revoked by "+admin) {
		t.Fatalf("the run is %s: %s", got.State, got.Reason)
	}
	if got := w.get(t, waiting.ID); got.State != hubv1.RunCancelled || !strings.Contains(got.Reason, "revoked by "+admin) {
		t.Fatalf("the one that waited is %s: %s", got.State, got.Reason)
	}
	if got := w.theProject(t).Dropped; got == nil || got.Run != waiting.ID {
		t.Fatalf("the project says %+v", got)
	}
	if _, err := w.s.AuthPool(ctx, w.secret); codeOf(err) != hubv1.CodeUnauthenticated {
		t.Fatalf("its credential: %v", err)
	}
	if _, err := w.s.Enroll(ctx, hubv1.EnrollRequest{Token: token.Token}); codeOf(err) != hubv1.CodeTokenRefused {
		t.Fatalf("its token: %v", err)
	}
	if _, err := w.s.Heartbeat(ctx, idle); codeOf(err) != hubv1.CodeRunnerRetired {
		t.Fatalf("its idle runner: %v", err)
	}
	if _, err := w.s.StartRun(ctx, admin, "", hubv1.StartRunRequest{Project: "app", Command: []string{"x"}}, store.Undemanding("")); codeOf(err) != hubv1.CodePoolRevoked {
		t.Fatalf("starting a run on it: %v", err)
	}
	back, err := w.s.CreatePool(ctx, admin, "", hubv1.CreatePoolRequest{Name: "gpu", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}})
	check(t, err)
	if back.Pool.ID != w.pool.ID || back.Credential.Secret == w.secret {
		t.Fatalf("the pool came back as %s", back.Pool.ID)
	}
	w.run(t) // the binding has survived
	// What the old controller had under way when its credential was revoked.
	refused := map[string]error{
		"mint":   func() error { _, err := w.s.Mint(ctx, w.credential, "key-four4"); return err }(),
		"retire": func() error { _, err := w.s.Retire(ctx, w.credential, r.ID); return err }(),
		"gone": func() error {
			_, err := w.s.Gone(ctx, w.credential, r.ID, hubv1.GoneRequest{Reason: "Error"})
			return err
		}(),
		"refusal": w.s.SetRefusal(ctx, w.credential, hubv1.Refusal{Message: "quota"}),
		"arrive":  func() error { _, err := w.s.Arrive(ctx, w.controller("c-0")); return err }(),
	}
	for what, err := range refused {
		if codeOf(err) != hubv1.CodeUnauthenticated {
			t.Errorf("%s with the revoked credential: %v", what, err)
		}
	}
}

func TestRequestsAreRecognisedByTheirKey(t *testing.T) { both(t, testRequestsAreRecognisedByTheirKey) }

func testRequestsAreRecognisedByTheirKey(t *testing.T) {
	w := newWorld(t, 1)
	ctx := context.Background()
	request := hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}
	one, err := w.s.StartRun(ctx, admin, "k1", request, store.Undemanding(""))
	check(t, err)
	two, err := w.s.StartRun(ctx, admin, "k1", request, store.Undemanding(""))
	check(t, err)
	if one.ID != two.ID {
		t.Fatal("the repeated request made another run")
	}
	request.Command = []string{"false"}
	if _, err := w.s.StartRun(ctx, admin, "k1", request, store.Undemanding("")); codeOf(err) != hubv1.CodeConflict {
		t.Fatalf("another request with the key: %v", err)
	}
	first, err := w.s.CreateCredential(ctx, admin, "k2", "gpu")
	check(t, err)
	again, err := w.s.CreateCredential(ctx, admin, "k2", "gpu")
	check(t, err)
	if first.ID != again.ID || first.Secret == "" || again.Secret != "" {
		t.Fatal("the repeated request did not return the record without its secret")
	}
	w.clock.Step(25 * time.Hour)
	three, err := w.s.StartRun(ctx, admin, "k1", request, store.Undemanding(""))
	check(t, err)
	if three.ID == one.ID {
		t.Fatal("the key is remembered for ever")
	}
}

// Keys are kept a day, however many there are: those that are over go little by little,
// and none of them counts in the meantime.
func TestKeysThatAreOverGo(t *testing.T) { both(t, testKeysThatAreOverGo) }

func testKeysThatAreOverGo(t *testing.T) {
	w := newWorld(t, 1)
	db := looking(t, w.dir)
	kept := func() (n int) {
		check(t, db.QueryRow("SELECT COUNT(*) FROM idempotency").Scan(&n))
		return n
	}
	cordon := func(key string) {
		t.Helper()
		_, err := w.s.Cordon(store.WithKey(background, admin, store.Key(key), "cordon"), admin, "gpu", "upgrade")
		check(t, err)
	}
	for i := range 250 {
		cordon(fmt.Sprint("k", i))
	}
	w.clock.Step(25 * time.Hour)
	must(t)(w.s.Uncordon(background, admin, "gpu"))
	before := kept()
	cordon("k249")
	if pool, _, err := w.s.GetPool(background, "gpu"); err != nil || pool.Cordon == nil {
		t.Errorf("a key that is over still counts: %v", err)
	}
	if went := before - kept(); went != 100 {
		t.Errorf("%d keys go at once", went)
	}
	cordon("k249")
	cordon("k249")
	if left := kept(); left != 1 {
		t.Errorf("%d keys are left", left)
	}
	if db.postgres {
		return
	}
	rows, err := db.Query("EXPLAIN QUERY PLAN "+store.ForgetKeys, 0, 1)
	check(t, err)
	defer func() { _ = rows.Close() }()
	plan := ""
	for rows.Next() {
		var id, parent, unused int
		var step string
		check(t, rows.Scan(&id, &parent, &unused, &step))
		plan += step + "; "
	}
	if check(t, rows.Err()); strings.Contains(plan, "SCAN") || !strings.Contains(plan, "idempotency_created") {
		t.Errorf("keys that are over are looked for by %s", plan)
	}
}

func TestChangesAreRecognisedByTheirKey(t *testing.T) { both(t, testChangesAreRecognisedByTheirKey) }

func testChangesAreRecognisedByTheirKey(t *testing.T) {
	w := newWorld(t, 1)
	check(t, w.s.KeepSyncs(background, []hubv1.Sync{{Name: "fleet"}}))
	cordon := store.WithKey(background, admin, "k1", "cordon")
	repeat := func(want bool) {
		t.Helper()
		_, err := w.s.Uncordon(background, admin, "gpu")
		check(t, err)
		pool, err := w.s.Cordon(cordon, admin, "gpu", "upgrade")
		check(t, err)
		if (pool.Cordon != nil) != want {
			t.Fatalf("the pool is cordoned: %+v", pool.Cordon)
		}
	}
	repeat(true)
	repeat(false)
	for who, want := range map[string]hubv1.Code{admin: hubv1.CodeConflict, "user:eve": ""} {
		if _, err := w.s.Cordon(store.WithKey(background, who, "k1", "another"), who, "gpu", "x"); codeOf(err) != want {
			t.Errorf("another request of %s with the key: %v", who, err)
		}
	}
	w.clock.Step(25 * time.Hour)
	repeat(true)
	// What is woken changes nothing that one could look at.
	woken := w.s.Bus.Subscribe(store.PokeTopic("fleet"))
	defer woken.Close()
	for i := range 2 {
		_, err := w.s.PokeSync(store.WithKey(background, admin, "k2", "poke"), "fleet")
		check(t, err)
		select {
		case <-woken.C:
			if i > 0 {
				t.Error("the repeated request wakes the sync again")
			}
		default:
			if i == 0 {
				t.Error("nobody woke the sync")
			}
		}
	}
}

// Who repeats the making of what is gone is not told that it is there.
func TestARepeatedRequestSaysWhatBecameOfWhatItMade(t *testing.T) {
	both(t, testARepeatedRequestSaysWhatBecameOfWhatItMade)
}

func testARepeatedRequestSaysWhatBecameOfWhatItMade(t *testing.T) {
	w := newWorld(t, 1)
	boss := root(t, w.s)
	var madeToken hubv1.Token
	var madeCredential hubv1.Credential
	for what, c := range map[string]struct{ make, remove func() error }{
		"pool p": {
			func() error {
				_, err := w.s.CreatePool(background, admin, "a", hubv1.CreatePoolRequest{Name: "p", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}})
				return err
			},
			func() error { return errOf(w.s.RevokePool(background, admin, "p")) },
		},
		"user u": {
			func() error {
				return errOf(w.s.CreateUser(background, admin, "b", hubv1.CreateUserRequest{Name: "u"}))
			},
			func() error { return w.s.RemoveUser(background, admin, "u") },
		},
		"group g": {
			func() error {
				return errOf(w.s.CreateGroup(background, admin, "c", hubv1.CreateGroupRequest{Name: "g"}))
			},
			func() error { return w.s.RemoveGroup(background, admin, "g") },
		},
		"token ": {
			func() (err error) {
				madeToken, err = w.s.CreateToken(background, boss, "d", hubv1.CreateTokenRequest{Name: "t"})
				return err
			},
			func() error { return w.s.RevokeToken(background, boss, madeToken.ID) },
		},
		"credential ": {
			func() (err error) {
				madeCredential, err = w.s.CreateCredential(background, admin, "e", "gpu")
				return err
			},
			func() error { return errOf(w.s.RevokeCredential(background, admin, "gpu", madeCredential.ID)) },
		},
	} {
		check(t, c.make())
		check(t, c.make()) // while it is there
		check(t, c.remove())
		if err := c.make(); codeOf(err) != hubv1.CodeConflict || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "removed since") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestAudience(t *testing.T) { both(t, testAudience) }

func testAudience(t *testing.T) {
	w := newWorld(t, 1)
	ctx := context.Background()
	audience := []string{"group:ml", "user:eve"}
	_, err := w.s.UpdatePool(ctx, admin, "gpu", 0, hubv1.UpdatePoolRequest{Audience: &audience})
	check(t, err)
	request := hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}
	if _, err := w.s.StartRun(ctx, admin, "", request, store.Undemanding("")); codeOf(err) != hubv1.CodeAudience {
		t.Fatalf("who is not in the audience: %v", err)
	}
	_, err = w.s.StartRun(ctx, "user:eve", "", request, store.Undemanding(""))
	check(t, err)
}

func TestThePoolsOwnerMustBeAbleToReadTheProject(t *testing.T) {
	both(t, testThePoolsOwnerMustBeAbleToReadTheProject)
}

func testThePoolsOwnerMustBeAbleToReadTheProject(t *testing.T) {
	w := newWorld(t, 1)
	ctx := context.Background()
	check(t, w.s.EnsureAdmin(ctx, func(secret.String) error { return nil }))
	request := hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}
	for owner, want := range map[string]hubv1.Code{
		"": "", admin: "", "role:admin": "",
		"user:alice@example.com": hubv1.CodeOwner, "group:ml": hubv1.CodeOwner, "role:reader": hubv1.CodeOwner,
	} {
		_, err := w.s.UpdatePool(ctx, admin, "gpu", 0, hubv1.UpdatePoolRequest{Owner: &owner})
		check(t, err)
		_, err = w.s.StartRun(ctx, admin, "", request, store.Undemanding(""))
		if codeOf(err) != want || want != "" && !strings.Contains(err.Error(), owner) {
			t.Errorf("on a pool of %q: %v", owner, err)
		}
	}
}

func TestRunsThatThePoolNoLongerTakesLeaveItsQueue(t *testing.T) {
	both(t, testRunsThatThePoolNoLongerTakesLeaveItsQueue)
}

func testRunsThatThePoolNoLongerTakesLeaveItsQueue(t *testing.T) {
	for name, change := range map[string]hubv1.UpdatePoolRequest{
		"audience": {Audience: &[]string{"group:ml"}},
		"owner":    {Owner: new("user:alice@example.com")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			ctx := context.Background()
			running, r := w.run(t), w.runner(t, "key-one1")
			w.started(t, r, w.get(t, running.ID))
			waiting := w.run(t)
			_, err := w.s.UpdatePool(ctx, admin, "gpu", 0, change)
			check(t, err)
			if got := w.get(t, waiting.ID); got.State != hubv1.RunCancelled || !strings.Contains(got.Reason, "no longer takes it: pool gpu") {
				t.Errorf("what waited is %s: %s", got.State, got.Reason)
			}
			if got := w.get(t, running.ID); got.State != hubv1.RunRunning {
				t.Errorf("what ran is %s: %s", got.State, got.Reason)
			}
		})
	}
}

func TestAnUpdateNeedsTheRevisionThatItNames(t *testing.T) {
	both(t, testAnUpdateNeedsTheRevisionThatItNames)
}

func testAnUpdateNeedsTheRevisionThatItNames(t *testing.T) {
	w := newWorld(t, 1)
	ctx := context.Background()
	five := int32(5)
	if _, err := w.s.UpdatePool(ctx, admin, "gpu", w.pool.Revision+1, hubv1.UpdatePoolRequest{MaxRunners: &five}); codeOf(err) != hubv1.CodePreconditionFailed {
		t.Fatalf("updated another revision: %v", err)
	}
	pool, err := w.s.UpdatePool(ctx, admin, "gpu", w.pool.Revision, hubv1.UpdatePoolRequest{MaxRunners: &five})
	check(t, err)
	same, err := w.s.UpdatePool(ctx, admin, "gpu", pool.Revision, hubv1.UpdatePoolRequest{MaxRunners: &five})
	check(t, err)
	if pool.MaxRunners != 5 || same.Revision != pool.Revision {
		t.Fatalf("updated to %+v, then %+v", pool, same)
	}
}
