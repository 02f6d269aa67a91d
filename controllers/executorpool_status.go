package controllers

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/pool"
	"cloop.dev/cloop/internal/secret"
)

const (
	// maxConditionMessage is the API's bound, in bytes; a longer message makes
	// the whole patch fail.
	maxConditionMessage = 32768
	// maxDrift is how many entries status.drift holds.
	maxDrift = 50
)

func (o *observation) name() types.NamespacedName { return client.ObjectKeyFromObject(o.xpool) }

// poolConditions are the conditions of an ExecutorPool.
var poolConditions = []string{v1alpha1.ConditionReady, v1alpha1.ConditionDegraded, v1alpha1.ConditionInvalid, v1alpha1.ConditionUnsupported, v1alpha1.ConditionDrifted}

// report shows what was found and done: status, Events and metrics.
func (r *executorPoolReconciler) report(ctx context.Context, o *observation, plan pool.Plan, result *outcome) error {
	// Acting may have met a refusal, and may have found the credential refused.
	after := o.snapshot
	after.Memory = o.memory.Memory
	if o.hub != nil {
		after.Link, _ = o.hub.state()
	}
	conditions := pool.Conditions(after, plan)
	r.metrics.observe(o.name(), plan.Numbers)
	changed := o.xpool.DeepCopy()
	r.fillStatus(&changed.Status, o, plan, conditions)
	r.reportDrift(&changed.Status, o, after.Link, result)
	r.metrics.gotk.looked(o.name(), gotkObject{
		ready: readyStatus(changed.Status.Conditions), revision: o.xpool.Annotations[v1alpha1.AnnotationRevision],
	}, r.clock.Since(o.snapshot.Now))
	r.announceConditions(o, conditions, result)
	return r.writeStatus(ctx, o, changed, result)
}

// writeStatus writes the status where the object has another, so a quiet pool
// costs no request. What the controller has to say is written at once; what only
// takes back somebody else's edit, as long as that does not come again and again.
func (r *executorPoolReconciler) writeStatus(ctx context.Context, o *observation, changed *v1alpha1.ExecutorPool, result *outcome) error {
	m := o.memory
	if at, may := m.contest.mayWrite(o.found, *m.status, changed.Status, r.clock.Now()); !may {
		if !at.IsZero() {
			result.comeBack(at.Sub(r.clock.Now()))
		}
		return nil
	}
	before := changed.DeepCopy()
	before.Status = o.found
	err := r.client.Status().Patch(ctx, changed, client.MergeFrom(before))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patch the status of ExecutorPool %s: %w", o.xpool.Name, err)
	}
	// As the API server has it: times lose their fractions.
	m.status, m.version = changed.Status.DeepCopy(), changed.ResourceVersion
	return nil
}

func (r *executorPoolReconciler) fillStatus(status *v1alpha1.ExecutorPoolStatus, o *observation, plan pool.Plan, conditions []pool.Condition) {
	status.ObservedGeneration = o.xpool.Generation
	now := metav1.NewTime(r.clock.Now())
	for _, c := range conditions {
		if c.Type == v1alpha1.ConditionUnsupported && c.Status == metav1.ConditionFalse {
			meta.RemoveStatusCondition(&status.Conditions, c.Type)
			continue
		}
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: c.Type, Status: c.Status, Reason: string(c.Reason),
			Message: shorten(secret.Redact(c.Message), maxConditionMessage), ObservedGeneration: o.xpool.Generation,
			LastTransitionTime: now,
		})
	}
	if n := plan.Numbers; n != nil {
		status.Desired, status.Runners, status.Busy, status.Idle, status.Queued = n.Desired, n.Runners, n.Busy, n.Idle, n.Queued
	}
	if hub := o.snapshot.Hub; hub != nil {
		status.Hub = hubReference(hub.Pool)
	}
}

func hubReference(p hubv1.Pool) *v1alpha1.HubPoolReference {
	reference := &v1alpha1.HubPoolReference{ID: p.ID, Name: p.Name, MaxRunners: p.MaxRunners}
	if p.Source != nil {
		reference.Revision = p.Source.Revision
	}
	return reference
}

// isTrouble says whether a condition says that something is wrong. Ready only
// repeats what another one says.
func isTrouble(conditionType string, status metav1.ConditionStatus) bool {
	return conditionType != v1alpha1.ConditionReady && status == metav1.ConditionTrue
}

// mayPass says whether what is wrong often passes by itself: the hub, or the
// Secret with the credential, may be a little later than the pool.
func mayPass(reason v1alpha1.Reason) bool {
	return reason == v1alpha1.ReasonHubUnavailable || reason == v1alpha1.ReasonCredentialUnreadable
}

// announceConditions records an Event when something is wrong, or has been for
// long enough.
func (r *executorPoolReconciler) announceConditions(o *observation, conditions []pool.Condition, result *outcome) {
	now, troubles := r.clock.Now(), o.memory.troubles
	for _, c := range conditions {
		if !isTrouble(c.Type, c.Status) {
			delete(troubles, c.Type)
			continue
		}
		t := troubles[c.Type]
		tell, at := t.lasts(c.Reason, mayPass(c.Reason), now)
		troubles[c.Type] = t
		switch {
		case tell:
			r.events.record(o.xpool, poolEvent{warning: true, reason: c.Reason, message: c.Message})
		case !at.IsZero():
			result.comeBack(at.Sub(now))
		}
	}
}
