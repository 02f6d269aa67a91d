package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/secret"
)

// stageError is why a step failed.
type stageError struct {
	reason v1alpha1.Reason
	cause  error
	// stalled: only a change of the object or of Git helps; else it may pass.
	stalled bool
	// remedy is in place of the reason's; empty: that is meant.
	remedy string
}

func transient(reason v1alpha1.Reason, cause error) *stageError {
	return &stageError{reason: reason, cause: cause}
}

func stalled(reason v1alpha1.Reason, cause error) *stageError {
	return &stageError{reason: reason, cause: cause, stalled: true}
}

// message says what went wrong and what to do about it, once: a cause may end with advice
// of its own, which is to the point. Of what is too long the advice is what is kept.
func (e *stageError) message() string {
	text, advice := secret.Redact(e.cause.Error()), ": "+cmp.Or(e.remedy, e.reason.Remedy())
	first, outcome, _ := strings.Cut(e.reason.Remedy(), "; ")
	var advised interface{ Advises() bool }
	if e.remedy == "" && (strings.HasSuffix(text, first) || errors.As(e.cause, &advised) && advised.Advises()) {
		advice = strings.TrimSuffix("; "+outcome, "; ")
	}
	return shorten(text, maxConditionMessage-len(advice)) + advice
}

// conditions are what a pass makes of the conditions: the one place that maps an
// outcome to them.
func (r *poolSyncReconciler) conditions(p *syncPass) {
	ready, status, message := v1alpha1.ReasonReconciliationSucceeded, metav1.ConditionTrue, p.success()
	switch {
	case p.err != nil:
		ready, status, message = p.err.reason, metav1.ConditionFalse, p.err.message()
	case p.awaits != "":
		ready, status, message = v1alpha1.ReasonProgressing, metav1.ConditionUnknown, p.awaits
	case p.sync.DeletionTimestamp != nil:
		ready, status, message = v1alpha1.ReasonProgressing, metav1.ConditionUnknown, fmt.Sprintf("being deleted; %s", p.waiting())
	}
	r.set(p, v1alpha1.ConditionReady, status, ready, message)
	r.setOrRemove(p, v1alpha1.ConditionStalled, p.err != nil && p.err.stalled, ready, message)
	retries := p.err != nil && !p.err.stalled
	if retries {
		message = "tries again"
	}
	r.setOrRemove(p, v1alpha1.ConditionReconciling, retries || status == metav1.ConditionUnknown, v1alpha1.ReasonProgressing, message)
	r.setUnsupported(p)
	p.status.ObservedGeneration = p.sync.Generation
}

func (p *syncPass) success() string {
	if p.target == nil {
		return ""
	}
	message := fmt.Sprintf("applied %s: %s", p.target.revision, count.Of(len(p.target.objects)-p.target.observed, "object"))
	if p.target.observed > 0 {
		message += fmt.Sprintf("; %d more %s only compared", p.target.observed, count.Is(p.target.observed))
	}
	if p.status.VerifiedBy != "" {
		message += "; signed by " + p.status.VerifiedBy
	}
	if p.target.hubPools > 0 {
		message += fmt.Sprintf("; %s %s left to the hub", count.Of(p.target.hubPools, "HubPool"), count.Is(p.target.hubPools))
	}
	if p.waits > 0 {
		message += "; " + p.waiting()
	}
	return message
}

func (p *syncPass) waiting() string {
	return fmt.Sprintf("waits for %s to go: pools once their runners have finished, then what stands beside them", count.Of(p.waits, "object"))
}

func (r *poolSyncReconciler) set(p *syncPass, conditionType string, status metav1.ConditionStatus, reason v1alpha1.Reason, message string) {
	meta.SetStatusCondition(&p.status.Conditions, metav1.Condition{
		Type: conditionType, Status: status, Reason: string(reason), Message: shorten(message, maxConditionMessage),
		ObservedGeneration: p.sync.Generation, LastTransitionTime: metav1.NewTime(r.clock.Now()),
	})
}

func (r *poolSyncReconciler) setOrRemove(p *syncPass, conditionType string, is bool, reason v1alpha1.Reason, message string) {
	if !is {
		meta.RemoveStatusCondition(&p.status.Conditions, conditionType)
		return
	}
	r.set(p, conditionType, metav1.ConditionTrue, reason, message)
}

