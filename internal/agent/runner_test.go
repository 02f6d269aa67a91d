package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"cloop.dev/cloop/apis/hubv1"
)

// patience is how long a test waits in real time for what takes moments.
const patience = time.Minute

// stubborn is a script that ignores what can be ignored and says so.
const stubborn = `trap 'echo got INT' INT; trap 'echo got TERM' TERM; echo up; while :; do sleep 0.02; done`

func withClock(fake *testclock.FakeClock) func(*Options) {
	return func(o *Options) { o.Clock = fake }
}

// pass moves the fake clock on in small steps, as heartbeats need, until done.
func pass(t *testing.T, fake *testclock.FakeClock, step time.Duration, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("time passed in vain")
		}
		fake.Step(step)
	}
}

func (l *life) over() func() bool {
	return func() bool { return len(l.ended) > 0 }
}

func TestAnIdleRunnerLeaves(t *testing.T) {
	for name, test := range map[string]struct {
		do      func(*life)
		outcome Outcome
		bye     bool
	}{
		"retiring": {func(l *life) { l.hub.update(func() { l.hub.snapshot.State = hubv1.RunnerRetiring }) }, OutcomeRetired, true},
		"retired":  {func(l *life) { l.hub.update(func() { l.hub.snapshot.State = hubv1.RunnerRetired }) }, OutcomeRetired, true},
		"told to":  {func(l *life) { l.stop() }, OutcomeStopped, true},
		"its session is refused": {func(l *life) {
			l.hub.update(func() {
				l.hub.fault = func(string, bool) error { return refused(401, hubv1.CodeUnauthenticated) }
			})
		}, OutcomeRetired, false},
		"retiring, and its watch is broken": {func(l *life) {
			l.hub.update(func() {
				l.hub.fault = func(call string, _ bool) error {
					if call == "watch" {
						return errNetwork
					}
					return nil
				}
				l.hub.snapshot.State = hubv1.RunnerRetiring
			})
		}, OutcomeRetired, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFakeHub()
			h.heartbeat = 0.05
			l := begin(t, h)
			h.await(t, "a heartbeat", func() bool { return h.heartbeats > 0 })
			test.do(l)
			if err := l.end(); err != nil {
				t.Errorf("an idle runner that leaves is no failure: %v", err)
			}
			if got := l.terminationLog(); !strings.Contains(got, `"outcome":"`+string(test.outcome)+`"`) {
				t.Errorf("termination report %s", got)
			}
			if said := h.bye != ""; said != test.bye {
				t.Errorf("bye %q", h.bye)
			}
		})
	}
}

// The hub does not take a session back that it has given up, so nothing would ever
// come of a runner that goes on.
func TestAnIdleRunnerWithoutAHubEndsWithItsLease(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	fake := testclock.NewFakeClock(time.Now())
	l := begin(t, h, withClock(fake))
	// Slowly: a machine that is busy for a moment must not be taken for a lease that is over.
	pass(t, fake, 10*time.Millisecond, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.heartbeats > 0 })
	h.update(func() { h.down = true })
	lost := fake.Now()
	pass(t, fake, 500*time.Millisecond, l.over())
	if err := l.end(); err == nil || !strings.Contains(err.Error(), "no contact with the hub since") {
		t.Errorf("it ended with %v", err)
	}
	// The lease is 60 s with a margin of 10 s, of a heartbeat at most 1 s old.
	if passed := fake.Since(lost); passed < 69*time.Second {
		t.Errorf("it ended after %s, when the hub might still have had work for it", passed)
	}
	if got := l.terminationLog(); !strings.Contains(got, `"outcome":"unreachable"`) {
		t.Errorf("termination report %s", got)
	}
}

