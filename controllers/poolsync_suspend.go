package controllers

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// suspend says that nothing is done, who wanted that, why and until when.
func (r *poolSyncReconciler) suspend(ctx context.Context, p *syncPass) error {
	message := suspension(p.sync)
	if ready := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Reason != string(v1alpha1.ReasonSuspended) {
		r.events.record(p.sync, poolEvent{reason: v1alpha1.ReasonSuspended, key: message, message: message, state: true})
	}
	r.set(p, v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonSuspended, message)
	for _, entries := range [][]v1alpha1.DriftEntry{p.status.Drift, p.memory.drift} {
		for i := range entries {
			if e := &entries[i]; e.Corrected == nil {
				e.Outcome, e.Message = v1alpha1.OutcomeSuspended, shorten(message, maxDriftMessage)
			}
		}
	}
	if drifted := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionDrifted); drifted != nil && drifted.Status != metav1.ConditionTrue {
		r.set(p, v1alpha1.ConditionDrifted, metav1.ConditionUnknown, v1alpha1.ReasonSuspended, message)
	}
	meta.RemoveStatusCondition(&p.status.Conditions, v1alpha1.ConditionReconciling)
	meta.RemoveStatusCondition(&p.status.Conditions, v1alpha1.ConditionStalled)
	r.setUnsupported(p)
	p.status.ObservedGeneration = p.sync.Generation
	// Whatever came in the meantime is looked at once it goes on.
	p.memory.due = time.Time{}
	if until := p.sync.Spec.SuspendUntil; until != nil {
		p.comeBack(until.Time)
	}
	defer func() { r.metrics.looked(p, r.clock.Now()) }()
	return r.writeStatus(ctx, p)
}

// suspension says who suspended a PoolSync, why and until when, as far as that is known.
func suspension(sync *v1alpha1.PoolSync) string {
	return shorten(fleet.Suspension(sync), maxConditionMessage/2) + "; what is applied stays as it is, and drift is not looked for"
}

// resume tells once that a PoolSync goes on whose time of suspension is over. Its spec
// is left as it is: it may be Git's.
func (r *poolSyncReconciler) resume(p *syncPass) {
	if !p.sync.Spec.Suspend {
		return
	}
	ready := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Reason != string(v1alpha1.ReasonSuspended) {
		return
	}
	until := p.sync.Spec.SuspendUntil.UTC().Format(time.RFC3339)
	r.events.record(p.sync, poolEvent{
		reason: v1alpha1.ReasonResumed, key: until,
		message: fmt.Sprintf("goes on: it was suspended until %s; spec.suspend, suspendReason and suspendUntil mean nothing any more", until),
	})
}

// forceOf is the request to apply everything again that the PoolSync carries.
func forceOf(sync *v1alpha1.PoolSync) string {
	return shorten(sync.Annotations[fluxmeta.ForceRequestAnnotation], maxRequest)
}

// force forgets what was compared and contested, so that everything is applied once
// more.
func (m *syncMemory) force() {
	clear(m.objects)
	clear(m.contests)
}
