package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"cloop.dev/cloop/internal/atomicfile"
	"cloop.dev/cloop/internal/process"
)

// defaultGrace is how long Stop waits between SIGTERM and SIGKILL, and
// stopPoll how often it looks meanwhile.
const (
	defaultGrace = 10 * time.Second
	stopPoll     = 10 * time.Millisecond
)

// Processes is a table of detached processes, kept in a directory: one record
// in run/, one log file in logs/ for each. The processes outlive the caller;
// any later caller with the same directory can ask for them and stop them.
//
// The table survives a crash of its user at any point: a record is written
// before its process starts, with a mark that the process carries. Two users
// at a time must agree among themselves who starts what.
type Processes struct {
	// Dir holds the table. It is made where it is missing.
	Dir string
	// Grace is how long Stop waits between SIGTERM and SIGKILL; 0 means ten
	// seconds.
	Grace time.Duration
}

// Process is one entry of the table.
type Process struct {
	Name string           `json:"name"`
	ID   process.Identity `json:"id"`
	Mark process.Mark     `json:"mark"`
	Argv []string         `json:"argv"`
	// Started is when the process was started.
	Started time.Time `json:"started"`
	// Log is the file with its output.
	Log string `json:"log"`
	// Alive is whether it ran when the table was read.
	Alive bool `json:"-"`
}

func (p Process) family() process.Family {
	return process.Family{Root: p.ID, Mark: p.Mark}
}

// Start starts a program in a session of its own, with its output appended to
// logs/name.log. env is its whole environment. What an earlier process of this
// name left behind is ended first; one that is alive is an error.
func (p Processes) Start(name string, argv, env []string) (Process, error) {
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return Process{}, fmt.Errorf("%q is no name for a process", name)
	}
	if len(argv) == 0 {
		return Process{}, fmt.Errorf("start %s: no program named", name)
	}
	if p.Alive(name) {
		return Process{}, fmt.Errorf("start %s: it is already running", name)
	}
	if err := p.Stop(name); err != nil {
		return Process{}, fmt.Errorf("start %s: clean up what ran before: %w", name, err)
	}
	started, err := p.start(name, argv, env)
	if err != nil {
		return Process{}, errors.Join(fmt.Errorf("start %s: %w", name, err), p.Stop(name))
	}
	return started, nil
}

func (p Processes) start(name string, argv, env []string) (Process, error) {
	for _, dir := range []string{"run", "logs"} {
		if err := os.MkdirAll(filepath.Join(p.Dir, dir), 0o700); err != nil {
			return Process{}, err
		}
	}
	record := Process{
		Name: name, Mark: process.NewMark(), Argv: slices.Clone(argv),
		Started: time.Now(), Log: p.log(name),
	}
	if err := p.write(record); err != nil {
		return Process{}, err
	}
	log, err := os.OpenFile(record.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return Process{}, err
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	command := exec.Command(argv[0], argv[1:]...)
	command.Env = append(process.WithoutMarks(env), record.Mark.Environment())
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return Process{}, err
	}
	record.ID, err = process.Identify(command.Process.Pid)
	// Nobody else collects the exit status while this caller lives.
	go command.Wait() //nolint:errcheck // how it ended stands in its log
	if err != nil {
		return Process{}, err
	}
	record.Alive = true
	return record, p.write(record)
}

// Alive says whether the process of that name runs.
func (p Processes) Alive(name string) bool {
	record, err := p.read(name)
	return err == nil && record.Alive
}

// Running returns the process of that name. The error, where it has ended,
// quotes the end of its log.
func (p Processes) Running(name string) (Process, error) {
	record, err := p.read(name)
	if err != nil {
		return Process{}, fmt.Errorf("find %s: %w", name, err)
	}
	if !record.Alive {
		return record, fmt.Errorf("%s ended; its log %s says at the end:\n%s", name, record.Log, tail(record.Log))
	}
	return record, nil
}

// Kill sends a signal to the process of that name, and to nothing that it
// started. The error is process.ErrGone if it does not run.
func (p Processes) Kill(name string, signal syscall.Signal) error {
	record, err := p.read(name)
	if err != nil {
		return fmt.Errorf("signal %s: %w", name, err)
	}
	if err := record.ID.Signal(signal); err != nil {
		return fmt.Errorf("signal %s: %w", name, err)
	}
	return nil
}

// Stop ends the process of that name, with SIGTERM and after Grace with
// SIGKILL, then whatever it started and left behind, and forgets it. Stopping
// what does not run, or never did, is no error.
func (p Processes) Stop(name string) error {
	record, err := p.read(name)
	if errors.Is(err, process.ErrGone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	grace := p.Grace
	if grace == 0 {
		grace = defaultGrace
	}
	if err := record.ID.Signal(syscall.SIGTERM); err == nil {
		for deadline := time.Now().Add(grace); record.ID.Alive() && time.Now().Before(deadline); {
			time.Sleep(stopPoll)
		}
	}
	return p.end(record)
}

// end kills what is left of a process and removes its record.
func (p Processes) end(record Process) error {
	if err := record.family().Kill(); err != nil {
		return fmt.Errorf("stop %s: %w", record.Name, err)
	}
	if err := os.Remove(p.record(record.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget %s: %w", record.Name, err)
	}
	return nil
}

// List returns the table, in the order in which the processes were started.
func (p Processes) List() ([]Process, error) {
	files, err := filepath.Glob(p.record("*"))
	if err != nil {
		return nil, err
	}
	var list []Process
	for _, file := range files {
		record, err := p.read(strings.TrimSuffix(filepath.Base(file), ".json"))
		if errors.Is(err, process.ErrGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, record)
	}
	slices.SortStableFunc(list, func(a, b Process) int { return a.Started.Compare(b.Started) })
	return list, nil
}

func (p Processes) record(name string) string { return filepath.Join(p.Dir, "run", name+".json") }
func (p Processes) log(name string) string    { return filepath.Join(p.Dir, "logs", name+".log") }

// read returns a record, and process.ErrGone where there is none. A record that
// is no JSON is of a machine that lost its power, and with it every process: it
// names one that does not run.
func (p Processes) read(name string) (Process, error) {
	data, err := os.ReadFile(p.record(name))
	if errors.Is(err, fs.ErrNotExist) {
		return Process{}, fmt.Errorf("no process %s was started: %w", name, process.ErrGone)
	}
	if err != nil {
		return Process{}, err
	}
	if !json.Valid(data) {
		return Process{Name: name, Log: p.log(name)}, nil
	}
	var record Process
	if err := json.Unmarshal(data, &record); err != nil {
		return Process{}, fmt.Errorf("read the record %s (remove it if no such process runs): %w", p.record(name), err)
	}
	record.Alive = record.ID.Alive()
	return record, nil
}

func (p Processes) write(record Process) error {
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return atomicfile.WriteUnsynced(p.record(record.Name), append(data, '\n'), 0o600)
}

// logTailBytes is how much of a log an error quotes.
const logTailBytes = 2000

// tail returns the end of a log, for an error about its process.
func tail(file string) string {
	log, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer log.Close() //nolint:errcheck // only read
	if info, err := log.Stat(); err == nil && info.Size() > logTailBytes {
		if _, err := log.Seek(-logTailBytes, io.SeekEnd); err != nil {
			return ""
		}
	}
	data, err := io.ReadAll(log)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
