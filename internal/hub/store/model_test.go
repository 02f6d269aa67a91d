package store_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// modelRun is a run as the model has it.
type modelRun struct {
	id       string
	unread   bool
	failover string
	state    hubv1.RunState
	attempt  int32
	handOffs int
	runner   string
}

// modelRunner is a runner that has not left, and the credential that it was made with.
type modelRunner struct {
	store.Runner
	credential store.Credential
	checks     bool
	detach     func()
	// run is the index of the run that it holds; -1: none, and it is idle.
	run int
	// done: it had its run and only has to leave.
	done bool
}

// queueModel says in plain Go what must become of runs: which is handed to whom,
// when, and how it ends. It is the oracle; the store must agree in every state.
type queueModel struct {
	w *world
	// members share the database; who does something is drawn anew each time.
	members []*store.Store
	// credentials that are live, one for each controller.
	credentials []store.Credential
	runs        []*modelRun
	runners     []*modelRunner // in the order in which they enrolled
	cordoned    bool
	keys        int
	ended       map[int]hubv1.RunState
}

// settle hands out what can be: the oldest run first, each to the runner that has
// been idle longest of those that may take it.
func (m *queueModel) settle() {
	if m.cordoned {
		return
	}
	for i, run := range m.runs {
		if run.state != hubv1.RunQueued {
			continue
		}
		for _, r := range m.runners {
			if r.takes(run) {
				r.run, run.state, run.runner = i, hubv1.RunHanded, r.ID
				run.handOffs++
				break
			}
		}
	}
}

// takes says whether a runner may take a run.
func (r *modelRunner) takes(run *modelRun) bool {
	return r.run < 0 && !r.done && (r.checks || !run.unread)
}

// adopt is settle where members share the database: each hands out to the runners that
// listen to it, as it hears of a run, so that which runner it is is for the store to say.
// It is one that may take it, and had no older run to take; and in the end no run waits
// that a runner could take.
func (m *queueModel) adopt(t *rapid.T) {
	for _, s := range m.members {
		check2(t, s.SettleListening(background))
	}
	all, err := m.at(t).ListRuns(background, "app", 1000)
	check2(t, err)
	for i, run := range m.runs {
		got := all[len(all)-1-i]
		if run.state != hubv1.RunQueued || got.State != hubv1.RunHanded {
			continue
		}
		at := slices.IndexFunc(m.runners, func(r *modelRunner) bool { return r.ID == got.Runner && r.takes(run) })
		if m.cordoned || at < 0 {
			t.Fatalf("run %d was handed to %s, which may not take it (cordoned %t)", i, got.Runner, m.cordoned)
		}
		for j, older := range m.runs[:i] {
			if older.state == hubv1.RunQueued && m.runners[at].takes(older) {
				t.Fatalf("run %d was handed to %s before run %d", i, got.Runner, j)
			}
		}
		m.runners[at].run, run.state, run.runner = i, hubv1.RunHanded, got.Runner
		run.handOffs++
	}
	for i, run := range m.runs {
		if run.state == hubv1.RunQueued && !m.cordoned && slices.ContainsFunc(m.runners, func(r *modelRunner) bool { return r.takes(run) }) {
			t.Fatalf("run %d waits, and a runner could take it", i)
		}
	}
}

// at is the member that does what comes next.
func (m *queueModel) at(t *rapid.T) *store.Store {
	if len(m.members) == 1 {
		return m.members[0]
	}
	return m.members[rapid.IntRange(0, len(m.members)-1).Draw(t, "member")]
}

// Rotate mints a credential for one more controller.
func (m *queueModel) Rotate(t *rapid.T) {
	made, err := m.at(t).CreateCredential(background, admin, "", "gpu")
	check2(t, err)
	credential, err := m.at(t).AuthPool(background, made.Secret)
	check2(t, err)
	m.credentials = append(m.credentials, credential)
}

// Revoke ends a credential, with its runners and what they run; another is left.
func (m *queueModel) Revoke(t *rapid.T) {
	if len(m.credentials) < 2 {
		t.Skip("the last one")
	}
	revoked := pick(t, m.credentials, "credential")
	_, err := m.at(t).RevokeCredential(background, admin, "gpu", revoked.ID)
	check2(t, err)
	m.credentials = filter(m.credentials, func(c store.Credential) bool { return c.ID != revoked.ID })
	for _, r := range m.runners {
		if r.credential.ID != revoked.ID {
			continue
		}
		r.detach()
		if r.run >= 0 {
			m.runs[r.run].state = hubv1.RunCancelled
		}
	}
	m.runners = filter(m.runners, func(r *modelRunner) bool { return r.credential.ID != revoked.ID })
}

