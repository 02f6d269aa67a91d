package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/postgrestest"
	"cloop.dev/cloop/internal/secret"
)

// patience bounds what these tests wait for; nothing takes nearly as long.
const patience = time.Minute

// hubs are two members on one PostgreSQL database. The world's own is the first.
type hubs struct {
	*world
	second *store.Store
	url    string
	up     atomic.Int64
}

// twoHubs are for tests about PostgreSQL: with SQLite there is one.
func twoHubs(t *testing.T, maximum int32) *hubs {
	t.Helper()
	postgrestest.Shared(t)
	_, url := newDatabaseFor(t)
	h := &hubs{world: &world{clock: newClock(), dir: t.TempDir()}, url: url}
	h.s, h.second = h.member(t, store.Member{}), h.member(t, store.Member{})
	h.furnish(t, maximum)
	return h
}

func newDatabaseFor(t *testing.T) (name, url string) {
	t.Helper()
	name, url = newDatabase(t)
	t.Cleanup(func() { check(t, postgrestest.Shared(t).Drop(name)) })
	return name, url
}

func (h *hubs) member(t *testing.T, m store.Member) *store.Store {
	t.Helper()
	s, err := store.Open(background, store.Options{URL: h.url, Clock: h.clock, Member: m, Uptime: func() time.Duration { return time.Duration(h.up.Load()) }})
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// passes lets time pass; both members say that they are alive meanwhile.
func (h *hubs) passes(t *testing.T, d time.Duration, members ...*store.Store) {
	t.Helper()
	h.up.Add(int64(d))
	h.clock.Step(d)
	for _, s := range members {
		check(t, s.Beat(background))
	}
}

// woken waits until a subscription is.
func woken(t *testing.T, what string, sub *store.Subscription) {
	t.Helper()
	select {
	case <-sub.C:
	case <-time.After(patience):
		t.Fatalf("not woken: %s", what)
	}
}

// until waits for a wake-up after which what is wanted is there.
func until(t *testing.T, what string, sub *store.Subscription, fits func() bool) {
	t.Helper()
	for !fits() {
		woken(t, what, sub)
	}
}

// About PostgreSQL: a run that is queued at one member is handed to a runner
// that listens to another, and whoever watches either learns of it.
func TestARunReachesARunnerOfAnotherMember(t *testing.T) {
	h := twoHubs(t, 3)
	r := h.runner(t, "key-one1") // it listens to the first
	listens := h.s.Bus.Subscribe(store.RunnerTopic(r.ID))
	defer listens.Close()
	run, err := h.second.StartRun(background, admin, "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Undemanding(""))
	check(t, err)
	watched := h.second.Bus.Subscribe(store.RunTopic(run.ID))
	defer watched.Close()
	until(t, "the runner has the run", listens, func() bool {
		snapshot, err := h.s.RunnerSnapshot(background, r)
		check(t, err)
		return snapshot.Run != nil && snapshot.Run.RunID == run.ID
	})
	state := func() hubv1.RunState {
		now, err := h.second.GetRun(background, run.ID)
		check(t, err)
		return now.State
	}
	until(t, "the second member sees the hand-off", watched, func() bool { return state() == hubv1.RunHanded })
	// And back: a cancellation there reaches the runner here.
	_, err = h.second.CancelRun(background, admin, run.ID)
	check(t, err)
	until(t, "the runner is told to stop", listens, func() bool {
		snapshot, err := h.s.RunnerSnapshot(background, r)
		check(t, err)
		return snapshot.Cancel
	})
}

// About PostgreSQL: runs are handed out in their order, wherever they were
// queued and wherever runners listen.
func TestRunsOfTwoMembersAreHandedOutInOrder(t *testing.T) {
	const runs = 20
	h := twoHubs(t, runs)
	members := []*store.Store{h.s, h.second}
	var want []string
	for i := range runs {
		run, err := members[i%2].StartRun(background, admin, "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Undemanding(""))
		check(t, err)
		want = append(want, run.ID)
	}
	for i := range runs {
		h.s = members[(i/2)%2]
		r := h.runner(t, fmt.Sprintf("key-%04d", i))
		snapshot, err := members[i%2].RunnerSnapshot(background, r)
		check(t, err)
		if snapshot.Run == nil || snapshot.Run.RunID != want[i] {
			t.Fatalf("runner %d got %+v, want %s", i, snapshot.Run, want[i])
		}
	}
}

// About PostgreSQL: the maximum holds over all members.
func TestConcurrentMintsOfTwoMembersStayUnderTheMaximum(t *testing.T) {
	const maximum = 7
	h := twoHubs(t, maximum)
	members := []*store.Store{h.s, h.second}
	var group sync.WaitGroup
	var minted, enrolled atomic.Int32
	for i := range 40 {
		group.Go(func() {
			out, err := members[i%2].Mint(background, h.credential, fmt.Sprintf("key-%04d", i))
			if err != nil {
				if codeOf(err) != hubv1.CodePoolAtMaximum {
					t.Error(err)
				}
				return
			}
			minted.Add(1)
			var twice sync.WaitGroup
			for _, s := range members {
				twice.Go(func() {
					if _, err := s.Enroll(background, hubv1.EnrollRequest{Token: out.Token}); err == nil {
						enrolled.Add(1)
					}
				})
			}
			twice.Wait()
		})
	}
	group.Wait()
	if minted.Load() != maximum || enrolled.Load() != maximum {
		t.Fatalf("%d minted and %d enrolled of at most %d", minted.Load(), enrolled.Load(), maximum)
	}
}

// About PostgreSQL: a controller is in contact wherever its watch is open, until
// that member is dead.
func TestAControllerOfAnotherMemberIsInContact(t *testing.T) {
	h := twoHubs(t, 1)
	h.arrive(t, "c-0") // at the first
	contacts := func() hubv1.ControllerContact {
		t.Helper()
		pool, _, err := h.second.GetPool(background, "gpu")
		check(t, err)
		if len(pool.Controllers) != 1 {
			t.Fatalf("the second member sees %+v", pool.Controllers)
		}
		return pool.Controllers[0]
	}
	h.passes(t, 10*time.Second, h.s, h.second)
	if c := contacts(); !c.Connected {
		t.Fatalf("the second member sees %+v", c)
	}
	// The first stands still, and is taken for dead.
	last := h.clock.Now()
	watched := h.second.Bus.Subscribe(store.PoolTopic(h.pool.ID))
	defer watched.Close()
	h.passes(t, store.Alive-time.Second, h.second)
	if c := contacts(); !c.Connected {
		t.Fatalf("a second too early the second member sees %+v", c)
	}
	h.passes(t, time.Second, h.second)
	if c := contacts(); c.Connected || !c.LastContact.Equal(last) {
		t.Fatalf("without the first, last seen at %s, the second member sees %+v", last, c)
	}
	woken(t, "by the death of a member", watched)
	if all, err := h.second.ListMembers(background); err != nil || len(all) != 1 || all[0].ID != h.second.MemberID() {
		t.Fatalf("left are %+v, %v", all, err)
	}
	// It goes on, and has its controller's watch open all the same.
	check(t, h.s.Beat(background))
	if c := contacts(); !c.Connected {
		t.Fatalf("with the first again the second member sees %+v", c)
	}
	check(t, h.s.Close())
	if c := contacts(); c.Connected {
		t.Fatalf("after the first was stopped the second member sees %+v", c)
	}
}

// About PostgreSQL: a member that is too old for a feature turns it off for all.
func TestFeaturesAreThoseOfAllMembers(t *testing.T) {
	h := twoHubs(t, 1)
	snapshot := func(s *store.Store) []string {
		t.Helper()
		out, err := s.PoolSnapshot(background, h.credential)
		check(t, err)
		return out.Features
	}
	if got := snapshot(h.s); !slices.Contains(got, hubv1.FeatureRunnerGone) {
		t.Fatalf("two members of this build have %v", got)
	}
	old := h.member(t, store.Member{Build: "old", Features: []string{hubv1.FeatureRunnerStates}})
	check(t, h.s.Beat(background))
	for _, s := range []*store.Store{h.s, old} {
		if got := snapshot(s); !slices.Equal(got, []string{hubv1.FeatureRunnerStates}) {
			t.Fatalf("with an old member controllers are told %v", got)
		}
	}
	check(t, old.Close())
	check(t, h.s.Beat(background))
	if got := snapshot(h.s); !slices.Contains(got, hubv1.FeatureRunnerGone) {
		t.Fatalf("without it they are told %v", got)
	}
}

// About PostgreSQL: while a member does not hold pools to what projects ask for,
// no run of such a project is queued that it could hand to any runner; and while
// one does not keep projects' volumes apart, none starts on one.
func TestWhatAnOldMemberCannotHoldIsNotQueued(t *testing.T) {
	h := twoHubs(t, 5)
	_, err := h.s.ApplyDocuments(background, store.Revision{Sync: "fleet"}, []store.PoolDocument{{
		Name: "gpu", Definition: hubv1.PoolDefinition{MaxRunners: 5, Capabilities: map[string]bool{"hypervisor": true}, DeletionPolicy: "Orphan"},
		Source: hubv1.Provenance{Sync: "fleet", Repository: "https://git", Path: "gpu.yaml", Revision: "1"},
	}})
	check(t, err)
	holds := h.holdsOf(t, "app")
	request := hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}
	start := func(source store.Source) error {
		_, err := h.s.StartRun(background, admin, "", request, source)
		return err
	}
	mint := func(key string) error {
		_, err := h.s.MintHolding(background, h.credential, hubv1.MintRequest{Key: key, Holds: holds})
		return err
	}
	check(t, start(asking("hypervisor")))
	check(t, mint("key-one1"))

	old := h.member(t, store.Member{Build: "0.0.7", Features: []string{hubv1.FeatureRunnerStates}})
	// At once, before any member has given a sign of life.
	for name, source := range map[string]store.Source{"asked for": asking("hypervisor"), "not read": {Unknown: "not reached"}} {
		err := start(source)
		var p *hubv1.Problem
		if !errors.As(err, &p) || p.Code != hubv1.CodeMemberTooOld || p.RetryAfterSeconds == 0 || !strings.Contains(p.Detail, "0.0.7") {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, start(store.Undemanding("abc")))
	if err := mint("key-two2"); codeOf(err) != hubv1.CodeHoldsUnknown || !strings.Contains(err.Error(), "0.0.7") {
		t.Errorf("a runner on a project's volume: %v", err)
	}
	must(t)(h.s.Mint(background, h.credential, "key-two2"))

	check(t, old.Close())
	check(t, start(asking("hypervisor")))
	check(t, start(store.Source{Unknown: "not reached"}))
	check(t, mint("key-tre3"))
}

// About PostgreSQL: one member at a time does what one is to do.
func TestADutyIsOneMembersAtATime(t *testing.T) {
	h := twoHubs(t, 1)
	type worker struct {
		s            *store.Store
		began, ended chan struct{}
	}
	workers := []worker{{s: h.s}, {s: h.second}}
	var atWork atomic.Int32
	ctx, cancel := context.WithCancel(background)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for i := range workers {
		w := &workers[i]
		w.began, w.ended = make(chan struct{}, 1), make(chan struct{}, 1)
		registered := make(chan struct{})
		group.Go(func() {
			close(registered)
			w.s.Alone(ctx, "sweep", func(ctx context.Context) {
				if atWork.Add(1) != 1 {
					t.Error("both work")
				}
				w.began <- struct{}{}
				<-ctx.Done()
				atWork.Add(-1)
				w.ended <- struct{}{}
			})
		})
		<-registered
	}
	wait := func(what string, c chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(patience):
			t.Fatal(what)
		}
	}
	beatUntil := func(what string, s *store.Store, c chan struct{}) {
		t.Helper()
		deadline := time.After(patience)
		for {
			check(t, s.Beat(background))
			select {
			case <-c:
				return
			case <-deadline:
				t.Fatal(what)
			default:
			}
		}
	}
	beatUntil("the first does not begin", h.s, workers[0].began)
	h.passes(t, 10*time.Second, h.s, h.second)
	h.passes(t, 10*time.Second, h.s, h.second)
	select {
	case <-workers[1].began:
		t.Fatal("the second works too")
	default:
	}
	// The first stands still: the second takes over within 15 s.
	atWork.Add(-1) // what stands still does not work
	h.passes(t, 12*time.Second, h.second)
	wait("the second does not take over", workers[1].began)
	atWork.Add(1)
	check(t, h.s.Beat(background))
	wait("the first goes on", workers[0].ended)
	// The second is stopped: the first takes over at once.
	check(t, h.second.Close())
	wait("the second goes on", workers[1].ended)
	beatUntil("the first does not begin again", h.s, workers[0].began)
}

// About PostgreSQL: hubs that start together make one schema and one token.
func TestHubsThatStartTogether(t *testing.T) {
	server := postgrestest.Shared(t)
	name := server.NewDatabase(t, "")
	t.Cleanup(func() { check(t, server.Drop(name)) })
	var group sync.WaitGroup
	var tokens atomic.Int32
	for range 4 {
		group.Go(func() {
			s, err := store.Open(background, store.Options{URL: server.URL(name), Clock: newClock()})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.EnsureAdmin(background, func(secret.String) error { tokens.Add(1); return nil }); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if tokens.Load() != 1 {
		t.Fatalf("%d tokens were made", tokens.Load())
	}
}

// About PostgreSQL: a clock that is set is followed once, whoever sees it.
func TestAClockThatIsSetIsFollowedOnce(t *testing.T) {
	h := twoHubs(t, 3)
	run, r := h.run(t), h.runner(t, "key-one1")
	h.started(t, r, h.get(t, run.ID))
	for _, by := range []time.Duration{time.Hour, -2 * time.Hour, 10 * time.Second} {
		h.clock.SetTime(h.clock.Now().Add(by))
		for _, s := range []*store.Store{h.second, h.s, h.second} {
			check(t, s.KeepTime(background))
			at, some, err := s.NextDeadline(background)
			if left := at.Sub(h.clock.Now()); err != nil || !some || left != 50*time.Second {
				t.Fatalf("after the clock was set by %s a member looks again in %s, %v", by, left, err)
			}
			check(t, s.Expire(background))
			if held := h.get(t, run.ID); held.Runner != r.ID {
				t.Fatalf("after the clock was set by %s: %+v", by, held)
			}
		}
		if all, err := h.s.ListMembers(background); err != nil || len(all) != 2 {
			t.Fatalf("after the clock was set by %s there are %+v, %v", by, all, err)
		}
	}
}

// About PostgreSQL: connections that are lost while nothing is asked are made
// again without anybody noticing, and of what is asked meanwhile every answer is
// true.
func TestLostConnections(t *testing.T) {
	h := twoHubs(t, 3)
	server := postgrestest.Shared(t)
	kill := func() {
		if err := server.Do(background, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname <> 'postgres' AND backend_type = 'client backend'"); err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		kill()
		h.run(t)
		kill()
		must(t)(h.s.ListRuns(background, "app", 10))
		kill()
		must(t)(h.s.GetProject(background, "app"))
	}
	answered := make(chan struct{})
	var killer, group sync.WaitGroup
	killer.Go(func() {
		for n := 0; ; n++ {
			if _, more := <-answered; !more {
				return
			}
			if n%5 == 0 {
				kill() // while the others' requests are under way
			}
		}
	})
	var mu sync.Mutex
	acknowledged := map[string]string{} // key → run
	unanswered := 0
	for worker := range 4 {
		s := []*store.Store{h.s, h.second}[worker%2]
		group.Go(func() {
			for i := range 8 {
				key := fmt.Sprintf("%d-%d", worker, i)
				id, tries := "", 0
				for ; id == "" && tries < 1000; tries++ {
					run, err := s.StartRun(background, admin, store.Key(key), hubv1.StartRunRequest{Project: "app", Command: []string{key}}, store.Undemanding(""))
					answered <- struct{}{}
					if err == nil {
						id = run.ID
					} else if trouble := store.Trouble(err); trouble == nil {
						t.Errorf("answered with %v", err)
					}
				}
				mu.Lock()
				acknowledged[key] = id
				unanswered += tries - 1
				mu.Unlock()
			}
		})
	}
	group.Wait()
	close(answered)
	killer.Wait()
	t.Logf("%d answers were errors", unanswered)
	runs, err := h.s.ListRuns(background, "app", 1000)
	check(t, err)
	found := map[string]int{}
	for _, run := range runs {
		if key := run.Command[0]; key != "true" {
			found[key]++
			if acknowledged[key] != run.ID {
				t.Errorf("request %s was answered with run %s, and %s is there", key, acknowledged[key], run.ID)
			}
		}
	}
	if len(found) != len(acknowledged) || len(runs) != len(acknowledged)+3 {
		t.Errorf("%d runs of %d requests are there", len(runs), len(acknowledged))
	}
}

// About PostgreSQL: while the server is away changes are refused with why, and
// it goes on by itself.
func TestAServerThatIsAway(t *testing.T) {
	postgrestest.Shared(t) // says what is missing
	server, err := postgrestest.Start(postgrestest.ServerOptions{})
	check(t, err)
	t.Cleanup(server.Stop)
	var told troubles
	clock := newClock()
	s, err := store.Open(background, store.Options{URL: server.URL("postgres"), Clock: clock, Trouble: told.tell})
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	w := &world{s: s, clock: clock}
	w.furnish(t, 1)
	sub := s.Bus.Subscribe("anything")
	server.Crash()
	_, err = s.StartRun(background, admin, "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Undemanding(""))
	if trouble := store.Trouble(err); trouble == nil || trouble.Code != hubv1.CodeStorageUnavailable && trouble.Code != hubv1.CodeUnavailable {
		t.Errorf("a change is answered with %v", err)
	}
	if _, err = s.ListRuns(background, "app", 10); store.Trouble(err) == nil || store.Trouble(err).Code != hubv1.CodeStorageUnavailable {
		t.Errorf("a question is answered with %v", err)
	}
	if err := s.Ping(background); store.Trouble(err) == nil {
		t.Errorf("it is ready: %v", err)
	}
	check(t, server.Up())
	check(t, s.Ping(background))
	w.run(t)
	woken(t, "what may have been missed", sub)
	clock.Step(time.Minute)
	w.run(t)
	if told := told.all(); len(told) != 2 || told[0] == nil || told[1] != nil {
		t.Errorf("told %v", told)
	}
}

// About PostgreSQL: neither URL nor password is in an error.
func TestADatabaseThatCannotBeOpenedSaysWhatToDo(t *testing.T) {
	server := postgrestest.Shared(t)
	name, url := newDatabaseFor(t)
	check(t, server.Do(background, "CREATE DATABASE "+name+"_latin TEMPLATE template0 ENCODING 'LATIN1'"))
	t.Cleanup(func() { check(t, server.Drop(name+"_latin")) })
	for what, c := range map[string]struct{ url, want string }{
		"no URL":          {"host=x password=hunter2", "not valid"},
		"a broken URL":    {"postgres://u:hunter2@h:port/x", "not valid"},
		"no server":       {"postgres://u:hunter2@127.0.0.1:1/x", "is the server up"},
		"no TLS":          {strings.Replace(server.TCP(name), "sslmode=disable", "sslmode=require", 1), "turn `ssl` on"},
		"no database":     {strings.Replace(server.TCP("nowhere"), "cloop@", "cloop:hunter2@", 1), "createdb"},
		"no user":         {strings.Replace(url, "cloop@", "nobody:hunter2@", 1), "correct the user"},
		"other encoding":  {server.URL(name + "_latin"), "ENCODING 'UTF8'"},
		"no certificates": {"postgres://u:hunter2@h/x?sslmode=verify-full&sslrootcert=/nowhere.pem", "/nowhere.pem"},
	} {
		s, err := store.Open(background, store.Options{URL: c.url, Clock: newClock()})
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), c.url) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v does not say %q, or says too much", what, err, c.want)
		}
	}
	for url, want := range map[string]bool{
		"postgres://u@h/d": false, "postgres://u:p@h/d": true, "postgres://u@h/d?password=p": true, "postgres://u:@h/d": true,
		"postgres://h/d?sslpassword=p": true, "postgres:// u:p@h": true, "host=h password=p": true,
	} {
		if store.HasPassword(url) != want {
			t.Errorf("%s has a password: %v", url, !want)
		}
	}
}

// Each migration of SQLite has its twin for PostgreSQL.
func TestTheSchemasHaveTheSameSteps(t *testing.T) {
	sqlite, err := store.MigrationsOf("sqlite")
	check(t, err)
	postgres, err := store.MigrationsOf("postgres")
	check(t, err)
	if !slices.Equal(sqlite, postgres) {
		t.Errorf("SQLite has %v, PostgreSQL %v", sqlite, postgres)
	}
	numbers := map[string]string{}
	for _, name := range sqlite {
		number, _, _ := strings.Cut(name, "_")
		if other, taken := numbers[number]; taken {
			t.Errorf("%s and %s have the same number", other, name)
		}
		numbers[number] = name
	}
}

// About PostgreSQL, which bounds what a notification holds.
func TestTopicsFitIntoNotifications(t *testing.T) {
	var topics []string
	for i := range 1000 {
		topics = append(topics, store.PoolTopic(fmt.Sprintf("pool_%026d", i)))
	}
	var got []string
	for _, payload := range store.Payloads("member_x", topics...) {
		if len(payload) >= 8000 {
			t.Errorf("a notification has %d bytes", len(payload))
		}
		lines := strings.Split(payload, "\n")
		if lines[0] != "member_x" {
			t.Errorf("it is from %q", lines[0])
		}
		got = append(got, lines[1:]...)
	}
	slices.Sort(got)
	if !slices.Equal(got, topics) {
		t.Errorf("%d of %d topics arrive", len(got), len(topics))
	}
	if none := store.Payloads("member_x"); len(none) != 0 {
		t.Errorf("nothing is told as %q", none)
	}
}

// thatMany are the numbers from 1 on with a mark before each.
func thatMany(mark string, n int) (text string) {
	for i := range n {
		text += mark + strconv.Itoa(i+1)
	}
	return text
}

// About PostgreSQL, which numbers a query's arguments.
func TestArgumentsAreNumbered(t *testing.T) {
	for query, want := range map[string]string{
		"SELECT 1":                      "SELECT 1",
		"a = ? AND b = ?":               "a = $1 AND b = $2",
		"a = '?' AND b = ?":             "a = '?' AND b = $1",
		"a = 'it''s ?' AND b = ?":       "a = 'it''s ?' AND b = $1",
		strings.Repeat("?", 12) + "'?'": "$1$2$3$4$5$6$7$8$9$10$11$12'?'",
		strings.Repeat("?", 101):        thatMany("$", 101),
	} {
		for range 2 {
			if got := store.NumberArguments(query); got != want {
				t.Errorf("%s is %s, want %s", query, got, want)
			}
		}
	}
}

// About PostgreSQL, whose text has no zero byte.
func TestTextMayHoldZeroBytes(t *testing.T) {
	h := twoHubs(t, 1)
	run, r := h.run(t), h.runner(t, "key-one1")
	h.started(t, r, h.get(t, run.ID))
	check(t, h.s.Result(background, r, run.ID, hubv1.ResultRequest{Attempt: 1, Error: "zero \x00 byte"}))
	if got := h.get(t, run.ID); got.Reason != "zero \uFFFD byte" {
		t.Errorf("the reason is %q", got.Reason)
	}
	var problem *hubv1.Problem
	if _, _, err := h.s.GetPool(background, "no\x00where"); !errors.As(err, &problem) {
		t.Errorf("a name with one: %v", err)
	}
}
