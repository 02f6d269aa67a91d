package pool

import (
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

// Snapshot is what was observed of one pool at one moment.
type Snapshot struct {
	Now  time.Time
	Pool Pool
	Link Link
	// Problems are the rules that the spec breaks, one sentence each. While
	// there is one, nothing starts.
	Problems []string
	// Unsupported is what the spec asks for and this version does not do, one
	// sentence each.
	Unsupported []string
	// Duplicate names another ExecutorPool that serves the same hub pool
	// already; empty: none.
	Duplicate string
	// Hub is the newest snapshot from the hub; nil before the first.
	Hub *hubv1.PoolSnapshot
	// Pods and Secrets are the pool's runners'.
	Pods    []Pod
	Secrets []Secret
	// AnchorUID is the anchor's UID; empty: there is none.
	AnchorUID string
	Memory    Memory
}

// Pool is what a plan depends on of the ExecutorPool object.
type Pool struct {
	UID            string
	MinRunners     int32
	MaxRunners     int32
	ScaleDownDelay time.Duration
	// Deleting says that the object has a deletion timestamp.
	Deleting bool
	// ForceDelete stops busy runners too; it counts only while Deleting.
	ForceDelete bool
	// Finalizer says that the object carries the controller's finalizer.
	Finalizer bool
}

// LinkState is how the connection to the hub stands.
type LinkState string

// States of a Link.
const (
	// LinkConnecting: the hub has not answered yet.
	LinkConnecting LinkState = "connecting"
	// LinkUp: the hub's snapshots arrive.
	LinkUp LinkState = "up"
	// LinkDown: the hub cannot be asked, for the link's Reason.
	LinkDown LinkState = "down"
	// LinkRefused: the hub refuses the credential.
	LinkRefused LinkState = "refused"
)

// Link is the connection to the hub.
type Link struct {
	State LinkState
	// Reason and Message say why, for LinkDown and LinkRefused.
	Reason  v1alpha1.Reason
	Message string
	// Since is when the hub was first found not to answer, for LinkDown.
	Since time.Time
}

// PodPhase is what matters of a Pod's life.
type PodPhase string

// Phases of a Pod.
const (
	// PodPending: no container of the Pod has ever run, so its runner cannot
	// have enrolled.
	PodPending PodPhase = "pending"
	// PodRunning: the runner's container has run and has not ended.
	PodRunning PodPhase = "running"
	// PodEnded: the runner's container has ended and will not run again.
	PodEnded PodPhase = "ended"
)

// Pod is one runner Pod of the pool.
type Pod struct {
	Name string
	// Key is the mint key that the Pod was made for. One that nobody knows any more
	// is Unknown of the Pod's name.
	Key string
	// RunnerID is the hub's id; empty where nobody knows it any more.
	RunnerID string
	Phase    PodPhase
	// Deleting says that the Pod has a deletion timestamp.
	Deleting bool
	// Anchored says that the anchor owns the Pod.
	Anchored bool
	// Unmarked says that the Pod lacks labels or annotations of the controller.
	Unmarked bool
	// End says how the Pod ended, for PodEnded.
	End End
	// Outdated says that the Pod was made of another template than the pool has now.
	Outdated bool
	// Stuck says what keeps the Pod from coming up; empty: nothing that is known.
	Stuck string
	// Created is when the Pod was made.
	Created time.Time
}

// End says how a runner's Pod ended.
type End struct {
	// Reason from Kubernetes, such as "Completed" or "OOMKilled".
	Reason string
	// Message is what the runner or Kubernetes reported.
	Message string
	// ExitCode of the runner's container; nil where none is known.
	ExitCode *int32
}

// Failed says whether the runner ended in failure.
func (e End) Failed() bool { return e.ExitCode == nil || *e.ExitCode != 0 }

// Secret is one runner's token Secret.
type Secret struct {
	Name string
	// Key is the mint key that the Secret was made for.
	Key      string
	RunnerID string
	// Owned says that a Pod owns the Secret.
	Owned bool
	// Unmarked says that the Secret lacks labels or annotations of the controller.
	Unmarked bool
}

// Unknown stands for the mint key of a Pod, by its name, where nobody knows it any
// more. No mint key looks like that.
func Unknown(pod string) string { return "?" + pod }

// Memory is what the process remembers of its own steps because caches and
// the hub's snapshot may not show them yet. Losing it is safe: a new process
// starts from lists that are newer than every step of the old one.
type Memory struct {
	// Started: mint key → what was started and when.
	Started map[string]Started
	// Absent: what is missing its other half → since when it was seen so.
	Absent map[string]time.Time
	// Burnt: mint keys that the hub will not mint again.
	Burnt map[string]bool
	// Ends: runner id → how its Pod ended, where the hub was not told yet.
	Ends map[string]End
	// MintRefused is the hub's last refusal to mint, nil when it minted since.
	MintRefused *Refusal
	// PodRefused is the API server's last refusal of a runner Pod.
	PodRefused *Refusal
	// OrphanGrace is how long something must be missing its other half before
	// it is removed.
	OrphanGrace time.Duration
	// Closed is how the hub ended the pool, as its last snapshot said; nil: it did not.
	Closed *Closed
}

// Started is a runner that this process has started.
type Started struct {
	RunnerID string
	At       time.Time
}

// Refusal is a refused start.
type Refusal struct {
	Message string
	// RetryAt is when to try again.
	RetryAt time.Time
	// Revision is the hub's when it refused; a newer one is worth a try.
	Revision int64
}
