package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// ErrDied says that the supervising process ended before its time: somebody
// killed it, and with it the command.
var ErrDied = errors.New("the process that supervises the run has died")

// ErrLapsed says that the supervising process ended the command because its
// lease was not renewed.
var ErrLapsed = errors.New("the run's lease was not renewed in time")

// Command is what to run.
type Command struct {
	// Path of the executable; relative to Dir where it is not absolute.
	Path string
	// Argv begins with the name that the command sees as its own.
	Argv []string
	Dir  string
	Env  []string
	// Deadline is until when the command and what came from it may live, unless
	// Renew moves it; without bound where zero.
	Deadline Instant
}

// Started says that the command runs.
type Started struct {
	PID int
	At  time.Time
}

// Exit says how the command ended.
type Exit struct {
	// Code is -1 where a signal ended the command.
	Code   int
	Signal syscall.Signal
	// Killed says that Kill, or the end of the lease, had come before: the command
	// may have ended for that reason alone.
	Killed bool
	// Err is ErrDied where nobody knows how the command ended, and ErrLapsed
	// where its lease did.
	Err error
}

// Supervisor is a running supervising process. It is for one command.
type Supervisor struct {
	command  *exec.Cmd
	patience time.Duration
	control  *os.File
	output   *os.File

	sending  sync.Mutex // guards requests
	requests *json.Encoder

	begun   chan event    // eventStarting
	started chan event    // one of eventStarted, eventRefused
	exited  chan Exit     // one value
	cleared chan int      // one value for each Kill
	died    chan struct{} // closed when the events end
}

// Start starts the supervising process; it waits for Exec. Its environment
// should be minimal: it needs nothing. Close ends it.
func Start(environment []string) (*Supervisor, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make the socket to the run's supervisor: %w", err)
	}
	control, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer func() { _ = theirs.Close() }()
	output, write, err := os.Pipe()
	if err != nil {
		_ = control.Close()
		return nil, fmt.Errorf("make the pipe of the run's output: %w", err)
	}
	defer func() { _ = write.Close() }()
	command := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{argv0}, Env: environment, Dir: "/",
		Stderr: os.Stderr, ExtraFiles: []*os.File{theirs, write},
		// A session of its own: a terminal's or a group's signals are not for it.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := command.Start(); err != nil {
		_, _ = control.Close(), output.Close()
		return nil, fmt.Errorf("start the run's supervisor: %w", err)
	}
	s := newSupervisor(command, control, output)
	go s.receive()
	return s, nil
}

func newSupervisor(command *exec.Cmd, control, output *os.File) *Supervisor {
	return &Supervisor{
		command: command, patience: patience, control: control, output: output, requests: json.NewEncoder(control),
		begun: make(chan event, 1), started: make(chan event, 1), exited: make(chan Exit, 1), cleared: make(chan int, 1), died: make(chan struct{}),
	}
}

// receive ends when the supervising process does.
func (s *Supervisor) receive() {
	defer close(s.died)
	decoder := json.NewDecoder(s.control)
	leader := 0
	for {
		var in event
		if decoder.Decode(&in) != nil {
			if leader > 0 {
				// Killed from outside, it could not clean up. The command died
				// with it; what is left of its session is ended here.
				_ = syscall.Kill(-leader, syscall.SIGKILL)
			}
			s.exit(Exit{Code: -1, Err: ErrDied})
			return
		}
		switch in.Event {
		case eventStarting:
			s.begun <- in
		case eventStarted, eventRefused:
			leader = in.PID
			s.started <- in
		case eventExited:
			leader = 0
			exit := Exit{Code: in.Code, Signal: in.Signal, Killed: in.Killed}
			if in.Lapsed {
				exit.Err = ErrLapsed
			}
			s.exit(exit)
		case eventClear:
			s.cleared <- in.Left
		}
	}
}

// exit keeps the first verdict.
func (s *Supervisor) exit(exit Exit) {
	select {
	case s.exited <- exit:
	default:
	}
}

// Output is the read end of the command's output. The caller reads it to its
// end; Close closes it.
func (s *Supervisor) Output() *os.File { return s.output }