func TestARefusedTokenIsTriedOnce(t *testing.T) {
	for name, problem := range map[string]error{
		"expired":  refused(401, hubv1.CodeTokenRefused),
		"redeemed": refused(409, hubv1.CodeTokenRedeemed),
	} {
		t.Run(name, func(t *testing.T) {
			var tries atomic.Int32
			h := newFakeHub()
			h.fault = func(string, bool) error { tries.Add(1); return problem }
			l := begin(t, h)
			if err := l.end(); err == nil {
				t.Error("a refused runner is a success")
			}
			if got := l.terminationLog(); !strings.HasPrefix(got, `{"outcome":"refused","reason":"the hub refused`) || strings.Contains(got, "Canary") || tries.Load() != 1 {
				t.Errorf("%d tries, termination report %s", tries.Load(), got)
			}
		})
	}
}

func TestAnUnreachableHubIsTriedUntilTheTokenHasExpired(t *testing.T) {
	h := newFakeHub()
	h.down = true
	fake := testclock.NewFakeClock(time.Now())
	began := fake.Now()
	l := begin(t, h, withClock(fake))
	pass(t, fake, time.Second, l.over())
	if err := l.end(); err == nil || fake.Since(began) < defaultTokenLife {
		t.Errorf("gave up after %s: %v", fake.Since(began), err)
	}
	if got := l.terminationLog(); !strings.Contains(got, `"outcome":"unreachable"`) {
		t.Errorf("termination report %s", got)
	}
}

func TestAHubThatComesBackEnrollsTheRunner(t *testing.T) {
	h := newFakeHub()
	h.down = true
	l := begin(t, h)
	h.update(func() { h.down = false })
	h.await(t, "enrolled", func() bool { return h.enrolled == 1 })
	l.stop()
	if err := l.end(); err != nil {
		t.Error(err)
	}
}

func TestAPodThatCannotWorkDoesNotSpendItsToken(t *testing.T) {
	h := newFakeHub()
	l := begin(t, h, func(o *Options) { o.Workspace = o.TokenFile })
	if err := l.end(); err == nil || h.enrolled != 0 {
		t.Errorf("%v, enrolled %d times", err, h.enrolled)
	}
}

func TestCancelEscalates(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	h.lease = (10_000 * time.Hour).Seconds()
	fake := testclock.NewFakeClock(time.Now())
	// Each grace is far longer than what passes while the command reacts.
	l := begin(t, h, withClock(fake), func(o *Options) { o.InterruptGrace, o.TerminateGrace = time.Hour, 100*time.Hour })
	l.run(stubborn)
	l.awaitLog("up\n")
	h.update(func() { h.snapshot.Cancel = true })
	pass(t, fake, 10*time.Millisecond, func() bool { return strings.Contains(h.logText(), "got INT") })
	if strings.Contains(h.logText(), "got TERM") {
		t.Fatal("terminated before the grace of the interrupt was over")
	}
	pass(t, fake, time.Minute, func() bool { return strings.Contains(h.logText(), "got TERM") })
	pass(t, fake, 10*time.Hour, l.over())
	if err := l.end(); err != nil {
		t.Error(err)
	}
	if h.result == nil || !h.result.Cancelled || h.result.Signal != "killed" {
		t.Errorf("result %+v", h.result)
	}
}

func TestACancelledCommandMayCleanUp(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	l := begin(t, h)
	l.run(`trap 'echo cleaned; exit 5' INT; echo up; while :; do sleep 0.02; done`)
	l.awaitLog("up\n")
	h.update(func() { h.snapshot.Cancel = true })
	if err := l.end(); err != nil {
		t.Error(err)
	}
	if h.result == nil || !h.result.Cancelled || h.result.ExitCode == nil || *h.result.ExitCode != 5 || h.logText() != "up\ncleaned\n" {
		t.Errorf("result %+v, log %q", h.result, h.logText())
	}
}

func TestARunCancelledBeforeItStartsNeverStarts(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	l := begin(t, h)
	run := l.assignment("sh", "-c", "echo never")
	h.update(func() { h.snapshot.Run, h.snapshot.State, h.snapshot.Cancel = &run, hubv1.RunnerBusy, true })
	if err := l.end(); err != nil {
		t.Error(err)
	}
	if h.result == nil || !h.result.Cancelled || h.started != nil || h.logText() != "" {
		t.Errorf("result %+v, started %v, log %q", h.result, h.started, h.logText())
	}
}

