package controllers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
)

// webhook has the API server ask about each ExecutorPool and ResourceQuota of the
// stage's namespace before it takes one. answer returns a JSON patch, or why it refuses.
func (s *syncStage) webhook(answer func(pool *unstructured.Unstructured) (patch, refusal string)) *httptest.Server {
	s.t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		review := admissionv1.AdmissionReview{}
		pool := newPool()
		if err := json.Unmarshal(body, &review); err != nil || review.Request == nil || pool.UnmarshalJSON(review.Request.Object.Raw) != nil {
			http.Error(w, "not a review", http.StatusBadRequest)
			return
		}
		patch, refusal := answer(pool)
		response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: refusal == ""}
		if refusal != "" {
			response.Result = &metav1.Status{Code: http.StatusForbidden, Message: refusal}
		}
		if patch != "" {
			kind := admissionv1.PatchTypeJSONPatch
			response.Patch, response.PatchType = []byte(patch), &kind
		}
		review.Request, review.Response = nil, response
		_ = json.NewEncoder(w).Encode(review)
	}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	s.t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	none := admissionregistrationv1.SideEffectClassNone
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.ns},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "pools.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: authority},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.ns}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{v1alpha1.Group, ""}, APIVersions: []string{"*"}, Resources: []string{"executorpools", "resourcequotas"}},
			}},
		}},
	}
	s.create(configuration)
	// The test's own context has ended by then.
	s.t.Cleanup(func() { _ = s.client.Delete(context.Background(), configuration) })
	s.until("the API server asks the webhook", func() bool {
		probe := newPool()
		probe.SetNamespace(s.ns)
		probe.SetName("probe-of-the-webhook")
		_ = unstructured.SetNestedField(probe.Object, "https://hub.example.com", "spec", "hubURL")
		_ = unstructured.SetNestedField(probe.Object, "x", "spec", "poolCredentialSecretRef", "name")
		_ = unstructured.SetNestedField(probe.Object, int64(1), "spec", "maxRunners")
		err := s.client.Create(s.ctx, probe, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "probed")
	})
	return server
}

// probed lets the stage see that the webhook is asked.
func probed(answer func(pool *unstructured.Unstructured) (patch, refusal string)) func(*unstructured.Unstructured) (string, string) {
	return func(pool *unstructured.Unstructured) (string, string) {
		if pool.GetName() == "probe-of-the-webhook" {
			return "", "probed"
		}
		return answer(pool)
	}
}

func maxRunnersOf(pool *unstructured.Unstructured) int64 {
	n, _, _ := unstructured.NestedInt64(pool.Object, "spec", "maxRunners")
	return n
}

// What the API server refuses of one pool is that pool's trouble.
func TestARefusedPoolStopsNoOther(t *testing.T) {
	s := newSyncStage(t, overlay("gpu", "batch", "docs"))
	s.webhook(probed(func(pool *unstructured.Unstructured) (string, string) {
		if maxRunnersOf(pool) > 50 {
			return "", "no more than 50 runners here"
		}
		return "", ""
	}))
	s.poolSync()
	good := s.ready(v1alpha1.ReasonReconciliationSucceeded)
	_, sync := s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 51), "pools/batch.yaml": poolFile("batch", 6), "pools/docs.yaml": poolFile("docs", 7)})
	ready := condition(sync, v1alpha1.ConditionReady)
	if ready.Reason != string(v1alpha1.ReasonApplyFailed) || !strings.Contains(ready.Message, "applied 3 of 4 objects") ||
		!strings.Contains(ready.Message, "ExecutorPool "+s.ns+"/gpu: ") || !strings.Contains(ready.Message, "no more than 50 runners here") {
		t.Errorf("Ready is %+v", ready)
	}
	if gpu, batch, docs := s.pool("gpu"), s.pool("batch"), s.pool("docs"); gpu.Spec.MaxRunners != 4 || batch.Spec.MaxRunners != 6 || docs.Spec.MaxRunners != 7 {
		t.Errorf("runners are %d, %d and %d", gpu.Spec.MaxRunners, batch.Spec.MaxRunners, docs.Spec.MaxRunners)
	}
	if sync.Status.LastAppliedRevision != good.Status.LastAppliedRevision {
		t.Errorf("%s counts as applied", sync.Status.LastAppliedRevision)
	}
	entry := s.drift("gpu waits", func(e v1alpha1.DriftEntry) bool { return e.Name == "gpu" && e.Corrected == nil })
	if entry.Cause != v1alpha1.DriftCommitNotApplied || entry.Git != "51" || entry.Cluster != "4" {
		t.Errorf("drift is %+v", entry)
	}
	// The rest is held to what was applied of it, also while Git cannot be read.
	s.git.Commit(fleetRepository, map[string]string{"clusters/dev/kustomization.yaml": "resources: [nowhere.yaml]\n"})
	s.sync()
	s.kubectlEdit("batch", `{"spec":{"maxRunners":1}}`)
	s.until("the edit is undone", func() bool { return s.pool("batch").Spec.MaxRunners == 6 })
	_, sync = s.push(map[string]string{"clusters/dev/kustomization.yaml": overlay()["clusters/dev/kustomization.yaml"], "pools/gpu.yaml": poolFile("gpu", 50)})
	if ready := condition(sync, v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue || s.pool("gpu").Spec.MaxRunners != 50 {
		t.Errorf("after the repair: %+v", ready)
	}
}

