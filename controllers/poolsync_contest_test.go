package controllers

import (
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
