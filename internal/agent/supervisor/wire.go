package supervisor

import (
	"syscall"
	"time"
)

// Operations that the agent asks for.
const (
	opExec   = "exec"
	opSignal = "signal"
	opKill   = "kill"
	opRenew  = "renew"
)

// Events that the supervising process reports.
const (
	eventStarting = "starting"
	eventStarted  = "started"
	eventRefused  = "refused"
	eventExited   = "exited"
	eventClear    = "clear"
)

// request is one message to the supervising process, as a JSON value. Strings
// of the command are bytes: they need not be UTF-8.
type request struct {
	Op   string   `json:"op"`
	Path []byte   `json:"path,omitempty"`
	Argv [][]byte `json:"argv,omitempty"`
	Dir  []byte   `json:"dir,omitempty"`
	Env  [][]byte `json:"env,omitempty"`
	// Signal goes to the command's process group, or to all descendants.
	Signal syscall.Signal `json:"signal,omitempty"`
	All    bool           `json:"all,omitempty"`
	// Deadline is until when the command may live without a word from the agent.
	Deadline Instant `json:"deadline,omitempty"`
}

// event is one message from the supervising process, as a JSON value.
type event struct {
	Event string    `json:"event"`
	PID   int       `json:"pid,omitempty"`
	At    time.Time `json:"at,omitzero"`
	// Errno says why the command could not be executed.
	Errno syscall.Errno `json:"errno,omitempty"`
	// Code and Signal say how the command ended; Code is -1 with a Signal.
	Code   int            `json:"code,omitempty"`
	Signal syscall.Signal `json:"signal,omitempty"`
	// Lapsed says that the supervisor ended the command, or never started it, for
	// want of a renewal.
	Lapsed bool `json:"lapsed,omitempty"`
	// Killed says that the supervisor had begun to end the command by then.
	Killed bool `json:"killed,omitempty"`
	// Left is how many processes could not be killed.
	Left int `json:"left,omitempty"`
}

func toBytes(texts []string) [][]byte {
	out := make([][]byte, len(texts))
	for i, text := range texts {
		out[i] = []byte(text)
	}
	return out
}

func toStrings(texts [][]byte) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = string(text)
	}
	return out
}
