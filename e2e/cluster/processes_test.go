package cluster

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloop.dev/cloop/internal/process"
)

func table(t *testing.T) Processes {
	t.Helper()
	processes := Processes{Dir: t.TempDir(), Grace: time.Second}
	t.Cleanup(func() {
		list, err := processes.List()
		if err != nil {
			t.Error(err)
		}
		for _, process := range list {
			if err := processes.Stop(process.Name); err != nil {
				t.Error(err)
			}
		}
	})
	return processes
}

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

func TestProcessIsStartedFoundAndStopped(t *testing.T) {
	processes := table(t)
	started, err := processes.Start("one", shell("echo hello $WHO; exec sleep 60"), []string{"PATH=/usr/bin:/bin", "WHO=there"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has written its log", func() bool { return tail(started.Log) == "hello there" })
	// Another user of the same directory.
	again := Processes{Dir: processes.Dir}
	if !again.Alive("one") {
		t.Error("not alive for another user of the table")
	}
	if _, err := again.Start("one", shell("exit 0"), nil); err == nil {
		t.Error("started twice")
	}
	if err := processes.Stop("one"); err != nil {
		t.Fatal(err)
	}
	if started.ID.Alive() || processes.Alive("one") {
		t.Error("alive after Stop")
	}
	if list, err := processes.List(); err != nil || len(list) != 0 {
		t.Errorf("the table still has %v (%v)", list, err)
	}
	if err := processes.Stop("one"); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestStopKillsWhatIgnoresItAndWhatWasLeftBehind(t *testing.T) {
	processes := table(t)
	processes.Grace = 50 * time.Millisecond
	started, err := processes.Start("stubborn", shell(`trap "" TERM; (setsid sleep 60 &); echo ready; while :; do sleep 0.05; done`), os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it ignores SIGTERM", func() bool { return tail(started.Log) == "ready" })
	if err := processes.Stop("stubborn"); err != nil {
		t.Fatal(err)
	}
	if left := started.family().Members(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestKillReachesOnlyTheProcess(t *testing.T) {
	processes := table(t)
	if err := processes.Kill("none", syscall.SIGTERM); err == nil {
		t.Error("signalled what was never started")
	}
	started, err := processes.Start("one", []string{"/bin/sleep", "60"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := processes.Kill("one", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is dead", func() bool { return !started.ID.Alive() })
	if list, err := processes.List(); err != nil || len(list) != 1 || list[0].Alive {
		t.Errorf("the table has %+v (%v), want one that is dead", list, err)
	}
	if _, err := processes.Start("one", []string{"/bin/sleep", "60"}, nil); err != nil {
		t.Errorf("start what died: %v", err)
	}
}

func TestPIDOfSomebodyElseIsNotKilled(t *testing.T) {
	processes := table(t)
	if _, err := processes.Start("one", []string{"/bin/true"}, nil); err != nil {
		t.Fatal(err)
	}
	stranger := exec.Command("/bin/sleep", "60")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = stranger.Process.Kill()
		_ = stranger.Wait()
	}()
	// The record as it would be if the kernel gave our process's pid away.
	record, err := processes.read("one")
	if err != nil {
		t.Fatal(err)
	}
	if record.ID, err = process.Identify(stranger.Process.Pid); err != nil {
		t.Fatal(err)
	}
	// Both may have started within one tick of the kernel's clock.
	record.ID.Start--
	if err := processes.write(record); err != nil {
		t.Fatal(err)
	}
	if processes.Alive("one") {
		t.Error("takes a stranger for its own")
	}
	if err := processes.Stop("one"); err != nil {
		t.Fatal(err)
	}
	identity, err := process.Identify(stranger.Process.Pid)
	if err != nil || !identity.Alive() {
		t.Errorf("the stranger is gone (%v)", err)
	}
}

func TestStartThatCrashedBeforeItsRecordIsCleanedUp(t *testing.T) {
	processes := table(t)
	// What a crash leaves between fork and the second write of the record: a
	// mark without a pid, and a process that carries it.
	mark := process.NewMark()
	orphan := exec.Command("/bin/sleep", "60")
	orphan.Env = []string{mark.Environment()}
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	identity, err := process.Identify(orphan.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(Process{Name: "one", Mark: mark})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(processes.Dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(processes.Dir, "run", "one.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := processes.Start("one", []string{"/bin/sleep", "60"}, nil); err != nil {
		t.Fatal(err)
	}
	if identity.Alive() {
		t.Error("what the crash left still runs")
	}
	_ = orphan.Wait()
}

func TestRecordThatAPowerLossLeftIsOfNothing(t *testing.T) {
	processes := table(t)
	if err := os.MkdirAll(filepath.Join(processes.Dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, left := range map[string]string{"empty": "", "zeros": "\x00\x00\x00", "part": `{"name":"pa`} {
		if err := os.WriteFile(processes.record(name), []byte(left), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := processes.List()
	if err != nil || len(list) != 3 || list[0].Alive || list[0].Name == "" {
		t.Errorf("the table has %+v (%v), want three that do not run", list, err)
	}
	if _, err := processes.Start("empty", []string{"/bin/sleep", "60"}, nil); err != nil {
		t.Errorf("start: %v", err)
	}
	for _, name := range []string{"empty", "zeros", "part"} {
		if err := processes.Stop(name); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	if list, err := processes.List(); err != nil || len(list) != 0 {
		t.Errorf("the table still has %v (%v)", list, err)
	}
}

func TestStartOfNothingLeavesNoRecord(t *testing.T) {
	processes := table(t)
	for name, argv := range map[string][]string{"missing": {"/no/such/program"}, "empty": nil, "../out": {"/bin/true"}, "": {"/bin/true"}} {
		if _, err := processes.Start(name, argv, nil); err == nil {
			t.Errorf("%q %q was started", name, argv)
		}
	}
	if list, err := processes.List(); err != nil || len(list) != 0 {
		t.Errorf("the table has %v (%v)", list, err)
	}
}

func TestTailIsTheEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 2*logTailBytes)+"end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := tail(file); len(got) >= logTailBytes || !strings.HasSuffix(got, "end") {
		t.Errorf("tail is %d bytes", len(got))
	}
	if got := tail(file + ".missing"); got != "" {
		t.Errorf("tail of nothing is %q", got)
	}
}

// eventually polls for what another process does in its own time.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