// Exec starts the command. A syscall.Errno in the error says why it could not
// be executed; ErrLapsed that its deadline had passed, and ErrDied that there is
// no supervisor any more and the command never ran. One that may have run counts
// as started, without a PID where that is not known: Exited tells the rest.
func (s *Supervisor) Exec(ctx context.Context, command Command) (Started, error) {
	err := s.send(request{
		Op: opExec, Path: []byte(command.Path), Argv: toBytes(command.Argv),
		Dir: []byte(command.Dir), Env: toBytes(command.Env), Deadline: command.Deadline,
	})
	if err != nil {
		return Started{}, err
	}
	select {
	case in := <-s.started:
		return in.verdict(command.Path)
	case <-s.died:
		return s.lastWord(command.Path, ErrDied)
	case <-time.After(s.patience):
		return s.lastWord(command.Path, s.giveUp())
	case <-ctx.Done():
		return Started{}, ctx.Err()
	}
}

// lastWord is what a supervising process that is dead said of the command, which
// may have killed it; the error where it said nothing.
func (s *Supervisor) lastWord(path string, err error) (Started, error) {
	select {
	case in := <-s.started:
		return in.verdict(path)
	default:
	}
	select {
	case in := <-s.begun:
		return Started{At: in.At}, nil
	default:
		return Started{}, err
	}
}

func (in event) verdict(path string) (Started, error) {
	if in.Event == eventRefused && in.Lapsed {
		return Started{}, ErrLapsed
	}
	if in.Event == eventRefused {
		return Started{}, fmt.Errorf("execute %s: %w", path, in.Errno)
	}
	return Started{PID: in.PID, At: in.At}, nil
}

// Exited gets one value when the command has ended.
func (s *Supervisor) Exited() <-chan Exit { return s.exited }

// Interrupt sends the signal to the command's process group.
func (s *Supervisor) Interrupt(signal syscall.Signal) error {
	return s.send(request{Op: opSignal, Signal: signal})
}

// SignalAll sends the signal to everything that came from the command.
func (s *Supervisor) SignalAll(signal syscall.Signal) error {
	return s.send(request{Op: opSignal, Signal: signal, All: true})
}

// Renew lets the command live until the deadline; an earlier one than before
// changes nothing. The supervising process keeps the time, so that the command
// ends also when this process is stopped, and at the same time if it is stopped
// on its way through here.
func (s *Supervisor) Renew(deadline Instant) error {
	return s.send(request{Op: opRenew, Deadline: deadline})
}

// patience bounds each wait for the supervising process: killFor, and twice as
// much again for a machine that is slow.
const patience = 3 * killFor

// Kill ends everything that came from the command and returns when it is gone,
// at the latest after a few seconds. It is for one goroutine.
func (s *Supervisor) Kill() error {
	if err := s.send(request{Op: opKill}); err != nil {
		return err
	}
	select {
	case left := <-s.cleared:
		if left > 0 {
			return fmt.Errorf("of the run, this many processes are still alive after SIGKILL: %d", left)
		}
		return nil
	case <-s.died:
		return ErrDied
	case <-time.After(s.patience):
		return s.giveUp()
	}
}

// giveUp kills a supervising process that does not answer: the run, which is of
// the same user, may have stopped it. The command dies with it.
func (s *Supervisor) giveUp() error {
	return errors.Join(fmt.Errorf("%w: it did not answer for %s", ErrDied, s.patience), s.command.Process.Kill())
}

func (s *Supervisor) send(out request) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	if err := s.requests.Encode(out); err != nil {
		return fmt.Errorf("%w: %w", ErrDied, err)
	}
	return nil
}

// Close ends the supervising process, and with it whatever still runs, and
// waits for it.
func (s *Supervisor) Close() error {
	// Closing the file would wait for the receiver, which waits for the child.
	if raw, err := s.control.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_WR) })
	}
	hung := time.AfterFunc(s.patience, func() { _ = s.command.Process.Kill() })
	err := s.command.Wait()
	hung.Stop()
	<-s.died
	_, _ = s.control.Close(), s.output.Close()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDied, err)
	}
	return nil
}
