package hubv1

import "time"

// RunState is where a run is in its life.
type RunState string

// States of a run. The last four are terminal and never left.
const (
	RunQueued     RunState = "queued"
	RunHanded     RunState = "handed"
	RunRunning    RunState = "running"
	RunCancelling RunState = "cancelling"
	RunSucceeded  RunState = "succeeded"
	RunFailed     RunState = "failed"
	RunCancelled  RunState = "cancelled"
	RunLost       RunState = "lost"
)

// Terminal says whether the state is never left.
func (s RunState) Terminal() bool {
	switch s {
	case RunSucceeded, RunFailed, RunCancelled, RunLost:
		return true
	}
	return false
}

// What the hub does when a runner is lost with a run that has started.
const (
	// FailoverOnce starts the run again, once.
	FailoverOnce = "once"
	// FailoverNever settles the run as lost.
	FailoverNever = "never"
)

// Run is one execution of a command on a project's commit.
type Run struct {
	ID      string `json:"id" doc:"Id."`
	Project string `json:"project" doc:"The project's name."`
	PoolID  string `json:"poolId" doc:"Id of the pool that it waits for, or ran on."`
	Ref     string `json:"ref,omitempty" doc:"What was asked for: a branch, a tag or a commit."`
	// Commit is what the ref stood for when the run was started, where the hub
	// could ask; otherwise it comes with the start of the command.
	Commit string `json:"commit,omitempty"`
	// Requirements are what the commit asks of its runners; nil where the hub
	// does not know: its runner finds out before it starts the command.
	Requirements *Requirements `json:"requirements,omitempty"`
	Command      []string      `json:"command" doc:"The command and its arguments."`
	State        RunState      `json:"state" doc:"queued, handed, running, cancelling, succeeded, failed, cancelled or lost."`
	// Reason says in a sentence why the run waits or how it ended.
	Reason string `json:"reason,omitempty"`
	// ExitCode of the command, once it exited.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Signal that ended the command, such as "killed".
	Signal string `json:"signal,omitempty"`
	// PodEnd is how the Pod of the runner ended, where the run failed or was lost
	// and its controller told.
	PodEnd *PodEnd `json:"podEnd,omitempty"`
	// Attempt counts from 1; it rises when the run is started again.
	Attempt int32 `json:"attempt"`
	// Earlier are the times before that the run was in a runner's hands and came
	// back from them, oldest first. An attempt that no command was started in is
	// there each time that it was handed out.
	Earlier  []RunAttempt `json:"earlier,omitempty"`
	Failover string       `json:"failover" doc:"once or never: whether it is started again when its runner is lost."`
	// Runner that holds the run, or held it last.
	Runner    string `json:"runner,omitempty"`
	StartedBy string `json:"startedBy" doc:"Who started it."`
	// LogBytes is how much log the hub has, or had.
	LogBytes int64 `json:"logBytes"`
	// LogRemovedAt is when the hub removed the log, because the run has ended
	// for longer than logs are kept.
	LogRemovedAt *time.Time `json:"logRemovedAt,omitempty"`
	// Revision counts the changes of this run.
	Revision int64 `json:"revision"`

	QueuedAt   time.Time  `json:"queuedAt" doc:"When it was queued."`
	HandedAt   *time.Time `json:"handedAt,omitempty" doc:"When a runner got it."`
	StartedAt  *time.Time `json:"startedAt,omitempty" doc:"When its command began."`
	FirstLogAt *time.Time `json:"firstLogAt,omitempty" doc:"When the first of its log arrived."`
	SettledAt  *time.Time `json:"settledAt,omitempty" doc:"When it ended."`
}

// RunAttempt is one time that a run was in a runner's hands and came back from
// them without a result.
type RunAttempt struct {
	Attempt int32  `json:"attempt" doc:"Which attempt it was, from 1."`
	Runner  string `json:"runner" doc:"Id of the runner."`
	// Reason says in a sentence why it came back.
	Reason string `json:"reason"`
	// PodEnd is how the Pod of the runner ended, where its controller told.
	PodEnd    *PodEnd    `json:"podEnd,omitempty"`
	HandedAt  time.Time  `json:"handedAt" doc:"When the runner got it."`
	StartedAt *time.Time `json:"startedAt,omitempty" doc:"When the command began, if it did."`
	EndedAt   time.Time  `json:"endedAt" doc:"When it came back."`
}

// MaxCommandBytes bounds a run's command, counted as a system does that starts
// it: each word and one byte behind it. Linux takes no word that is longer.
const MaxCommandBytes = 128 << 10

// CommandBytes is what of MaxCommandBytes a command takes.
func CommandBytes(command []string) int {
	n := len(command)
	for _, word := range command {
		n += len(word)
	}
	return n
}

// StartRunRequest queues a run.
type StartRunRequest struct {
	Project  string   `json:"project" minLength:"1" maxLength:"63"`
	Ref      string   `json:"ref,omitempty" maxLength:"255" doc:"Branch, tag or full commit; the project's default where left out."`
	Command  []string `json:"command" minItems:"1" maxItems:"1024" maxLength:"131071" doc:"The program and its arguments, at most 131072 bytes in all, of which each word takes one more than it has."`
	Failover string   `json:"failover,omitempty" enum:"once,never" doc:"once where left out"`
	// NoWait is for calls that need a runner at once.
	NoWait bool `json:"noWaitForCapacity,omitempty" doc:"Hand the run to a runner that is free now, or answer waiting_for_pool_capacity and queue nothing."`
}

// RunList is one page of runs, newest first.
type RunList struct {
	Items []Run `json:"items"`
	// Next is the cursor of the next page; 0 where there is none, as in what cloop
	// prints, which puts the pages together.
	Next int64 `json:"next,omitempty"`
}
