package supervisor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloop.dev/cloop/internal/agent/supervisor"
	"cloop.dev/cloop/internal/process"
)

func start(t *testing.T) *supervisor.Supervisor {
	t.Helper()
	s, err := supervisor.Start([]string{"PATH=" + os.Getenv("PATH")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func sh(t *testing.T, s *supervisor.Supervisor, script string) supervisor.Started {
	t.Helper()
	started, err := s.Exec(t.Context(), supervisor.Command{
		Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Dir: t.TempDir(), Env: []string{"PATH=" + os.Getenv("PATH")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return started
}

func all(t *testing.T, s *supervisor.Supervisor) string {
	t.Helper()
	data, err := io.ReadAll(s.Output())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestHowACommandEnds(t *testing.T) {
	for script, want := range map[string]supervisor.Exit{
		"true":         {},
		"exit 7":       {Code: 7},
		"kill -9 $$":   {Code: -1, Signal: syscall.SIGKILL},
		"kill -TERM 0": {Code: -1, Signal: syscall.SIGTERM},
	} {
		t.Run(script, func(t *testing.T) {
			s := start(t)
			sh(t, s, script)
			if got := <-s.Exited(); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestWhatCannotBeExecuted(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]syscall.Errno{"/no/such": syscall.ENOENT, plain: syscall.EACCES, dir: syscall.EACCES} {
		_, err := start(t).Exec(t.Context(), supervisor.Command{Path: path, Argv: []string{path}, Dir: dir})
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
	}
}

func TestBothStreamsKeepTheirOrder(t *testing.T) {
	s := start(t)
	sh(t, s, `i=0; while [ $i -lt 500 ]; do echo $i; echo $((i+1)) >&2; i=$((i+2)); done`)
	var want strings.Builder
	for i := range 500 {
		fmt.Fprintln(&want, i)
	}
	if got := all(t, s); got != want.String() {
		t.Errorf("the records are out of order or incomplete: %d bytes of %d", len(got), want.Len())
	}
}

func TestTheCommandInheritsNothing(t *testing.T) {
	s := start(t)
	sh(t, s, `ls -l /proc/self/fd | wc -l; ps -o sid= -p $$ 2>/dev/null; grep SigIgn /proc/self/status; trap - INT; env | grep -c . `)
	got := all(t, s)
	// A header, the three streams and the directory that ls itself reads.
	if !strings.HasPrefix(got, "5\n") || ignored(t, got)&^reservedSignals != 0 {
		t.Errorf("the command inherited descriptors or ignored signals:\n%s", got)
	}
}

// reservedSignals are 32 and 33, as bits of SigIgn. The C library keeps them for
// itself and lets no program set them (nptl(7)); make leaves them ignored in
// what it starts, these tests included.
const reservedSignals = 1<<31 | 1<<32

// ignored is the set of ignored signals in the text of /proc/PID/status.
func ignored(t *testing.T, status string) uint64 {
	t.Helper()
	_, after, found := strings.Cut(status, "SigIgn:")
	fields := strings.Fields(after)
	if !found || len(fields) == 0 {
		t.Fatalf("there is no SigIgn in %q", status)
	}
	set, err := strconv.ParseUint(fields[0], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// escape leaves its session, its parent and its environment, and ignores every
// signal that can be ignored.
const escape = `(trap '' INT TERM HUP; setsid env -i /bin/sh -c 'trap "" INT TERM HUP; echo $$ > %s; while :; do sleep 0.05; done' >/dev/null 2>&1 &) `

func TestKillFindsWhatEscaped(t *testing.T) {
	s := start(t)
	file := filepath.Join(t.TempDir(), "pid")
	sh(t, s, fmt.Sprintf(escape, file)+fmt.Sprintf("; while [ ! -s %s ]; do sleep 0.01; done", file))
	<-s.Exited()
	escaped := identify(t, file)
	if !escaped.Alive() {
		t.Fatal("the escaped process is not alive before the kill")
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if escaped.Alive() {
		t.Error("the escaped process survived")
	}
}

func TestKillOutrunsAForkLoop(t *testing.T) {
	s := start(t)
	// Thirty-two generations at most, so that a failing test ends by itself.
	sh(t, s, `f() { [ $1 -gt 0 ] && { (f $(($1-1))) & sleep 30; }; }; f 32 & f 32 & f 32 & echo up; wait`)
	buffer := make([]byte, 3)
	if _, err := io.ReadFull(s.Output(), buffer); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	all(t, s) // ends only when nobody holds the pipe
}

func TestNothingOutlivesTheAgent(t *testing.T) {
	s := start(t)
	file := filepath.Join(t.TempDir(), "pid")
	started := sh(t, s, fmt.Sprintf(escape, file)+"; sleep 60")
	leader, err := process.Identify(started.PID)
	if err != nil {
		t.Fatal(err)
	}
	escaped := identify(t, file)
	if err := s.Close(); err != nil { // what the kernel does when the agent dies
		t.Fatal(err)
	}
	if leader.Alive() || escaped.Alive() {
		t.Errorf("alive after the end of the socket: leader %v, escaped %v", leader.Alive(), escaped.Alive())
	}
}

func TestAKilledSupervisorIsNoticed(t *testing.T) {
	s := start(t)
	gate := filepath.Join(t.TempDir(), "gate")
	started := sh(t, s, `sleep 60 & while [ ! -e `+gate+` ]; do sleep 0.01; done; kill -9 $PPID; sleep 60`)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	exit := <-s.Exited()
	if !errors.Is(exit.Err, supervisor.ErrDied) {
		t.Errorf("got %+v, want ErrDied", exit)
	}
	all(t, s) // ends only when nobody holds the pipe
	if err := s.Kill(); !errors.Is(err, supervisor.ErrDied) {
		t.Errorf("Kill of pid %d: got %v, want ErrDied", started.PID, err)
	}
}

// A command may kill its supervisor before that has said that the command started.
func TestWhatADyingSupervisorSaidOfTheStart(t *testing.T) {
	for name, test := range map[string]struct {
		said []string
		want error
		pid  int
	}{
		"nothing":               {nil, supervisor.ErrDied, 0},
		"that it starts it":     {[]string{`{"event":"starting","at":"2026-11-30T12:00:00Z"}`}, nil, 0},
		"that it has":           {[]string{`{"event":"starting"}`, `{"event":"started","pid":999999999,"at":"2026-11-30T12:00:00Z"}`}, nil, 999999999},
		"that it could not":     {[]string{`{"event":"starting"}`, `{"event":"refused","errno":2}`}, syscall.ENOENT, 0},
		"that it came too late": {[]string{`{"event":"refused","lapsed":true}`}, supervisor.ErrLapsed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := supervisor.Scripted(t, test.said...)
			started, err := s.Exec(t.Context(), supervisor.Command{Path: "/bin/true"})
			if !errors.Is(err, test.want) || started.PID != test.pid || err == nil && started.At.IsZero() {
				t.Errorf("it started as %+v, %v", started, err)
			}
			if exit := <-s.Exited(); !errors.Is(exit.Err, supervisor.ErrDied) {
				t.Errorf("it ended with %+v", exit)
			}
		})
	}
}

// Whoever decides what a command's end is worth must know whether it was made to.
func TestWhetherACommandWasMadeToEnd(t *testing.T) {
	s := start(t)
	sh(t, s, "sleep 1000")
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if exit := <-s.Exited(); !exit.Killed || exit.Signal != syscall.SIGKILL {
		t.Errorf("killed, it ended with %+v", exit)
	}
	s = start(t)
	sh(t, s, "kill -9 $$")
	all(t, s)
	if exit := <-s.Exited(); exit.Killed || exit.Signal != syscall.SIGKILL {
		t.Errorf("by itself, it ended with %+v", exit)
	}
}

func TestExecGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := start(t)
	_, err := s.Exec(ctx, supervisor.Command{Path: "/bin/true", Argv: []string{"true"}, Dir: "/"})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func identify(t *testing.T, file string) process.Identity {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		data, err := os.ReadFile(file)
		if pid, convErr := strconv.Atoi(string(bytes.TrimSpace(data))); err == nil && convErr == nil {
			identity, err := process.Identify(pid)
			if err != nil {
				t.Fatal(err)
			}
			return identity
		}
	}
	t.Fatalf("%s never got a pid", file)
	return process.Identity{}
}

func BenchmarkExec(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		s, err := supervisor.Start(nil)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := s.Exec(b.Context(), supervisor.Command{Path: "/bin/true", Argv: []string{"true"}, Dir: "/"}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		_ = s.Close()
		b.StartTimer()
	}
}

// leased starts a command that only its lease ends. What left the session ends
// too: the output ends when the last process that holds it is gone.
func leased(t *testing.T, s *supervisor.Supervisor, deadline supervisor.Instant) (supervisor.Started, error) {
	t.Helper()
	return s.Exec(t.Context(), supervisor.Command{
		Path: "/bin/sh", Argv: []string{"sh", "-c", "setsid sleep 1000 & wait"}, Dir: t.TempDir(),
		Env: []string{"PATH=" + os.Getenv("PATH")}, Deadline: deadline,
	})
}

func TestACommandEndsWithItsLease(t *testing.T) {
	// A machine that is too busy to start and renew within the lease gets a longer one.
	for unit := 100 * time.Millisecond; ; unit *= 4 {
		lived, exit := livesOnItsLease(t, unit)
		if errors.Is(exit.Err, supervisor.ErrLapsed) && lived >= 8*unit {
			return
		}
		if !errors.Is(exit.Err, supervisor.ErrLapsed) || unit > time.Second {
			t.Fatalf("ended after %s with %+v, with a lease of %s", lived, exit, 8*unit)
		}
		t.Logf("with a lease of %s it ended after %s", 8*unit, lived)
	}
}

// livesOnItsLease has a command live on a lease of eight units, the last six of which
// it gets by a renewal, and says for how long it did.
func livesOnItsLease(t *testing.T, unit time.Duration) (time.Duration, supervisor.Exit) {
	t.Helper()
	s := start(t)
	began := supervisor.Now()
	if _, err := leased(t, s, began.Add(2*unit)); err != nil {
		return supervisor.Now().Sub(began), supervisor.Exit{Err: err}
	}
	// Renewed, it outlives the first lease; what was said before changes nothing.
	for _, lease := range []time.Duration{8 * unit, 3 * unit} {
		if err := s.Renew(began.Add(lease)); err != nil {
			t.Fatal(err)
		}
	}
	exit := <-s.Exited()
	lived := supervisor.Now().Sub(began)
	all(t, s)
	return lived, exit
}

// A process that is stopped between working out a deadline and sending it must
// not make it a later one.
func TestAMessageThatIsHeldUpDoesNotExtendTheLease(t *testing.T) {
	const life, held = 2 * time.Second, 1400 * time.Millisecond
	s := start(t)
	began := supervisor.Now()
	if _, err := leased(t, s, began.Add(life-100*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	release := supervisor.Hold(s)
	sent := make(chan error, 1)
	asked := supervisor.Now()
	go func() { sent <- s.Renew(asked.Add(life)) }()
	<-time.After(held)
	released := supervisor.Now()
	release()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	exit := <-s.Exited()
	ended := supervisor.Now()
	if lived := ended.Sub(began); !errors.Is(exit.Err, supervisor.ErrLapsed) || lived < life-100*time.Millisecond || ended.Sub(released) >= life {
		t.Errorf("ended after %s with %+v, want it to end after %s", lived, exit, life)
	}
	all(t, s)
}

func TestACommandWhoseLeaseIsOverNeverStarts(t *testing.T) {
	s := start(t)
	file := filepath.Join(t.TempDir(), "ran")
	_, err := s.Exec(t.Context(), supervisor.Command{
		Path: "/bin/sh", Argv: []string{"sh", "-c", "touch " + file}, Dir: t.TempDir(),
		Env: []string{"PATH=" + os.Getenv("PATH")}, Deadline: supervisor.Now().Add(-time.Nanosecond),
	})
	if !errors.Is(err, supervisor.ErrLapsed) {
		t.Errorf("started with %v", err)
	}
	all(t, s)
	if _, err := os.Stat(file); err == nil {
		t.Error("the command ran")
	}
}

func TestALeaseThatEndedWhileNothingRanIsRenewedByTheNextDeadline(t *testing.T) {
	s := start(t)
	if err := s.Renew(supervisor.Now().Add(-time.Nanosecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := leased(t, s, supervisor.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if exit := <-s.Exited(); exit.Err != nil || exit.Signal != syscall.SIGKILL {
		t.Errorf("ended with %+v", exit)
	}
}

// The run is of the same user as its supervisor and may stop it.
func TestAStoppedSupervisorIsKilled(t *testing.T) {
	for name, act := range map[string]func(*testing.T, *supervisor.Supervisor) error{
		"while the command runs": func(t *testing.T, s *supervisor.Supervisor) error {
			sh(t, s, "sleep 1000")
			pause(t, s)
			supervisor.SetPatience(s, 100*time.Millisecond)
			return s.Kill()
		},
		"before it says that the command started": func(t *testing.T, s *supervisor.Supervisor) error {
			pause(t, s)
			supervisor.SetPatience(s, 100*time.Millisecond)
			_, err := s.Exec(t.Context(), supervisor.Command{Path: "/bin/true", Argv: []string{"true"}, Dir: "/"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			if err := act(t, s); !errors.Is(err, supervisor.ErrDied) {
				t.Errorf("ended with %v", err)
			}
			if exit := <-s.Exited(); !errors.Is(exit.Err, supervisor.ErrDied) {
				t.Errorf("ended with %+v", exit)
			}
		})
	}
}

func pause(t *testing.T, s *supervisor.Supervisor) {
	t.Helper()
	if err := syscall.Kill(supervisor.PID(s), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}