// announce says before the first write what is about to be applied, and takes it
// into the inventory: a process that dies halfway leaves nothing unknown behind.
func (r *poolSyncReconciler) announce(ctx context.Context, p *syncPass) error {
	if !p.fresh() || p.memory.applied == p.target {
		return nil
	}
	p.known = idsOf(p.status.Inventory)
	p.status.Inventory = merged(p.status.Inventory, inventory(p.own(p.target)))
	message := "applies " + p.target.revision
	r.set(p, v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonProgressing, message)
	r.set(p, v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonProgressing, message)
	meta.RemoveStatusCondition(&p.status.Conditions, v1alpha1.ConditionStalled)
	if drifted := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionDrifted); drifted != nil && drifted.Reason == string(v1alpha1.ReasonCommitWaits) {
		r.set(p, v1alpha1.ConditionDrifted, metav1.ConditionUnknown, v1alpha1.ReasonProgressing, message)
	}
	return r.writeStatus(ctx, p)
}

// report shows what a pass found and did: status, Events and metrics. The status is
// written only when it changes.
func (r *poolSyncReconciler) report(ctx context.Context, p *syncPass) error {
	if p.asking {
		r.stillAsking(p)
	} else {
		r.conditions(p)
	}
	history := follow(p.memory.drift, p.findings(), p.looked(), metav1.NewTime(r.clock.Now()))
	r.setDrifted(p, p.showDrift(history.entries))
	r.announceOutcome(ctx, p, history)
	r.metrics.drift(p)
	defer func() { r.metrics.looked(p, r.clock.Now()) }()
	return r.writeStatus(ctx, p)
}

// setDrifted says whether the cluster differs from Git; rest is what status.drift has
// no room for.
func (r *poolSyncReconciler) setDrifted(p *syncPass, rest string) {
	edited, waiting, whole, observed := 0, 0, 0, 0
	for i := range p.memory.drift {
		switch e := &p.memory.drift[i]; {
		case e.Corrected != nil:
		case e.Outcome == v1alpha1.OutcomeObserved:
			observed++
		case e.Cause == v1alpha1.DriftCommitNotApplied && e.Path == "":
			whole++
		case e.Cause == v1alpha1.DriftCommitNotApplied:
			waiting++
		default:
			edited++
		}
	}
	contested := r.contested(p)
	listed := "status.drift lists what" + rest
	unsure, why := p.unsure()
	switch {
	case len(contested) > 0:
		r.set(p, v1alpha1.ConditionDrifted, metav1.ConditionTrue, v1alpha1.ReasonContested,
			fmt.Sprintf("%s; %s: %s", strings.Join(count.First(contested, maxContested), "; "), listed, v1alpha1.ReasonContested.Remedy()))
	case edited > 0:
		r.set(p, v1alpha1.ConditionDrifted, metav1.ConditionTrue, v1alpha1.ReasonDriftDetected,
			fmt.Sprintf("the cluster differs from Git in %s; %s: %s", fieldsAnd(edited+waiting, whole), listed, driftRemedy(p.sync.Spec.Drift.Mode)))
	case waiting+whole > 0:
		r.set(p, v1alpha1.ConditionDrifted, metav1.ConditionTrue, v1alpha1.ReasonCommitWaits,
			fmt.Sprintf("Git's newest commit is not applied, which would change %s; %s: %s", fieldsAnd(waiting, whole), listed, v1alpha1.ReasonCommitWaits.Remedy()))
	case p.doomed > 0:
		r.set(p, v1alpha1.ConditionDrifted, metav1.ConditionTrue, v1alpha1.ReasonCommitWaits,
			fmt.Sprintf("%s that Git lacks %s there: %s", count.Of(p.doomed, "object"), count.Is(p.doomed), v1alpha1.ReasonCommitWaits.Remedy()))
	case observed > 0:
		r.set(p, v1alpha1.ConditionDrifted, metav1.ConditionTrue, v1alpha1.ReasonObserved,
			fmt.Sprintf("what is only compared differs from Git in %s; %s: %s", count.Of(observed, "field"), listed, v1alpha1.ReasonObserved.Remedy()))
	case unsure != "":
		r.set(p, v1alpha1.ConditionDrifted, metav1.ConditionUnknown, unsure, why)
	case len(p.status.Drift) > 0:
		r.set(p, v1alpha1.ConditionDrifted, metav1.ConditionFalse, v1alpha1.ReasonDriftCorrected, fmt.Sprintf("what differed is as Git says again; status.drift lists it%s for ten minutes", rest))
	case p.target != nil:
		r.set(p, v1alpha1.ConditionDrifted, metav1.ConditionFalse, v1alpha1.ReasonNoDrift, "the cluster is as Git says")
	}
}

