package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
)

// Values come from the spec and from the cluster, and a changed one is applied
// like a commit; without a value nothing is.
func TestASyncReplacesVariables(t *testing.T) {
	files := overlay("gpu")
	files["pools/gpu.yaml"] = strings.Replace(files["pools/gpu.yaml"], "maxRunners: 4", "maxRunners: ${MAX}", 1)
	s := newSyncStage(t, files)
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
		spec.Substitute = &v1alpha1.Substitution{From: []v1alpha1.SubstituteReference{{Kind: "ConfigMap", Name: "values"}}}
	})
	sync := s.ready(v1alpha1.ReasonBuildFailed)
	if message := condition(sync, v1alpha1.ConditionReady).Message; !strings.Contains(message, "ConfigMap values: it does not exist") {
		t.Errorf("Ready says %s", message)
	}
	values := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "values"}}
	s.create(values)
	s.sync()
	sync = s.ready(v1alpha1.ReasonBuildFailed)
	if message := condition(sync, v1alpha1.ConditionReady).Message; !strings.Contains(message, "pools/gpu.yaml:") || !strings.Contains(message, "${MAX} has no value") || s.hasPool("gpu") {
		t.Errorf("Ready says %s", message)
	}
	for _, most := range []string{"3", "2"} {
		values.Data = map[string]string{"MAX": most}
		if err := s.client.Update(s.ctx, values); err != nil {
			t.Fatal(err)
		}
		s.sync()
		s.ready(v1alpha1.ReasonReconciliationSucceeded)
		if got := s.pool("gpu").Spec.MaxRunners; got != int32(most[0]-'0') {
			t.Errorf("maxRunners is %d, want %s", got, most)
		}
	}
}
