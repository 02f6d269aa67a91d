package controllers

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
)

// A renamed pool needs no yes, and one that only goes does.
func TestARenamedPoolIsNoLoss(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu", "batch", "small"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.PruneLimit = v1alpha1.PruneLimit{} })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	renamed := poolFile("gpu-a100", 4)
	renamed = "metadata:\n  annotations: {cloop.dev/moved-from: gpu}\n  name: gpu-a100\n" + renamed[len("apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata:\n  name: gpu-a100\n"):]
	files := overlay("batch", "small", "gpu-a100")
	files["pools/gpu-a100.yaml"] = "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\n" + renamed
	s.push(files)
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.until("it is the other pool", func() bool { return s.hasPool("gpu-a100") && !s.hasPool("gpu") })

	files["pools/kustomization.yaml"] = "resources: [batch.yaml, gpu-a100.yaml]\n"
	s.push(files)
	s.ready(v1alpha1.ReasonPruneNeedsApproval)
	if !s.hasPool("small") {
		t.Error("a pool that was not renamed is gone")
	}
}

func TestWhatWasMoved(t *testing.T) {
	object := func(namespace, name, from string) *unstructured.Unstructured {
		o := newPool()
		o.SetNamespace(namespace)
		o.SetName(name)
		if from != "" {
			setAnnotation(o, v1alpha1.AnnotationMovedFrom, from)
		}
		return o
	}
	b := &build{byID: map[objectID]*wanted{}}
	for _, o := range []*unstructured.Unstructured{
		object("a", "new", "old"), object("b", "here", "a/there"), object("a", "stays", ""), object("a", "one", "stays"), object("a", "two", "old"),
	} {
		b.byID[idOf(o)] = wantedFrom(t, o)
	}
	left := notMoved(b, []*unstructured.Unstructured{object("a", "old", ""), object("a", "there", ""), object("b", "old", ""), object("a", "lost", "")})
	var names string
	for _, o := range left {
		names += o.GetNamespace() + "/" + o.GetName() + " "
	}
	if names != "b/old a/lost " {
		t.Errorf("lost are %s", names)
	}
}
