package controllers

import (
	"strings"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/apis/v1alpha1"
)

// observed is a document with the annotation.
func observed(document, value string) string {
	return strings.Replace(document, "metadata:\n", "metadata:\n  annotations: {cloop.dev/observe: \""+value+"\"}\n", 1)
}

// byHand creates what a document says, as kubectl does.
func (s *syncStage) byHand(document string) {
	s.t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
		s.t.Fatal(err)
	}
	object.SetNamespace(s.ns)
	if err := s.client.Create(s.ctx, object, client.FieldOwner("kubectl-create")); err != nil {
		s.t.Fatal(err)
	}
}

// Who adopts what runs wants to see first what Git would change.
func TestAnObservedPoolIsComparedAndNothingElse(t *testing.T) {
	files := overlay("gpu", "batch")
	files["pools/gpu.yaml"] = observed(poolFile("gpu", 4), "true")
	s := newSyncStage(t, files)
	s.byHand(poolFile("gpu", 9))
	before := s.pool("gpu")
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Wait = false })
	sync := s.ready(v1alpha1.ReasonReconciliationSucceeded)
	if ready := condition(sync, v1alpha1.ConditionReady); !strings.Contains(ready.Message, ": 2 objects; 1 more is only compared") {
		t.Errorf("Ready is %+v", ready)
	}
	if names := s.names(sync); strings.Contains(names, "gpu") || !strings.Contains(names, "ExecutorPool/batch") {
		t.Errorf("the inventory has %s", names)
	}
	entry := s.drift("maxRunners", func(e v1alpha1.DriftEntry) bool { return e.Path == "/spec/maxRunners" })
	if entry.Outcome != v1alpha1.OutcomeObserved || entry.Git != "4" || entry.Cluster != "9" || entry.Manager != "kubectl-create" || entry.Corrected != nil ||
		!strings.Contains(entry.Message, "cloop.dev/observe") {
		t.Errorf("drift is %+v", entry)
	}
	if c := condition(sync, v1alpha1.ConditionDrifted); c.Status != metav1.ConditionTrue || c.Reason != string(v1alpha1.ReasonObserved) || !strings.Contains(c.Message, "differs from Git in 1 field;") {
		t.Errorf("Drifted is %+v", c)
	}
	// Not by a request for everything, either.
	s.edit(func(sync *v1alpha1.PoolSync) {
		metav1.SetMetaDataAnnotation(&sync.ObjectMeta, fluxmeta.ForceRequestAnnotation, "now")
	})
	s.until("the request is served", func() bool { return s.get().Status.LastHandledForceAt == "now" })
	if now := s.pool("gpu"); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("it was written: %+v", now)
	}
	// Nothing asks for a sync: the pool is watched.
	s.editAs("kubectl-edit", "gpu", `{"spec":{"maxRunners":4}}`)
	s.drift("they agree", func(e v1alpha1.DriftEntry) bool {
		return e.Path == "/spec/maxRunners" && e.Outcome == v1alpha1.OutcomeCorrected
	})

	// Without the annotation it is the PoolSync's as any other.
	_, sync = s.push(map[string]string{"pools/gpu.yaml": observed(poolFile("gpu", 5), "false")})
	if pool := s.pool("gpu"); pool.Spec.MaxRunners != 5 || pool.Labels[v1alpha1.LabelPoolSyncName] != "fleet" || !strings.Contains(s.names(sync), "ExecutorPool/gpu") {
		t.Errorf("it has %d runners, and the inventory has %s", pool.Spec.MaxRunners, s.names(sync))
	}
}

// What is only compared is the PoolSync's no more, and outlives its document.
func TestAPoolThatIsObservedAgainIsLetGo(t *testing.T) {
	s := newSyncStage(t, overlay("gpu", "batch"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	_, sync := s.push(map[string]string{"pools/gpu.yaml": observed(poolFile("gpu", 4), "true")})
	if names := s.names(sync); strings.Contains(names, "gpu") {
		t.Errorf("the inventory has %s", names)
	}
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":7}}`)
	entry := s.drift("the edit is seen", func(e v1alpha1.DriftEntry) bool { return e.Path == "/spec/maxRunners" && e.Corrected == nil })
	if entry.Outcome != v1alpha1.OutcomeObserved || entry.Manager != "kubectl-edit" {
		t.Errorf("drift is %+v", entry)
	}
	s.push(map[string]string{"pools/kustomization.yaml": "resources: [batch.yaml]\n"})
	if pool := s.pool("gpu"); pool.Spec.MaxRunners != 7 || pool.DeletionTimestamp != nil {
		t.Errorf("the pool is %+v", pool)
	}
}

func TestAnObservationThatSaysNeitherIsHeldBack(t *testing.T) {
	files := overlay("gpu", "batch")
	files["pools/gpu.yaml"] = observed(poolFile("gpu", 4), "yes")
	s := newSyncStage(t, files)
	s.poolSync()
	sync := s.ready(v1alpha1.ReasonValidationFailed)
	if ready := condition(sync, v1alpha1.ConditionReady); !strings.Contains(ready.Message, `pools/gpu.yaml:4`) || !strings.Contains(ready.Message, `metadata.annotations[cloop.dev/observe]: must be "true" or "false"`) {
		t.Errorf("Ready is %+v", ready)
	}
	if s.hasPool("gpu") || !s.hasPool("batch") {
		t.Error("gpu was applied, or batch was not")
	}
}
