package hubv1

import "time"

// Features that hub, controllers and runners negotiate by name.
const (
	FeatureRunnerStates = "runner-states"
	FeatureRunnerGone   = "runner-gone"
)

// RunnerState is where a runner is in its life.
type RunnerState string

// States of a runner, in order; none is entered twice.
const (
	// RunnerStarting has a token that is not redeemed yet.
	RunnerStarting RunnerState = "starting"
	// RunnerIdle is enrolled and has no run.
	RunnerIdle RunnerState = "idle"
	// RunnerBusy holds a run.
	RunnerBusy RunnerState = "busy"
	// RunnerRetiring gets no run any more and is about to exit.
	RunnerRetiring RunnerState = "retiring"
	// RunnerRetired is gone; its session is refused.
	RunnerRetired RunnerState = "retired"
)

// PoolSnapshot is all that a controller needs of its pool. It is computed for
// the credential that asks.
type PoolSnapshot struct {
	// Revision rises with every change.
	Revision int64    `json:"revision"`
	Features []string `json:"features"`
	Pool     Pool     `json:"pool"`
	// Queued is how many runs wait for a runner that is not there yet.
	Queued int32 `json:"queued"`
	// OthersAvailable is how many runners of other credentials are starting
	// or idle; they will take as many of the queued runs.
	OthersAvailable int32 `json:"othersAvailable"`
	// Runners are this credential's that are not retired, oldest first.
	Runners []PoolRunner `json:"runners"`
}

// PoolRunner is one runner as its controller sees it.
type PoolRunner struct {
	ID string `json:"id"`
	// Key is the mint's idempotency key.
	Key       string      `json:"key"`
	State     RunnerState `json:"state"`
	CreatedAt time.Time   `json:"createdAt"`
	// EnrolledAt is when the token was redeemed; idle time counts from it.
	EnrolledAt *time.Time `json:"enrolledAt,omitempty"`
	RunID      string     `json:"runId,omitempty"`
}

// MintRequest asks for a runner token. Repeating a key whose token is not
// redeemed returns a new token for the same runner; once it is redeemed the
// answer is CodeTokenRedeemed, and a retired runner's key is CodeRunnerRetired.
type MintRequest struct {
	Key string `json:"key" minLength:"8" maxLength:"63" pattern:"^[a-z0-9-]+$"`
}

// MintResponse carries the token, which is shown once.
type MintResponse struct {
	RunnerID  string    `json:"runnerId"`
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// RetireResponse says what became of a request to retire or of a report that a
// runner is gone: the state that the runner has now. RunnerBusy means that the
// hub refused, or waits for the lease's end.
type RetireResponse struct {
	State RunnerState `json:"state"`
}

// GoneRequest reports that a runner's Pod has ended: its containers terminated,
// which ExitCode says, or its object is gone. The hub retires the runner and
// settles or requeues its run; a busy runner that nobody has seen end only once
// its lease is over.
type GoneRequest struct {
	// Reason from Kubernetes, such as "OOMKilled", "Error" or "PodDeleted".
	Reason string `json:"reason" maxLength:"256"`
	// Message is what the runner or Kubernetes reported, never a credential.
	Message  string `json:"message,omitempty" maxLength:"4096"`
	ExitCode *int32 `json:"exitCode,omitempty"`
}

// Refusal tells the hub why runners do not start, for the runs that wait.
// An empty Message clears it.
type Refusal struct {
	Message string `json:"message" maxLength:"4096"`
}
