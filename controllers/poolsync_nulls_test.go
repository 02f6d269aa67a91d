package controllers

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fluxcd/pkg/ssa"

	"cloop.dev/cloop/apis/v1alpha1"
)

// nulls are lines of a pool's spec that an API server drops from what is created.
var nulls = []string{"hubPool: null", "runnerLabels: {a: null, b: c}", "template:", "  nodeSelector: null", "  tolerations:", "  - {key: null, operator: Exists}", "  image:"}

// A null is nothing: it is applied as such, and is no difference afterwards. With an
// ignore rule, by which an object is applied in another way, it is the same.
func TestNullsAreNothing(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.PoolSyncSpec){
		"as it is": func(*v1alpha1.PoolSyncSpec) {},
		"with an ignored": func(spec *v1alpha1.PoolSyncSpec) {
			spec.Drift.Ignore = []v1alpha1.IgnoreRule{{Paths: []string{"/spec/minRunners"}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := overlay("gpu")
			files["pools/gpu.yaml"] = strings.Replace(poolFile("gpu", 4, nulls...), "metadata:\n", "metadata:\n  labels: {team: null, site: eu}\n", 1)
			s := newSyncStage(t, files)
			s.poolSync(change)
			first := s.ready(v1alpha1.ReasonReconciliationSucceeded)
			pool := s.pool("gpu")
			if pool.Labels["site"] != "eu" || pool.Labels[v1alpha1.LabelPoolSyncName] != s.name || pool.Spec.RunnerLabels["b"] != "c" || len(pool.Spec.RunnerLabels) != 1 {
				t.Errorf("the pool has labels %v and %v", pool.Labels, pool.Spec.RunnerLabels)
			}
			again := s.sync()
			if c := condition(again, v1alpha1.ConditionDrifted); c.Status != metav1.ConditionFalse || len(again.Status.Drift) > 0 {
				t.Errorf("Drifted is %+v: %+v", c, again.Status.Drift)
			}
			if version := s.pool("gpu").ResourceVersion; version != pool.ResourceVersion || again.Status.LastAppliedRevision != first.Status.LastAppliedRevision {
				t.Errorf("the pool was written again: %s, then %s", pool.ResourceVersion, version)
			}
			// What Git says is null is nobody's to set.
			s.kubectlEdit("gpu", `{"spec":{"template":{"nodeSelector":{"a":"b"}}}}`)
			s.drift("the edit is put back", func(e v1alpha1.DriftEntry) bool {
				return e.Path == "/spec/template/nodeSelector/a" && e.Corrected != nil && e.Git == ""
			})
		})
	}
}

// What Flux applies with takes none of these nulls, and all of those that stand for a
// default or are of a kind that an API server reads into a Go type: the check says so.
func TestAServerSideApplyRefusesNulls(t *testing.T) {
	s := byHand(t, "gpu")
	manager := ssa.NewResourceManager(s.client, nil, ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"})
	for text, refused := range map[string]bool{
		poolFile("a", 4, "hubPool: null"):                                                                                                                true,
		poolFile("a", 4, "runnerLabels: {a: null}"):                                                                                                      true,
		poolFile("a", 4, "template: {nodeSelector: null}"):                                                                                               true,
		poolFile("a", 4, "template: {tolerations: [{key: null}]}"):                                                                                       true,
		poolFile("a", 4, "minRunners: null", "scaleDownDelay: null") + "status: null\n":                                                                  false,
		strings.Replace(poolFile("a", 4), "metadata:\n", "metadata:\n  labels: {a: null}\n  annotations: null\n", 1):                                     false,
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\nimagePullSecrets: null\n":                                                            false,
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {podSelector: null, ingress: null, policyTypes: [Ingress]}\n": false,
		"apiVersion: v1\nkind: LimitRange\nmetadata: {name: a}\nspec: {limits: [{type: Container, max: {cpu: 4}, min: null}]}\n":                         false,
		"apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: a}\nspec: {hard: {pods: 4}, scopes: null}\n":                                              false,
	} {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		object.SetNamespace(s.ns)
		_, err := manager.Apply(s.ctx, object, ssa.DefaultApplyOptions())
		if refused != (err != nil) || refused && !apierrors.IsInvalid(err) && !strings.Contains(err.Error(), "is invalid") {
			t.Errorf("%s\nis refused: %v, want %t", text, err, refused)
		}
	}
}
