package controllers

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

func kstatus(t *testing.T, sync *v1alpha1.PoolSync) status.Status {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(sync)
	if err != nil {
		t.Fatal(err)
	}
	content["apiVersion"], content["kind"] = v1alpha1.GroupVersion.String(), v1alpha1.PoolSyncKind
	result, err := status.Compute(&unstructured.Unstructured{Object: content})
	if err != nil {
		t.Fatal(err)
	}
	return result.Status
}

func TestSyncAppliesAnOverlay(t *testing.T) {
	files := overlay("gpu", "batch")
	files["clusters/dev/hub.yaml"] = "apiVersion: cloop.dev/v1alpha1\nkind: HubPool\nmetadata:\n  name: gpu\nspec:\n  maxRunners: 8\n"
	files["clusters/dev/hub2.yaml"] = "apiVersion: cloop.dev/v1alpha1\nkind: HubPool\nmetadata:\n  name: batch\nspec:\n  maxRunners: 8\n"
	files["clusters/dev/kustomization.yaml"] += "  - hub.yaml\n  - hub2.yaml\n"
	s := newSyncStage(t, files)
	s.poolSync()
	sync := s.ready(v1alpha1.ReasonReconciliationSucceeded)

	gpu := s.pool("gpu")
	revision := gpu.Annotations[v1alpha1.AnnotationRevision]
	if !strings.HasPrefix(revision, "main@sha1:") || sync.Status.LastAppliedRevision != revision || sync.Status.LastAttemptedRevision != revision {
		t.Errorf("the pool has revision %q, status %q and %q", revision, sync.Status.LastAppliedRevision, sync.Status.LastAttemptedRevision)
	}
	if gpu.Annotations[v1alpha1.AnnotationSourcePath] != "pools/gpu.yaml" || gpu.Labels[v1alpha1.LabelPoolSyncName] != "fleet" || gpu.Labels[v1alpha1.LabelPoolSyncNamespace] != s.ns {
		t.Errorf("the pool carries %v and %v", gpu.Annotations, gpu.Labels)
	}
	if names := s.names(sync); names != "ExecutorPool/batch ExecutorPool/gpu ResourceQuota/runners" {
		t.Errorf("inventory is %s", names)
	}
	if message := condition(sync, v1alpha1.ConditionReady).Message; !strings.Contains(message, "3 objects; 2 HubPools") {
		t.Errorf("Ready says %q", message)
	}
	if got := kstatus(t, sync); got != status.CurrentStatus {
		t.Errorf("kstatus is %s", got)
	}
	if s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: "gpu"}, &v1alpha1.HubPool{}) == nil {
		t.Error("a HubPool was applied")
	}
	s.until("an Event tells of it", func() bool { return len(s.events(v1alpha1.ReasonReconciliationSucceeded)) == 1 })
}

