package fleet

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

// causeOutcomes: cause → what becomes of a difference of which nothing else is known,
// and why.
var causeOutcomes = map[string][2]string{
	v1alpha1.DriftCommitNotApplied: {v1alpha1.OutcomeRefused, "the commit is not applied"},
	v1alpha1.DriftClusterEdited:    {v1alpha1.OutcomeWaiting, "the PoolSync has not put Git's value back yet"},
	v1alpha1.DriftHubEdited:        {v1alpha1.OutcomeWaiting, "the hub's sync has not put Git's value back yet"},
	v1alpha1.DriftBothEdited:       {v1alpha1.OutcomeWaiting, "Git's value is put back at the hub and in the cluster, each by its own sync"},
	v1alpha1.DriftConverging:       {v1alpha1.OutcomeWaiting, "the sync has not come to the commit yet"},
	v1alpha1.DriftRuleBroken:       {v1alpha1.OutcomeReportOnly, "nobody changes either side for a rule between the two"},
	hubv1.CauseBreakGlass:          {v1alpha1.OutcomeWaiting, "it ends with the override"},
	CauseBeingDeleted:              {v1alpha1.OutcomeWaiting, "it goes when its runners have finished"},
	CauseNotPushed:                 {v1alpha1.OutcomeWaiting, "nobody has it before it is pushed"},
	CauseCloneBehind:               {v1alpha1.OutcomeWaiting, "it may be gone with the newest commit"},
	CauseUnserved:                  {v1alpha1.OutcomeWaiting, "nobody applies it before a controller runs"},
}

// explain gives a field its cause, and what becomes of it by that alone.
func (f *FieldDrift) explain(cause string) {
	f.Cause, f.Outcome, f.Message = cause, causeOutcomes[cause][0], causeOutcomes[cause][1]
}

// Open counts the entries that are a difference still.
func Open(drift []v1alpha1.DriftEntry) (open int) {
	for i := range drift {
		if drift[i].Corrected == nil {
			open++
		}
	}
	return open
}

// ObservedMessage says why a difference of what a document only observes stays.
const ObservedMessage = "the document has the annotation " + v1alpha1.AnnotationObserve + ": it is only compared"

// observed says of a field of a document that is only compared that it is.
func (f *FieldDrift) observed(want metav1.Object) {
	if ToObserve(want) {
		f.Cause, f.Outcome = v1alpha1.DriftCommitNotApplied, v1alpha1.OutcomeObserved
		f.Message = ObservedMessage
	}
}

// outcomeAt is what becomes of a difference between Git and cluster by what its
// PoolSync says of itself; nil: no PoolSync applies the object.
func outcomeAt(sync *v1alpha1.PoolSync, cause string) (outcome, message string) {
	known := causeOutcomes[cause]
	if sync == nil {
		if cause == v1alpha1.DriftClusterEdited || cause == v1alpha1.DriftCommitNotApplied {
			return v1alpha1.OutcomeReportOnly, "no PoolSync holds the object to Git: what becomes of it is up to whoever applies it"
		}
		return known[0], known[1]
	}
	ready := meta.FindStatusCondition(sync.Status.Conditions, v1alpha1.ConditionReady)
	edited := cause == v1alpha1.DriftClusterEdited
	switch {
	case !edited && cause != v1alpha1.DriftCommitNotApplied:
	case suspended(sync):
		return v1alpha1.OutcomeSuspended, Suspension(sync)
	case edited && sync.Spec.Drift.Mode == v1alpha1.DriftReport:
		return v1alpha1.OutcomeReportOnly, "spec.drift.mode is " + v1alpha1.DriftReport
	case ready != nil && ready.Status == metav1.ConditionFalse && meta.IsStatusConditionTrue(sync.Status.Conditions, v1alpha1.ConditionStalled):
		return known[0], ready.Message
	case ready != nil && ready.Status == metav1.ConditionFalse:
		return v1alpha1.OutcomeWaiting, ready.Message
	}
	return known[0], known[1]
}

// bothEdited finds the fields of a pool that are otherwise than Git says at the hub and
// in a cluster, by no commit: to put one back does not make the two agree.
func (d *drift) bothEdited() {
	type place struct{ pool, path string }
	atHub := map[place]*FieldDrift{}
	for i := range d.report.Pools {
		pool := &d.report.Pools[i]
		for j := range pool.Fields {
			if f := &pool.Fields[j]; f.Surface == SurfaceGitHub && (f.Cause == v1alpha1.DriftHubEdited || f.Cause == v1alpha1.DriftBreakGlass) {
				atHub[place{pool.Pool, f.Path}] = f
			}
		}
	}
	for i := range d.report.Pools {
		pool := &d.report.Pools[i]
		for j := range pool.Fields {
			f := &pool.Fields[j]
			if f.Surface != SurfaceGitCluster || f.Cause != v1alpha1.DriftClusterEdited {
				continue
			}
			hub := atHub[place{pool.Pool, pathAtHub(f.Path)}]
			if hub == nil {
				continue
			}
			f.Cause, hub.Cause = v1alpha1.DriftBothEdited, v1alpha1.DriftBothEdited
			f.Hub, hub.Cluster = hub.Hub, f.Cluster
		}
	}
}

// pathAtHub is the field of a HubPool that is an ExecutorPool's: the hub's half has
// labels where the cluster's has runnerLabels.
func pathAtHub(path string) string {
	return strings.Replace(path, "/spec/runnerLabels/", "/spec/labels/", 1)
}
