package hubv1

import "time"

// EnrollRequest redeems a runner token, once ever.
type EnrollRequest struct {
	Token    string   `json:"token" minLength:"1" maxLength:"256"`
	Name     string   `json:"name" maxLength:"253"`
	Build    string   `json:"build" maxLength:"128"`
	Features []string `json:"features,omitempty" maxItems:"64" maxLength:"64"`
}

// EnrollResponse carries the session credential, which is shown once.
type EnrollResponse struct {
	RunnerID string `json:"runnerId"`
	Session  string `json:"session"`
	// HeartbeatSeconds is how often to send a heartbeat.
	HeartbeatSeconds float64 `json:"heartbeatSeconds"`
	// LeaseSeconds is how long the hub trusts a silent runner.
	LeaseSeconds float64 `json:"leaseSeconds"`
	// MarginSeconds is how long before the lease's end a runner without
	// contact kills its run, and how long after it the hub acts.
	MarginSeconds float64 `json:"marginSeconds"`
}

// RunnerSnapshot is all that a runner needs to know.
type RunnerSnapshot struct {
	// Revision rises with every change.
	Revision int64       `json:"revision"`
	State    RunnerState `json:"state"`
	// Run is set while the runner holds a run.
	Run *Assignment `json:"run,omitempty"`
	// Cancel asks the runner to stop the run.
	Cancel bool `json:"cancel,omitempty"`
}

// Assignment is a run as its runner gets it.
type Assignment struct {
	RunID   string   `json:"runId"`
	Attempt int32    `json:"attempt"`
	Project string   `json:"project"`
	Remote  string   `json:"remote"`
	Ref     string   `json:"ref"`
	Commit  string   `json:"commit,omitempty"`
	Command []string `json:"command"`
	// Holds is what a volume holds of this run's project. A runner on a volume
	// that holds another's must refuse the run.
	Holds string `json:"holds,omitempty"`
	// Declared is set where the hub does not know what the commit asks of its
	// runners. The runner reads it and starts no command whose requirements the
	// pool does not meet.
	Declared *Declared `json:"declared,omitempty"`
}

// Declared is what a pool declares of its runners.
type Declared struct {
	Pool         string            `json:"pool"`
	Capabilities map[string]bool   `json:"capabilities,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
}

// HeartbeatResponse confirms contact.
type HeartbeatResponse struct {
	State RunnerState `json:"state"`
}

// StartedRequest says that the command has started. Repeating it is harmless.
type StartedRequest struct {
	Attempt int32 `json:"attempt" minimum:"1"`
	// Commit that was checked out, as a hash; empty where there is none.
	Commit    string    `json:"commit" maxLength:"64" pattern:"^([0-9a-f]{40}|[0-9a-f]{64})?$" patternDescription:"the hash of a commit"`
	StartedAt time.Time `json:"startedAt"`
}

// LogResponse is the offset that the next append goes on from.
type LogResponse struct {
	Offset int64 `json:"offset"`
}

// ResultRequest settles a run. Repeating it is harmless.
type ResultRequest struct {
	Attempt int32 `json:"attempt" minimum:"1"`
	// ExitCode of the command; absent when it never started.
	ExitCode *int32 `json:"exitCode,omitempty"`
	Signal   string `json:"signal,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9 /()+-]*$" patternDescription:"the name of a signal"`
	// Error says why the command could not run; empty when it ran.
	Error string `json:"error,omitempty" maxLength:"4096"`
	// Cancelled says that the command was stopped because the hub asked.
	Cancelled  bool      `json:"cancelled,omitempty"`
	FinishedAt time.Time `json:"finishedAt"`
}

// ByeRequest is a runner's last word.
type ByeRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"256"`
}
