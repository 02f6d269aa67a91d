package pool

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

// hopeless says that waiting does not help: only a person's act makes the hub
// answer again.
func (l Link) hopeless() bool {
	return l.State == LinkRefused || l.State == LinkDown && l.Reason != v1alpha1.ReasonHubUnavailable
}

// Conditions returns Ready, Degraded, Invalid and Unsupported for a snapshot and
// the plan made of it. Call it again after acting, with the refusals that acting met.
func Conditions(s Snapshot, p Plan) []Condition {
	invalid := Condition{v1alpha1.ConditionInvalid, metav1.ConditionFalse, v1alpha1.ReasonValid, "the spec breaks no rule"}
	if len(s.Problems) > 0 {
		invalid.Status, invalid.Reason = metav1.ConditionTrue, v1alpha1.ReasonInvalidSpec
		invalid.Message = withRemedy(v1alpha1.ReasonInvalidSpec, strings.Join(s.Problems, "; "))
	}
	degraded := degraded(s, p)
	ready := Condition{v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonServing, serving(s)}
	switch {
	case s.Pool.Deleting:
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonDraining
		ready.Message = "the pool is being deleted: idle runners are retired, busy ones finish"
	case invalid.Status == metav1.ConditionTrue:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, invalid.Reason, invalid.Message
	case degraded.Status == metav1.ConditionTrue:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, degraded.Reason, degraded.Message
	case s.revoked():
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonPoolRevoked, s.Memory.Closed.Message
	case s.Link.State == LinkConnecting || s.Hub == nil:
		ready.Status, ready.Reason = metav1.ConditionUnknown, v1alpha1.ReasonConnecting
		ready.Message = "the hub has not answered yet"
	case s.Hub.Pool.State != hubv1.PoolActive:
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonDraining
		ready.Message = fmt.Sprintf("the hub removes its pool %s: it hands out no more runs", s.Hub.Pool.Name)
	}
	return []Condition{ready, degraded, invalid, unsupported(s)}
}

func unsupported(s Snapshot) Condition {
	c := Condition{v1alpha1.ConditionUnsupported, metav1.ConditionFalse, v1alpha1.ReasonServing, "the spec asks for nothing that this version does not do"}
	if len(s.Unsupported) > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonNotBuilt
		c.Message = withRemedy(v1alpha1.ReasonNotBuilt, strings.Join(s.Unsupported, "; "))
	}
	return c
}

// degraded is what keeps the pool from being served, the most fundamental
// cause first.
func degraded(s Snapshot, p Plan) Condition {
	c := Condition{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonServing, Message: "nothing is wrong"}
	set := func(reason v1alpha1.Reason, message string) {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reason, withRemedy(reason, message)
	}
	switch {
	case s.revoked():
		c.Reason, c.Message = v1alpha1.ReasonPoolRevoked, s.Memory.Closed.Message
		if !s.Memory.Closed.Drained {
			c.Status = metav1.ConditionTrue
		}
	case s.Link.State == LinkDown || s.Link.State == LinkRefused:
		set(s.Link.Reason, s.Link.Message)
	case s.Link.State == LinkConnecting || s.Hub == nil:
		c.Reason, c.Message = v1alpha1.ReasonConnecting, "the hub has not answered yet"
	case !hasStates(s.Hub):
		set(v1alpha1.ReasonHubTooOld, "the hub does not report its runners' states, so nothing is started or stopped")
	case s.Duplicate != "":
		set(v1alpha1.ReasonDuplicatePool, fmt.Sprintf("ExecutorPool %s already serves the hub pool %s", s.Duplicate, s.Hub.Pool.Name))
	case s.Memory.PodRefused != nil && p.Short:
		set(v1alpha1.ReasonPodRefused, s.Memory.PodRefused.Message)
	case s.Memory.MintRefused != nil && p.Short:
		set(v1alpha1.ReasonRunnersRefused, s.Memory.MintRefused.Message)
	case p.Stuck != "":
		set(v1alpha1.ReasonPodStuck, p.Stuck)
	}
	return c
}

// serving says what a pool that is well does.
func serving(s Snapshot) string {
	if s.Hub == nil {
		return ""
	}
	if cordon := s.Hub.Pool.Cordon; cordon != nil {
		return fmt.Sprintf("the hub pool %s is cordoned, so no run is handed out: %s", s.Hub.Pool.Name, cordon.Reason)
	}
	return fmt.Sprintf("serving the hub pool %s", s.Hub.Pool.Name)
}

// withRemedy appends what a person can do.
func withRemedy(reason v1alpha1.Reason, message string) string {
	remedy := reason.Remedy()
	if remedy == "" {
		return message
	}
	return message + ": " + remedy
}
