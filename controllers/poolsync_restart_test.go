package controllers

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

func TestRestartKnowsWhatWasApplied(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	before := s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.stop()
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":3}}`)
	s.startController()
	s.drift("what happened meanwhile shows", isEdit("gpu"))
	if got := s.sync(); got.Status.LastAppliedRevision != before.Status.LastAppliedRevision || got.Status.LastAppliedPath != "./clusters/dev" {
		t.Errorf("applied %s of %s", got.Status.LastAppliedPath, got.Status.LastAppliedRevision)
	}
}

// isEdit finds the entry of an edit that was taken back.
func isEdit(name string) func(v1alpha1.DriftEntry) bool {
	return func(e v1alpha1.DriftEntry) bool {
		return e.Name == name && e.Path == "/spec/maxRunners" && e.Cause == v1alpha1.DriftClusterEdited && e.Corrected != nil
	}
}

// Whatever keeps the newest commit from being applied, what was applied last is
// guarded, by a process that has never seen it applied too.
func TestRestartGuardsWhatWasAppliedLast(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(*syncStage)
		reason v1alpha1.Reason
	}{
		"HEAD is refused": {func(s *syncStage) {
			s.push(map[string]string{".cloop/rules.cue": "rules: [", "pools/gpu.yaml": poolFile("gpu", 6), "pools/batch.yaml": poolFile("batch", 6)})
		}, v1alpha1.ReasonValidationFailed},
		"a pool is held back": {func(s *syncStage) {
			s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 4, "minRunners: 5")})
		}, v1alpha1.ReasonValidationFailed},
		"a pool is held back and the clone is gone": {func(s *syncStage) {
			s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 4, "minRunners: 5")})
			s.cache = t.TempDir()
		}, v1alpha1.ReasonValidationFailed},
		"the overlay is gone": {func(s *syncStage) {
			s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Path = "./clusters/nowhere" })
			s.ready(v1alpha1.ReasonPathNotFound)
		}, v1alpha1.ReasonPathNotFound},
		"what it depends on is not there": {func(s *syncStage) {
			s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.DependsOn = []v1alpha1.PoolSyncReference{{Name: "other"}} })
			s.ready(v1alpha1.ReasonDependencyNotReady)
		}, v1alpha1.ReasonDependencyNotReady},
		"Git is away": {func(s *syncStage) {
			s.git.Close()
			s.sync()
		}, v1alpha1.ReasonSourceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSyncStage(t, overlay("gpu", "batch"))
			s.poolSync()
			good := s.ready(v1alpha1.ReasonReconciliationSucceeded)
			c.spoil(s)
			s.stop()
			s.kubectlEdit("batch", `{"spec":{"maxRunners":1}}`)
			s.startController()
			s.until("the edit is undone", func() bool { return s.pool("batch").Spec.MaxRunners == 4 })
			s.drift("the edit shows", isEdit("batch"))
			// And what is edited later.
			s.kubectlEdit("gpu", `{"spec":{"maxRunners":1}}`)
			s.until("the edit is undone", func() bool { return s.pool("gpu").Spec.MaxRunners == 4 })
			sync := s.get()
			if ready := condition(sync, v1alpha1.ConditionReady); ready.Reason != string(c.reason) || ready.Status != metav1.ConditionFalse {
				t.Errorf("Ready is %+v", ready)
			}
			if sync.Status.LastAppliedRevision != good.Status.LastAppliedRevision || len(sync.Status.Inventory) != 3 {
				t.Errorf("applied %s: %s", sync.Status.LastAppliedRevision, s.names(sync))
			}
		})
	}
}

// Where drift is only reported, a commit about one pool does not take back what
// somebody made of another, after a restart neither.
func TestRestartLeavesAnEditThatIsOnlyReported(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu", "batch"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Drift.Mode = v1alpha1.DriftReport })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.stop()
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":3}}`)
	commit := s.git.Commit(fleetRepository, map[string]string{"pools/batch.yaml": poolFile("batch", 5)})
	s.startController()
	s.until("the commit is applied", func() bool { return strings.HasSuffix(s.get().Status.LastAppliedRevision, commit) })
	if s.pool("batch").Spec.MaxRunners != 5 || s.pool("gpu").Spec.MaxRunners != 3 {
		t.Errorf("batch has %d, gpu %d", s.pool("batch").Spec.MaxRunners, s.pool("gpu").Spec.MaxRunners)
	}
	s.drift("the edit shows", func(e v1alpha1.DriftEntry) bool {
		return e.Name == "gpu" && e.Cause == v1alpha1.DriftClusterEdited && e.Corrected == nil && e.Manager == "kubectl-edit"
	})
}

// A sync that was cut short has written some of a commit, which nobody edited.
func TestAHalfAppliedCommitIsNoDrift(t *testing.T) {
	want, before, have := newPool(), newPool(), newPool()
	want.Object["spec"] = map[string]any{"maxRunners": int64(6), "minRunners": int64(1)}
	before.Object["spec"] = map[string]any{"maxRunners": int64(4), "minRunners": int64(0)}
	have.Object["spec"] = map[string]any{"maxRunners": int64(6), "minRunners": int64(2)}
	s := &sight{want: wantedFrom(t, want), before: wantedFrom(t, before), have: have}
	s.compare()
	if len(s.edited) != 1 || s.edited[0].Path != "/spec/minRunners" {
		t.Errorf("edited are %+v", s.edited)
	}
}

func TestDifferencesThatTouch(t *testing.T) {
	paths := func(of ...string) []fleet.FieldDiff {
		diffs := make([]fleet.FieldDiff, len(of))
		for i := range of {
			diffs[i].Path = of[i]
		}
		return diffs
	}
	for _, c := range []struct {
		diff, other string
		want        int
	}{
		{"/spec/a", "/spec/a", 1}, {"/spec/a/b", "/spec/a", 1}, {"/spec/a", "/spec/a/b", 1}, {"/spec/a", "", 1}, {"", "/spec/a", 1},
		{"/spec/a", "/spec/ab", 0}, {"/spec/ab", "/spec/a", 0}, {"/spec/a", "/spec/b", 0},
	} {
		if got := among(paths(c.diff), paths(c.other)); len(got) != c.want {
			t.Errorf("%q and %q: %d", c.diff, c.other, len(got))
		}
	}
}
