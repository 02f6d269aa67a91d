package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/cli"
)

func settledRun(state hubv1.RunState, change func(*hubv1.Run)) hubv1.Run {
	queued := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ended := queued.Add(1500 * time.Millisecond)
	run := hubv1.Run{
		ID: "run-1", Project: "app", Command: []string{"make", "test it"}, State: state, Attempt: 1,
		StartedBy: "admin", QueuedAt: queued, SettledAt: &ended,
	}
	if change != nil {
		change(&run)
	}
	return run
}

func code(n int32) func(*hubv1.Run) { return func(r *hubv1.Run) { r.ExitCode = &n } }

func TestRunWaitExitsAsTheRunDid(t *testing.T) {
	for name, test := range map[string]struct {
		run  hubv1.Run
		code int
	}{
		"succeeded":        {settledRun(hubv1.RunSucceeded, code(0)), 0},
		"failed":           {settledRun(hubv1.RunFailed, code(3)), 3},
		"killed":           {settledRun(hubv1.RunFailed, func(r *hubv1.Run) { r.Signal = "killed" }), 137},
		"never started":    {settledRun(hubv1.RunFailed, func(r *hubv1.Run) { r.Reason = "clone: no such commit" }), 1},
		"lost":             {settledRun(hubv1.RunLost, nil), 1},
		"cancelled":        {settledRun(hubv1.RunCancelled, nil), 1},
		"cancelled with 0": {settledRun(hubv1.RunCancelled, code(0)), 1},
	} {
		t.Run(name, func(t *testing.T) {
			queued := settledRun(hubv1.RunQueued, func(r *hubv1.Run) { r.SettledAt = nil })
			stubHub(t, map[string]any{"GET /api/v1/runs/run-1/watch": events(queued, test.run)})
			if got := cloop(t, "run", "wait", "run-1"); got.code != test.code {
				t.Errorf("exit code %d, want %d: %s%s", got.code, test.code, got.stdout, got.stderr)
			}
		})
	}
}

func TestRunStartWaitShowsTheLogAndExitsAsTheRunDid(t *testing.T) {
	answers := map[string]any{
		"POST /api/v1/runs":            hubv1.Run{ID: "run-1", State: hubv1.RunQueued, Reason: "pool_capacity"},
		"GET /api/v1/runs/run-1/watch": events(settledRun(hubv1.RunFailed, code(7))),
		"GET /api/v1/runs/run-1/logs": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			_, _ = fmt.Fprint(w, "hello\n")
		}),
	}
	seen := stubHub(t, answers)
	cloop(t, "run", "start", "--project", "app", "--ref", "v1", "--wait", "--", "make", "-j", "2").want(t, 7, "hello\n",
		"run run-1 is queued: pool_capacity\nrun run-1 failed\n")
	if want := `POST /api/v1/runs {"project":"app","ref":"v1","command":["make","-j","2"]}`; (*seen)[0] != want {
		t.Errorf("the hub got %q, want %q", (*seen)[0], want)
	}
	got := cloop(t, "run", "start", "--project", "app", "--wait", "-o", "json", "--", "make")
	if got.code != 7 || !strings.HasPrefix(got.stdout, "{\n") || !strings.Contains(got.stderr, "hello\n") {
		t.Errorf("with -o json: exit code %d, stdout %s, stderr %s", got.code, got.stdout, got.stderr)
	}
}

func TestRunStartNowOrNotAtAll(t *testing.T) {
	seen := stubHub(t, map[string]any{"POST /api/v1/runs": &hubv1.Problem{
		Status: http.StatusConflict, Code: hubv1.CodeWaitingForCapacity,
		Detail: "a run of project app would wait: pool gpu is cordoned: node upgrades", Remedy: "let it wait",
	}})
	cloop(t, "run", "start", "--project", "app", "--no-wait-for-capacity", "--wait", "--", "make").want(t, 1, "",
		"cloop: start a run of project app: a run of project app would wait: pool gpu is cordoned: node upgrades: let it wait\n")
	if want := `POST /api/v1/runs {"project":"app","command":["make"],"noWaitForCapacity":true}`; (*seen)[0] != want {
		t.Errorf("the hub got %q, want %q", (*seen)[0], want)
	}
}

