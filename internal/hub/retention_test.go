package hub_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/hubclient"
)

func TestWhatIsOverForLongIsRemovedByTheClock(t *testing.T) {
	r := serve(t, func(o *hub.Options) { o.Retention = store.Retention{Logs: 48 * time.Hour, RunsPerProject: -1} })
	pool, controller := r.pool("gpu", 1)
	r.project("app", pool)
	run := r.run("app")
	_, runner := r.enroll(controller, "runner-one")
	until(t, runner.RunnerWatch(r.ctx()), "it has the run", func(s hubv1.RunnerSnapshot) bool { return s.Run != nil })
	check(t, runner.RunStarted(r.ctx(), run.ID, hubv1.StartedRequest{Attempt: 1, StartedAt: r.clock.Now()}))
	must(t)(runner.AppendLog(r.ctx(), run.ID, 0, []byte("hello\n")))
	zero := int32(0)
	check(t, runner.RunResult(r.ctx(), run.ID, hubv1.ResultRequest{Attempt: 1, ExitCode: &zero, FinishedAt: r.clock.Now()}))
	check(t, runner.Bye(r.ctx(), "done"))

	gone := func(holds func() bool) {
		t.Helper()
		// The hub looks once an hour, if it sleeps already when the hour passes.
		for range 5000 {
			if holds() {
				return
			}
			r.clock.Step(time.Hour)
		}
		t.Fatal("it is never removed")
	}
	began := r.clock.Now()
	gone(func() bool {
		log, err := r.admin.Logs(r.ctx(), run.ID, 0, false)
		if errors.Is(err, hubclient.ErrUnavailable) {
			return false // removed while it was read, which is no end of a log
		}
		if err != nil {
			p := wantCode(t, err, hubv1.CodeLogRemoved)
			if !strings.Contains(p.Detail, run.ID) || !strings.Contains(p.Remedy, "retention.logs") {
				t.Errorf("the answer is %+v", p)
			}
			return true
		}
		defer func() { _ = log.Close() }()
		if text, err := io.ReadAll(log); err == nil && string(text) != "hello\n" {
			t.Fatalf("the log is %q", text)
		}
		return false
	})
	if kept := r.clock.Since(began); kept < 48*time.Hour {
		t.Errorf("the log was removed after %s", kept)
	}
	if now, err := r.admin.GetRun(r.ctx(), run.ID); err != nil || now.LogRemovedAt == nil || now.LogBytes != 6 {
		t.Errorf("the run is %+v, %v", now, err)
	}
	r.clock.Step(90 * 24 * time.Hour)
	gone(func() bool {
		_, err := r.admin.GetRun(r.ctx(), run.ID)
		if err != nil {
			wantCode(t, err, hubv1.CodeNotFound)
		}
		return err != nil
	})
}
