package store_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/hub/store/storetest"
	"cloop.dev/cloop/internal/postgrestest"
)

// machine drives a store with everything that people, two controllers, runners
// and time may do, in any order, and checks after each step what must hold in
// every state that the database is ever in.
type machine struct {
	options store.Options
	clock   *testclock.FakeClock
	// up is how long the machine has been up, which nobody sets.
	up atomic.Int64
	s  *store.Store
	// other is a second member on the same database, if there is one; the two
	// change places.
	other *store.Store
	look  looker

	pool        string
	credentials []store.Credential
	tokens      []hubv1.MintResponse
	// redeemed: token → how often it enrolled somebody.
	redeemed map[string]int
	runners  []store.Runner
	// detach: runner id → what ends its watch, and at which member it is.
	detach map[string]watch
	runs   []string
	// settled: run id → how it ended, which may never change.
	settled map[string]string
	// holding: run id → the runner that held it when last looked at.
	holding map[string]string
	// contact: runner id → when it last had a sign that its lease goes on; left
	// are those that cannot be running anything any more.
	contact map[string]time.Time
	left    map[string]bool
	// sessions: runner id → its session. told are those whose controller says that
	// their Pod has ended, and who have not spoken since.
	sessions map[string]string
	told     map[string]bool
	keys     int
	managed  bool
	// said is what Git said last of the pool.
	said string
	// projects: by name; each is bound to the pool.
	projects map[string]hubv1.Project
}

var background = context.Background()

func newMachine(t *rapid.T, o store.Options) *machine {
	m := &machine{
		options: o, clock: newClock(), redeemed: map[string]int{}, settled: map[string]string{}, detach: map[string]watch{},
		holding: map[string]string{}, contact: map[string]time.Time{}, left: map[string]bool{},
		sessions: map[string]string{}, told: map[string]bool{}, projects: map[string]hubv1.Project{},
	}
	m.openStore(t)
	m.ok(t, m.s.Empower(background, admin, access.RoleAdmin))
	m.createPool(t)
	for _, name := range []string{"app", "lib"} {
		project, err := m.s.CreateProject(background, admin, "", hubv1.CreateProjectRequest{Name: name, Remote: "https://git.example.com/" + name})
		m.ok(t, err)
		_, err = m.s.BindProject(background, admin, name, "pool:"+m.pool, store.Undemanding(""))
		m.ok(t, err)
		m.projects[name] = project
	}
	return m
}

func (m *machine) openStore(t *rapid.T) {
	var err error
	m.options.Clock, m.options.Limits = m.clock, store.Limits{Retention: retention}
	m.options.Uptime = func() time.Duration { return time.Duration(m.up.Load()) }
	m.s, err = store.Open(background, m.options)
	m.ok(t, err)
	if m.look.DB == nil {
		m.look, err = look(m.options)
		m.ok(t, err)
		m.look.SetMaxOpenConns(1)
	}
}

func (m *machine) close() {
	_, _ = m.look.Close(), m.s.Close()
	if m.other != nil {
		_ = m.other.Close()
	}
}

// watch is a runner's at a member.
type watch struct {
	at   *store.Store
	stop func()
}

// passes lets time pass.
func (m *machine) passes(d time.Duration) {
	m.up.Add(int64(d))
	m.clock.Step(d)
}

func (m *machine) createPool(t *rapid.T) {
	out, err := m.s.CreatePool(background, admin, "", hubv1.CreatePoolRequest{Name: "gpu", PoolDefinition: hubv1.PoolDefinition{
		MaxRunners: int32(rapid.IntRange(0, 4).Draw(t, "maximum")),
	}})
	m.ok(t, err)
	m.pool, m.managed = out.Pool.ID, false
	second, err := m.s.CreateCredential(background, admin, "", "gpu")
	m.ok(t, err)
	m.credentials = nil
	for _, text := range []string{out.Credential.Secret, second.Secret} {
		c, err := m.s.AuthPool(background, text)
		m.ok(t, err)
		m.credentials = append(m.credentials, c)
	}
}

