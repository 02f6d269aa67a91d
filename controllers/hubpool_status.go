package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/secret"
)

// hubPoolConditions are the conditions of a HubPool.
var hubPoolConditions = []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionDrifted}

// report shows what a pass found and did: status, Events and metrics.
func (r *hubPoolReconciler) report(ctx context.Context, p *hubPoolPass) error {
	p.mirror()
	r.conditions(p)
	r.reportDrift(ctx, p)
	r.announceTrouble(ctx, p)
	if p.asked() && (p.err == nil || p.err.stalled) {
		p.status.LastHandledReconcileAt = requestOf(p.pool)
	}
	is := gotkObject{ready: readyStatus(p.status.Conditions), url: p.url()}
	if p.have != nil && p.have.Source != nil {
		is.revision = p.have.Source.Revision
	}
	defer func() { r.metrics.gotk.looked(p.name(), is, r.clock.Since(p.started)) }()
	return r.writeStatus(ctx, p)
}

// url is the hub's; empty where the pool names none.
func (p *hubPoolPass) url() string {
	if p.pool.Spec.Hub == nil {
		return ""
	}
	return p.pool.Spec.Hub.URL
}

// mirror takes over what the hub has, where that is known.
func (p *hubPoolPass) mirror() {
	if p.have == nil {
		return
	}
	have := p.have
	at := &v1alpha1.HubPoolAtHub{ID: have.ID, State: string(have.State), MaxRunners: have.MaxRunners}
	if have.Cordon != nil {
		at.Cordon = shorten(secret.Redact(have.Cordon.Reason+" (by "+have.Cordon.By+")"), maxCordon)
	}
	if s := have.Source; s != nil {
		at.Source = &v1alpha1.HubPoolSource{Owner: s.Sync, Repository: s.Repository, Path: s.Path, Revision: s.Revision, Digest: s.Digest}
	}
	p.status.Hub = at
}

// maxCordon is the API's bound.
const maxCordon = 2048

// conditions are what a pass makes of the conditions: the one place that maps an
// outcome to them.
func (r *hubPoolReconciler) conditions(p *hubPoolPass) {
	ready, status, message := v1alpha1.ReasonPushed, metav1.ConditionTrue, p.success()
	going := p.pool.DeletionTimestamp != nil
	switch {
	case p.err != nil:
		ready, status, message = p.err.reason, metav1.ConditionFalse, p.err.message()
		if going {
			message += fmt.Sprintf("; it is deleted once the hub has carried out deletionPolicy %s; to let it go without that: kubectl annotate --namespace %s hpool %s %s=true",
				p.pool.Spec.DeletionPolicy, p.pool.Namespace, p.pool.Name, v1alpha1.AnnotationOrphan)
		}
	case p.pool.Spec.Hub == nil:
		ready, status, message = v1alpha1.ReasonLeftToHub, metav1.ConditionUnknown, "spec.hub is not there, so nothing is pushed: "+v1alpha1.ReasonLeftToHub.Remedy()
	case going:
		ready, status, message = v1alpha1.ReasonProgressing, metav1.ConditionUnknown, "being deleted; waits for "+p.waits
	case fleet.ToObserve(p.pool):
		ready, message = v1alpha1.ReasonObserved, "only compared: "+orElse(p.success(), "the hub does not have the pool")
	case p.have.State == hubv1.PoolDraining:
		ready, status, message = v1alpha1.ReasonDraining, metav1.ConditionUnknown, "waits for "+p.waits
	}
	c := fluxConditions{&p.status.Conditions, p.pool.Generation, r.clock.Now()}
	c.set(v1alpha1.ConditionReady, status, ready, message)
	c.setOrRemove(v1alpha1.ConditionStalled, p.err != nil && p.err.stalled, ready, message)
	retries := p.err != nil && !p.err.stalled
	if retries {
		message = "tries again"
	}
	c.setOrRemove(v1alpha1.ConditionReconciling, retries || status == metav1.ConditionUnknown && p.pool.Spec.Hub != nil, v1alpha1.ReasonProgressing, message)
	p.status.ObservedGeneration = p.pool.Generation
}

func (p *hubPoolPass) success() string {
	if p.have == nil {
		return ""
	}
	message := fmt.Sprintf("the hub has the pool as %s", p.have.ID)
	if p.have.Source != nil && p.have.Source.Revision != "" {
		message += " from " + p.have.Source.Revision
	}
	if p.waits != "" {
		message += "; waits for " + p.waits
	}
	return message
}

