package cli_test

import (
	"strings"
	"testing"

	"cloop.dev/cloop/apis/v1alpha1"
)

// besideFlux is a cluster whose pool a Kustomization of Flux applies.
func besideFlux(maxRunners int32, revision string) *stubCluster {
	pool := liveGPU(maxRunners)
	pool.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "fleet", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	return &stubCluster{
		pools: []v1alpha1.ExecutorPool{pool},
		objects: map[string]map[string]any{"/namespaces/flux-system/kustomizations/fleet": {
			"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
			"metadata": map[string]any{"namespace": "flux-system", "name": "fleet", "generation": 1},
			"spec":     map[string]any{"path": "./pools", "sourceRef": map[string]any{"kind": "GitRepository", "name": "fleet"}},
			"status": map[string]any{"lastAppliedRevision": "main@sha1:" + revision, "conditions": []any{
				map[string]any{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "applied", "observedGeneration": 1},
			}},
		}},
	}
}

func TestFleetStatusShowsWhatFluxApplies(t *testing.T) {
	noHub(t)
	besideFlux(4, strings.Repeat("ab", 20)).serve(t)
	cloop(t, "fleet", "status", "--cluster", "eu").want(t, 0, ""+
		"SURFACE      NAME                              READY   APPLIED                  DRIFT   MESSAGE\n"+
		"cluster eu   Kustomization flux-system/fleet   True    main@sha1:abababababab   0       applied\n", "")
}

func TestFleetDriftComparesWhatFluxApplies(t *testing.T) {
	dir := fleetRepository(t)
	noHub(t)
	head := gitIn(t, dir, "rev-parse", "HEAD")
	for name, test := range map[string]struct {
		cluster *stubCluster
		code    int
		says    string
	}{
		"agreeing":             {besideFlux(4, head), 0, "No drift: 1 pool compared."},
		"edited":               {besideFlux(3, head), 1, "gpu (cluster eu, Kustomization flux-system/fleet at main@sha1:" + head + ")"},
		"what applies is gone": {func() *stubCluster { c := besideFlux(4, head); c.objects = nil; return c }(), 2, "Kustomization flux-system/fleet, which ExecutorPools name as what applies them, is not there"},
		"it changes what its path renders": {func() *stubCluster {
			c := besideFlux(4, head)
			c.objects["/namespaces/flux-system/kustomizations/fleet"]["spec"].(map[string]any)["targetNamespace"] = "other"
			return c
		}(), 2, "Kustomization flux-system/fleet changes what pools renders by its spec.targetNamespace"},
	} {
		test.cluster.serve(t)
		got := cloop(t, "fleet", "drift", "--cluster", "eu")
		if got.code != test.code || !strings.Contains(got.stdout, test.says) {
			t.Errorf("%s: exit code %d: %s%s", name, got.code, got.stdout, got.stderr)
		}
		for _, method := range test.cluster.methods {
			if method != "GET" {
				t.Errorf("%s: drift made the call %s", name, method)
			}
		}
	}
}