func (m *machine) ok(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// refusable fails on an error that is no refusal.
func (m *machine) refusable(t *rapid.T, err error) {
	if err != nil && codeOf(err) == "" {
		t.Fatal(err)
	}
}

func (m *machine) count(t *rapid.T, query string, args ...any) int {
	var n int
	m.ok(t, m.look.QueryRow(query, args...).Scan(&n))
	return n
}

func pick[T any](t *rapid.T, from []T, what string) T {
	if len(from) == 0 {
		t.Skip("no " + what)
	}
	return rapid.SampledFrom(from).Draw(t, what)
}

func (m *machine) Mint(t *rapid.T) {
	key := fmt.Sprintf("key-%04d", m.keys)
	if m.keys > 0 && rapid.Bool().Draw(t, "repeat") {
		key = fmt.Sprintf("key-%04d", rapid.IntRange(0, m.keys-1).Draw(t, "key"))
	} else {
		m.keys++
	}
	out, err := m.s.Mint(background, pick(t, m.credentials, "credential"), key)
	m.refusable(t, err)
	if err != nil {
		return
	}
	m.tokens = append(m.tokens, out)
	pool, _, err := m.s.GetPool(background, "gpu")
	m.ok(t, err)
	held := m.count(t, "SELECT COUNT(*) FROM runners WHERE pool_id = ? AND state <> 'retired' AND NOT (state = 'starting' AND token_expires_at <= ?)",
		pool.ID, m.clock.Now().UnixNano())
	// Replacing a token takes no slot, so a lowered maximum does not refuse it.
	fresh := m.count(t, "SELECT COUNT(*) FROM audit WHERE object = ? AND action = 'executor_pool.runner.remint'", out.RunnerID) == 0
	if fresh && held > int(pool.MaxRunners) {
		t.Fatalf("minted runner %d of at most %d", held, pool.MaxRunners)
	}
}

func (m *machine) Enroll(t *rapid.T) {
	token := pick(t, m.tokens, "token")
	out, err := m.s.Enroll(background, hubv1.EnrollRequest{Token: token.Token, Name: "r", Features: m.features(t)})
	m.refusable(t, err)
	if err != nil {
		return
	}
	if m.redeemed[token.Token]++; m.redeemed[token.Token] > 1 {
		t.Fatal("a token was redeemed twice")
	}
	if !m.clock.Now().Before(token.ExpiresAt) {
		t.Fatal("an expired token was redeemed")
	}
	r, err := m.s.AuthRunner(background, out.Session)
	m.ok(t, err)
	m.runners = append(m.runners, r)
	m.contact[r.ID], m.sessions[r.ID] = m.clock.Now(), out.Session
}

// features of a runner: an old build cannot check what a project asks for.
func (m *machine) features(t *rapid.T) []string {
	if rapid.Bool().Draw(t, "old build") {
		return nil
	}
	return []string{hubv1.FeatureRequirements}
}

func (m *machine) Listen(t *rapid.T) {
	r := pick(t, m.runners, "runner")
	if w, is := m.detach[r.ID]; is {
		w.stop()
		delete(m.detach, r.ID)
		return
	}
	if !m.speaks(t, r) {
		t.Skip("it is refused")
	}
	stop, err := m.s.Attach(background, r)
	m.ok(t, err)
	m.detach[r.ID] = watch{m.s, stop}
}

// speaks is what comes before each of a runner's requests.
func (m *machine) speaks(t *rapid.T, r store.Runner) (heard bool) {
	_, err := m.s.AuthRunner(background, m.sessions[r.ID])
	m.refusable(t, err)
	if err == nil {
		delete(m.told, r.ID)
	}
	return err == nil
}

// watched says whether a runner has a watch open at a member that is not taken
// for dead.
func (m *machine) watched(t *rapid.T, id string) bool {
	w, is := m.detach[id]
	if !is {
		return false
	}
	return w.at == m.s || m.count(t, "SELECT COUNT(*) FROM members WHERE id = ? AND seen_at > ?", w.at.MemberID(), m.clock.Now().Add(-store.Alive).UnixNano()) > 0
}

// Lie is a controller that says of a runner in contact that its Pod has ended.
func (m *machine) Lie(t *rapid.T) {
	h := m.holder(t)
	if !m.watched(t, h.ID) {
		t.Skip("its watch is broken")
	}
	m.told[h.ID] = true
	for _, c := range m.credentials {
		_, err := m.s.Gone(background, c, h.ID, hubv1.GoneRequest{Reason: "Completed", ExitCode: new(int32(0))})
		m.refusable(t, err)
	}
}

func (m *machine) StartRun(t *rapid.T) {
	request := hubv1.StartRunRequest{
		Project: rapid.SampledFrom([]string{"app", "lib"}).Draw(t, "project"), Command: []string{"true"}, Failover: rapid.SampledFrom([]string{"", "once", "never"}).Draw(t, "failover"),
		NoWait: rapid.SampledFrom([]bool{false, false, true}).Draw(t, "at once"),
	}
	run, err := m.s.StartRun(background, admin, "", request, rapid.SampledFrom([]store.Source{store.Undemanding(""), store.Undemanding("abc"), {Unknown: "not reached"}}).Draw(t, "source"))
	m.refusable(t, err)
	if err != nil {
		return
	}
	m.runs = append(m.runs, run.ID)
	if request.NoWait && run.State != hubv1.RunHanded {
		t.Fatalf("a run that does not wait is %s", run.State)
	}
}

func (m *machine) Cancel(t *rapid.T) {
	_, err := m.s.CancelRun(background, admin, pick(t, m.runs, "run"))
	m.ok(t, err)
}

// Spawn is a runner that comes up as it should.
func (m *machine) Spawn(t *rapid.T) {
	m.keys++
	c := pick(t, m.credentials, "credential")
	holds := ""
	if name := rapid.SampledFrom([]string{"", "", "app", "lib"}).Draw(t, "holds"); name != "" {
		holds = store.HoldsOf(m.pool, m.projects[name])
	}
	out, err := m.s.MintHolding(background, c, hubv1.MintRequest{Key: fmt.Sprintf("key-%04d", m.keys-1), Holds: holds})
	m.refusable(t, err)
	if err != nil {
		t.Skip("no room")
	}
	m.tokens = append(m.tokens, out)
	enrolled, err := m.s.Enroll(background, hubv1.EnrollRequest{Token: out.Token, Features: m.features(t)})
	m.ok(t, err)
	m.redeemed[out.Token]++
	r, err := m.s.AuthRunner(background, enrolled.Session)
	m.ok(t, err)
	m.runners = append(m.runners, r)
	m.contact[r.ID], m.sessions[r.ID] = m.clock.Now(), enrolled.Session
	stop, err := m.s.Attach(background, r)
	m.ok(t, err)
	m.detach[r.ID] = watch{m.s, stop}
}

// holder is a runner with the run that it holds.
type holder struct {
	store.Runner
	run hubv1.Assignment
}

func (m *machine) holder(t *rapid.T) holder {
	var holders []holder
	for _, r := range m.runners {
		snapshot, err := m.s.RunnerSnapshot(background, r)
		m.ok(t, err)
		if snapshot.Run != nil {
			holders = append(holders, holder{r, *snapshot.Run})
		}
	}
	return pick(t, holders, "runner with a run")
}

func (m *machine) Started(t *rapid.T) {
	h := m.holder(t)
	m.ok(t, m.s.Started(background, h.Runner, h.run.RunID, hubv1.StartedRequest{Attempt: h.run.Attempt, StartedAt: m.clock.Now()}))
	_, err := m.s.AppendLog(background, h.Runner, h.run.RunID, 0, []byte("x"))
	m.refusable(t, err)
}

func (m *machine) Result(t *rapid.T) {
	h := m.holder(t)
	exit := int32(rapid.IntRange(0, 1).Draw(t, "exit"))
	m.ok(t, m.s.Result(background, h.Runner, h.run.RunID,
		hubv1.ResultRequest{Attempt: h.run.Attempt, ExitCode: &exit, Cancelled: rapid.Bool().Draw(t, "cancelled")}))
}

// Kill is a runner that dies with its run.
func (m *machine) Kill(t *rapid.T) {
	h := m.holder(t)
	killed := int32(137)
	m.left[h.ID] = true
	if w, is := m.detach[h.ID]; is {
		delete(m.detach, h.ID)
		if rapid.Bool().Draw(t, "its watch ends last") {
			defer w.stop()
		} else {
			w.stop()
		}
	}
	for _, c := range m.credentials {
		_, err := m.s.Gone(background, c, h.ID, hubv1.GoneRequest{Reason: "OOMKilled", ExitCode: &killed})
		m.refusable(t, err)
	}
}

// Confused is a runner that speaks of a run or an attempt that it does not hold.
func (m *machine) Confused(t *rapid.T) {
	r, run := pick(t, m.runners, "runner"), pick(t, m.runs, "run")
	attempt := int32(rapid.IntRange(1, 2).Draw(t, "attempt"))
	now, err := m.s.GetRun(background, run)
	m.ok(t, err)
	if now.Runner == r.ID && now.Attempt == attempt {
		t.Skip("it holds it")
	}
	exit := int32(0)
	errs := []error{
		m.s.Started(background, r, run, hubv1.StartedRequest{Attempt: attempt, StartedAt: m.clock.Now()}),
		m.s.Result(background, r, run, hubv1.ResultRequest{Attempt: attempt, ExitCode: &exit}),
	}
	for _, err := range errs {
		m.refusable(t, err)
		if err == nil {
			t.Fatalf("runner %s was believed about attempt %d of run %s, which %s holds", r.ID, attempt, run, now.Runner)
		}
	}
}

func (m *machine) Heartbeat(t *rapid.T) {
	r := pick(t, m.runners, "runner")
	if !m.speaks(t, r) {
		return
	}
	state, err := m.s.Heartbeat(background, r)
	m.refusable(t, err)
	// A retiring runner stops what it runs, but it may take its time.
	if err == nil && state != hubv1.RunnerRetiring {
		m.contact[r.ID] = m.clock.Now()
	}
}

func (m *machine) Bye(t *rapid.T) {
	r := pick(t, m.runners, "runner")
	m.left[r.ID] = true
	m.ok(t, m.s.Bye(background, r, ""))
}

func (m *machine) Retire(t *rapid.T) {
	id := pick(t, m.tokens, "token").RunnerID
	before := m.count(t, "SELECT COUNT(*) FROM runners WHERE id = ? AND state = 'busy'", id)
	for _, c := range m.credentials {
		_, err := m.s.Retire(background, c, id)
		m.refusable(t, err)
	}
	if after := m.count(t, "SELECT COUNT(*) FROM runners WHERE id = ? AND state = 'busy'", id); after != before {
		t.Fatal("a busy runner was retired")
	}
}

func (m *machine) Gone(t *rapid.T) {
	id := pick(t, m.tokens, "token").RunnerID
	for _, c := range m.credentials {
		_, err := m.s.Gone(background, c, id, hubv1.GoneRequest{Reason: "Error"})
		m.refusable(t, err)
	}
}

func (m *machine) Cordon(t *rapid.T) {
	var err error
	if rapid.Bool().Draw(t, "cordon") {
		_, err = m.s.Cordon(background, admin, "gpu", "because")
	} else {
		_, err = m.s.Uncordon(background, admin, "gpu")
	}
	m.refusable(t, err)
}

func (m *machine) Resize(t *rapid.T) {
	maximum := int32(rapid.IntRange(0, 4).Draw(t, "maximum"))
	_, err := m.s.UpdatePool(background, admin, "gpu", 0, hubv1.UpdatePoolRequest{MaxRunners: &maximum})
	m.refusable(t, err)
}

// Override sets aside what Git says of the pool, or takes that back.
func (m *machine) Override(t *rapid.T) {
	over := store.Overriding{Reason: "because", For: rapid.SampledFrom([]time.Duration{time.Second, time.Hour, hubv1.MaxOverride}).Draw(t, "for")}
	var err error
	switch rapid.IntRange(0, 3).Draw(t, "what") {
	case 0:
		_, err = m.s.EndOverride(background, admin, "gpu")
	case 1:
		_, err = m.s.OverrideCordon(background, admin, "gpu", over)
	default:
		maximum := int32(rapid.IntRange(0, 4).Draw(t, "maximum"))
		_, err = m.s.OverridePool(background, admin, "gpu", 0, hubv1.UpdatePoolRequest{MaxRunners: &maximum}, over)
	}
	m.refusable(t, err)
}

// checkOverride: a pool is otherwise than Git said last only while an override says
// so, and no longer than that.
func (m *machine) checkOverride(t *rapid.T) {
	pool, _, err := m.s.GetPool(background, "gpu")
	m.ok(t, err)
	switch over := pool.Override; {
	case pool.State == hubv1.PoolRevoked || pool.Source == nil:
		if over != nil {
			t.Fatalf("a pool that is %s and managed by %+v is overridden", pool.State, pool.Source)
		}
	case over == nil && asJSON(pool.PoolDefinition) != m.said:
		t.Fatalf("the pool is %+v, and Git says %s", pool.PoolDefinition, m.said)
	case over != nil && asJSON(over.Git) != m.said:
		t.Fatalf("the pool is to be %+v again, and Git says %s", over.Git, m.said)
	}
}

func asJSON(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// Git takes the pool over, or removes it with the policy Revoke.
func (m *machine) Git(t *rapid.T) {
	var documents []store.PoolDocument
	if !m.managed || rapid.Bool().Draw(t, "keep") {
		documents = []store.PoolDocument{{
			Name: "gpu", Definition: hubv1.PoolDefinition{MaxRunners: int32(rapid.IntRange(0, 4).Draw(t, "maximum")), DeletionPolicy: "Revoke"},
			Source: hubv1.Provenance{Sync: "fleet", Repository: "https://git", Path: "gpu.yaml", Revision: fmt.Sprint(m.keys)},
		}}
		if rapid.Bool().Draw(t, "cordoned") {
			documents[0].CordonReason = new("by Git")
		}
		m.managed = true
	}
	applied, err := m.s.ApplyDocuments(background, store.Revision{Sync: "fleet"}, documents)
	m.ok(t, err)
	if len(documents) > 0 && len(applied.Waiting)+len(applied.Revoked) == 0 {
		m.said = asJSON(documents[0].Definition)
	}
}

func (m *machine) Revoke(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "seldom") > 0 {
		t.Skip("seldom")
	}
	_, err := m.s.RevokePool(background, admin, "gpu")
	m.ok(t, err)
}

// Rotate mints a credential, and FinishRotation ends all others: without force it
// may stop nothing.
func (m *machine) Rotate(t *rapid.T) {
	made, err := m.s.CreateCredential(background, admin, "", "gpu")
	m.refusable(t, err)
	if err != nil {
		return
	}
	c, err := m.s.AuthPool(background, made.Secret)
	m.ok(t, err)
	m.credentials = append(m.credentials, c)
}

func (m *machine) FinishRotation(t *rapid.T) {
	force := rapid.IntRange(0, 4).Draw(t, "force") == 0
	busy := func() int { return m.count(t, "SELECT COUNT(*) FROM runners WHERE state = 'busy'") }
	before := busy()
	_, err := m.s.FinishRotation(background, admin, "", "gpu", hubv1.FinishRotationRequest{Force: force})
	m.refusable(t, err)
	if after := busy(); !force && after < before {
		t.Fatalf("finishing a rotation stopped %d runs", before-after)
	}
}

func (m *machine) RevokeCredential(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "seldom") > 0 {
		t.Skip("seldom")
	}
	_, err := m.s.RevokeCredential(background, admin, "gpu", pick(t, m.credentials, "credential").ID)
	m.refusable(t, err)
}