// A commit with a problem that is no object's says all of them and changes nothing.
func TestBadCommitChangesNothingAndARevertHeals(t *testing.T) {
	s := newSyncStage(t, overlay("gpu", "batch"))
	s.poolSync()
	good := s.ready(v1alpha1.ReasonReconciliationSucceeded)
	before := s.pool("batch")

	bad, sync := s.push(map[string]string{".cloop/rules.cue": "rules: [", "pools/gpu.yaml": poolFile("gpu", 4, "minRunners: 5"), "pools/batch.yaml": poolFile("batch", 6)})
	ready := condition(sync, v1alpha1.ConditionReady)
	if ready.Reason != string(v1alpha1.ReasonValidationFailed) || !strings.Contains(ready.Message, "pools/gpu.yaml:10:") || !strings.Contains(ready.Message, "[cel]") || !strings.Contains(ready.Message, ".cloop/rules.cue:1:") {
		t.Errorf("Ready is %s: %s", ready.Reason, ready.Message)
	}
	if got := kstatus(t, sync); got != status.FailedStatus {
		t.Errorf("kstatus is %s", got)
	}
	if !strings.HasSuffix(sync.Status.LastAttemptedRevision, bad) || sync.Status.LastAppliedRevision != good.Status.LastAppliedRevision {
		t.Errorf("attempted %s, applied %s", sync.Status.LastAttemptedRevision, sync.Status.LastAppliedRevision)
	}
	if after := s.pool("batch"); after.ResourceVersion != before.ResourceVersion {
		t.Error("the bad commit changed a pool")
	}
	entry := s.drift("the commit waits", func(e v1alpha1.DriftEntry) bool { return e.Name == "batch" && e.Corrected == nil })
	if entry.Cause != v1alpha1.DriftCommitNotApplied || entry.Path != "/spec/maxRunners" || entry.Git != "6" || entry.Cluster != "4" {
		t.Errorf("drift is %+v", entry)
	}

	if c := condition(s.get(), v1alpha1.ConditionDrifted); c.Reason != string(v1alpha1.ReasonCommitWaits) || strings.Contains(c.Message, "spec.drift.mode") {
		t.Errorf("a commit that waits reads as an edit: %+v", c)
	}
	s.until("an Event says so", func() bool {
		return len(s.events(v1alpha1.ReasonCommitWaits)) > 0 && len(s.events(v1alpha1.ReasonDriftDetected)) == 0
	})

	// The cluster is held to the last good commit meanwhile.
	s.kubectlEdit("batch", `{"spec":{"maxRunners":1}}`)
	s.until("the edit is undone", func() bool { return s.pool("batch").Spec.MaxRunners == 4 })
	if reason := condition(s.get(), v1alpha1.ConditionReady).Reason; reason != string(v1alpha1.ReasonValidationFailed) {
		t.Errorf("Ready is %s after the edit", reason)
	}

	reverted, sync := s.push(map[string]string{".cloop/rules.cue": fleettest.Removed, "pools/gpu.yaml": poolFile("gpu", 4), "pools/batch.yaml": poolFile("batch", 4)})
	if ready := condition(sync, v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue || !strings.HasSuffix(sync.Status.LastAppliedRevision, reverted) {
		t.Errorf("after the revert %s: %+v", sync.Status.LastAppliedRevision, ready)
	}
	if c := condition(sync, v1alpha1.ConditionStalled); c.Type != "" {
		t.Errorf("still %+v", c)
	}
}

// The API server's verdict quotes the value that it refuses. Nobody who may read a
// status, an Event or a log is to learn a password that somebody committed.
func TestAPasswordInACommitIsNotShown(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	bad := strings.Replace(poolFile("gpu", 4), "https://", "https://user:hunter2@", 1)
	_, sync := s.push(map[string]string{"pools/gpu.yaml": bad})
	if ready := condition(sync, v1alpha1.ConditionReady); ready.Reason != string(v1alpha1.ReasonValidationFailed) || !strings.Contains(ready.Message, "user:[redacted]@") {
		t.Errorf("Ready is %+v", ready)
	}
	s.until("an Event tells of it", func() bool { return len(s.events(v1alpha1.ReasonValidationFailed)) > 0 })
	shown, err := json.Marshal(sync)
	if err != nil {
		t.Fatal(err)
	}
	if events := strings.Join(s.events(v1alpha1.ReasonValidationFailed), "\n"); strings.Contains(events+string(shown), "hunter2") {
		t.Errorf("the password shows:\n%s\n%s", events, shown)
	}
}

func TestDriftIsShownAndCorrected(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)

	s.kubectlEdit("gpu", `{"spec":{"maxRunners":3,"minRunners":2,"runnerLabels":{"by":"hand"}}}`)
	s.until("Git's values are back", func() bool {
		spec := s.pool("gpu").Spec
		return spec.MaxRunners == 4 && spec.MinRunners == 0 && len(spec.RunnerLabels) == 0
	})
	for path, want := range map[string][2]string{
		"/spec/maxRunners": {"4", "3"}, "/spec/minRunners": {"0", "2"}, "/spec/runnerLabels/by": {"", `"hand"`},
	} {
		e := s.drift(path, func(e v1alpha1.DriftEntry) bool { return e.Path == path && e.Corrected != nil })
		if e.Name != "gpu" || e.Cause != v1alpha1.DriftClusterEdited || e.Git != want[0] || e.Cluster != want[1] || e.Manager != "kubectl-edit" {
			t.Errorf("drift is %+v", e)
		}
	}
	sync := s.get()
	if c := condition(sync, v1alpha1.ConditionDrifted); c.Status != metav1.ConditionFalse || c.Reason != string(v1alpha1.ReasonDriftCorrected) {
		t.Errorf("Drifted is %+v", c)
	}
	s.until("three Events each", func() bool {
		return len(s.events(v1alpha1.ReasonDriftDetected)) == 3 && len(s.events(v1alpha1.ReasonDriftCorrected)) == 3
	})
	if messages := strings.Join(s.events(v1alpha1.ReasonDriftDetected), "\n"); !strings.Contains(messages, "ExecutorPool "+s.ns+"/gpu /spec/maxRunners: Git has 4, the cluster 3 (ClusterEdited, by kubectl-edit)") {
		t.Errorf("Events say %s", messages)
	}
}

