package pool

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
)

// Plan is what a pool does next. The steps are carried out in the order of the
// fields. Every step is idempotent and may fail without harm: the next
// snapshot shows what is left to do. An empty plan means that all is as it
// should be.
type Plan struct {
	// EnsureAnchor asks for the anchor that owns the pool's Pods.
	EnsureAnchor bool
	// Start lists runners to mint a token for and to give a Secret and a Pod.
	// At most MaxStarts, so that one pass cannot flood the API server.
	Start []Start
	// Ended lists runners whose Pods have ended: tell the hub, then delete the
	// Pod and its Secret.
	Ended []Ended
	// Missing lists enrolled runners whose Pods are not in the cache: confirm
	// that with the API server, then tell the hub.
	Missing []Missing
	// Retire lists runners to ask the hub to retire. The hub decides.
	Retire []Retire
	// Release lists Pods whose runners the hub no longer shows: ask the hub,
	// and delete the Pod only if it says that the runner is retired.
	Release []Release
	// DeletePods lists Pods to delete without asking the hub: the pool's
	// deletion was forced, or their runners can never enroll.
	DeletePods []Deletion
	// DeleteSecrets lists Secrets without a Pod: confirm that with the API
	// server, then delete.
	DeleteSecrets []Deletion
	// Adopt lists Pods that the anchor does not own yet.
	Adopt []string
	// Own lists Secrets that their Pods do not own yet.
	Own []Ownership
	// Mark lists Pods and Secrets that lack labels or annotations.
	Mark []Marking
	// Finish says that the pool is drained: delete the anchor, then remove the
	// finalizer.
	Finish bool

	// Absent names everything that misses its other half now; the caller
	// remembers since when, in Memory.Absent.
	Absent []string
	// Settled lists mint keys that need no entry in Memory.Started any more.
	Settled []string
	// Short says that the pool has fewer runners than it wants.
	Short bool
	// Stuck says what keeps a Pod from coming up that has waited for StuckGrace;
	// empty: there is none.
	Stuck string
	// Wake is when to look again without a trigger; zero: no need.
	Wake time.Time

	// Numbers are the status' counts; nil before the hub's first snapshot.
	Numbers *Numbers
	// Conditions are Ready, Degraded, Invalid and Unsupported.
	Conditions []Condition
}

// MaxStarts is how many runners one pass starts at most.
const MaxStarts = 10

// Start is one runner to start.
type Start struct {
	// Key to mint with.
	Key string
	// Again says that the hub has minted for this key before, so a Pod may
	// exist that the cache lacks: look before minting, since minting again
	// makes the earlier token useless.
	Again bool
	// SecretOnly says that the Pod exists and only its Secret is lost.
	SecretOnly bool
}

// Ended is a runner whose Pod has ended.
type Ended struct {
	RunnerID string
	Key      string
	Pod      string
	End      End
	// Tell says whether the hub can be told.
	Tell bool
}

// Missing is an enrolled runner without a Pod.
type Missing struct {
	RunnerID string
	Key      string
	End      End
}

// Why says why a runner is retired.
type Why string

// Reasons to retire a runner.
const (
	// WhyIdle: the pool has more runners than it wants.
	WhyIdle Why = "idle"
	// WhyDraining: the pool is being deleted.
	WhyDraining Why = "draining"
	// WhyOutdated: it never ran, and its Pod was made of a template that has been
	// changed since.
	WhyOutdated Why = "outdated"
	// WhyNeverStarted: minted, but without a Pod, and not wanted any more.
	WhyNeverStarted Why = "never-started"
)

// Retire is one runner to ask the hub to retire.
type Retire struct {
	RunnerID string
	Key      string
	Why      Why
}

// Release is a Pod whose runner the hub no longer shows.
type Release struct {
	RunnerID string
	Key      string
	Pod      string
	// Pending says that no container of the Pod ran; then a hub that does not
	// know the runner counts as a yes.
	Pending bool
}

// Deletion is one object to delete.
type Deletion struct {
	Name string
	Key  string
	// OnlyPending makes the deletion fail if the Pod has changed since it was
	// observed.
	OnlyPending bool
}

// Ownership is a Secret and the Pod that should own it.
type Ownership struct {
	Secret string
	Pod    string
}

// Marking is a Pod, or a Secret, to put labels and annotations back on.
type Marking struct {
	Name     string
	Secret   bool
	Key      string
	RunnerID string
}

// Numbers are an ExecutorPool's counts.
type Numbers struct {
	Desired, Runners, Busy, Idle, Queued int32
	// Starting and Retiring are for metrics.
	Starting, Retiring int32
}

// Condition is a condition before it has a transition time.
type Condition struct {
	Type    string
	Status  metav1.ConditionStatus
	Reason  v1alpha1.Reason
	Message string
}

// Empty says whether the plan changes nothing at the hub or in the cluster.
func (p Plan) Empty() bool {
	return !p.EnsureAnchor && !p.Finish &&
		len(p.Start)+len(p.Ended)+len(p.Missing)+len(p.Retire)+len(p.Release)+
			len(p.DeletePods)+len(p.DeleteSecrets)+len(p.Adopt)+len(p.Own)+len(p.Mark) == 0
}

// String is the plan's steps in one line, for logs and test failures.
func (p Plan) String() string {
	var parts []string
	add := func(n int, what string, detail any) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %+v", what, detail))
		}
	}
	if p.EnsureAnchor {
		parts = append(parts, "ensure anchor")
	}
	add(len(p.Start), "start", p.Start)
	add(len(p.Ended), "ended", p.Ended)
	add(len(p.Missing), "missing", p.Missing)
	add(len(p.Retire), "retire", p.Retire)
	add(len(p.Release), "release", p.Release)
	add(len(p.DeletePods), "delete pods", p.DeletePods)
	add(len(p.DeleteSecrets), "delete secrets", p.DeleteSecrets)
	add(len(p.Adopt), "adopt", p.Adopt)
	add(len(p.Own), "own", p.Own)
	add(len(p.Mark), "mark", p.Mark)
	if p.Finish {
		parts = append(parts, "finish")
	}
	if len(parts) == 0 {
		return "nothing to do"
	}
	return strings.Join(parts, "; ")
}