func (m *machine) Recreate(t *rapid.T) {
	if m.count(t, "SELECT COUNT(*) FROM pools WHERE state = 'revoked'") == 0 {
		t.Skip("the pool lives")
	}
	id := m.pool
	m.createPool(t)
	if m.pool != id {
		t.Fatal("the pool came back with another id")
	}
}

func (m *machine) TimePasses(t *rapid.T) {
	steps := []time.Duration{time.Second, m.s.Limits.Margin, m.s.Limits.Lease / 2, m.s.Limits.StartTimeout, m.s.Limits.IdleRetire, retention.Runs}
	m.passes(rapid.SampledFrom(steps).Draw(t, "step"))
	if rapid.Bool().Draw(t, "timer") {
		m.expire(t)
	}
}

func (m *machine) expire(t *rapid.T) {
	m.ok(t, m.s.Expire(background))
	if at, some, err := m.s.NextDeadline(background); err != nil || some && !at.After(m.clock.Now()) {
		t.Fatalf("after Expire something is still due at %v (%v)", at, err)
	}
}

// ClockIsSet sets the clock, which leases and deadlines follow.
func (m *machine) ClockIsSet(t *rapid.T) {
	by := rapid.SampledFrom([]time.Duration{-30 * time.Minute, -5 * time.Second, 5 * time.Second, 30 * time.Minute}).Draw(t, "by")
	m.clock.SetTime(m.clock.Now().Add(by))
	for id, at := range m.contact {
		m.contact[id] = at.Add(by)
	}
	for i := range m.tokens {
		m.tokens[i].ExpiresAt = m.tokens[i].ExpiresAt.Add(by)
	}
	m.ok(t, m.s.KeepTime(background))
}

