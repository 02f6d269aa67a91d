package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// fieldsOf are the entries of a report on one surface, which all say what becomes of
// them and why.
func fieldsOf(t *testing.T, report *fleet.DriftReport, surface string) []fleet.FieldDrift {
	t.Helper()
	var out []fleet.FieldDrift
	for _, pool := range report.Pools {
		for _, field := range pool.Fields {
			if field.Outcome == "" || field.Message == "" {
				t.Errorf("nothing becomes of %+v", field)
			}
			if field.Surface == surface {
				out = append(out, field)
			}
		}
	}
	return out
}

func TestDriftSaysWhatBecomesOfIt(t *testing.T) {
	ready := func(status metav1.ConditionStatus, reason v1alpha1.Reason, message string) func(*v1alpha1.PoolSync) {
		return func(sync *v1alpha1.PoolSync) {
			meta.SetStatusCondition(&sync.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, Reason: string(reason), Message: message})
		}
	}
	entry := func(outcome, message string) func(*v1alpha1.PoolSync) {
		return func(sync *v1alpha1.PoolSync) {
			sync.Status.Drift = []v1alpha1.DriftEntry{{Kind: "ExecutorPool", Namespace: "cloop-gpu", Name: "gpu", Path: "/spec/maxRunners",
				Cause: v1alpha1.DriftClusterEdited, Outcome: outcome, Message: message}}
		}
	}
	for name, test := range map[string]struct {
		sync             func(*v1alpha1.PoolSync)
		outcome, message string
	}{
		"nothing known": {func(*v1alpha1.PoolSync) {}, v1alpha1.OutcomeWaiting, "not put Git's value back yet"},
		"contested":     {entry(v1alpha1.OutcomeContested, "scaler changes it"), v1alpha1.OutcomeContested, "scaler changes it"},
		"refused":       {entry(v1alpha1.OutcomeRefused, "no more than 3"), v1alpha1.OutcomeRefused, "no more than 3"},
		"report":        {func(sync *v1alpha1.PoolSync) { sync.Spec.Drift.Mode = v1alpha1.DriftReport }, v1alpha1.OutcomeReportOnly, "spec.drift.mode is Report"},
		"suspended": {func(sync *v1alpha1.PoolSync) {
			sync.Spec.Suspend, sync.Spec.SuspendReason = true, "nodes are drained"
			sync.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "ann", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:suspend":{}}}`)}}
		}, v1alpha1.OutcomeSuspended, "suspended by ann: nodes are drained"},
		"failing":   {ready(metav1.ConditionFalse, v1alpha1.ReasonApplyFailed, "no right"), v1alpha1.OutcomeWaiting, "no right"},
		"another's": {func(sync *v1alpha1.PoolSync) { sync.Name = "other" }, v1alpha1.OutcomeReportOnly, "no PoolSync holds the object to Git"},
	} {
		in := agreeing(t)
		set(t, &in.Clusters[0].Live[0], int64(4), "spec", "maxRunners")
		test.sync(&in.Clusters[0].Syncs[0])
		report := fleet.Drift(in)
		fields := fieldsOf(t, report, fleet.SurfaceGitCluster)
		if len(fields) != 1 || fields[0].Outcome != test.outcome || !strings.Contains(fields[0].Message, test.message) {
			t.Errorf("%s: %+v", name, fields)
		}
		if name == "suspended" && !strings.Contains(report.Text(), "note: PoolSync cloop-fleet/fleet of cluster eu is suspended by ann: nodes are drained") {
			t.Errorf("%s: text\n%s", name, report.Text())
		}
		if text := report.Text(); !strings.Contains(text, "  "+test.outcome+"  ") {
			t.Errorf("%s: text\n%s", name, text)
		}
	}
}

// What is put back on one side only makes the two agree where both were edited.
func TestAFieldThatIsEditedOnBothSidesIsOneFinding(t *testing.T) {
	until := time.Unix(1_800_000_000, 0).UTC()
	in := agreeing(t)
	set(t, &in.Clusters[0].Live[0], int64(2), "spec", "maxRunners")
	hub := &in.Hub.Pools[0]
	hub.Drift = []hubv1.Drift{{Path: "/spec/maxRunners", Cause: hubv1.CauseBreakGlass, Outcome: hubv1.OutcomeWaiting, By: "user:ann", Until: &until, Message: "fire"}}
	hub.MaxRunners, hub.Labels = 9, map[string]string{"gpu": "false"}
	report := fleet.Drift(in)
	cluster := fieldsOf(t, report, fleet.SurfaceGitCluster)
	if len(cluster) != 1 || cluster[0].Cause != v1alpha1.DriftBothEdited || fmt.Sprint(cluster[0].Git, cluster[0].Hub, cluster[0].Cluster) != "3 9 2" {
		t.Errorf("in the cluster: %+v", cluster)
	}
	atHub := fieldsOf(t, report, fleet.SurfaceGitHub)
	if len(atHub) != 2 || atHub[0].Cause != v1alpha1.DriftHubEdited || atHub[1].Cause != v1alpha1.DriftBothEdited ||
		atHub[1].Manager != "user:ann" || atHub[1].Message != "until 2027-01-15T08:00:00Z: fire" || fmt.Sprint(atHub[1].Cluster) != "2" {
		t.Errorf("at the hub: %+v", atHub)
	}
	// What a commit explains is nobody's edit.
	in.Clusters[0].Syncs[0].Status.LastAppliedRevision = older
	for _, field := range fieldsOf(t, fleet.Drift(in), fleet.SurfaceGitCluster) {
		if field.Cause != v1alpha1.DriftConverging {
			t.Errorf("a commit behind: %+v", field)
		}
	}
}

func TestLabelsEditedOnBothSides(t *testing.T) {
	in := agreeing(t)
	set(t, in.Clusters[0].Git[0].Object, map[string]any{"gpu": "true"}, "spec", "runnerLabels")
	set(t, &in.Clusters[0].Live[0], map[string]any{"gpu": "no"}, "spec", "runnerLabels")
	in.Hub.Pools[0].Labels = map[string]string{"gpu": "never"}
	for _, surface := range []string{fleet.SurfaceGitCluster, fleet.SurfaceGitHub} {
		if fields := fieldsOf(t, fleet.Drift(in), surface); len(fields) != 1 || fields[0].Cause != v1alpha1.DriftBothEdited {
			t.Errorf("%s: %+v", surface, fields)
		}
	}
}
