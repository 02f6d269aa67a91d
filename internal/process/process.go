package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// ErrGone says that the process has ended, or that its pid belongs to another
// one by now.
var ErrGone = errors.New("process has ended")

// Identity names one process for as long as the machine's records last.
type Identity struct {
	PID int `json:"pid"`
	// Start is when the process started, in clock ticks since the boot.
	Start uint64 `json:"start"`
	// Boot is the kernel's id of the boot that Start counts from.
	Boot string `json:"boot"`
}

// Info is what /proc says about a process.
type Info struct {
	Identity
	// Parent, Group and Session are pids.
	Parent, Group, Session int
	// Ended is true for a process that nobody has waited for yet.
	Ended bool
}

var bootID = sync.OnceValues(func() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
})

// Lookup reads one process. The error is ErrGone where there is none.
func Lookup(pid int) (Info, error) {
	boot, err := bootID()
	if err != nil {
		return Info{}, fmt.Errorf("read the boot's id: %w", err)
	}
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return Info{}, fmt.Errorf("pid %d: %w", pid, ErrGone)
	}
	if err != nil {
		return Info{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	info, err := parseStat(string(data))
	info.Boot = boot
	return info, err
}

// Fields of /proc/<pid>/stat behind the command's closing parenthesis, from
// proc_pid_stat(5), counted from zero.
const (
	statState   = 0
	statParent  = 1
	statGroup   = 2
	statSession = 3
	statStart   = 19
)

func parseStat(line string) (Info, error) {
	// The command may hold spaces and parentheses of its own.
	opened, closed := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if opened < 0 || closed < opened {
		return Info{}, fmt.Errorf("process line %q has no command", line)
	}
	fields := strings.Fields(line[closed+1:])
	if len(fields) <= statStart {
		return Info{}, fmt.Errorf("process line %q is too short", line)
	}
	var info Info
	var problems [5]error
	info.PID, problems[0] = strconv.Atoi(strings.TrimSpace(line[:opened]))
	info.Parent, problems[1] = strconv.Atoi(fields[statParent])
	info.Group, problems[2] = strconv.Atoi(fields[statGroup])
	info.Session, problems[3] = strconv.Atoi(fields[statSession])
	info.Start, problems[4] = strconv.ParseUint(fields[statStart], 10, 64)
	info.Ended = fields[statState] == "Z" || fields[statState] == "X"
	return info, errors.Join(problems[:]...)
}

// Identify names the process that has this pid now.
func Identify(pid int) (Identity, error) {
	info, err := Lookup(pid)
	return info.Identity, err
}

// Alive says whether this very process still runs. One that ended and was not
// waited for is not alive.
func (i Identity) Alive() bool {
	if i.PID <= 0 {
		return false
	}
	info, err := Lookup(i.PID)
	return err == nil && info.Identity == i && !info.Ended
}

// Signal sends a signal to this very process, and fails with ErrGone when it
// has ended, whoever has its pid now.
func (i Identity) Signal(signal syscall.Signal) error {
	if i.PID <= 0 {
		return ErrGone
	}
	// FindProcess takes a pidfd. Whatever it holds, once the identity is seen
	// to match afterwards it can only be the process that is meant: this one
	// had the pid before and cannot get it back.
	handle, err := os.FindProcess(i.PID)
	if err != nil {
		return fmt.Errorf("pid %d: %w", i.PID, ErrGone)
	}
	defer handle.Release() //nolint:errcheck // closes a file descriptor that was only signalled through
	if !i.Alive() {
		return fmt.Errorf("pid %d: %w", i.PID, ErrGone)
	}
	if err := handle.Signal(signal); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("pid %d: %w", i.PID, ErrGone)
		}
		return fmt.Errorf("send %s to pid %d: %w", signal, i.PID, err)
	}
	return nil
}