func TestReportModeOnlyReports(t *testing.T) {
	s := newSyncStage(t, overlay("gpu", "batch"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Drift.Mode = v1alpha1.DriftReport })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)

	s.kubectlEdit("gpu", `{"spec":{"maxRunners":3}}`)
	e := s.drift("maxRunners", func(e v1alpha1.DriftEntry) bool { return e.Path == "/spec/maxRunners" })
	if e.Corrected != nil || e.Manager != "kubectl-edit" {
		t.Errorf("drift is %+v", e)
	}
	// A commit about another pool leaves the edit alone; one about this ends it.
	_, sync := s.push(map[string]string{"pools/batch.yaml": poolFile("batch", 5)})
	if s.pool("batch").Spec.MaxRunners != 5 || s.pool("gpu").Spec.MaxRunners != 3 || condition(sync, v1alpha1.ConditionReady).Status != metav1.ConditionTrue {
		t.Errorf("batch has %d, gpu %d", s.pool("batch").Spec.MaxRunners, s.pool("gpu").Spec.MaxRunners)
	}
	if c := condition(sync, v1alpha1.ConditionDrifted); c.Status != metav1.ConditionTrue || c.Reason != string(v1alpha1.ReasonDriftDetected) || !strings.Contains(c.Message, "set spec.drift.mode to Correct") {
		t.Errorf("Drifted is %+v", c)
	}
	s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 6)})
	if got := s.pool("gpu").Spec.MaxRunners; got != 6 {
		t.Errorf("gpu has %d", got)
	}
	s.drift("it is over", func(e v1alpha1.DriftEntry) bool { return e.Path == "/spec/maxRunners" && e.Corrected != nil })
	if err := s.client.Delete(s.ctx, s.pool("gpu")); err != nil {
		t.Fatal(err)
	}
	s.drift("the pool is gone", func(e v1alpha1.DriftEntry) bool { return e.Name == "gpu" && e.Path == "" && e.Corrected == nil })
	s.sync()
	if s.hasPool("gpu") {
		t.Error("a pool was created where drift is only reported")
	}
}

func TestPoolDeletedByHandComesBack(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	old := s.pool("gpu")
	if err := s.client.Delete(s.ctx, old); err != nil {
		t.Fatal(err)
	}
	s.until("there is a new one", func() bool { return s.hasPool("gpu") && s.pool("gpu").UID != old.UID })
	s.drift("the deletion shows", func(e v1alpha1.DriftEntry) bool { return e.Name == "gpu" && e.Path == "" && e.Corrected != nil })
}

func TestRemovedOwnerLabelComesBack(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.kubectlEdit("gpu", `{"metadata":{"labels":null}}`)
	s.until("the label is back", func() bool { return s.pool("gpu").Labels[v1alpha1.LabelPoolSyncName] == "fleet" })
}

func TestIgnoredFieldIsNeitherComparedNorApplied(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
		spec.Drift.Ignore = []v1alpha1.IgnoreRule{{Paths: []string{"/spec/maxRunners"}, Target: &v1alpha1.IgnoreTarget{Name: "gpu"}}}
	})
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":9}}`)
	s.kubectlEdit("gpu", `{"spec":{"minRunners":1}}`)
	s.until("the other field is restored", func() bool { return s.pool("gpu").Spec.MinRunners == 0 })
	_, sync := s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 4, "scaleDownDelay: 7s")})
	pool := s.pool("gpu")
	if pool.Spec.MaxRunners != 9 || pool.Spec.ScaleDownDelay.Duration.String() != "7s" {
		t.Errorf("the pool is %+v", pool.Spec)
	}
	for _, e := range sync.Status.Drift {
		if e.Path == "/spec/maxRunners" {
			t.Errorf("drift has %+v", e)
		}
	}
}

