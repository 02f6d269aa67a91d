package cli_test

import (
	"maps"
	"path/filepath"
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

const (
	kustomizationAt = "/namespaces/flux-system/kustomizations/fleet"
	sourceAt        = "/namespaces/flux-system/gitrepositories/fleet"
	applicationAt   = "/namespaces/argocd/applications/fleet"
)

// fetching is besideFlux with the source, which has a revision.
func fetching(ready, revision string) *stubCluster {
	cluster := besideFlux(4, strings.Repeat("ab", 20))
	cluster.objects[kustomizationAt]["status"].(map[string]any)["lastAttemptedRevision"] = "main@sha1:" + strings.Repeat("ab", 20)
	cluster.objects[sourceAt] = map[string]any{
		"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": map[string]any{"namespace": "flux-system", "name": "fleet"},
		"spec": map[string]any{},
		"status": map[string]any{"artifact": map[string]any{"revision": "main@sha1:" + revision}, "conditions": []any{
			map[string]any{"type": "Ready", "status": ready, "message": "the source says so"},
		}},
	}
	return cluster
}

func TestFleetReconcileAsksFlux(t *testing.T) {
	noHub(t)
	const head = "SURFACE      NAME                              READY   APPLIED                  DRIFT   MESSAGE\n"
	for name, test := range map[string]struct {
		cluster *stubCluster
		args    []string
		code    int
		says    string
		// annotated are the objects that were asked.
		annotated []string
	}{
		"not waiting": {fetching("True", strings.Repeat("ab", 20)), nil, 0,
			"Asked cluster eu to sync Kustomization flux-system/fleet now.\n", []string{sourceAt, kustomizationAt}},
		"waiting": {fetching("True", strings.Repeat("ab", 20)), []string{"--wait"}, 0,
			head + "cluster eu   Kustomization flux-system/fleet   True    main@sha1:abababababab   0       applied\n", []string{sourceAt, kustomizationAt}},
		"the source cannot be fetched": {fetching("False", strings.Repeat("ab", 20)), []string{"--wait"}, 1,
			head + "cluster eu   Kustomization flux-system/fleet   False   main@sha1:abababababab   0       GitRepository flux-system/fleet: the source says so\n", []string{sourceAt, kustomizationAt}},
		"suspended": {func() *stubCluster {
			c := fetching("True", strings.Repeat("ab", 20))
			c.objects[kustomizationAt]["spec"].(map[string]any)["suspend"] = true
			return c
		}(), nil, 1, "Left Kustomization flux-system/fleet of cluster eu alone: it is suspended: `flux resume kustomization fleet --namespace flux-system` has it go on.\n", nil},
		"the source is suspended": {func() *stubCluster {
			c := fetching("True", strings.Repeat("cd", 20))
			c.objects[sourceAt]["spec"].(map[string]any)["suspend"] = true
			return c
		}(), []string{"--wait"}, 0, head + "cluster eu   Kustomization flux-system/fleet   True    main@sha1:abababababab   0       applied (GitRepository flux-system/fleet was not asked: it is suspended)\n", []string{sourceAt, kustomizationAt}},
		"it may not be written": {func() *stubCluster {
			c := fetching("True", strings.Repeat("ab", 20))
			c.forbidden = kustomizationAt
			return c
		}(), nil, 1, "Left Kustomization flux-system/fleet of cluster eu alone: you may not.\n", []string{sourceAt}},
	} {
		t.Run(name, func(t *testing.T) {
			test.cluster.serve(t)
			cloop(t, append([]string{"fleet", "reconcile", "--cluster", "eu"}, test.args...)...).want(t, test.code, test.says, unasked)
			if len(test.cluster.refreshed) != len(test.annotated) {
				t.Errorf("asked were %v", test.cluster.refreshed)
			}
			for _, at := range test.annotated {
				if test.cluster.refreshed[at]["reconcile.fluxcd.io/requestedAt"] == "" {
					t.Errorf("%s was not asked: %v", at, test.cluster.refreshed)
				}
			}
		})
	}
}

func TestFleetReconcileAsksArgoCD(t *testing.T) {
	noHub(t)
	cluster := besideFlux(4, "")
	cluster.pools[0].Labels, cluster.pools[0].Annotations = nil, map[string]string{"argocd.argoproj.io/tracking-id": "fleet:cloop.dev/ExecutorPool:cloop-gpu/gpu"}
	cluster.objects = map[string]map[string]any{applicationAt: {
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"namespace": "argocd", "name": "fleet"},
		"spec":   map[string]any{"source": map[string]any{"path": "pools"}, "syncPolicy": map[string]any{"automated": map[string]any{}}},
		"status": map[string]any{"sync": map[string]any{"status": "Synced", "revision": strings.Repeat("ab", 20)}, "health": map[string]any{"status": "Healthy", "message": "applied"}},
	}}
	cluster.serve(t)
	cloop(t, "fleet", "reconcile", "--cluster", "eu", "--wait").want(t, 0, ""+
		"SURFACE      NAME                       READY   APPLIED        DRIFT   MESSAGE\n"+
		"cluster eu   Application argocd/fleet   True    abababababab   0       applied\n", unasked)
	if cluster.refreshed[applicationAt]["argocd.argoproj.io/refresh"] != "normal" {
		t.Errorf("asked was %v", cluster.refreshed)
	}
}