// Somebody whose hub died before it answered can repeat the command without a
// second run.
func TestRunStartWithoutAnAnswerTellsTheKey(t *testing.T) {
	keys := map[string]bool{}
	stubHub(t, map[string]any{"POST /api/v1/runs": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		keys[r.Header.Get("Idempotency-Key")] = true
		panic(http.ErrAbortHandler)
	})})
	got := cloop(t, "run", "start", "--project", "app", "--", "make")
	_, told, _ := strings.Cut(got.stderr, "--idempotency-key ")
	told, _, _ = strings.Cut(told, " ")
	if got.code != 2 || len(keys) != 1 || !keys[told] || !strings.Contains(got.stderr, "`cloop run list --project app` shows it") {
		t.Errorf("exit code %d, it told the key %q, the hub was given %v: %s", got.code, told, keys, got.stderr)
	}
}

func TestLogGoesOnWhereAConnectionBroke(t *testing.T) {
	var tries atomic.Int32
	stubHub(t, map[string]any{
		"GET /api/v1/runs/run-1/logs": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			switch tries.Add(1) {
			case 1:
				_, _ = fmt.Fprint(w, "one\n")
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			case 2:
				w.WriteHeader(http.StatusServiceUnavailable)
			default:
				_, _ = fmt.Fprintf(w, "from %s\n", r.URL.Query().Get("offset"))
			}
		}),
	})
	for _, args := range [][]string{{"run", "logs", "--follow", "run-1"}, {"run", "logs", "run-1"}} {
		tries.Store(0)
		got := cloop(t, args...)
		if got.code != 0 || got.stdout != "one\nfrom 4\n" {
			t.Errorf("%v: exit code %d, stdout %q, stderr %s", args, got.code, got.stdout, got.stderr)
		}
		if n := strings.Count(got.stderr, "trying again in"); n != 2 {
			t.Errorf("%v: it said %d times that it tries again: %s", args, n, got.stderr)
		}
	}
}

func TestALogThatCannotBeReadIsNotWaitedForWithoutEnd(t *testing.T) {
	var tries atomic.Int32
	stubHub(t, map[string]any{
		"GET /api/v1/runs/run-1/logs": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if tries.Add(1) > 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			_, _ = fmt.Fprint(w, "one\n")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}),
		"GET /api/v1/runs/run-2/logs": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}),
	})
	got := cloop(t, "run", "logs", "run-1")
	if got.code != 2 || got.stdout != "one\n" || !strings.Contains(got.stderr, "breaks off behind byte 4") || tries.Load() != 6 {
		t.Errorf("%d tries, exit code %d, stdout %q, stderr %s", tries.Load(), got.code, got.stdout, got.stderr)
	}
	if got := cloop(t, "run", "logs", "run-2"); got.code != 2 || strings.Contains(got.stderr, "trying again") {
		t.Errorf("exit code %d, stderr %s", got.code, got.stderr)
	}
}

func TestRunWaitGivesUpAfterItsTimeout(t *testing.T) {
	stubHub(t, map[string]any{"GET /api/v1/runs/run-1/watch": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})})
	cloop(t, "run", "wait", "--timeout", "50ms", "run-1").want(t, 2, "", "cloop: run run-1 has not ended within 50ms\n")
}

func TestRunList(t *testing.T) {
	seen := stubHub(t, map[string]any{"GET /api/v1/runs": hubv1.RunList{Items: []hubv1.Run{
		settledRun(hubv1.RunFailed, func(r *hubv1.Run) { code(2)(r); r.QueuedAt = time.Now().Add(-49 * time.Hour) }),
	}}})
	cloop(t, "run", "list", "--project", "app", "--limit", "5").want(t, 0, ""+
		"RUN     PROJECT   STATE    EXIT   COMMIT   AGE   COMMAND\n"+
		"run-1   app       failed   2      -        2d    make 'test it'\n", "")
	if want := "GET /api/v1/runs?limit=5&project=app"; (*seen)[0] != want {
		t.Errorf("the hub got %q, want %q", (*seen)[0], want)
	}
}