// findings are where Git and hub disagree: what the hub says itself, and what a
// definition that it refused would change.
func (p *hubPoolPass) findings() []finding {
	if fleet.ToObserve(p.pool) {
		return p.observed()
	}
	if p.have == nil {
		return nil
	}
	entry := p.entry
	var found []finding
	for i := range p.have.Drift {
		d := &p.have.Drift[i]
		e := entry(d.Path, d.Cause)
		e.Git, e.Hub = shorten(secret.Redact(d.Git), maxDriftValue), shorten(secret.Redact(d.Hub), maxDriftValue)
		e.Manager = shorten(secret.Redact(d.By), maxDriftManager)
		e.Outcome, e.Message = d.Outcome, shorten(secret.Redact(d.Message), maxDriftMessage)
		found = append(found, finding{DriftEntry: e})
	}
	if p.err == nil || p.have.Override != nil || p.have.Source == nil || !ofCluster(p.have.Source.Sync) {
		return found
	}
	for _, d := range fleet.CompareHub(fleet.DefinitionOf(p.pool), p.have.PoolDefinition) {
		e := entry(d.Path, v1alpha1.DriftCommitNotApplied)
		e.Git, e.Hub = asJSON(d.Want), asJSON(d.Have)
		e.Outcome, e.Message = v1alpha1.OutcomeWaiting, shorten(p.err.message(), maxDriftMessage)
		if p.err.stalled {
			e.Outcome = v1alpha1.OutcomeRefused
		}
		found = append(found, finding{DriftEntry: e})
	}
	return found
}

func (p *hubPoolPass) entry(path, cause string) v1alpha1.DriftEntry {
	return v1alpha1.DriftEntry{Kind: v1alpha1.HubPoolKind, Namespace: p.pool.Namespace, Name: p.pool.Name, Path: path, Cause: cause}
}

// observed are where a HubPool that is only compared and the hub disagree.
func (p *hubPoolPass) observed() []finding {
	if p.err != nil {
		return nil
	}
	want := fleet.DefinitionOf(p.pool)
	diffs := []fleet.FieldDiff{{Want: want}}
	if p.have != nil {
		diffs = fleet.CompareHub(want, p.have.PoolDefinition)
		if cordon := p.pool.Spec.Cordon; cordon != nil && (p.have.Cordon == nil || p.have.Cordon.Reason != cordon.Reason) {
			diff := fleet.FieldDiff{Path: "/spec/cordon/reason", Want: cordon.Reason}
			if p.have.Cordon != nil {
				diff.Have, diff.Manager = p.have.Cordon.Reason, p.have.Cordon.By
			}
			diffs = append(diffs, diff)
		}
	}
	var found []finding
	for _, d := range diffs {
		e := p.entry(d.Path, v1alpha1.DriftCommitNotApplied)
		e.Git, e.Hub, e.Manager = asJSON(d.Want), asJSON(d.Have), shorten(secret.Redact(d.Manager), maxDriftManager)
		e.Outcome, e.Message = v1alpha1.OutcomeObserved, fleet.ObservedMessage
		found = append(found, finding{DriftEntry: e})
	}
	return found
}

// reportDrift follows the differences over time, and tells of each once.
func (r *hubPoolReconciler) reportDrift(ctx context.Context, p *hubPoolPass) {
	if p.pool.Spec.Hub == nil {
		meta.RemoveStatusCondition(&p.status.Conditions, v1alpha1.ConditionDrifted)
		r.metrics.forgetDrift(p.name())
		return
	}
	looked := func(*v1alpha1.DriftEntry) bool { return p.have != nil || fleet.ToObserve(p.pool) && p.err == nil }
	history := follow(p.status.Drift, p.findings(), looked, metav1.NewTime(r.clock.Now()))
	p.status.Drift, _ = shownDrift(history.entries, maxDriftBytes)
	open, overridden, observed := 0, 0, 0
	for i := range history.entries {
		switch e := &history.entries[i]; {
		case e.Corrected != nil:
		case e.Outcome == v1alpha1.OutcomeObserved:
			observed++
		case e.Cause == v1alpha1.DriftBreakGlass:
			overridden++
		default:
			open++
		}
	}
	for i := range history.detected {
		e := &history.detected[i]
		p.log(ctx, "finds drift", "path", e.Path, "cause", e.Cause, "manager", e.Manager)
		r.events.record(p.pool, poolEvent{warning: true, reason: driftReason(e), key: driftEventKey(e) + shorten(e.Hub, maxShown),
			message: fmt.Sprintf("%s: Git has %s, the hub %s (%s%s)", shownPath(e), orElse(shorten(e.Git, maxShown), "nothing"), orElse(shorten(e.Hub, maxShown), "nothing"), e.Cause, by(e.Manager))})
	}
	r.metrics.drift(p.name(), open+overridden+observed)
	c := fluxConditions{&p.status.Conditions, p.pool.Generation, r.clock.Now()}
	switch {
	case open > 0:
		c.set(v1alpha1.ConditionDrifted, metav1.ConditionTrue, v1alpha1.ReasonCommitWaits,
			fmt.Sprintf("the hub does not have what Git says in %s; status.drift lists what: %s", count.Of(open, "field"), v1alpha1.ReasonCommitWaits.Remedy()))
	case overridden > 0:
		c.set(v1alpha1.ConditionDrifted, metav1.ConditionTrue, v1alpha1.ReasonOverridden, p.overridden(overridden))
	case observed > 0:
		c.set(v1alpha1.ConditionDrifted, metav1.ConditionTrue, v1alpha1.ReasonObserved,
			fmt.Sprintf("the hub differs from Git in %s; status.drift lists what: %s", count.Of(observed, "field"), v1alpha1.ReasonObserved.Remedy()))
	case len(history.entries) > 0:
		c.set(v1alpha1.ConditionDrifted, metav1.ConditionFalse, v1alpha1.ReasonDriftCorrected, "what differed is as Git says again; status.drift lists it for ten minutes")
	case p.have != nil:
		c.set(v1alpha1.ConditionDrifted, metav1.ConditionFalse, v1alpha1.ReasonNoDrift, "the hub is as Git says")
	}
	for i := range p.status.Drift {
		if corrected := p.status.Drift[i].Corrected; corrected != nil {
			p.comeBack(corrected.Add(keepCorrected))
		}
	}
}

