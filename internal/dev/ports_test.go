package dev

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloop.dev/cloop/e2e/cluster"
)

// listening is a system of which a part's port is taken by the listener.
func listening(t *testing.T, part string) (*System, net.Listener) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return &System{Dir: t.TempDir(), state: state{Ports: map[string]int{healthOf(part): listener.Addr().(*net.TCPAddr).Port}}}, listener
}

func TestATakenPortIsNamed(t *testing.T) {
	s, listener := listening(t, executorPart)
	err := s.portsFree(executorPart, net.Listen, time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), listener.Addr().String()) || !strings.Contains(err.Error(), "end that one") {
		t.Errorf("a taken port: %v", err)
	}
	if err := s.portsFree(hubPart, net.Listen, time.Millisecond); err != nil {
		t.Errorf("ports of another part: %v", err)
	}
}

// A part that is started at once after it was killed is started anew.
func TestWhatWasKilledHasEnded(t *testing.T) {
	dir := t.TempDir()
	s := &System{Dir: dir, processes: cluster.Processes{Dir: dir}}
	for range 10 {
		if _, err := s.processes.Start(gitPart, []string{"/bin/sleep", "60"}, os.Environ()); err != nil {
			t.Fatal(err)
		}
		if err := s.Kill(gitPart); err != nil {
			t.Fatal(err)
		}
		if s.processes.Alive(gitPart) {
			t.Fatal("it was killed and runs")
		}
	}
	if err := s.processes.Stop(gitPart); err != nil {
		t.Error(err)
	}
}

// The kernel takes a moment to close what a process listened on that was killed.
func TestAPortThatIsAboutToBeClosedIsWaitedFor(t *testing.T) {
	s, held := listening(t, executorPart)
	var tries []error
	err := s.portsFree(executorPart, func(network, address string) (net.Listener, error) {
		listener, err := net.Listen(network, address)
		if tries = append(tries, err); len(tries) == 2 {
			err = errors.Join(err, held.Close())
		}
		return listener, err
	}, time.Hour)
	if err != nil || len(tries) != 3 || !errors.Is(tries[0], syscall.EADDRINUSE) || !errors.Is(tries[1], syscall.EADDRINUSE) || tries[2] != nil {
		t.Errorf("after the tries %v: %v", tries, err)
	}
}