func TestRunShow(t *testing.T) {
	stubHub(t, map[string]any{"GET /api/v1/runs/run-1": settledRun(hubv1.RunSucceeded, code(0))})
	cloop(t, "run", "show", "run-1").want(t, 0, ""+
		"Run:          run-1\n"+
		"Project:      app\n"+
		"Pool:         -\n"+
		"Command:      make 'test it'\n"+
		"State:        succeeded\n"+
		"Exit:         0\n"+
		"Commit:       -\n"+
		"Attempt:      1\n"+
		"Runner:       -\n"+
		"Started by:   admin\n"+
		"Queued:       2026-01-02T03:04:05Z\n"+
		"Settled:      2026-01-02T03:04:06Z (after 1.5s)\n", "")
	again := settledRun(hubv1.RunSucceeded, func(r *hubv1.Run) {
		at, began := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), time.Date(2026, 1, 2, 3, 4, 1, 0, time.UTC)
		r.Attempt, r.Runner = 2, "runner-3"
		r.Earlier = []hubv1.RunAttempt{
			{Attempt: 1, Runner: "runner-1", HandedAt: at, EndedAt: at, Reason: "the runner left"},
			{Attempt: 1, Runner: "runner-2", HandedAt: at, StartedAt: &began, EndedAt: began, Reason: "silent for 50s; the runner's Pod ended: NodeLost", PodEnd: &hubv1.PodEnd{Reason: "NodeLost"}},
		}
	})
	stubHub(t, map[string]any{"GET /api/v1/runs/run-1": again})
	if got := cloop(t, "run", "show", "run-1"); !strings.Contains(got.stdout, ""+
		"Attempt:      2\n"+
		"Before:       attempt 1 on runner runner-1, handed out 2026-01-02T03:04:00Z, not started, ended 2026-01-02T03:04:00Z: the runner left\n"+
		"Before:       attempt 1 on runner runner-2, handed out 2026-01-02T03:04:00Z, started 2026-01-02T03:04:01Z, ended 2026-01-02T03:04:01Z: silent for 50s; the runner's Pod ended: NodeLost\n"+
		"Runner:       runner-3\n") {
		t.Errorf("of a run that came back it shows\n%s", got.stdout)
	}
	if got := cloop(t, "run", "show", "run-1", "-o", "json"); !strings.Contains(got.stdout, `"earlier": [`) || !strings.Contains(got.stdout, `"reason": "NodeLost"`) {
		t.Errorf("as JSON it is\n%s", got.stdout)
	}
	cloop(t, "run", "show", "run-2").want(t, 2, "", "cloop: show run run-2: there is no /api/v1/runs/run-2\n")
}

// A run whose start nobody answered may be queued: it is asked for again with the
// same key.
func TestAStartWhoseAnswerIsLostIsRepeated(t *testing.T) {
	var keys []string
	stubHub(t, map[string]any{"POST /api/v1/runs": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if keys = append(keys, r.Header.Get("Idempotency-Key")); len(keys) < 3 {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write([]byte(`{"id":"run-1","state":"queued"}`))
	})})
	got := cloop(t, "run", "start", "--project", "app", "--", "make")
	if got.code != 0 || len(keys) != 3 || keys[0] == "" || keys[1] != keys[0] || keys[2] != keys[0] {
		t.Errorf("with the keys %q it exits with %d: %s", keys, got.code, got.stderr)
	}
}

// An interrupt ends the waiting and not the run, and says how to go on.
func TestAnInterruptLeavesTheRunAlone(t *testing.T) {
	rest := "cloop: interrupted: run run-1 goes on: follow it with `cloop run logs --follow run-1`, or stop it with `cloop run cancel run-1`\n"
	for name, test := range map[string]struct {
		args []string
		// at is the call during which the interrupt comes.
		at, stderr string
	}{
		"while the log is followed": {
			[]string{"run", "start", "--project", "app", "--wait", "--", "make"},
			"GET /api/v1/runs/run-1/logs", "run run-1 is queued\n" + rest,
		},
		"while the end is waited for": {[]string{"run", "wait", "run-1"}, "GET /api/v1/runs/run-1/watch", rest},
		"while somebody's log is followed": {
			[]string{"run", "logs", "--follow", "run-1"}, "GET /api/v1/runs/run-1/logs", rest,
		},
		"before the hub has answered": {
			[]string{"run", "start", "--project", "app", "--wait", "--", "make"}, "POST /api/v1/runs",
			"cloop: interrupted: the hub has not answered, so the run may be queued all the same: `cloop run list --project app` shows it\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, interrupt := context.WithCancelCause(t.Context())
			hang := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					w.Header().Set("Content-Type", "text/event-stream")
					w.(http.Flusher).Flush()
				}
				interrupt(errors.New("interrupt signal received")) // as package os/signal has it
				<-r.Context().Done()
			})
			answers := map[string]any{"POST /api/v1/runs": hubv1.Run{ID: "run-1", State: hubv1.RunQueued}}
			answers[test.at] = hang
			seen := stubHub(t, answers)
			var stdout, stderr bytes.Buffer
			code := cli.Main(ctx, test.args, strings.NewReader(""), &stdout, &stderr)
			result{code, stdout.String(), stderr.String()}.want(t, 2, "", test.stderr)
			for _, call := range *seen {
				if strings.Contains(call, "/cancel") {
					t.Errorf("the hub got %s", call)
				}
			}
		})
	}
}