func TestFleetStatusShowsWhatFluxApplies(t *testing.T) {
	noHub(t)
	besideFlux(4, strings.Repeat("ab", 20)).serve(t)
	cloop(t, "fleet", "status", "--cluster", "eu").want(t, 0, ""+
		"SURFACE      NAME                              READY   APPLIED                  DRIFT   MESSAGE\n"+
		"cluster eu   Kustomization flux-system/fleet   True    main@sha1:abababababab   0       applied\n", unasked)
}

// changing is a cluster whose Kustomization has more fields.
func changing(cluster *stubCluster, fields map[string]any) *stubCluster {
	maps.Copy(cluster.objects[kustomizationAt]["spec"].(map[string]any), fields)
	return cluster
}

var patchesOfFlux = map[string]any{"patches": []any{map[string]any{
	"patch": "- op: replace\n  path: /spec/maxRunners\n  value: 7\n", "target": map[string]any{"kind": "ExecutorPool"},
}}}

func TestFleetDriftComparesWhatFluxApplies(t *testing.T) {
	dir := fleetRepository(t)
	noHub(t)
	edit(t, filepath.Join(dir, "plain/gpu.yaml"), executorPoolYAML)
	gitIn(t, dir, "add", "--all")
	gitIn(t, dir, "commit", "--quiet", "--message=Go on")
	head := gitIn(t, dir, "rev-parse", "HEAD")
	for name, test := range map[string]struct {
		cluster *stubCluster
		code    int
		says    string
	}{
		"agreeing":                       {besideFlux(4, head), 0, "No drift: 1 pool compared."},
		"edited":                         {besideFlux(3, head), 1, "gpu (cluster eu, Kustomization flux-system/fleet at main@sha1:" + head + ")"},
		"what applies is gone":           {func() *stubCluster { c := besideFlux(4, head); c.objects = nil; return c }(), 2, "Kustomization flux-system/fleet, which ExecutorPools name as what applies them, is not there"},
		"it moves what its path renders": {changing(besideFlux(4, head), map[string]any{"targetNamespace": "other"}), 1, "gpu (cluster eu"},
		"what it patches is there":       {changing(besideFlux(7, head), patchesOfFlux), 0, "No drift: 1 pool compared."},
		"what it patches is not there":   {changing(besideFlux(4, head), patchesOfFlux), 1, "/spec/maxRunners  7    -    4"},
		"what it patches of files is there": {changing(besideFlux(7, head), map[string]any{"path": "./plain", "patches": patchesOfFlux["patches"]}), 0,
			"No drift: 1 pool compared."},
		"it applies the whole repository": {changing(besideFlux(4, head), map[string]any{"path": "./", "targetNamespace": "other"}), 2,
			"Kustomization flux-system/fleet changes what . renders by its spec.targetNamespace: the path has no kustomization"},
		"it applies elsewhere": {changing(besideFlux(4, head), map[string]any{"kubeConfig": map[string]any{"secretRef": map[string]any{"name": "us"}}}), 2,
			"Kustomization flux-system/fleet changes what pools renders by its spec.kubeConfig"},
		"its patch finds nothing": {changing(besideFlux(4, head), map[string]any{"patches": []any{map[string]any{"patch": "not: [a patch"}}}), 2, ""},
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