func TestFieldIsHandedOverByIgnoringIt(t *testing.T) {
	files := overlay("gpu")
	files["pools/gpu.yaml"] = poolFile("gpu", 4, "runnerLabels: {a: b}")
	s := newSyncStage(t, files)
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.edit(func(sync *v1alpha1.PoolSync) {
		sync.Spec.Drift.Ignore = []v1alpha1.IgnoreRule{{Paths: []string{"/spec/runnerLabels", "/spec/template/nodeSelector"}}}
	})
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	_, sync := s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 5)})
	pool := s.pool("gpu")
	if ready := condition(sync, v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue || pool.Spec.MaxRunners != 5 || pool.Spec.RunnerLabels["a"] != "b" {
		t.Errorf("labels are %v, Ready is %+v", pool.Spec.RunnerLabels, ready)
	}
	s.kubectlEdit("gpu", `{"spec":{"runnerLabels":{"a":"c"}}}`)
	_, sync = s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 6)})
	if pool := s.pool("gpu"); pool.Spec.MaxRunners != 6 || pool.Spec.RunnerLabels["a"] != "c" {
		t.Errorf("labels are %v, Ready is %+v", pool.Spec.RunnerLabels, condition(sync, v1alpha1.ConditionReady))
	}
}

func TestCommitRewritesOnlyWhatItIsAbout(t *testing.T) {
	s := newSyncStage(t, overlay("gpu", "batch"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	before := s.pool("batch")
	first := s.pool("gpu").Annotations[v1alpha1.AnnotationRevision]
	s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 5), "README.md": "fleet"})
	gpu, batch := s.pool("gpu"), s.pool("batch")
	if batch.ResourceVersion != before.ResourceVersion {
		t.Error("the other pool was rewritten")
	}
	if got := gpu.Annotations[v1alpha1.AnnotationRevision]; gpu.Spec.MaxRunners != 5 || got == first {
		t.Errorf("gpu has %d runners from %s", gpu.Spec.MaxRunners, got)
	}
	// A field that Git drops is dropped from the cluster.
	s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 5, "runnerLabels: {a: b}")})
	s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 5)})
	if labels := s.pool("gpu").Spec.RunnerLabels; len(labels) > 0 {
		t.Errorf("labels are %v", labels)
	}
}

func TestNothingIsDeletedForWantOfReading(t *testing.T) {
	s := newSyncStage(t, overlay("gpu", "batch"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	keeps := func(t *testing.T, sync *v1alpha1.PoolSync, reason v1alpha1.Reason) {
		t.Helper()
		ready := condition(sync, v1alpha1.ConditionReady)
		// What to do the cause may say itself.
		_, outcome, _ := strings.Cut(reason.Remedy(), "; ")
		if ready.Reason != string(reason) || ready.Status != metav1.ConditionFalse || !strings.HasSuffix(ready.Message, orElse(outcome, reason.Remedy())) {
			t.Errorf("Ready is %+v", ready)
		}
		if !s.hasPool("gpu") || !s.hasPool("batch") || len(sync.Status.Inventory) != 3 {
			t.Errorf("inventory is %s", s.names(sync))
		}
	}
	restore := overlay("gpu", "batch")

	_, sync := s.push(map[string]string{"clusters/dev/kustomization.yaml": "resources: []\n", "clusters/dev/quota.yaml": fleettest.Removed})
	keeps(t, sync, v1alpha1.ReasonEmptyBuild)
	_, sync = s.push(map[string]string{"clusters/dev/kustomization.yaml": fleettest.Removed})
	keeps(t, sync, v1alpha1.ReasonPathNotFound)
	_, sync = s.push(map[string]string{"clusters/dev/kustomization.yaml": "resources:\n  - nowhere.yaml\n"})
	keeps(t, sync, v1alpha1.ReasonBuildFailed)
	if message := condition(sync, v1alpha1.ConditionReady).Message; !strings.Contains(message, "clusters/dev/kustomization.yaml:2:") {
		t.Errorf("Ready says %s", message)
	}
	_, sync = s.push(map[string]string{"clusters/dev/passwd": fleettest.Symlink("/etc/passwd")})
	keeps(t, sync, v1alpha1.ReasonBuildFailed)
	if c := condition(sync, v1alpha1.ConditionStalled); c.Status != metav1.ConditionTrue {
		t.Errorf("Stalled is %+v", c)
	}
	restore["clusters/dev/passwd"] = fleettest.Removed
	s.push(restore)
	s.ready(v1alpha1.ReasonReconciliationSucceeded)

	s.git.Close()
	sync = s.sync()
	keeps(t, sync, v1alpha1.ReasonSourceUnavailable)
	if c := condition(sync, v1alpha1.ConditionReconciling); c.Status != metav1.ConditionTrue {
		t.Errorf("Reconciling is %+v", c)
	}
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":3}}`)
	s.until("drift is corrected without Git", func() bool { return s.pool("gpu").Spec.MaxRunners == 4 })
}

func TestForeignKindsAreRefused(t *testing.T) {
	for name, document := range map[string]string{
		"Secret":    "apiVersion: v1\nkind: Secret\nmetadata:\n  name: stolen\nstringData:\n  a: b\n",
		"ConfigMap": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: stolen\n",
		"Role":      "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: stolen\n",
	} {
		t.Run(name, func(t *testing.T) {
			files := overlay("gpu")
			files["clusters/dev/kustomization.yaml"] += "  - foreign.yaml\n"
			files["clusters/dev/foreign.yaml"] = document
			s := newSyncStage(t, files)
			s.poolSync()
			sync := s.ready(v1alpha1.ReasonValidationFailed)
			if message := condition(sync, v1alpha1.ConditionReady).Message; !strings.Contains(message, "clusters/dev/foreign.yaml:2:") || !strings.Contains(message, "[kind-not-applied]") {
				t.Errorf("Ready says %s", message)
			}
			if !s.hasPool("gpu") {
				t.Error("the rest was not applied")
			}
			stolen := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(document), &stolen.Object); err != nil {
				t.Fatal(err)
			}
			if err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: "stolen"}, stolen); !apierrors.IsNotFound(err) {
				t.Errorf("the %s was applied: %v", stolen.GetKind(), err)
			}
		})
	}
}