func TestABusyRunnerToldToEndLeavesTheRunToTheHub(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	l := begin(t, h)
	l.run(`trap 'echo interrupted; exit 0' INT; echo up; while :; do sleep 0.02; done`)
	l.awaitLog("up\n")
	l.stop()
	if err := l.end(); err == nil {
		t.Error("an interrupted run is a success")
	}
	if h.result != nil || !strings.Contains(h.bye, "runner terminated") || h.logText() != "up\ninterrupted\n" {
		t.Errorf("result %+v, bye %q, log %q", h.result, h.bye, h.logText())
	}
	if got := l.terminationLog(); !strings.Contains(got, `"outcome":"interrupted"`) {
		t.Errorf("termination report %s", got)
	}
}

// A run dies before the hub may give it to somebody else, and not before.
func TestARunWithoutContactIsFenced(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	fake := testclock.NewFakeClock(time.Now())
	l := begin(t, h, withClock(fake))
	file := filepath.Join(t.TempDir(), "pid")
	l.run(`echo $$ > ` + file + `; ` + stubborn)
	l.awaitLog("up\n")
	command := pidIn(t, file)
	h.update(func() { h.down = true })
	// The lease is 60 s with a margin of 10 s; it was renewed at most a
	// heartbeat, 1 s, before contact was lost.
	lost := fake.Now()
	pass(t, fake, 500*time.Millisecond, func() bool { return fake.Since(lost) >= 48*time.Second })
	if !command.Alive() {
		t.Error("the run was killed before it had to be")
	}
	fake.Step(2500 * time.Millisecond)
	pass(t, fake, time.Millisecond, func() bool { return !command.Alive() })
	if passed := fake.Since(lost); passed > 58*time.Second {
		t.Errorf("the run lived for %s, although the hub may start it elsewhere then", passed)
	}
	pass(t, fake, time.Second, l.over())
	if err := l.end(); err == nil {
		t.Error("a fenced run is a success")
	}
	if got := l.terminationLog(); !strings.Contains(got, `"outcome":"fenced"`) || h.result != nil {
		t.Errorf("termination report %s, result %+v", got, h.result)
	}
}

// Where the whole time passes without the agent getting to run, as in a stop of its
// Pod, the command may have ended long before the fence. What stands still here is
// the supervisor, so that the agent hears of the end only after it has fenced.
func TestAResultFromBeforeTheFenceIsOffered(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	fake := testclock.NewFakeClock(time.Now())
	l := begin(t, h, withClock(fake))
	dir := t.TempDir()
	gate, pids := filepath.Join(dir, "gate"), filepath.Join(dir, "pids")
	l.run(`echo $PPID > ` + pids + `; echo up; while [ ! -e ` + gate + ` ]; do sleep 0.01; done; echo done; exit 3`)
	l.awaitLog("up\n")
	supervisor := pidIn(t, pids)
	if err := supervisor.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = supervisor.Signal(syscall.SIGCONT) }) // or the runner of a failed test would wait for it
	h.update(func() {
		h.fault = func(call string, _ bool) error {
			if call == "heartbeat" {
				return errNetwork
			}
			return nil
		}
	})
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The supervisor may hold the output too, so its end may not show yet.
	pass(t, fake, time.Millisecond, func() bool { return strings.HasSuffix(h.logText(), "done\n") })
	awaitZombie(t, supervisor.PID)
	lost := fake.Now()
	fenced := func() bool { return strings.Contains(l.logged.String(), "stopping the command") }
	pass(t, fake, 500*time.Millisecond, func() bool { return fenced() || fake.Since(lost) > 50*time.Second })
	pass(t, fake, time.Millisecond, fenced)
	if passed := fake.Since(lost); passed > 55*time.Second {
		t.Fatalf("the fence came after %s", passed)
	}
	if err := supervisor.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := l.end(); err != nil {
		t.Error(err)
	}
	if h.result == nil || h.result.ExitCode == nil || *h.result.ExitCode != 3 || h.logText() != "up\ndone\n" {
		t.Errorf("result %+v, log %q", h.result, h.logText())
	}
}

