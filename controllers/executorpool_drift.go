package controllers

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/pool"
)

// convergesWithin is how long hub and cluster may contradict each other while one of
// the two may have a newer commit than the other: a hub and a PoolSync look at Git once
// a minute, and each when it is told of a push.
const convergesWithin = 2 * time.Minute

// reportDrift follows over time where hub and cluster contradict each other, and tells
// of each once.
func (r *executorPoolReconciler) reportDrift(status *v1alpha1.ExecutorPoolStatus, o *observation, link pool.Link, result *outcome) {
	now := r.clock.Now()
	if o.snapshot.Hub != nil {
		found := contradictions(o.xpool, o.snapshot.Hub.Pool, status.Drift, now)
		history := follow(status.Drift, found, everything, metav1.NewTime(now))
		status.Drift, _ = shownDrift(history.entries, maxDriftBytes)
		r.announceDrift(o, history)
		for i := range status.Drift {
			switch e := &status.Drift[i]; {
			case e.Corrected != nil:
				result.comeBack(e.Corrected.Add(keepCorrected).Sub(now))
			case e.Cause == v1alpha1.DriftConverging:
				result.comeBack(e.Since.Add(convergesWithin).Sub(now))
			}
		}
	}
	r.metrics.drift(o.name(), fleet.Open(status.Drift))
	setContradicted(fluxConditions{&status.Conditions, o.xpool.Generation, now}, status.Drift, link)
}

// everything was looked at.
func everything(*v1alpha1.DriftEntry) bool { return true }

// contradictions are the rules between hub and cluster that a pool breaks.
func contradictions(xpool *v1alpha1.ExecutorPool, hub hubv1.Pool, before []v1alpha1.DriftEntry, now time.Time) []finding {
	var found []finding
	for _, e := range fleet.CrossSurface(xpool, hub) {
		since, told := now, false
		for i := range before {
			if before[i].Corrected == nil && keyOf(&before[i]) == keyOf(&e) {
				since, told = before[i].Since.Time, before[i].Cause == v1alpha1.DriftRuleBroken
			}
		}
		if e.Cause == v1alpha1.DriftRuleBroken && !told && now.Sub(since) < convergesWithin && !sameCommit(xpool, hub) {
			e.Cause, e.Outcome = v1alpha1.DriftConverging, v1alpha1.OutcomeWaiting
			e.Message = fmt.Sprintf("hub and cluster may be at different commits: what is so still after %s breaks a rule", convergesWithin)
		}
		found = append(found, finding{DriftEntry: e})
	}
	return found
}

// sameCommit says that both have what one commit says, so that there is nothing to wait
// for. A hub says of each pool which commit it has come to; a cluster, which one changed
// the object last, so where the two are not the same nobody knows.
func sameCommit(xpool *v1alpha1.ExecutorPool, hub hubv1.Pool) bool {
	if hub.Source == nil {
		return false
	}
	commit := fleet.CommitOf(xpool.Annotations[v1alpha1.AnnotationRevision])
	return commit != "" && commit == fleet.CommitOf(hub.Source.Revision)
}

// setContradicted says whether hub and cluster contradict each other.
func setContradicted(c fluxConditions, drift []v1alpha1.DriftEntry, link pool.Link) {
	var broken, overridden, converging []string
	for i := range drift {
		switch e := &drift[i]; {
		case e.Corrected != nil:
		case e.Cause == v1alpha1.DriftConverging:
			converging = append(converging, contradiction(e))
		case e.Cause == v1alpha1.DriftBreakGlass:
			overridden = append(overridden, contradiction(e))
		default:
			broken = append(broken, contradiction(e))
		}
	}
	const listed = "; status.drift lists what: "
	switch {
	case link.State == pool.LinkConnecting:
		c.set(v1alpha1.ConditionDrifted, metav1.ConditionUnknown, v1alpha1.ReasonConnecting, "the hub has not answered yet")
	case link.State != pool.LinkUp:
		reason := link.Reason
		if degraded := meta.FindStatusCondition(*c.list, v1alpha1.ConditionDegraded); degraded != nil && degraded.Reason == string(v1alpha1.ReasonPoolRevoked) {
			reason = v1alpha1.ReasonPoolRevoked // the link knows of the refusal alone
		}
		c.set(v1alpha1.ConditionDrifted, metav1.ConditionUnknown, reason, "what the hub has is not known: see the condition Degraded")
	case len(broken) > 0:
		c.set(v1alpha1.ConditionDrifted, metav1.ConditionTrue, v1alpha1.ReasonRuleBroken, told(slices.Concat(broken, overridden, converging))+listed+v1alpha1.ReasonRuleBroken.Remedy())
	case len(overridden) > 0:
		c.set(v1alpha1.ConditionDrifted, metav1.ConditionTrue, v1alpha1.ReasonOverridden, told(slices.Concat(overridden, converging))+listed+v1alpha1.ReasonOverridden.Remedy())
	case len(converging) > 0:
		c.set(v1alpha1.ConditionDrifted, metav1.ConditionFalse, v1alpha1.ReasonConverging, told(converging)+listed+v1alpha1.ReasonConverging.Remedy())
	case len(drift) > 0:
		c.set(v1alpha1.ConditionDrifted, metav1.ConditionFalse, v1alpha1.ReasonDriftCorrected, "hub and cluster agree again; status.drift lists what differed for ten minutes")
	default:
		c.set(v1alpha1.ConditionDrifted, metav1.ConditionFalse, v1alpha1.ReasonNoDrift, "hub and cluster do not contradict each other")
	}
}

// maxContradictions bounds how many a condition names.
const maxContradictions = 3

func told(contradictions []string) string {
	return fmt.Sprintf("hub and cluster contradict each other in %s: ", count.Of(len(contradictions), "field")) +
		strings.Join(count.First(contradictions, maxContradictions), ", ")
}

// contradiction is an entry in words.
func contradiction(e *v1alpha1.DriftEntry) string {
	return fmt.Sprintf("%s is %s at the hub and %s in the cluster", e.Path, orElse(shorten(e.Hub, maxShown), "nothing"), orElse(shorten(e.Cluster, maxShown), "nothing"))
}

// announceDrift tells of each rule that is broken, and when it is not any more. What
// may only be a commit on its way is told of by the condition alone.
func (r *executorPoolReconciler) announceDrift(o *observation, history driftHistory) {
	for i := range history.detected {
		if e := &history.detected[i]; e.Cause != v1alpha1.DriftConverging {
			reason := v1alpha1.ReasonRuleBroken
			if e.Cause == v1alpha1.DriftBreakGlass {
				reason = v1alpha1.ReasonOverridden
			}
			r.events.record(o.xpool, poolEvent{warning: true, reason: reason, key: driftEventKey(e) + shorten(e.Hub, maxShown),
				message: contradiction(e) + ": " + reason.Remedy()})
		}
	}
	for i := range history.corrected {
		if e := &history.corrected[i]; e.Cause != v1alpha1.DriftConverging {
			r.events.record(o.xpool, poolEvent{reason: v1alpha1.ReasonDriftCorrected, key: driftEventKey(e) + shorten(e.Hub, maxShown),
				message: "hub and cluster agree again in " + e.Path})
		}
	}
}