// Restart ends a hub between two transactions, told to or by a crash.
func (m *machine) Restart(t *rapid.T) {
	if rapid.Bool().Draw(t, "crash") {
		m.s.Vanish()
	} else {
		m.ok(t, m.s.Close())
	}
	maps.DeleteFunc(m.detach, func(_ string, w watch) bool { return w.at == m.s })
	m.openStore(t)
}

// consistent is what must hold of the rows of any database, whatever happened.
func consistent(t interface{ Fatalf(string, ...any) }, count func(query string) int) {
	none := func(what, query string) {
		if n := count(query); n != 0 {
			t.Fatalf("%d %s", n, what)
		}
	}
	none("runs are held by a runner that is not busy", `SELECT COUNT(*) FROM runs u JOIN runners r ON r.id = u.runner_id
		WHERE u.state IN ('handed', 'running', 'cancelling') AND r.state <> 'busy'`)
	none("busy runners do not hold exactly one run", `SELECT COUNT(*) FROM runners r WHERE r.state = 'busy' AND
		(SELECT COUNT(*) FROM runs u WHERE u.runner_id = r.id AND u.state IN ('handed', 'running', 'cancelling')) <> 1`)
	none("runners got more than one run", `SELECT COUNT(*) FROM (SELECT object FROM audit WHERE action = 'executor_pool.runner.busy' GROUP BY object HAVING COUNT(*) > 1) AS twice`)
	none("settled runs do not say why", `SELECT COUNT(*) FROM runs WHERE settled_at IS NOT NULL AND state <> 'succeeded' AND reason = ''`)
	none("runners have another state than the audit trail says", `SELECT COUNT(*) FROM runners r WHERE r.state <>
		(SELECT a.state FROM audit a WHERE a.object = r.id ORDER BY a.id DESC LIMIT 1)`)
	none("pools have another state than the audit trail says", `SELECT COUNT(*) FROM pools p WHERE p.state <>
		(SELECT a.state FROM audit a WHERE a.object = p.id ORDER BY a.id DESC LIMIT 1)`)
	none("credentials have another state than the audit trail says", `SELECT COUNT(*) FROM credentials c WHERE
		CASE WHEN c.revoked_at IS NULL THEN 'live' ELSE 'revoked' END <> (SELECT a.state FROM audit a WHERE a.object = c.id ORDER BY a.id DESC LIMIT 1)`)
	none("draining pools have nothing left to drain", `SELECT COUNT(*) FROM pools p WHERE p.state = 'draining' AND
		NOT EXISTS (SELECT 1 FROM runners r WHERE r.pool_id = p.id AND r.state <> 'retired')`)
	none("runs wait for a pool that is going", `SELECT COUNT(*) FROM runs u JOIN pools p ON p.id = u.pool_id WHERE u.state = 'queued' AND p.state <> 'active'`)
	none("revoked pools have live runners or credentials", `SELECT COUNT(*) FROM pools p WHERE p.state = 'revoked' AND
		(EXISTS (SELECT 1 FROM runners r WHERE r.pool_id = p.id AND r.state <> 'retired') OR
		 EXISTS (SELECT 1 FROM credentials c WHERE c.pool_id = p.id AND c.revoked_at IS NULL))`)
	none("runners outlive their credential", `SELECT COUNT(*) FROM runners r JOIN credentials c ON c.id = r.credential_id
		WHERE c.revoked_at IS NOT NULL AND r.state <> 'retired'`)
	none("runs are on another project's volume", `SELECT COUNT(*) FROM runs u JOIN runners r ON r.id = u.runner_id
		WHERE r.holds <> '' AND r.holds_project <> u.project_id`)
	none("runs have come back from a runner more or less often than they were handed out", `SELECT COUNT(*) FROM runs u WHERE
		(SELECT COUNT(*) FROM run_attempts t WHERE t.run_id = u.id AND t.attempt = u.attempt) <>
		u.hand_offs - CASE WHEN u.handed_at IS NULL THEN 0 ELSE 1 END`)
	none("overrides have no end, or an end has no override", "SELECT COUNT(*) FROM pools WHERE (override IS NULL) <> (override_until IS NULL)")
	none("overrides are of pools that are not Git's, or are going", "SELECT COUNT(*) FROM pools WHERE override IS NOT NULL AND (source IS NULL OR state <> 'active')")
	none("runs have come back from a runner that goes on", `SELECT COUNT(*) FROM run_attempts t JOIN runners r ON r.id = t.runner_id WHERE r.state <> 'retired'`)
}