// awaitZombie waits until a child of the process has ended and was not waited for.
func awaitZombie(t *testing.T, parent int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		stats, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range stats {
			stat, _ := os.ReadFile(name) //nolint:gosec // of /proc
			if strings.Contains(string(stat), fmt.Sprintf(") Z %d ", parent)) {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the command does not end")
		}
	}
}

// What a command leaves behind may hold its output for a while. The result is there
// by then, whatever ends the wait.
func TestAResultIsOfferedWhateverEndsTheWaitForItsOutput(t *testing.T) {
	for name, disturb := range map[string]func(*life, *testclock.FakeClock){
		"the Pod is told to end": func(l *life, _ *testclock.FakeClock) { l.stop() },
		"the fence": func(l *life, fake *testclock.FakeClock) {
			l.hub.update(func() {
				l.hub.fault = func(call string, _ bool) error {
					if call == "heartbeat" {
						return errNetwork
					}
					return nil
				}
			})
			lost := fake.Now()
			pass(l.t.(*testing.T), fake, time.Second, func() bool { return fake.Since(lost) > 51*time.Second })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFakeHub()
			fake := testclock.NewFakeClock(time.Now())
			l := begin(t, h, withClock(fake), func(o *Options) { o.DrainGrace = 1000 * time.Hour })
			l.run(`setsid sleep 1000 & echo up; exit 4`)
			awaitText(t, l.logged, "the command has ended")
			disturb(l, fake)
			if err := l.end(); err != nil {
				t.Error(err)
			}
			if h.result == nil || h.result.ExitCode == nil || *h.result.ExitCode != 4 || h.logText() != "up\n" {
				t.Errorf("result %+v, log %q", h.result, h.logText())
			}
		})
	}
}

func TestARunOutlivesAHubThatIsAwayForLessThanTheLease(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	l := begin(t, h)
	gate := filepath.Join(t.TempDir(), "gate")
	l.run(`echo before; while [ ! -e ` + gate + ` ]; do sleep 0.01; done; echo after; exit 6`)
	l.awaitLog("before\n")
	h.update(func() { h.down = true })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	awaitText(t, l.logged, "the command has ended")
	h.update(func() { h.down = false })
	if err := l.end(); err != nil {
		t.Error(err)
	}
	if h.logText() != "before\nafter\n" || h.result == nil || *h.result.ExitCode != 6 {
		t.Errorf("log %q, result %+v", h.logText(), h.result)
	}
}

func awaitText(t *testing.T, buffer *lockedBuffer, text string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(buffer.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q was never logged", text)
		}
	}
}

func TestAResultIsOfferedUntilTheLeaseIsOver(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	fake := testclock.NewFakeClock(time.Now())
	l := begin(t, h, withClock(fake))
	h.fault = func(call string, _ bool) error {
		if call == "result" || call == "heartbeat" {
			return errNetwork
		}
		return nil
	}
	l.run("exit 2")
	awaitText(t, l.logged, "what=\"report the result\"")
	began := fake.Now()
	pass(t, fake, 500*time.Millisecond, l.over())
	if err := l.end(); err == nil {
		t.Error("an undelivered result is a success")
	}
	if took := fake.Since(began); took < 60*time.Second {
		t.Errorf("gave up after %s", took)
	}
	if got := l.terminationLog(); !strings.Contains(got, `"outcome":"fenced"`) || !strings.Contains(got, `"exitCode":2`) {
		t.Errorf("termination report %s", got)
	}
}

