package hubv1

import "time"

// Features that hub, controllers and runners negotiate by name.
const (
	FeatureRunnerStates = "runner-states"
	FeatureRunnerGone   = "runner-gone"
	// FeatureRunnerHolds: a runner may be minted as holding a project's volume,
	// and gets that project's runs only.
	FeatureRunnerHolds = "runner-holds"
	// FeatureRequirements of a hub: it hands a project's runs to pools only that
	// have what the project asks for. Of a runner: where the hub could not read what a
	// project asks of its runners, the runner reads it and holds the pool to it.
	FeatureRequirements = "requirements"
	// FeatureRunCauses of a hub: a report that a runner's Pod has ended is added
	// to the run that ended with it, also when the run is settled already.
	FeatureRunCauses = "run-causes"
	// FeatureRefusalKinds of a hub: a Refusal may say what kind of trouble keeps
	// runners from starting.
	FeatureRefusalKinds = "refusal-kinds"
	// FeatureOverrides of a hub: a pool may be otherwise than Git says for a time,
	// and a HubPool of a cluster may define a pool.
	FeatureOverrides = "overrides"
)

// ControllerFeatures are those that a controller of this build speaks.
func ControllerFeatures() []string { return []string{FeatureRunnerStates, FeatureRunnerGone} }

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
	// OthersAvailable is how many runners that are not among Runners are starting
	// or idle; they will take as many of the queued runs.
	OthersAvailable int32 `json:"othersAvailable"`
	// Waiting says whose runs the queued ones are, where FeatureRunnerHolds is on:
	// the projects of the oldest ones first, at most MaxWaiting of them.
	Waiting []WaitingProject `json:"waiting,omitempty"`
	// Duplicate names the ExecutorPool that serves with the same credential
	// already, as "namespace/name". Whoever is told so must not serve.
	Duplicate string `json:"duplicate,omitempty"`
	// Runners are this credential's that are not retired, oldest first, and those
	// of earlier ones that the controller has shown (Predecessor).
	Runners []PoolRunner `json:"runners"`
}

// MaxWaiting bounds PoolSnapshot.Waiting.
const MaxWaiting = 100

// WaitingProject is a project of which runs wait for a runner.
type WaitingProject struct {
	// Owner of the project, for people; empty where it is not known.
	Owner string `json:"owner,omitempty"`
	// Holds is what a runner is minted with that has this project's volume.
	Holds string `json:"holds"`
	// Project is its name, for people who look at the volume.
	Project string `json:"project"`
	Runs    int32  `json:"runs"`
}

// PoolRunner is one runner as its controller sees it.
type PoolRunner struct {
	ID string `json:"id" doc:"Id."`
	// Key is the mint's idempotency key.
	Key       string      `json:"key"`
	State     RunnerState `json:"state" doc:"starting, idle, busy or retiring."`
	CreatedAt time.Time   `json:"createdAt" doc:"When it was minted."`
	// EnrolledAt is when the token was redeemed; idle time counts from it.
	EnrolledAt *time.Time `json:"enrolledAt,omitempty"`
	RunID      string     `json:"runId,omitempty" doc:"Id of the run that it holds."`
	// RunHolds is what a volume holds that the runner's run has used.
	RunHolds string `json:"runHolds,omitempty"`
	// Holds is what the runner was minted with.
	Holds string `json:"holds,omitempty"`
	// HoldsProject is the name of the project that the runner is kept for.
	HoldsProject string `json:"holdsProject,omitempty"`
}

// MintRequest asks for a runner token. Repeating a key whose token is not
// redeemed returns a new token for the same runner; once it is redeemed the
// answer is CodeTokenRedeemed, and a retired runner's key is CodeRunnerRetired.
type MintRequest struct {
	Key string `json:"key" minLength:"8" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	// Holds says whose data the volume has that the runner starts on, as
	// WaitingProject.Holds; the runner then gets that project's runs only.
	// CodeHoldsUnknown refuses what no project of the hub stands behind.
	Holds string `json:"holds,omitempty" maxLength:"32" pattern:"^([0-9a-f]{32})?$"`
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

// PodEnd is how Kubernetes says that the Pod of a run's runner ended.
type PodEnd struct {
	// Reason is one word, such as "OOMKilled", "Evicted" or "NodeLost".
	Reason   string `json:"reason"`
	Message  string `json:"message,omitempty" doc:"What the cluster says of it."`
	ExitCode *int32 `json:"exitCode,omitempty" doc:"Exit code of the container, where there is one."`
}

// Predecessor shows a live credential of the same pool that the controller had
// before: its runners are the controller's from then on, too.
type Predecessor struct {
	Credential string `json:"credential" minLength:"1" maxLength:"512" writeOnly:"true"`
}

// Refusal tells the hub why runners do not start, for the runs that wait.
// An empty Message clears it.
type Refusal struct {
	Message string `json:"message" maxLength:"4096"`
	// Kind says what kind of trouble it is; only for a hub with
	// FeatureRefusalKinds. Empty stands for RefusalPods.
	Kind RefusalKind `json:"kind,omitempty" enum:"pods,storage,placement"`
}

// RefusalKind is a kind of trouble that keeps runners from starting.
type RefusalKind string

// Kinds of trouble.
const (
	// RefusalPods: the API server refuses the runners' Pods.
	RefusalPods RefusalKind = "pods"
	// RefusalStorage: a runner gets no volume.
	RefusalStorage RefusalKind = "storage"
	// RefusalPlacement: Pods are there and do not come up: no node takes them, or
	// a node cannot pull their image.
	RefusalPlacement RefusalKind = "placement"
)