func by(manager string) string {
	if manager == "" {
		return ""
	}
	return ", by " + manager
}

// overridden says who has set Git aside at the hub, and until when.
func (p *hubPoolPass) overridden(fields int) string {
	message := fmt.Sprintf("the hub differs from Git in %s", count.Of(fields, "field"))
	if p.have != nil && p.have.Override != nil {
		o := p.have.Override
		message += fmt.Sprintf(": %s set it aside until %s: %s", o.By, o.Until.UTC().Format(time.RFC3339), secret.Redact(o.Reason))
	}
	return message
}

// announceTrouble tells of what is wrong once it is, or has lasted.
func (r *hubPoolReconciler) announceTrouble(ctx context.Context, p *hubPoolPass) {
	t := &p.memory.trouble
	if p.err == nil {
		if message := p.success(); t.told != "" && message != "" {
			r.events.record(p.pool, poolEvent{reason: v1alpha1.ReasonPushed, message: message, key: string(t.told), state: true})
		}
		*t = trouble{}
		return
	}
	tell, at := t.lasts(p.err.reason, !p.err.stalled, r.clock.Now())
	switch {
	case tell:
		p.log(ctx, "fails", "reason", p.err.reason, "message", p.err.message())
		r.events.record(p.pool, poolEvent{warning: true, reason: p.err.reason, message: p.err.message(), state: true})
	case !at.IsZero():
		p.comeBack(at)
	}
}

// writeStatus writes the status where the object has another.
func (r *hubPoolReconciler) writeStatus(ctx context.Context, p *hubPoolPass) error {
	m := p.memory
	if at, may := m.contest.mayWrite(p.found, *m.status, *p.status, r.clock.Now()); !may {
		if !at.IsZero() {
			p.comeBack(at)
		}
		return nil
	}
	before, changed := p.pool.DeepCopy(), p.pool.DeepCopy()
	before.Status, changed.Status = p.found, *p.status.DeepCopy()
	if err := r.client.Status().Patch(ctx, changed, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patch the status of HubPool %s: %w", p.pool.Name, err)
	}
	// As the API server has it: times lose their fractions.
	m.status = changed.Status.DeepCopy()
	return nil
}

// hubPoolMetrics are the metrics of HubPools.
type hubPoolMetrics struct {
	drifted *prometheus.GaugeVec
	gotk    *gotkMetrics
}

func newHubPoolMetrics(registry prometheus.Registerer) *hubPoolMetrics {
	return &hubPoolMetrics{driftGauge(registry), newGotkMetrics(registry, v1alpha1.HubPoolKind)}
}

func (m *hubPoolMetrics) drift(name types.NamespacedName, entries int) {
	m.drifted.WithLabelValues(name.Namespace, name.Name, fleet.SurfaceGitHub).Set(float64(entries))
}

// forget drops the series of a HubPool that is gone.
func (m *hubPoolMetrics) forget(name types.NamespacedName) {
	m.forgetDrift(name)
	m.gotk.forget(name)
}

func (m *hubPoolMetrics) forgetDrift(name types.NamespacedName) {
	m.drifted.DeleteLabelValues(name.Namespace, name.Name, fleet.SurfaceGitHub)
}
