package hub_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hubclient"
)

func TestAWaitingRunnerIsHandedARunAtOnce(t *testing.T) {
	r := serve(t, nil)
	pool, controller := r.pool("gpu", 1)
	r.project("app", pool)
	_, runner := r.enroll(controller, "runner-one")
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	var run hubv1.Run
	for snapshot, err := range runner.RunnerWatch(ctx) {
		check(t, err)
		if snapshot.Run == nil {
			run = r.run("app")
			continue
		}
		if run.State != hubv1.RunHanded || snapshot.Run.RunID != run.ID {
			t.Fatalf("the run is %s, the runner has %+v", run.State, snapshot.Run)
		}
		break
	}
}

// One token cannot take the hub's memory with streams that nobody reads.
func TestTheWatchesOfOneCredentialAreBounded(t *testing.T) {
	r := serve(t, func(o *hub.Options) { o.Rates.Watches = 2 })
	pool, controller := r.pool("gpu", 1)
	r.project("app", pool)
	run := r.run("app")
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	next, stop := iter.Pull2(r.admin.WatchRun(ctx, run.ID))
	defer stop()
	_, err, _ := next()
	check(t, err)
	log, err := r.admin.Logs(ctx, run.ID, 0, true)
	check(t, err)
	defer func() { _ = log.Close() }()
	for what, watch := range map[string]func() error{
		"a run": func() error {
			for _, err := range r.admin.WatchRun(r.ctx(), run.ID) {
				return err
			}
			return nil
		},
		"a log": func() error {
			_, err := r.admin.Logs(r.ctx(), run.ID, 0, true)
			return err
		},
	} {
		p := wantCode(t, watch(), hubv1.CodeTooManyWatches)
		if p.Status != http.StatusTooManyRequests || p.RetryAfterSeconds == 0 || !strings.Contains(p.Detail, "2 watches") || !strings.Contains(p.Remedy, "limits.watches") {
			t.Errorf("%s: %+v", what, p)
		}
	}
	// Others are served, and what ends makes room.
	until(t, controller.PoolWatch(r.ctx(), hubclient.Hello{Instance: "c-1"}), "the pool", func(hubv1.PoolSnapshot) bool { return true })
	must(t)(r.admin.Logs(r.ctx(), run.ID, 0, false))
	must(t)(r.admin.CancelRun(r.ctx(), run.ID))
	must(t)(io.Copy(io.Discard, log))
	for more := true; more; {
		_, _, more = next()
	}
	r.untilRun(run.ID, hubv1.RunCancelled)
}

func TestARunnerWithoutAWatchIsHandedNothing(t *testing.T) {
	r := serve(t, nil)
	pool, controller := r.pool("gpu", 1)
	r.project("app", pool)
	r.enroll(controller, "runner-one")
	if run := r.run("app"); run.State != hubv1.RunQueued {
		t.Fatalf("the run is %s", run.State)
	}
}

func TestTimeWorksWithoutAnybodyAsking(t *testing.T) {
	r := serve(t, nil)
	pool, controller := r.pool("gpu", 3)
	r.project("app", pool)
	_, err := controller.MintRunner(r.ctx(), "never-comes")
	check(t, err)
	_, runner := r.enroll(controller, "goes-silent")
	run := r.run("app")
	until(t, runner.RunnerWatch(r.ctx()), "it has the run", func(s hubv1.RunnerSnapshot) bool { return s.Run != nil })
	check(t, runner.RunStarted(r.ctx(), run.ID, hubv1.StartedRequest{Attempt: 1, StartedAt: r.clock.Now()}))
	// The lease of 45 s and the margin of 5 s.
	r.clock.Step(51 * time.Second)
	again := until(t, r.admin.WatchRun(r.ctx(), run.ID), "it is queued again", func(run hubv1.Run) bool { return run.State == hubv1.RunQueued })
	if again.Attempt != 2 || !strings.Contains(again.Reason, "silent") {
		t.Fatalf("queued again as %+v", again)
	}
	r.clock.Step(15 * time.Minute)
	r.untilPool(pool.ID, "the token has expired", func(p hubv1.Pool) bool { return p.Runners.Starting == 0 })
}