// Check is what must hold at any time.
func (m *machine) Check(t *rapid.T) {
	consistent(t, func(query string) int { return m.count(t, query) })
	for _, s := range []*store.Store{m.s, m.other} {
		if s != nil {
			m.ok(t, s.SettleListening(background)) // as it does when it hears of a change
		}
	}
	m.checkHandOff(t)
	m.checkSettled(t)
	m.checkFence(t)
	m.checkOverride(t)
}

// checkHandOff: no run waits while a runner that listens and may take it is idle.
func (m *machine) checkHandOff(t *rapid.T) {
	pool, _, err := m.s.GetPool(background, "gpu")
	m.ok(t, err)
	if pool.State != hubv1.PoolActive || pool.Cordon != nil || pool.Queued == 0 {
		return
	}
	for id := range m.detach {
		if m.count(t, `SELECT COUNT(*) FROM runners r WHERE id = ? AND state = 'idle' AND EXISTS
			(SELECT 1 FROM runs u WHERE u.state = 'queued' AND u.pool_id = r.pool_id AND (r.holds = '' OR u.project_id = r.holds_project)
			AND (r.checks <> 0 OR u.requirements IS NOT NULL))`, id) > 0 {
			t.Fatalf("a run waits and runner %s listens idly", id)
		}
	}
}

