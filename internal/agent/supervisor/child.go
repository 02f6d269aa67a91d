package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// argv0 tells the executable that it is to supervise.
const argv0 = "cloop-run-supervisor"

// File descriptors that the supervising process is started with.
const (
	controlFD = 3
	outputFD  = 4
)

// The supervising process never gets to main: this package needs little, so its
// init runs before most of the executable's, and the process costs little.
// During init the main goroutine holds the main thread, which is what makes the
// parent-death signal of the command safe: that fires when the thread dies that
// forked, and the main thread dies with the process.
func init() {
	if len(os.Args) == 0 || os.Args[0] != argv0 {
		return
	}
	code := 0
	if err := supervise(); err != nil {
		fmt.Fprintf(os.Stderr, "cloop: supervise a run: %v\n", err)
		code = 1
	}
	// Not os.Exit: there is nothing to flush, and the race detector would hold
	// the process for a second.
	syscall.Exit(code)
}

// child is the supervising process.
type child struct {
	events *json.Encoder
	output *os.File
	leader int
	// lease rings when the agent has not renewed it; lapsed says that it did.
	lease  *alarm
	lapsed bool
	// killing says that the command is being ended, for whatever reason.
	killing bool
}

func supervise() error {
	// Nothing inherited may reach the command, this socket least of all.
	if err := unix.CloseRange(controlFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		for fd := controlFD; fd <= outputFD; fd++ {
			syscall.CloseOnExec(fd)
		}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the subreaper: %w", err)
	}
	control := os.NewFile(controlFD, "control")
	output := os.NewFile(outputFD, "output")
	if control == nil || output == nil {
		return errors.New("started without its sockets: this is not a command for people")
	}
	// Caught, not ignored: what is ignored stays so in the command.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)

	lease, err := newAlarm()
	if err != nil {
		return err
	}
	c := &child{events: json.NewEncoder(control), output: output, lease: lease}
	requests := make(chan request)
	go read(control, requests)
	for {
		select {
		case in, ok := <-requests:
			if !ok {
				// The agent is gone; nobody is left to report to.
				c.killAll()
				return nil
			}
			c.serve(in)
		case <-ended:
			c.reap()
		case <-c.lease.C:
			if !c.lease.due() {
				continue
			}
			// The agent is stopped or hangs: it cannot fence the command, and
			// the hub may give the run to another runner.
			c.lapse()
		case <-caught:
		}
	}
}

// read closes requests when the agent is gone.
func read(control io.Reader, requests chan<- request) {
	defer close(requests)
	decoder := json.NewDecoder(control)
	for {
		var in request
		if decoder.Decode(&in) != nil {
			return
		}
		requests <- in
	}
}

func (c *child) serve(in request) {
	switch in.Op {
	case opExec:
		c.exec(in)
	case opSignal:
		c.signal(in)
	case opRenew:
		if err := c.lease.extend(in.Deadline); err != nil {
			fmt.Fprintf(os.Stderr, "cloop: supervise a run: %v\n", err)
			c.lapse()
		}
	case opKill:
		c.report(event{Event: eventClear, Left: c.killAll()})
	}
}

// lapse ends the command because its lease has, or because nothing would tell
// when it does.
func (c *child) lapse() {
	c.lapsed = true
	c.killAll()
}

// report ignores errors: the reader of requests learns that the agent is gone.
func (c *child) report(out event) { _ = c.events.Encode(out) }

func (c *child) exec(in request) {
	// The supervisor must not hold the pipe, or it would never end.
	defer func() { _ = c.output.Close() }()
	if err := c.lease.extend(in.Deadline); err != nil {
		c.report(event{Event: eventRefused, Errno: errno(err)})
		return
	}
	if c.lease.due() {
		// The request was under way for too long.
		c.report(event{Event: eventRefused, Lapsed: true})
		return
	}
	c.lapsed, c.killing = false, false
	null, err := os.Open(os.DevNull)
	if err != nil {
		c.report(event{Event: eventRefused, Errno: errno(err)})
		return
	}
	defer func() { _ = null.Close() }()
	// Said first: the command may end this process before it could.
	began := time.Now()
	c.report(event{Event: eventStarting, At: began})
	pid, err := syscall.ForkExec(string(in.Path), toStrings(in.Argv), &syscall.ProcAttr{
		Dir: string(in.Dir), Env: toStrings(in.Env),
		Files: []uintptr{null.Fd(), c.output.Fd(), c.output.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		c.report(event{Event: eventRefused, Errno: errno(err)})
		return
	}
	c.leader = pid
	c.report(event{Event: eventStarted, PID: pid, At: began})
	c.reap()
}

func errno(err error) syscall.Errno {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return syscall.EIO
}

func (c *child) signal(in request) {
	switch {
	case in.All:
		for _, process := range descendants(os.Getpid()) {
			_ = process.Signal(in.Signal) // gone meanwhile: as wanted
		}
	case c.leader > 0:
		// The leader is not waited for yet, so its number is nobody else's.
		_ = syscall.Kill(-c.leader, in.Signal)
	}
}

// reap waits for every child that has ended, adopted ones too.
func (c *child) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if pid != c.leader {
			continue
		}
		c.leader = 0
		out := event{Event: eventExited, Code: status.ExitStatus(), Lapsed: c.lapsed, Killed: c.killing}
		if status.Signaled() {
			out.Signal = status.Signal()
		}
		c.report(out)
	}
}

// killFor bounds killAll against processes that the kernel cannot end, such as
// those in uninterruptible sleep; killPause lets it end what was just killed.
const (
	killFor   = 5 * time.Second
	killPause = time.Millisecond
)

// killAll ends every descendant and returns how many are left. Stopping all
// before killing any keeps a fork loop from outrunning it.
func (c *child) killAll() int {
	for deadline := time.Now().Add(killFor); ; time.Sleep(killPause) {
		// The first time before anything was done: what ended by itself has.
		c.reap()
		c.killing = true
		left := descendants(os.Getpid())
		if len(left) == 0 || time.Now().After(deadline) {
			return len(left)
		}
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			for _, process := range left {
				_ = process.Signal(sig) // gone meanwhile: as wanted
			}
		}
	}
}
