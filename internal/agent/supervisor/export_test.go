package supervisor

import (
	"net"
	"os/exec"
	"testing"
	"time"
)

// Scripted is a supervisor whose supervising process says the given events and
// dies.
func Scripted(t *testing.T, events ...string) *Supervisor {
	t.Helper()
	socket := t.TempDir() + "/socket"
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		theirs, err := listener.Accept()
		if err != nil {
			return
		}
		for _, event := range events {
			_, _ = theirs.Write([]byte(event + "\n"))
		}
		_ = theirs.(*net.UnixConn).CloseWrite()
	}()
	ours, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	control, err := ours.(*net.UnixConn).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = listener.Close(), ours.Close(), control.Close() })
	s := newSupervisor(&exec.Cmd{}, control, nil)
	go s.receive()
	return s
}

// PID is the supervising process's.
func PID(s *Supervisor) int { return s.command.Process.Pid }

// Hold keeps every message to the supervising process back, as a stop of this
// one between two instructions does, until the returned function is called.
func Hold(s *Supervisor) (release func()) {
	s.sending.Lock()
	return s.sending.Unlock
}

// SetPatience bounds the waits for the supervising process.
func SetPatience(s *Supervisor, d time.Duration) { s.patience = d }