// checkSettled: a settled run never becomes unsettled nor another.
func (m *machine) checkSettled(t *rapid.T) {
	for _, id := range m.runs {
		run, err := m.s.GetRun(background, id)
		m.ok(t, err)
		if !run.State.Terminal() {
			if was := m.settled[id]; was != "" {
				t.Fatalf("run %s was settled as %s and is %s", id, was, run.State)
			}
			continue
		}
		// How its runner's Pod ended may come behind why it ended, once.
		now := fmt.Sprintf("%s %v %v %s %q", run.State, run.SettledAt, run.ExitCode != nil, run.Runner, run.Reason)
		if was := strings.TrimSuffix(m.settled[id], `"`); was != "" && (!strings.HasPrefix(now, was) || len(now) > len(was)+1 && run.PodEnd == nil) {
			t.Fatalf("run %s was settled as %s and is %s", id, was, now)
		}
		m.settled[id] = now
	}
}

// end lets time pass with nobody in contact and then revokes the pool: every
// run must have ended.
func (m *machine) end(t *rapid.T) {
	for range 4 {
		at, some, err := m.s.NextDeadline(background)
		m.ok(t, err)
		if !some {
			break
		}
		if wait := at.Sub(m.clock.Now()); wait > 0 {
			m.passes(wait + time.Hour)
		}
		m.expire(t)
		m.Check(t)
	}
	if n := m.count(t, "SELECT COUNT(*) FROM runners WHERE state <> 'retired'"); n > 0 {
		t.Fatalf("%d runners outlive everything", n)
	}
	_, err := m.s.RevokePool(background, admin, "gpu")
	m.ok(t, err)
	m.Check(t)
	if n := m.count(t, "SELECT COUNT(*) FROM runs WHERE settled_at IS NULL"); n > 0 {
		t.Fatalf("%d runs never end", n)
	}
}