// fieldsAnd counts fields that differ, and objects of which no single one is told.
func fieldsAnd(fields, objects int) string {
	whole := count.Of(objects, "object") + " as a whole"
	switch {
	case objects == 0:
		return count.Of(fields, "field")
	case fields == 0:
		return whole
	}
	return count.Of(fields, "field") + " and " + whole
}

// unsure says why nobody knows whether the cluster is as Git says, where nothing differs
// from what was applied last; the reason is empty where it is known.
func (p *syncPass) unsure() (reason v1alpha1.Reason, message string) {
	source := p.memory.source
	switch {
	case p.renewed:
		return v1alpha1.ReasonProgressing, "what Git says now is not known: see the condition Ready"
	case source == nil && p.err != nil && p.err.reason == v1alpha1.ReasonApplyFailed:
		return p.err.reason, "what differs is not known, since not all was looked at or applied: see the condition Ready"
	case source == nil:
		return "", ""
	case source.stalled, source.reason == v1alpha1.ReasonDependencyNotReady:
		reason, message = v1alpha1.ReasonCommitWaits, "what Git says now is not applied, and what it would change is not known: "+v1alpha1.ReasonCommitWaits.Remedy()
	default:
		reason, message = source.reason, "what Git says now is not known: see the condition Ready"
	}
	if p.target != nil && p.target.revision != "" {
		message += "; the cluster is as " + p.target.revision + " says"
	}
	return reason, message
}

// maxContested bounds how many objects a condition names that somebody keeps changing.
const maxContested = 5

// driftRemedy says what to do about an edit, which a sync undoes by itself unless it
// is told not to.
func driftRemedy(mode string) string {
	if mode == v1alpha1.DriftReport {
		return v1alpha1.ReasonDriftDetected.Remedy()
	}
	return "Git's values are put back, unless the conditions say what is in the way; to keep what the cluster has, change the field in Git"
}

// syncConditions are the conditions of a PoolSync.
var syncConditions = []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionDrifted, v1alpha1.ConditionUnsupported}

// writeStatus writes the status where the object has another.
func (r *poolSyncReconciler) writeStatus(ctx context.Context, p *syncPass) error {
	m := p.memory
	p.status.Conditions = trimmed(p.status.Conditions, maxObject-written(p.sync)-sizeOf(p.status.Inventory)-sizeOf(p.status.Drift))
	if at, may := m.contest.mayWrite(p.found, *m.status, *p.status, r.clock.Now()); !may {
		if !at.IsZero() {
			p.comeBack(at)
		}
		return nil
	}
	before := p.sync.DeepCopy()
	before.Status = p.found
	changed := p.sync.DeepCopy()
	changed.Status = *p.status.DeepCopy()
	if equality.Semantic.DeepEqual(before.Status.Inventory, changed.Status.Inventory) {
		// It is most of the status: to compare it as JSON takes longer than all the rest.
		before.Status.Inventory, changed.Status.Inventory = nil, nil
	}
	err := r.client.Status().Patch(ctx, changed, client.MergeFrom(before))
	switch {
	case apierrors.IsNotFound(err):
		changed.Status.Inventory = p.status.Inventory
	case err != nil:
		return fmt.Errorf("patch the status of PoolSync %s: %w", p.sync.Name, err)
	}
	// As the API server has it: times lose their fractions.
	m.status, p.found = changed.Status.DeepCopy(), changed.Status
	m.version = changed.ResourceVersion
	p.sync.Status = *changed.Status.DeepCopy()
	*p.status = *changed.Status.DeepCopy()
	return nil
}