// ClockIsSet sets the clock: no run is another's, or another state's, for that.
func (m *queueModel) ClockIsSet(t *rapid.T) {
	by := rapid.SampledFrom([]time.Duration{-30 * time.Minute, -5 * time.Second, 5 * time.Second, 30 * time.Minute}).Draw(t, "by")
	m.w.clock.SetTime(m.w.clock.Now().Add(by))
	for _, s := range m.members {
		check2(t, s.KeepTime(background))
	}
}

func (m *queueModel) Start(t *rapid.T) {
	run := &modelRun{
		unread: rapid.Bool().Draw(t, "unread"), failover: rapid.SampledFrom([]string{"once", "never"}).Draw(t, "failover"),
		state: hubv1.RunQueued, attempt: 1,
	}
	source := store.Undemanding("")
	if run.unread {
		source = store.Source{Unknown: "not reached"}
	}
	started, err := m.at(t).StartRun(background, admin, "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}, Failover: run.failover}, source)
	check2(t, err)
	run.id = started.ID
	m.runs = append(m.runs, run)
}

func (m *queueModel) Spawn(t *rapid.T) {
	if m.cordoned {
		t.Skip("no token is minted")
	}
	r := &modelRunner{checks: rapid.Bool().Draw(t, "checks"), run: -1}
	m.keys++
	r.credential = pick(t, m.credentials, "controller")
	minted, err := m.at(t).Mint(background, r.credential, fmt.Sprintf("key-%05d", m.keys))
	check2(t, err)
	var features []string
	if r.checks {
		features = []string{hubv1.FeatureRequirements}
	}
	m.w.clock.Step(time.Millisecond) // no two enroll at once
	enrolled, err := m.at(t).Enroll(background, hubv1.EnrollRequest{Token: minted.Token, Features: features})
	check2(t, err)
	r.Runner, err = m.at(t).AuthRunner(background, enrolled.Session)
	check2(t, err)
	r.detach, err = m.at(t).Attach(background, r.Runner)
	check2(t, err)
	m.runners = append(m.runners, r)
}

func (m *queueModel) Cancel(t *rapid.T) {
	run := pick(t, m.runs, "run")
	_, err := m.at(t).CancelRun(background, admin, run.id)
	check2(t, err)
	switch run.state {
	case hubv1.RunQueued:
		run.state = hubv1.RunCancelled
	case hubv1.RunHanded, hubv1.RunRunning:
		run.state = hubv1.RunCancelling
	}
}

func (m *queueModel) Cordon(t *rapid.T) {
	var err error
	if m.cordoned = !m.cordoned; m.cordoned {
		_, err = m.at(t).Cordon(background, admin, "gpu", "because")
	} else {
		_, err = m.at(t).Uncordon(background, admin, "gpu")
	}
	check2(t, err)
}

// holder is a runner with a run in one of the states.
func (m *queueModel) holder(t *rapid.T, states ...hubv1.RunState) (*modelRunner, *modelRun) {
	r := pick(t, filter(m.runners, func(r *modelRunner) bool { return r.run >= 0 && slices.Contains(states, m.runs[r.run].state) }), "holder")
	return r, m.runs[r.run]
}

func filter[T any](from []T, keep func(T) bool) (out []T) {
	for _, item := range from {
		if keep(item) {
			out = append(out, item)
		}
	}
	return out
}

func (m *queueModel) Started(t *rapid.T) {
	r, run := m.holder(t, hubv1.RunHanded, hubv1.RunRunning)
	check2(t, m.at(t).Started(background, r.Runner, run.id, hubv1.StartedRequest{Attempt: run.attempt, StartedAt: m.w.clock.Now()}))
	run.state = hubv1.RunRunning
}

func (m *queueModel) Result(t *rapid.T) {
	r, run := m.holder(t, hubv1.RunHanded, hubv1.RunRunning, hubv1.RunCancelling)
	exit, stopped := int32(rapid.IntRange(0, 1).Draw(t, "exit")), rapid.Bool().Draw(t, "stopped")
	check2(t, m.at(t).Result(background, r.Runner, run.id, hubv1.ResultRequest{Attempt: run.attempt, ExitCode: &exit, Cancelled: stopped}))
	switch {
	case stopped && run.state == hubv1.RunCancelling:
		run.state = hubv1.RunCancelled
	case exit == 0:
		run.state = hubv1.RunSucceeded
	default:
		run.state = hubv1.RunFailed
	}
	r.run, r.done = -1, true
}

// Kill is a runner whose Pod was seen to end, with a run or without one.
func (m *queueModel) Kill(t *rapid.T) {
	r := pick(t, m.runners, "runner")
	killed := int32(137)
	// Its watch ends before the hub is told, or after.
	late := len(m.members) == 1 && rapid.Bool().Draw(t, "late")
	if !late {
		r.detach()
	}
	for tries := 0; ; tries++ {
		state, err := m.at(t).Gone(background, r.credential, r.ID, hubv1.GoneRequest{Reason: "OOMKilled", ExitCode: &killed})
		check2(t, err)
		if state == hubv1.RunnerRetired || late || len(m.members) == 1 {
			break
		}
		// The member that it listened to tells the others in its own time, and until
		// then it is in contact.
		if tries == 1000 {
			t.Fatalf("runner %s is %s, and listens to nobody any more", r.ID, state)
		}
	}
	if late {
		r.detach()
	}
	m.runners = filter(m.runners, func(other *modelRunner) bool { return other != r })
	if r.run < 0 {
		return
	}
	run := m.runs[r.run]
	again := func(attempt int32) {
		if attempt != run.attempt {
			run.handOffs = 0
		}
		run.state, run.attempt, run.runner = hubv1.RunQueued, attempt, ""
	}
	switch {
	case run.state == hubv1.RunCancelling:
		run.state = hubv1.RunCancelled
	case run.state == hubv1.RunHanded && run.handOffs >= m.w.s.Limits.MaxHandOffs:
		run.state = hubv1.RunFailed
	case run.state == hubv1.RunHanded:
		again(run.attempt)
	case run.failover == "once" && run.attempt == 1:
		again(2)
	default:
		run.state = hubv1.RunLost
	}
}

// Check compares every run, and that what has ended stays as it ended.
func (m *queueModel) Check(t *rapid.T) {
	if len(m.members) > 1 {
		m.adopt(t)
	} else {
		m.settle()
	}
	all, err := m.at(t).ListRuns(background, "app", 1000)
	check2(t, err)
	for i, want := range m.runs {
		got := all[len(all)-1-i] // newest first
		if got.State != want.state || got.Attempt != want.attempt || !want.state.Terminal() && got.Runner != want.runner {
			t.Fatalf("run %d is %s, attempt %d, of runner %q; the model has %+v", i, got.State, got.Attempt, got.Runner, *want)
		}
		if was, over := m.ended[i]; over && was != got.State {
			t.Fatalf("run %d ended as %s and is %s", i, was, got.State)
		}
		if got.State.Terminal() {
			m.ended[i] = got.State
		}
		if got.State != hubv1.RunSucceeded && got.State != hubv1.RunHanded && got.State != hubv1.RunRunning && got.Reason == "" {
			t.Fatalf("run %d is %s and does not say why", i, got.State)
		}
	}
}

func check2(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// modelStories is in which part of rapid's cases: each takes a tenth of a second.
const modelStories = 4

func TestTheQueueAgreesWithItsModel(t *testing.T) { both(t, testTheQueueAgreesWithItsModel) }

func testTheQueueAgreesWithItsModel(t *testing.T) {
	checkOneIn(t, modelStories, func(rt *rapid.T) {
		o, remove := somewhere(rt)
		defer remove()
		w := &world{clock: newClock(), dir: o.Dir}
		var up atomic.Int64
		o.Clock, o.Uptime = w.clock, func() time.Duration { return time.Duration(up.Load()) }
		var err error
		w.s, err = store.Open(background, o)
		check2(rt, err)
		defer func() { _ = w.s.Close() }()
		w.furnish(t, 10000)
		m := &queueModel{w: w, members: []*store.Store{w.s}, credentials: []store.Credential{w.credential}, ended: map[int]hubv1.RunState{}}
		actions := map[string]func(*rapid.T){
			"": m.Check, "start": m.Start, "start again": m.Start, "spawn": m.Spawn, "spawn again": m.Spawn, "cancel": m.Cancel, "cordon": m.Cordon,
			"started": m.Started, "started again": m.Started, "result": m.Result, "kill": m.Kill, "kill again": m.Kill,
			"rotate": m.Rotate, "revoke": m.Revoke, "clock is set": m.ClockIsSet,
		}
		if onPostgres(rt) {
			other, err := store.Open(background, o)
			check2(rt, err)
			defer func() { _ = other.Close() }()
			m.members = append(m.members, other)
			db, err := look(o)
			check2(rt, err)
			defer func() { _ = db.Close() }()
			db.SetMaxOpenConns(1)
			actions["lost connections"] = func(t *rapid.T) {
				loseConnections(t, func(query string) (n int) {
					check2(t, db.QueryRow(query).Scan(&n))
					return n
				})
			}
		}
		rt.Repeat(actions)
	})
}
