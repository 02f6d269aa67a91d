package process

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// markVariable is inherited by children, so it finds them after their parent
// is gone and they have left its process group.
const markVariable = "CLOOP_PROCESS_MARK"

// Mark is a value that no other family of processes has in its environment.
type Mark string

// NewMark makes a mark.
func NewMark() Mark { return Mark(rand.Text()) }

// Environment is the entry to add to the environment of the first process.
func (m Mark) Environment() string { return markVariable + "=" + string(m) }

// WithoutMarks returns the environment without anybody's mark, for a process
// that is to belong to no family but its own.
func WithoutMarks(environment []string) []string {
	kept := make([]string, 0, len(environment))
	for _, entry := range environment {
		if !strings.HasPrefix(entry, markVariable+"=") {
			kept = append(kept, entry)
		}
	}
	return kept
}

// Family is a process that was started in a session of its own (Setsid), and
// everything that came from it.
type Family struct {
	Root Identity
	Mark Mark
}

// Members are the family's live processes: the root, its session, who carries
// the mark, and all their descendants. A descendant that cleared its
// environment, left the session and lost its parent is not found.
func (f Family) Members() []Identity {
	all := list()
	rootAlive := f.Root.Alive()
	member := map[int]bool{}
	marked := func(info Info) bool { return f.Mark != "" && hasMark(info.PID, f.Mark) }
	sessionIsOurs := rootAlive
	for _, info := range all {
		if marked(info) {
			member[info.PID] = true
			// While one of ours is in the session, its number is not given to
			// anybody else.
			sessionIsOurs = sessionIsOurs || info.Session == f.Root.PID
		}
	}
	for _, info := range all {
		if rootAlive && info.Identity == f.Root || sessionIsOurs && f.Root.PID > 0 && info.Session == f.Root.PID {
			member[info.PID] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, info := range all {
			if !member[info.PID] && member[info.Parent] {
				member[info.PID], grown = true, true
			}
		}
	}
	var members []Identity
	for _, info := range all {
		// A parent that asks about the family it belongs to means the others.
		if member[info.PID] && !info.Ended && info.PID != os.Getpid() {
			members = append(members, info.Identity)
		}
	}
	return members
}

// Signal sends a signal to every member and returns how many there were.
func (f Family) Signal(signal syscall.Signal) (int, error) {
	members := f.Members()
	var problems []error
	for _, member := range members {
		if err := member.Signal(signal); err != nil && !errors.Is(err, ErrGone) {
			problems = append(problems, err)
		}
	}
	return len(members), errors.Join(problems...)
}

// killRounds bounds Kill against a family that forks faster than it is killed;
// killPause lets the kernel end what was just killed.
const (
	killRounds = 200
	killPause  = 5 * time.Millisecond
)

// Kill ends every member with SIGKILL and returns when none is left, at the
// latest after a second.
func (f Family) Kill() error {
	for range killRounds {
		count, err := f.Signal(syscall.SIGKILL)
		if err != nil {
			return err
		}
		if count == 0 {
			return nil
		}
		time.Sleep(killPause)
	}
	return fmt.Errorf("processes that pid %d started are still alive after SIGKILL: %v", f.Root.PID, f.Members())
}

func list() []Info {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	infos := make([]Info, 0, len(entries))
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// Processes end while the list is read.
		if info, err := Lookup(pid); err == nil {
			infos = append(infos, info)
		}
	}
	return infos
}

func hasMark(pid int, mark Mark) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	return strings.Contains("\x00"+string(data)+"\x00", "\x00"+mark.Environment()+"\x00")
}