func TestInvariantsHoldInAnyOrder(t *testing.T) { both(t, testInvariantsHoldInAnyOrder) }

func testInvariantsHoldInAnyOrder(t *testing.T) {
	checkOften(t, func(t *rapid.T) {
		o, remove := somewhere(t)
		defer remove()
		m := newMachine(t, o)
		defer func() { m.close() }()
		t.Repeat(m.actions())
		m.end(t)
	})
}

// actions are all that may happen.
func (m *machine) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"": m.Check, "mint": m.Mint, "enroll": m.Enroll, "listen": m.Listen, "start": m.StartRun, "cancel": m.Cancel,
		"started": m.Started, "result": m.Result, "kill": m.Kill, "confused": m.Confused, "lie": m.Lie, "spawn": m.Spawn, "heartbeat": m.Heartbeat, "bye": m.Bye,
		"retire": m.Retire, "gone": m.Gone, "cordon": m.Cordon, "resize": m.Resize, "git": m.Git, "override": m.Override, "revoke": m.Revoke,
		"rotate": m.Rotate, "finish rotation": m.FinishRotation, "revoke credential": m.RevokeCredential,
		"recreate": m.Recreate, "time": m.TimePasses, "clock": m.ClockIsSet, "restart": m.Restart, "prune": m.Prune,
		// Twice, so that runs reach runners often.
		"spawn again": m.Spawn, "start again": m.StartRun, "started again": m.Started,
	}
}