func TestARevokedCredentialSeesThePoolOnceMore(t *testing.T) {
	r := serve(t, nil)
	pool, controller := r.pool("gpu", 3)
	_, runner := r.enroll(controller, "runner-one")
	revoked := make(chan struct{})
	go func() {
		defer close(revoked)
		_, _ = r.admin.RevokePool(r.ctx(), pool.ID)
	}()
	var last hubv1.PoolSnapshot
	var end error
	for snapshot, err := range controller.PoolWatch(r.ctx(), hubclient.Hello{Instance: "c"}) {
		if err != nil {
			end = err
			break
		}
		last = snapshot
	}
	<-revoked
	var p *hubv1.Problem
	if last.Pool.State != hubv1.PoolRevoked && !errors.As(end, &p) || !errors.Is(end, hubclient.ErrUnavailable) && !errors.As(end, &p) {
		t.Fatalf("saw %s last and then %v", last.Pool.State, end)
	}
	_, err := controller.PoolSnapshot(r.ctx())
	wantCode(t, err, hubv1.CodeUnauthenticated)
	for _, err = range runner.RunnerWatch(r.ctx()) {
		break
	}
	wantCode(t, err, hubv1.CodeRunnerRetired)
}

func TestALogIsFollowed(t *testing.T) {
	r := serve(t, nil)
	pool, controller := r.pool("gpu", 3)
	r.project("app", pool)
	_, runner := r.enroll(controller, "runner-one")
	run := r.run("app")
	until(t, runner.RunnerWatch(r.ctx()), "it has the run", func(s hubv1.RunnerSnapshot) bool { return s.Run != nil })
	log, err := r.admin.Logs(r.ctx(), run.ID, 1, true)
	check(t, err)
	defer func() { _ = log.Close() }()
	offset := int64(0)
	var want []byte
	for _, chunk := range [][]byte{[]byte("one\n"), {0, 255, 254}, bytes.Repeat([]byte("x"), 1<<20)} {
		offset, err = runner.AppendLog(r.ctx(), run.ID, offset, chunk)
		check(t, err)
		want = append(want, chunk...)
		// Each chunk arrives before the next is written.
		got := make([]byte, len(chunk))
		if len(want) == len(chunk) {
			got = got[1:]
		}
		if _, err := io.ReadFull(log, got); err != nil || !bytes.HasSuffix(want, got) {
			t.Fatalf("followed %.20q of %.20q: %v", got, chunk, err)
		}
	}
	_, err = runner.AppendLog(r.ctx(), run.ID, offset, bytes.Repeat([]byte("x"), 1<<20+1))
	wantCode(t, err, hubv1.CodeTooLarge)
	check(t, runner.RunResult(r.ctx(), run.ID, hubv1.ResultRequest{Attempt: 1, Error: "boom", FinishedAt: r.clock.Now()}))
	if rest, err := io.ReadAll(log); err != nil || len(rest) != 0 {
		t.Fatalf("after the end: %d bytes, %v", len(rest), err)
	}
	whole, err := r.admin.Logs(r.ctx(), run.ID, 0, false)
	check(t, err)
	if all, err := io.ReadAll(whole); err != nil || !bytes.Equal(all, want) {
		t.Fatalf("the whole log has %d bytes of %d: %v", len(all), len(want), err)
	}
	if ended := r.untilRun(run.ID, hubv1.RunFailed); ended.Reason != "boom" || ended.LogBytes != int64(len(want)) {
		t.Fatalf("ended %+v", ended)
	}
}

func TestOpenWatchesDoNotKeepTheHubFromStopping(t *testing.T) {
	r := serve(t, func(o *hub.Options) { o.DrainTime = patience })
	pool, controller := r.pool("gpu", 3)
	opened, closed := make(chan struct{}), make(chan error)
	go func() {
		first := true
		for _, err := range controller.PoolWatch(r.ctx(), hubclient.Hello{Instance: "c"}) {
			if err != nil {
				closed <- err
				return
			}
			if first {
				close(opened)
				first = false
			}
		}
	}()
	<-opened
	began := time.Now()
	r.stop()
	if took := time.Since(began); took > patience/2 {
		t.Errorf("stopping took %s", took)
	}
	if err := <-closed; !errors.Is(err, hubclient.ErrUnavailable) {
		t.Errorf("the watch ended with %v", err)
	}
	// Everything is there after the restart, the lease of a session included.
	again := serveIn(t, r.dir, nil)
	same, err := again.admin.GetPool(again.ctx(), "gpu")
	check(t, err)
	if same.ID != pool.ID || len(same.Controllers) != 1 || same.Controllers[0].Instance != "c" {
		t.Fatalf("after the restart: %+v", same)
	}
}