func TestALogThatWasRemovedIsSaidToBe(t *testing.T) {
	removed := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	stubHub(t, map[string]any{
		"GET /api/v1/runs/run-1": settledRun(hubv1.RunSucceeded, func(r *hubv1.Run) { r.LogRemovedAt = &removed }),
		"GET /api/v1/runs/run-1/logs": &hubv1.Problem{
			Status: http.StatusGone, Code: hubv1.CodeLogRemoved, Detail: "the log of run run-1 was removed", Remedy: "run it again",
		},
	})
	for _, args := range [][]string{{"run", "logs", "run-1"}, {"run", "logs", "-f", "run-1"}} {
		cloop(t, args...).want(t, 1, "", "cloop: read the log of run run-1: the log of run run-1 was removed: run it again\n")
	}
	if got := cloop(t, "run", "show", "run-1"); !strings.Contains(got.stdout, "Log:          removed at 2026-02-03T04:05:06Z\n") {
		t.Errorf("shown as\n%s", got.stdout)
	}
}

func TestRunCancel(t *testing.T) {
	stubHub(t, map[string]any{"POST /api/v1/runs/run-1/cancel": settledRun(hubv1.RunCancelling, nil)})
	cloop(t, "run", "cancel", "run-1").want(t, 0, "Run run-1 is cancelling.\n", "")
}

func TestProjects(t *testing.T) {
	app := hubv1.Project{ID: "j1", Name: "app", Remote: "https://git.example.com/app.git", DefaultRef: "main", ExecutorID: "pool:p1", CreatedAt: time.Now().Add(-5 * time.Second)}
	seen := stubHub(t, map[string]any{
		"POST /api/v1/projects":              app,
		"GET /api/v1/projects":               hubv1.ProjectList{Items: []hubv1.Project{app}},
		"GET /api/v1/pools/gpu":              gpu(),
		"GET /api/v1/pools/p1":               gpu(),
		"POST /api/v1/projects/app/executor": app,
	})
	cloop(t, "project", "create", "app", "--remote", app.Remote).want(t, 0,
		"Created project app. Bind it to a pool with `cloop project bind app POOL`.\n", "")
	cloop(t, "project", "bind", "app", "gpu").want(t, 0, "Project app runs on pool gpu.\n", "")
	cloop(t, "project", "bind", "app", "pool:p1").want(t, 0, "Project app runs on pool gpu.\n", "")
	cloop(t, "project", "list").want(t, 0, ""+
		"NAME   REMOTE                            REF    POOL   AGE\n"+
		"app    https://git.example.com/app.git   main   gpu    5s\n", "")
	want := []string{
		`POST /api/v1/projects {"name":"app","remote":"https://git.example.com/app.git"}`,
		"GET /api/v1/pools/gpu",
		`POST /api/v1/projects/app/executor {"executorId":"pool:p1"}`,
		"GET /api/v1/pools/p1",
		`POST /api/v1/projects/app/executor {"executorId":"pool:p1"}`,
		"GET /api/v1/pools/p1",
		"GET /api/v1/projects",
		"GET /api/v1/pools/p1",
	}
	if strings.Join(*seen, "\n") != strings.Join(want, "\n") {
		t.Errorf("the hub got\n%s\nwant\n%s", strings.Join(*seen, "\n"), strings.Join(want, "\n"))
	}
}