// somewhere is an empty database, until it is removed.
func somewhere(t *rapid.T) (o store.Options, remove func()) {
	if onPostgres(t) {
		name, url := newDatabase(t)
		return store.Options{URL: url}, func() { _ = postgrestest.Shared(t).Drop(name) }
	}
	// Thousands of commits: waiting for a disk would show nothing more.
	memory := "/dev/shm"
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		memory = ""
	}
	dir, err := os.MkdirTemp(memory, "hub-invariants-")
	if err != nil {
		t.Fatal(err)
	}
	storetest.Prepare(t, dir)
	return store.Options{Dir: dir}, func() { _ = os.RemoveAll(dir) }
}

// checkOften checks a property as often as rapid is told to, and on PostgreSQL a
// quarter as often: a statement there is a message to a server, and the order
// of changes is the same.
func checkOften(t *testing.T, property func(*rapid.T)) { checkOneIn(t, 1, property) }

// checkOneIn is checkOften for one in so many of rapid's cases.
func checkOneIn(t *testing.T, part int, property func(*rapid.T)) {
	checks := flag.Lookup("rapid.checks").Value
	was := checks.String()
	if onPostgres(t) {
		part *= 4
	}
	if n, err := strconv.Atoi(was); err == nil {
		check(t, checks.Set(strconv.Itoa(max(1, n/part))))
		defer func() { check(t, checks.Set(was)) }()
	}
	rapid.Check(t, property)
}

// About PostgreSQL: the same holds over two members that share a database,
// whichever does what, whatever connection is lost and whoever is taken for
// dead.
func TestInvariantsHoldOverTwoMembers(t *testing.T) {
	postgrestest.Shared(t)
	t.Run("postgres", func(t *testing.T) {
		checkOften(t, func(t *rapid.T) {
			o, remove := somewhere(t)
			defer remove()
			m := newMachine(t, o)
			defer func() { m.close() }()
			m.other = m.s
			m.openStore(t)
			actions := m.actions()
			actions["signs of life"], actions["lost connections"] = m.Beat, m.LoseConnections
			for name, do := range actions {
				if name == "" {
					continue
				}
				actions[name] = func(t *rapid.T) {
					if rapid.Bool().Draw(t, "at the other") {
						m.s, m.other = m.other, m.s
					}
					do(t)
				}
			}
			t.Repeat(actions)
			m.end(t)
		})
	})
}

// Beat is a sign of life of one member. After a long time without one the other
// is taken for dead, and comes back with its own.
func (m *machine) Beat(t *rapid.T) {
	m.ok(t, m.s.Beat(background))
	if m.count(t, "SELECT COUNT(*) FROM members WHERE id = ?", m.s.MemberID()) != 1 {
		t.Fatal("a member that gave a sign of life is none")
	}
}

// LoseConnections ends every connection that the members have.
func (m *machine) LoseConnections(t *rapid.T) {
	loseConnections(t, func(query string) int { return m.count(t, query) })
}

// loseConnections ends every connection but the one that counts.
func loseConnections(t *rapid.T, count func(query string) int) {
	// On a busy machine one may take longer to end than the server waits for it;
	// what is asked of it meanwhile would break off.
	for range 10 {
		left := count(`SELECT COUNT(*) FROM (SELECT pg_terminate_backend(pid, 5000) AS ended FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()) AS all_of_them WHERE NOT ended`)
		if left == 0 {
			return
		}
	}
	t.Fatal("connections do not end")
}