func TestOneWhoDoesNotReadHoldsUpNobody(t *testing.T) {
	r := serve(t, nil)
	pool, controller := r.pool("gpu", 100)
	next, stop := pull(controller.PoolWatch(r.ctx(), hubclient.Hello{Instance: "sleeper"}))
	defer stop()
	if _, err := next(); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		_, err := controller.MintRunner(r.ctx(), "runner-"+strings.Repeat("x", i+1))
		check(t, err)
	}
	// When it reads again it catches up, whatever it missed.
	for {
		snapshot, err := next()
		check(t, err)
		if len(snapshot.Runners) == 50 {
			break
		}
	}
	r.untilPool(pool.ID, "all are there", func(p hubv1.Pool) bool { return p.Runners.Starting == 50 })
}

func pull(snapshots func(func(hubv1.PoolSnapshot, error) bool)) (func() (hubv1.PoolSnapshot, error), func()) {
	type item struct {
		snapshot hubv1.PoolSnapshot
		err      error
	}
	items, done := make(chan item), make(chan struct{})
	go func() {
		snapshots(func(s hubv1.PoolSnapshot, err error) bool {
			select {
			case items <- item{s, err}:
				return true
			case <-done:
				return false
			}
		})
	}()
	return func() (hubv1.PoolSnapshot, error) { i := <-items; return i.snapshot, i.err }, func() { close(done) }
}

func TestAControllersOpenWatchIsItsContact(t *testing.T) {
	r := serve(t, nil)
	pool, controller := r.pool("gpu", 1)
	r.project("app", pool)
	run := r.run("app")
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	for _, err := range controller.PoolWatch(ctx, hubclient.Hello{Instance: "c-1", Build: "b1"}) {
		check(t, err)
		r.clock.Step(2 * time.Hour)
		seen, err := r.admin.GetPool(r.ctx(), pool.ID)
		check(t, err)
		if c := seen.Controllers[0]; !c.Connected || !c.LastContact.Equal(r.clock.Now()) {
			t.Errorf("two hours into its watch the contact is %+v at %s", c, r.clock.Now())
		}
		if run, err = r.admin.GetRun(r.ctx(), run.ID); err != nil || strings.Contains(run.Reason, "no controller") {
			t.Errorf("meanwhile a run waits because %q, %v", run.Reason, err)
		}
		break
	}
	closed := r.clock.Now()
	cancel()
	gone := r.untilPool(pool.ID, "its watch is closed", func(p hubv1.Pool) bool { return !p.Controllers[0].Connected })
	if c := gone.Controllers[0]; !c.LastContact.Equal(closed) {
		t.Errorf("after its watch closed at %s the contact is %+v", closed, c)
	}
	until(t, r.admin.WatchRun(r.ctx(), run.ID), "it says so", func(run hubv1.Run) bool { return strings.Contains(run.Reason, "no controller") })
}

// Who follows a log over a restart of the hub must know that there may be more.
func TestALogThatIsFollowedDoesNotEndWithTheHub(t *testing.T) {
	r := serve(t, nil)
	pool, _ := r.pool("gpu", 1)
	r.project("app", pool)
	log, err := r.admin.Logs(r.ctx(), r.run("app").ID, 0, true)
	check(t, err)
	defer func() { _ = log.Close() }()
	ended := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(log)
		ended <- err
	}()
	r.stop()
	if err := <-ended; err == nil {
		t.Error("the log of a run that waits ended as if it were whole")
	}
}

// Thousands of streams wait at a time, and each keeps the stack that its goroutine
// ever needed.
func TestAStreamWaitsWithNothingBelowIt(t *testing.T) {
	r := serve(t, nil)
	_, controller := r.pool("gpu", 1)
	_, runner := r.enroll(controller, "runner-one")
	next, stop := iter.Pull2(runner.RunnerWatch(r.ctx()))
	defer stop()
	if _, err, _ := next(); err != nil {
		t.Fatal(err)
	}
	waiting := ""
	for began := time.Now(); waiting == ""; {
		if time.Since(began) > patience {
			t.Fatal("no stream waits")
		}
		var text strings.Builder
		check(t, pprof.Lookup("goroutine").WriteTo(&text, 2))
		for stack := range strings.SplitSeq(text.String(), "\n\n") {
			if strings.Contains(stack, "hub/api.(*events[") && strings.Contains(stack, ").run(") {
				waiting = stack
			}
		}
	}
	if strings.Contains(waiting, "huma") || strings.Contains(waiting, "hub/store") {
		t.Errorf("a stream waits in\n%s", waiting)
	}
}