// A pool whose surroundings are refused does not run without them.
func TestAPoolWaitsForWhatStandsBesideIt(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.webhook(probed(func(object *unstructured.Unstructured) (string, string) {
		if object.GetKind() == "ResourceQuota" {
			return "", "no quotas here"
		}
		return "", ""
	}))
	s.poolSync()
	sync := s.ready(v1alpha1.ReasonApplyFailed)
	if message := condition(sync, v1alpha1.ConditionReady).Message; !strings.Contains(message, "ExecutorPool "+s.ns+"/gpu: waits for ResourceQuota "+s.ns+"/runners") {
		t.Errorf("Ready says %s", message)
	}
	if s.hasPool("gpu") {
		t.Error("the pool runs without its quota")
	}
}

// What an admission webhook has the last word on is no drift, and is not fought
// over.
func TestWhatAWebhookSetsIsNoDrift(t *testing.T) {
	s := newSyncStage(t, overlay("gpu", "batch"))
	s.webhook(probed(func(pool *unstructured.Unstructured) (string, string) {
		if pool.GetName() == "gpu" {
			return fmt.Sprintf(`[{"op":"add","path":"/spec/runnerLabels","value":{"by":"webhook"}},{"op":"replace","path":"/spec/maxRunners","value":%d}]`, 3), ""
		}
		return "", ""
	}))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	sync := s.sync()
	if len(sync.Status.Drift) > 0 {
		t.Errorf("drift is %+v", sync.Status.Drift)
	}
	before := s.pool("gpu")
	if before.Spec.MaxRunners != 3 {
		t.Fatalf("the webhook was not asked: %+v", before.Spec)
	}
	s.sync()
	if after := s.pool("gpu"); after.ResourceVersion != before.ResourceVersion {
		t.Error("the webhook is fought")
	}
	// An edit beside it is one.
	s.kubectlEdit("gpu", `{"spec":{"minRunners":2}}`)
	s.until("the edit is undone", func() bool { return s.pool("gpu").Spec.MinRunners == 0 })
	for _, e := range s.get().Status.Drift {
		if e.Path != "/spec/minRunners" {
			t.Errorf("drift has %+v", e)
		}
	}
}

// A field that the API server takes and does not keep is said.
func TestADroppedFieldIsSaid(t *testing.T) {
	files := overlay("gpu", "batch")
	files["pools/gpu.yaml"] = poolFile("gpu", 4, "runnerLabels: {a: b}")
	s := newSyncStage(t, files)
	s.webhook(probed(func(pool *unstructured.Unstructured) (string, string) {
		if _, has, _ := unstructured.NestedMap(pool.Object, "spec", "runnerLabels"); has {
			return `[{"op":"remove","path":"/spec/runnerLabels"}]`, ""
		}
		return "", ""
	}))
	s.poolSync()
	sync := s.ready(v1alpha1.ReasonApplyFailed)
	if message := condition(sync, v1alpha1.ConditionReady).Message; !strings.Contains(message, "drops /spec/runnerLabels/a") || !strings.Contains(message, "executor controller crd") {
		t.Errorf("Ready says %s", message)
	}
	if !s.hasPool("batch") {
		t.Error("the other pool was not applied")
	}
}

// A webhook that does not answer is told by its name, and nothing is lost.
func TestAWebhookThatIsDownIsNamed(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	server := s.webhook(probed(func(*unstructured.Unstructured) (string, string) { return "", "" }))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	server.Close()
	_, sync := s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 5)})
	if c := condition(sync, v1alpha1.ConditionReady); c.Reason != string(v1alpha1.ReasonApplyFailed) || !strings.Contains(c.Message, `failed calling webhook "pools.example.com"`) {
		t.Errorf("Ready is %+v", c)
	}
	if c := condition(sync, v1alpha1.ConditionStalled); c.Type != "" {
		t.Errorf("it does not try again: %+v", c)
	}
}

// A field that is ignored belongs to whoever applies it.
func TestAnIgnoredFieldOfAnotherApplierStaysItsOwn(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
		spec.Drift.Ignore = []v1alpha1.IgnoreRule{{Paths: []string{"/spec/maxRunners"}}}
	})
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	scale := func(to int64) {
		t.Helper()
		pool := newPool()
		pool.SetNamespace(s.ns)
		pool.SetName("gpu")
		_ = unstructured.SetNestedField(pool.Object, to, "spec", "maxRunners")
		if err := s.client.Apply(s.ctx, client.ApplyConfigurationFromUnstructured(pool), client.FieldOwner("scaler"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	scale(9)
	s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 5, "scaleDownDelay: 7s")})
	pool := s.pool("gpu")
	if pool.Spec.MaxRunners != 9 || pool.Spec.ScaleDownDelay.Duration.String() != "7s" {
		t.Errorf("the pool is %+v", pool.Spec)
	}
	for _, entry := range pool.ManagedFields {
		if fields := string(entry.FieldsV1.GetRawBytes()); strings.Contains(fields, "f:maxRunners") && entry.Manager != "scaler" {
			t.Errorf("%s owns it too: %s", entry.Manager, fields)
		}
	}
}
