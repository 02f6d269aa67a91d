package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/metric"
)

// announceOutcome tells of a pass in Events and log lines: when something was
// applied, when something begins to be wrong, and each difference once when it
// comes and once when it goes.
func (r *poolSyncReconciler) announceOutcome(ctx context.Context, p *syncPass, history driftHistory) {
	log := logf.FromContext(ctx).WithValues("revision", p.status.LastAttemptedRevision)
	if p.changes.any() && p.err == nil && p.target != nil {
		log.Info("applies", "created", p.changes.created, "changed", p.changes.configured, "deleted", p.changes.deleted)
		r.events.record(p.sync, poolEvent{
			reason: v1alpha1.ReasonReconciliationSucceeded, message: fmt.Sprintf("applied %s: %s", p.target.revision, p.changes),
			key: p.target.revision, revision: p.target.revision, state: true,
		})
	} else {
		r.announceWell(p)
	}
	r.announceTrouble(p, log)
	for i := range history.detected {
		e := &history.detected[i]
		log.Info("finds drift", "kind", e.Kind, "namespace", e.Namespace, "pool", e.Name, "path", e.Path, "cause", e.Cause, "manager", e.Manager)
		r.events.record(p.sync, poolEvent{warning: true, reason: driftReason(e), message: driftMessage(e), key: driftEventKey(e), revision: p.driftRevision(e)})
	}
	for i := range history.corrected {
		e := &history.corrected[i]
		log.Info("sees drift end", "kind", e.Kind, "namespace", e.Namespace, "pool", e.Name, "path", e.Path)
		r.events.record(p.sync, poolEvent{reason: v1alpha1.ReasonDriftCorrected, message: fmt.Sprintf("%s %s/%s %s is as Git says again", e.Kind, e.Namespace, e.Name, shownPath(e)), key: driftEventKey(e), revision: p.status.LastAppliedRevision})
	}
}

// announceWell tells that all is well where nothing had to be changed for that: of
// trouble that was told and is over, and, to who keeps the states of commits, of a
// commit that is about something else.
func (r *poolSyncReconciler) announceWell(p *syncPass) {
	over := p.memory.trouble.told != ""
	if p.err != nil || p.awaits != "" || p.target == nil || !over && p.status.LastAppliedRevision == p.found.LastAppliedRevision {
		return
	}
	r.events.record(p.sync, poolEvent{
		reason: v1alpha1.ReasonReconciliationSucceeded, message: p.success(), key: p.target.revision + "/" + string(p.memory.trouble.told),
		revision: p.target.revision, statusOnly: !over, state: true,
	})
}

// announceTrouble tells of what is wrong once it is, or has lasted.
func (r *poolSyncReconciler) announceTrouble(p *syncPass, log logr.Logger) {
	t := &p.memory.trouble
	if p.err == nil {
		*t = trouble{}
		return
	}
	tell, at := t.lasts(p.err.reason, !p.err.stalled, r.clock.Now())
	switch {
	case tell:
		log.Info("fails", "reason", p.err.reason, "message", p.err.message())
		r.events.record(p.sync, poolEvent{
			warning: true, reason: p.err.reason, message: p.err.message(), key: p.status.LastAttemptedRevision, revision: p.status.LastAttemptedRevision, state: true,
		})
	case !at.IsZero():
		p.comeBack(at)
	}
}

// driftEventKey is one for an edit that somebody repeats.
func driftEventKey(e *v1alpha1.DriftEntry) string {
	return fmt.Sprint(keyOf(e), e.Cause, e.Manager, shorten(e.Git, maxShown), shorten(e.Cluster, maxShown))
}

// maxShown bounds a value in an Event, in bytes.
const maxShown = 128

// driftReason tells what somebody changed from what a commit would change.
func driftReason(e *v1alpha1.DriftEntry) v1alpha1.Reason {
	if e.Outcome == v1alpha1.OutcomeObserved {
		return v1alpha1.ReasonObserved
	}
	if e.Cause == v1alpha1.DriftCommitNotApplied {
		return v1alpha1.ReasonCommitWaits
	}
	return v1alpha1.ReasonDriftDetected
}