func TestSuspendedSyncDoesNothing(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Suspend = true })
	s.ready(v1alpha1.ReasonSuspended)
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":3}}`)
	s.git.Commit(fleetRepository, map[string]string{"pools/gpu.yaml": poolFile("gpu", 7)})
	s.poke()
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Suspend = false })
	s.until("it goes on where Git is", func() bool { return s.pool("gpu").Spec.MaxRunners == 7 })
	if e := s.get().Status.Drift; len(e) > 0 && e[0].Cause != v1alpha1.DriftClusterEdited {
		t.Errorf("drift is %+v", e)
	}
}

func TestAccountWithoutRights(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "applier"}})
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.ServiceAccountName = "applier" })
	sync := s.ready(v1alpha1.ReasonApplyFailed)
	message := condition(sync, v1alpha1.ConditionReady).Message
	if !strings.Contains(message, "system:serviceaccount:"+s.ns+":applier") || !strings.Contains(message, "forbidden") {
		t.Errorf("Ready says %s", message)
	}
	if s.hasPool("gpu") || sync.Status.LastAppliedRevision != "" {
		t.Error("something was applied")
	}
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.ServiceAccountName = "" })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
}

func TestSecretOfGitIsMissing(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
		spec.Source.Git.SecretRef = &v1alpha1.LocalObjectReference{Name: "nowhere"}
	})
	sync := s.ready(v1alpha1.ReasonSourceUnavailable)
	if message := condition(sync, v1alpha1.ConditionReady).Message; !strings.Contains(message, `"nowhere" not found`) {
		t.Errorf("Ready says %s", message)
	}
	// It comes later, and the next attempt finds it.
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "nowhere"}, Data: map[string][]byte{"ca.crt": s.git.CABundle()}})
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
}

// A name that is too long for the label that marks what was applied would belong
// to nobody, or to a PoolSync with the same beginning.
func TestNameIsALabel(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.name = strings.Repeat("a", 64)
	err := s.client.Create(s.ctx, &v1alpha1.PoolSync{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: s.name},
		Spec:       v1alpha1.PoolSyncSpec{Path: ".", Source: v1alpha1.PoolSyncSource{Git: v1alpha1.GitSource{URL: s.git.URL(fleetRepository)}}},
	})
	if err == nil || !strings.Contains(err.Error(), "metadata.name: Too long: may not be more than 63 bytes") {
		t.Errorf("with 64 letters: %v", err)
	}
	s.name = s.name[1:]
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	if got := s.pool("gpu").Labels[v1alpha1.LabelPoolSyncName]; got != s.name {
		t.Errorf("the pool is %q's", got)
	}
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":3}}`)
	s.until("an edit is taken back", func() bool { return s.pool("gpu").Spec.MaxRunners == 4 })
}
