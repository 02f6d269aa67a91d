package controllers

import (
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
)

// editAs changes a pool as another field manager.
func (s *syncStage) editAs(manager, name, patch string) {
	s.t.Helper()
	pool := &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
	if err := s.client.Patch(s.ctx, pool, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner(manager)); err != nil {
		s.t.Fatal(err)
	}
}

// Two writers that undo each other's work would load the API server without end. The
// other one is named, and answered ever later.
func TestAFightNamesTheOtherWriter(t *testing.T) {
	s := newSyncStage(t, overlay("gpu", "batch"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)

	edits := 0
	s.until("the fight is seen", func() bool {
		if s.pool("gpu").Spec.MaxRunners == 4 {
			s.editAs("scaler", "gpu", `{"spec":{"maxRunners":9}}`)
			edits++
		}
		return condition(s.get(), v1alpha1.ConditionDrifted).Reason == string(v1alpha1.ReasonContested)
	})
	if edits > freeCorrections+2 {
		t.Errorf("it took %d edits", edits)
	}
	drifted := condition(s.get(), v1alpha1.ConditionDrifted)
	says := regexp.MustCompile(`^ExecutorPool ` + s.ns + `/gpu: scaler changes /spec/maxRunners as fast as it is put back \(put back [56] times in \d+s\), (next|last) at 20\d\d-[^ ]+Z; status.drift lists what: stop the other writer`)
	if drifted.Status != metav1.ConditionTrue || !says.MatchString(drifted.Message) {
		t.Errorf("Drifted is %+v", drifted)
	}
	entry := s.drift("maxRunners is put off", func(e v1alpha1.DriftEntry) bool {
		if s.pool("gpu").Spec.MaxRunners == 4 {
			s.editAs("scaler", "gpu", `{"spec":{"maxRunners":9}}`)
		}
		return e.Outcome == v1alpha1.OutcomeContested
	})
	if entry.Name != "gpu" || entry.Path != "/spec/maxRunners" || entry.Manager != "scaler" || entry.Corrected != nil || !strings.Contains(entry.Message, "; next at ") {
		t.Errorf("drift is %+v", entry)
	}
	// Once the other gives in, Git's value stays.
	s.until("Git's value is back", func() bool { return s.pool("gpu").Spec.MaxRunners == 4 })
	entry = s.drift("maxRunners is corrected", func(e v1alpha1.DriftEntry) bool { return e.Corrected != nil })
	if entry.Outcome != v1alpha1.OutcomeCorrected || entry.Message != "Git's value was put back" {
		t.Errorf("drift is %+v", entry)
	}
	if told := s.events(v1alpha1.ReasonContested); len(told) != 1 {
		t.Errorf("Events are %q", told)
	}
	// Another pool's edits are undone at once meanwhile.
	s.editAs("scaler", "batch", `{"spec":{"maxRunners":1}}`)
	s.until("batch has Git's value", func() bool { return s.pool("batch").Spec.MaxRunners == 4 })
}

// What takes the controller's label away is a writer, too.
func TestAFightOverLabelsIsNamed(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.until("the fight is seen", func() bool {
		if s.pool("gpu").Labels[v1alpha1.LabelPoolSyncName] == "fleet" {
			s.editAs("relabeler", "gpu", `{"metadata":{"labels":{"poolsync.cloop.dev/name":"other"}}}`)
		}
		return condition(s.get(), v1alpha1.ConditionDrifted).Reason == string(v1alpha1.ReasonContested)
	})
	if drifted := condition(s.get(), v1alpha1.ConditionDrifted); !strings.Contains(drifted.Message, "relabeler changes /metadata/labels/poolsync.cloop.dev~1name as fast") {
		t.Errorf("Drifted is %+v", drifted)
	}
}

// What an admission webhook makes of a pool is nobody's edit to a new process, either.
func TestWhatAWebhookSetsIsNoDriftAfterARestart(t *testing.T) {
	for _, mode := range []string{v1alpha1.DriftReport, v1alpha1.DriftCorrect} {
		t.Run(mode, func(t *testing.T) {
			s := newSyncStage(t, overlay("gpu"))
			s.webhook(probed(func(*unstructured.Unstructured) (string, string) {
				return `[{"op":"add","path":"/spec/runnerLabels","value":{"by":"webhook"}},{"op":"replace","path":"/spec/maxRunners","value":3}]`, ""
			}))
			s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Drift.Mode = mode })
			s.ready(v1alpha1.ReasonReconciliationSucceeded)
			before := s.pool("gpu")
			s.stop()
			s.startController()
			sync := s.sync()
			if drifted := condition(sync, v1alpha1.ConditionDrifted); len(sync.Status.Drift) > 0 || drifted.Reason != string(v1alpha1.ReasonNoDrift) {
				t.Errorf("drift is %+v, Drifted %+v", sync.Status.Drift, drifted)
			}
			if after := s.pool("gpu"); after.ResourceVersion != before.ResourceVersion || after.Spec.MaxRunners != 3 {
				t.Error("the webhook is fought")
			}
			// An edit beside it is one.
			s.kubectlEdit("gpu", `{"spec":{"minRunners":2}}`)
			entry := s.drift("the edit is seen", func(e v1alpha1.DriftEntry) bool { return e.Path == "/spec/minRunners" })
			want := map[string]string{v1alpha1.DriftReport: v1alpha1.OutcomeReportOnly, v1alpha1.DriftCorrect: v1alpha1.OutcomeCorrected}[mode]
			if entry.Outcome != want || entry.Manager != "kubectl-edit" || len(s.get().Status.Drift) != 1 {
				t.Errorf("drift is %+v", s.get().Status.Drift)
			}
		})
	}
}