// driftRevision is what the object differs from.
func (p *syncPass) driftRevision(e *v1alpha1.DriftEntry) string {
	if e.Cause == v1alpha1.DriftCommitNotApplied {
		return p.status.LastAttemptedRevision
	}
	return p.status.LastAppliedRevision
}

func driftMessage(e *v1alpha1.DriftEntry) string {
	if e.Path == "" && e.Git == "" && e.Cluster == "" {
		return fmt.Sprintf("%s %s/%s: what Git says of it is held back, and what that would change is not told (%s)", e.Kind, e.Namespace, e.Name, e.Cause)
	}
	message := fmt.Sprintf("%s %s/%s %s: Git has %s, the cluster %s (%s",
		e.Kind, e.Namespace, e.Name, shownPath(e), orElse(shorten(e.Git, maxShown), "nothing"), orElse(shorten(e.Cluster, maxShown), "nothing"), e.Cause)
	if e.Manager != "" {
		message += ", by " + e.Manager
	}
	return message + ")"
}

func shownPath(e *v1alpha1.DriftEntry) string { return orElse(e.Path, "as a whole") }

var syncDuration = metric.Definition{
	Name: "cloop_fleet_sync_duration_seconds", Kind: metric.Histogram, Help: "Time of a sync that applied a new revision.", Labels: []string{"sync"},
	Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120},
}

// syncMetrics are the fleet controller's metrics.
type syncMetrics struct {
	duration *prometheus.HistogramVec
	drifted  *prometheus.GaugeVec
	gotk     *gotkMetrics
}

func newSyncMetrics(registry prometheus.Registerer) *syncMetrics {
	return &syncMetrics{
		duration: register(registry, syncDuration.NewHistogram()),
		drifted:  driftGauge(registry),
		gotk:     newGotkMetrics(registry, v1alpha1.PoolSyncKind),
	}
}

func (m *syncMetrics) synced(name types.NamespacedName, took time.Duration) {
	m.duration.WithLabelValues(name.String()).Observe(took.Seconds())
}

// looked shows a PoolSync after a pass.
func (m *syncMetrics) looked(p *syncPass, now time.Time) {
	is := gotkObject{ready: readyStatus(p.status.Conditions), suspended: p.sync.SuspendedAt(now), revision: p.status.LastAppliedRevision, url: p.sync.Spec.Source.Git.URL}
	if ref := p.sync.Spec.SourceRef; ref != nil {
		is.source = ref.Name
	}
	m.gotk.looked(p.name(), is, now.Sub(p.started))
}

// drift counts open differences of each pool that was looked at, so that a pool
// without any shows as 0.
func (m *syncMetrics) drift(p *syncPass) {
	open := map[driftKey]int{}
	for i := range p.memory.drift {
		if e := &p.memory.drift[i]; e.Corrected == nil {
			open[driftKey{kind: e.Kind, namespace: e.Namespace, name: e.Name}]++
		}
	}
	for _, s := range p.sights {
		if s.id.isPool() {
			n := open[driftKey{kind: s.id.kind, namespace: s.id.namespace, name: s.id.name}]
			m.drifted.WithLabelValues(s.id.namespace, s.id.name, fleet.SurfaceGitCluster).Set(float64(n))
		}
	}
}

// forget drops the series of a PoolSync that is gone, and of its pools.
func (m *syncMetrics) forget(name types.NamespacedName, applied *build) {
	m.duration.DeleteLabelValues(name.String())
	m.forgetPools(applied, nil)
	m.gotk.forget(name)
}

// forgetPools drops the series of pools that one build has and the next lacks.
func (m *syncMetrics) forgetPools(before, after *build) {
	if before == nil {
		return
	}
	for id := range before.byID {
		if id.isPool() && (after == nil || after.byID[id] == nil) {
			m.drifted.DeleteLabelValues(id.namespace, id.name, fleet.SurfaceGitCluster)
		}
	}
}