// An id means nothing to a person; where the hub does not tell the name it is
// better than nothing.
func TestPoolsAreNamed(t *testing.T) {
	app := hubv1.Project{ID: "j1", Name: "app", ExecutorID: "pool:p1"}
	other := hubv1.Project{ID: "j2", Name: "other", ExecutorID: "pool:gone"}
	bound := settledRun(hubv1.RunSucceeded, func(r *hubv1.Run) { r.PoolID = "p1" })
	seen := stubHub(t, map[string]any{
		"GET /api/v1/projects":         hubv1.ProjectList{Items: []hubv1.Project{app, app, other, {Name: "free"}}},
		"GET /api/v1/projects/app":     app,
		"GET /api/v1/pools/p1":         gpu(),
		"GET /api/v1/runs/run-1":       bound,
		"GET /api/v1/runs/run-1/watch": events(bound),
	})
	for _, test := range []struct {
		args []string
		says []string
	}{
		{[]string{"project", "list"}, []string{"   gpu ", "   pool:gone ", "   -  "}},
		{[]string{"project", "show", "app"}, []string{"Pool:          gpu\n", "Binding:       pool:p1\n"}},
		{[]string{"run", "show", "run-1"}, []string{"Pool:         gpu\n"}},
		{[]string{"run", "wait", "run-1"}, []string{"Pool:         gpu\n"}},
	} {
		got := cloop(t, test.args...)
		for _, text := range test.says {
			if !strings.Contains(got.stdout, text) {
				t.Errorf("%v prints\n%s%s, which lacks %q", test.args, got.stdout, got.stderr, text)
			}
		}
	}
	if asked := strings.Count(strings.Join(*seen, "\n"), "GET /api/v1/pools/p1"); asked != 4 {
		t.Errorf("the hub was asked %d times for four commands", asked)
	}
}

func TestRunStartRefusesWhatIsNotUTF8(t *testing.T) {
	stubHub(t, map[string]any{"POST /api/v1/runs": hubv1.Run{ID: "run-1", State: hubv1.RunQueued}})
	got := cloop(t, "run", "start", "--project", "app", "--", "echo", "a\xff")
	if got.code != 2 || !strings.Contains(got.stderr, "word 2 of the command") {
		t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
}

func TestRunListShowsTheBeginningOfALongCommand(t *testing.T) {
	stubHub(t, map[string]any{"GET /api/v1/runs": hubv1.RunList{Items: []hubv1.Run{settledRun(hubv1.RunSucceeded, func(r *hubv1.Run) {
		r.Command = []string{"sh", "-c", "one\ntwo\x1b[31m" + strings.Repeat("a", 1<<20)}
	})}}})
	got := cloop(t, "run", "list")
	if got.code != 0 || len(got.stdout) > 400 || strings.Contains(got.stdout, "\x1b") || strings.Count(got.stdout, "\n") != 2 {
		t.Errorf("exit code %d, %d bytes: %.300q", got.code, len(got.stdout), got.stdout)
	}
}

func TestProjectShowSaysWhatItAsksForAndWhyItsRunsWait(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	project := hubv1.Project{
		ID: "project-1", Name: "app", Remote: "https://git.example.com/app.git", DefaultRef: "main", CreatedAt: at,
		Requirements: &hubv1.ProjectRequirements{
			Commit: "0123456789abcdef0123456789abcdef01234567", At: at,
			Requirements: hubv1.Requirements{Capabilities: map[string]bool{"hypervisor": true}, Labels: map[string]string{"gpu": "true"}},
		},
		Paused:  &hubv1.Paused{Reason: hubv1.PausedForCapacity, Runs: 2, Message: "waits for a runner of pool gpu"},
		Dropped: &hubv1.Dropped{Run: "run-1", Reason: "project app was bound to another pool", At: at},
	}
	stubHub(t, map[string]any{"GET /api/v1/projects/app": &project})
	got := cloop(t, "project", "show", "app")
	for _, want := range []string{
		"hypervisor: true, gpu=true (at 0123456789ab)", "pool_capacity: 2 runs are waiting; waits for a runner of pool gpu",
		"run run-1 at 2026-05-04T03:02:01Z: project app was bound to another pool",
	} {
		if got.code != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("exit code %d, without %q: %s%s", got.code, want, got.stdout, got.stderr)
		}
	}
	project.Requirements = &hubv1.ProjectRequirements{Unknown: "the server is away", At: at}
	if got := cloop(t, "project", "show", "app"); !strings.Contains(got.stdout, "not known to the hub, so its runners check: the server is away") {
		t.Errorf("what is not known shows as %s", got.stdout)
	}
}