func TestAResultWhoseAnswerIsLostIsReportedOnce(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	var lost atomic.Int32
	h.fault = func(call string, after bool) error {
		if call == "result" && after && lost.Add(1) <= 2 {
			return errNetwork
		}
		return nil
	}
	l := begin(t, h)
	l.run("exit 2")
	if err := l.end(); err != nil {
		t.Error(err)
	}
	if h.result == nil || *h.result.ExitCode != 2 || lost.Load() != 3 {
		t.Errorf("result %+v after %d tries", h.result, lost.Load())
	}
}

func TestARunThatIsNotOursAnyMoreDiesAtOnce(t *testing.T) {
	for name, change := range map[string]func(*fakeHub){
		"taken away":    func(h *fakeHub) { h.snapshot.Run, h.snapshot.State = nil, hubv1.RunnerRetiring },
		"started again": func(h *fakeHub) { again := *h.snapshot.Run; again.Attempt = 2; h.snapshot.Run = &again },
		// The watch says nothing of it.
		"heartbeat says so": func(h *fakeHub) { h.snapshot.State = hubv1.RunnerRetiring },
		"session ended": func(h *fakeHub) {
			h.fault = func(string, bool) error { return refused(410, hubv1.CodeRunnerRetired) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFakeHub()
			h.heartbeat = 0.05
			l := begin(t, h)
			file := filepath.Join(t.TempDir(), "pid")
			l.run(`echo $$ > ` + file + `; ` + stubborn)
			l.awaitLog("up\n")
			command := pidIn(t, file)
			h.update(func() { change(h) })
			if err := l.end(); err == nil {
				t.Error("a revoked run is a success")
			}
			if command.Alive() || h.result != nil {
				t.Errorf("alive %v, result %+v", command.Alive(), h.result)
			}
			if got := l.terminationLog(); !strings.Contains(got, `"outcome":"revoked"`) {
				t.Errorf("termination report %s", got)
			}
		})
	}
}

func TestAWorkspaceThatCannotBePreparedFailsTheRunNotTheRunner(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	l := begin(t, h)
	run := l.assignment("true")
	run.Ref = "no-such-branch"
	h.assign(run)
	if err := l.end(); err != nil {
		t.Error(err)
	}
	if h.result == nil || h.result.ExitCode != nil || !strings.Contains(h.result.Error, "no-such-branch") {
		t.Errorf("result %+v", h.result)
	}
}

func TestACommandWhoseSupervisorIsKilledIsReported(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	l := begin(t, h)
	l.run(`echo $$; kill -9 $PPID; sleep 60`)
	if err := l.end(); err != nil {
		t.Error(err)
	}
	// Whatever the supervisor still got to say, the command had started.
	if h.result == nil || !strings.HasPrefix(h.result.Error, "how the command ended is not known: ") || h.result.ExitCode != nil {
		t.Errorf("result %+v", h.result)
	}
}

func TestOptionsFromEnvNamesEveryProblem(t *testing.T) {
	good := map[string]string{
		EnvHubURL: "https://hub:8443", EnvHubCAPin: "sha256:abc", EnvTokenFile: "/t", EnvName: "n", EnvHome: "/h",
		EnvWorkspace: "/w", EnvTmp: "/tmp", EnvTerminationLog: "/l",
	}
	if _, err := OptionsFromEnv(func(name string) string { return good[name] }); err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{EnvHubURL: "http://user:secret@hub", EnvHubCAPin: "md5:x", EnvTokenFile: "relative"}
	_, err := OptionsFromEnv(func(name string) string { return bad[name] })
	for _, name := range []string{EnvHubURL, EnvHubCAPin, EnvTokenFile, EnvName, EnvHome, EnvWorkspace, EnvTmp} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error quotes a password: %v", err)
	}
}

func TestRunFailsWithAReportWhereTheHubCannotBeTalkedTo(t *testing.T) {
	o := testOptions(t)
	o.HubURL = "http://hub"
	if err := Run(t.Context(), o); err == nil {
		t.Error("got no error")
	}
	data, err := os.ReadFile(o.TerminationLog)
	if err != nil || !strings.Contains(string(data), `"outcome":"failed"`) {
		t.Errorf("termination report %s, %v", data, err)
	}
}
