package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

const (
	hubPoolYAML = `apiVersion: cloop.dev/v1alpha1
kind: HubPool
metadata:
  name: gpu
spec:
  maxRunners: 4
`
	executorPoolYAML = `apiVersion: cloop.dev/v1alpha1
kind: ExecutorPool
metadata:
  name: gpu
  namespace: cloop-pools
spec:
  hubURL: https://hub.example.com
  poolCredentialSecretRef:
    name: gpu-pool-credential
  minRunners: 0
  maxRunners: 4
`
)

// fleetRepository commits a repository with one pool and enters it.
func fleetRepository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"hub/kustomization.yaml":         "resources: [gpu.yaml]\n",
		"hub/gpu.yaml":                   hubPoolYAML,
		"pools/kustomization.yaml":       "resources: [gpu.yaml]\n",
		"pools/gpu.yaml":                 executorPoolYAML,
		"clusters/eu/kustomization.yaml": "resources: [../../pools]\n",
	} {
		edit(t, filepath.Join(dir, name), content)
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main"},
		{"add", "--all"},
		{"-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "--quiet", "--message=Begin"},
	} {
		command := exec.Command("git", args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
		if printed, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, printed)
		}
	}
	t.Chdir(dir)
	return dir
}

func edit(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFleetCheckOfASoundRepository(t *testing.T) {
	noHub(t)
	fleetRepository(t)
	cloop(t, "fleet", "check").want(t, 0, "2 roots, 2 documents, 1 pool: all is well\n", "")
	cloop(t, "fleet", "check", ".").want(t, 0, "2 roots, 2 documents, 1 pool: all is well\n", "")
}

func TestFleetCheckNamesFileLineAndRule(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	edit(t, filepath.Join(dir, "pools/gpu.yaml"), strings.Replace(executorPoolYAML, "minRunners: 0", "minRunners: 9", 1))
	report := filepath.Join(t.TempDir(), "report.json")
	got := cloop(t, "fleet", "check", "-o", "text", "-o", "json="+report)
	want := "pools/gpu.yaml:10:3: ExecutorPool cloop-pools/gpu: spec: Invalid value: minRunners may not be above maxRunners"
	if got.code != 1 || !strings.HasPrefix(got.stdout, want) || !strings.HasSuffix(got.stdout, "[cel]\n2 roots, 2 documents, 1 pool: 1 error, 0 warnings\n") {
		t.Errorf("exit code %d, stdout %s, stderr %s", got.code, got.stdout, got.stderr)
	}
	content, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var decoded struct {
		OK       bool
		Problems []struct {
			Rule, File string
			Line       int
		}
	}
	if err := json.Unmarshal(content, &decoded); err != nil {
		t.Fatal(err)
	}
	if p := decoded.Problems; decoded.OK || len(p) != 1 || p[0].Rule != "cel" || p[0].File != "pools/gpu.yaml" || p[0].Line != 10 {
		t.Errorf("the JSON report is %s", content)
	}
}

// A wrong path in a pipeline must not pass for a sound repository.
func TestFleetCheckOfNothingIsNoAnswer(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	edit(t, filepath.Join(dir, "docs/README.md"), "text\n")
	edit(t, filepath.Join(dir, "other/sa.yaml"), "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n")
	cloop(t, "fleet", "check", "docs").want(t, 2, "1 root, 0 documents, 0 pools\n",
		"cloop: nothing to check in docs: there is no kustomization and no YAML document; name a directory or file that has some\n")
	cloop(t, "fleet", "check", "docs", "hub").want(t, 2, "2 roots, 1 document, 1 pool\n",
		"cloop: nothing to check in docs: there is no kustomization and no YAML document; name a directory or file that has some\n")
	cloop(t, "fleet", "check", "other").want(t, 2, "1 root, 1 document, 0 pools\n",
		"cloop: nothing was checked: no document in other is of cloop.dev; name the directory that has the pools\n")
	edit(t, filepath.Join(dir, "broken/kustomization.yaml"), "resorces: []\n")
	cloop(t, "fleet", "check", "broken").want(t, 1, "broken/kustomization.yaml:1:1: kustomize has no field resorces (did you mean resources?) [build]\n1 root, 0 documents, 0 pools: 1 error, 0 warnings\n", "")
	if got := cloop(t, "fleet", "check", "docs", "-o", "json"); got.code != 2 || !strings.Contains(got.stdout, `"ok": false`) {
		t.Errorf("exit code %d, stdout %s", got.code, got.stdout)
	}

	t.Chdir(t.TempDir())
	got := cloop(t, "fleet", "check")
	if got.code != 2 || !strings.HasPrefix(got.stderr, "cloop: nothing to check in .: ") {
		t.Errorf("of an empty directory: exit code %d, stdout %s, stderr %s", got.code, got.stdout, got.stderr)
	}
}

func TestFleetCheckSaysThatThereIsNoPool(t *testing.T) {
	noHub(t)
	t.Chdir(t.TempDir())
	edit(t, "sync.yaml", `apiVersion: cloop.dev/v1alpha1
kind: PoolSync
metadata: {name: fleet, namespace: cloop-fleet}
spec:
  interval: 1m
  timeout: 2m
  source: {git: {url: "https://git.example.com/fleet.git", ref: {branch: main}}}
  path: ./clusters/eu
`)
	cloop(t, "fleet", "check").want(t, 0, "1 root, 1 document, 0 pools: all is well, but none of them is a pool\n", "")
}

// What is broken elsewhere in the repository is broken from wherever it is checked.
func TestFleetCheckWithoutAPathIsOfTheWholeRepository(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	edit(t, filepath.Join(dir, "hub/gpu.yaml"), strings.Replace(hubPoolYAML, "maxRunners: 4", "maxRunners: x", 1))
	t.Chdir(filepath.Join(dir, "clusters/eu"))
	if got := cloop(t, "fleet", "check"); got.code != 1 || !strings.Contains(got.stdout, "../../hub/gpu.yaml:") {
		t.Errorf("exit code %d, stdout %s, stderr %s", got.code, got.stdout, got.stderr)
	}
	if got := cloop(t, "fleet", "check", "."); got.code != 0 {
		t.Errorf("of the directory alone: exit code %d, stdout %s, stderr %s", got.code, got.stdout, got.stderr)
	}
}

func TestFleetCheckPrintsPathsAsSeenFromHere(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	edit(t, filepath.Join(dir, "pools/gpu.yaml"), strings.Replace(executorPoolYAML, "minRunners: 0", "minRunners: 9", 1))
	t.Chdir(filepath.Join(dir, "clusters"))
	got := cloop(t, "fleet", "check", "eu")
	if got.code != 1 || !strings.HasPrefix(got.stdout, "../pools/gpu.yaml:10:3: ") {
		t.Errorf("exit code %d, stdout %s, stderr %s", got.code, got.stdout, got.stderr)
	}
}

func TestFleetCheckOfWhatIsNotThere(t *testing.T) {
	noHub(t)
	fleetRepository(t)
	cloop(t, "fleet", "check", "clusters/us").want(t, 2, "", "cloop: read clusters/us: no such file or directory\n")
	got := cloop(t, "fleet", "check", ".", "/")
	if got.code != 2 || !strings.Contains(got.stderr, "one repository at a time") {
		t.Errorf("exit code %d, stderr %s", got.code, got.stderr)
	}
}

// stubCluster is an API server with PoolSyncs and ExecutorPools, as far as the
// command line needs one. A kubeconfig with the context eu leads to it.
type stubCluster struct {
	syncs []v1alpha1.PoolSync
	pools []v1alpha1.ExecutorPool
	// renewed is when the fleet controller's Lease was renewed; zero: there is none.
	renewed time.Time
	// watched answers the watch of PoolSyncs; nil: it stays silent.
	watched func(asked string) v1alpha1.PoolSync

	// objects: end of a path → what is read there.
	objects map[string]map[string]any

	mu      sync.Mutex
	methods []string
	patched string
	// refreshed: end of a path → the annotations that were written there.
	refreshed map[string]map[string]string
	// forbidden is the end of a path that nobody may write to.
	forbidden string
}

func (c *stubCluster) serve(t *testing.T) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.methods = append(c.methods, r.Method)
		c.answer(w, r)
	}))
	t.Cleanup(server.Close)
	t.Setenv("KUBECONFIG", writeFile(t, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u}]
contexts: [{name: eu, context: {cluster: c, user: u}}]
current-context: eu
`, server.URL)))
}

func (c *stubCluster) answer(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case r.Method == http.MethodPatch && !strings.Contains(path, "/poolsyncs/"):
		c.annotate(w, r)
	case r.Method == http.MethodPatch:
		var patch struct{ Metadata metav1.ObjectMeta }
		_ = json.NewDecoder(r.Body).Decode(&patch)
		c.patched = patch.Metadata.Annotations["reconcile.fluxcd.io/requestedAt"]
		changed := *c.syncs[0].DeepCopy()
		changed.Annotations = patch.Metadata.Annotations
		send(w, changed)
	case strings.HasSuffix(path, "/poolsyncs") && r.URL.Query().Get("watch") != "":
		event := map[string]any{"type": "MODIFIED", "object": c.watched(c.patched)}
		send(w, event)
	case strings.HasSuffix(path, "/poolsyncs"):
		send(w, v1alpha1.PoolSyncList{TypeMeta: metav1.TypeMeta{APIVersion: "cloop.dev/v1alpha1", Kind: "PoolSyncList"}, Items: c.syncs})
	case strings.HasSuffix(path, "/executorpools"):
		send(w, v1alpha1.ExecutorPoolList{TypeMeta: metav1.TypeMeta{APIVersion: "cloop.dev/v1alpha1", Kind: "ExecutorPoolList"}, Items: c.pools})
	case strings.HasSuffix(path, "/namespaces/cloop-fleet/leases/cloop-fleet-controller") && !c.renewed.IsZero():
		holder, lasts, at := "pod-1", int32(10), metav1.NewMicroTime(c.renewed)
		send(w, coordinationv1.Lease{
			TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			Spec:     coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &lasts, RenewTime: &at},
		})
	case r.URL.Query().Get("watch") != "":
		end := path[strings.LastIndex(path, "/namespaces/"):] + "/" + strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
		send(w, map[string]any{"type": "MODIFIED", "object": c.objects[end]})
	default:
		for end, object := range c.objects {
			if strings.HasSuffix(path, end) {
				send(w, object)
				return
			}
		}
		http.NotFound(w, r)
	}
}

// annotate writes annotations to one of the objects, and has its controller handle them.
func (c *stubCluster) annotate(w http.ResponseWriter, r *http.Request) {
	end := r.URL.Path[strings.LastIndex(r.URL.Path, "/namespaces/"):]
	object := c.objects[end]
	switch {
	case end == c.forbidden:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Message: "you may not", Code: http.StatusForbidden})
		return
	case object == nil:
		http.NotFound(w, r)
		return
	}
	var patch struct{ Metadata metav1.ObjectMeta }
	_ = json.NewDecoder(r.Body).Decode(&patch)
	if c.refreshed == nil {
		c.refreshed = map[string]map[string]string{}
	}
	c.refreshed[end] = patch.Metadata.Annotations
	if status, _ := object["status"].(map[string]any); status != nil {
		status["lastHandledReconcileAt"] = patch.Metadata.Annotations["reconcile.fluxcd.io/requestedAt"]
	}
	send(w, object)
}

func poolSync(ready metav1.ConditionStatus, message string) v1alpha1.PoolSync {
	return v1alpha1.PoolSync{
		TypeMeta:   metav1.TypeMeta{APIVersion: "cloop.dev/v1alpha1", Kind: "PoolSync"},
		ObjectMeta: metav1.ObjectMeta{Name: "fleet", Namespace: "cloop-fleet", Generation: 1},
		Spec: v1alpha1.PoolSyncSpec{
			Path:   "./clusters/eu",
			Source: v1alpha1.PoolSyncSource{Git: v1alpha1.GitSource{URL: "https://git.example.com/fleet.git"}},
		},
		Status: v1alpha1.PoolSyncStatus{
			LastAppliedRevision: "main@sha1:" + strings.Repeat("ab", 20),
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionReady, Status: ready, Message: message, ObservedGeneration: 1,
				Reason: string(v1alpha1.ReasonReconciliationSucceeded),
			}},
		},
	}
}

func hubSync(state hubv1.SyncState) hubv1.Sync {
	return hubv1.Sync{
		Name: "fleet", Repository: "https://git.example.com/fleet.git", Path: "hub", State: state,
		LastAppliedRevision: strings.Repeat("cd", 20), Message: "applied",
	}
}

func TestFleetStatus(t *testing.T) {
	stubHub(t, map[string]any{"GET /api/v1/syncs": hubv1.SyncList{Items: []hubv1.Sync{hubSync(hubv1.SyncReady)}}})
	cluster := &stubCluster{syncs: []v1alpha1.PoolSync{poolSync(metav1.ConditionTrue, "applied")}}
	cluster.serve(t)
	cloop(t, "fleet", "status", "--cluster", "eu").want(t, 0, ""+
		"SURFACE      NAME                READY   APPLIED                  DRIFT   MESSAGE\n"+
		"hub          fleet               True    cdcdcdcdcdcd             0       applied\n"+
		"cluster eu   cloop-fleet/fleet   True    main@sha1:abababababab   0       applied\n", "")

	if unnamed := cloop(t, "fleet", "status"); !strings.Contains(unnamed.stdout, "cluster eu ") {
		t.Errorf("the current context is not named: %s%s", unnamed.stdout, unnamed.stderr)
	}

	cluster.syncs[0].Status.Drift = []v1alpha1.DriftEntry{{Name: "gpu"}, {Name: "cpu", Corrected: &metav1.Time{Time: time.Now()}}}
	got := cloop(t, "fleet", "status", "--cluster", "eu", "-o", "json")
	if got.code != 1 || !strings.Contains(got.stdout, `"healthy": false`) || !strings.Contains(got.stdout, `"drift": 1`) {
		t.Errorf("with drift: exit code %d, stdout %s", got.code, got.stdout)
	}
	cluster.syncs[0].Spec.Source, cluster.syncs[0].Spec.SourceRef = v1alpha1.PoolSyncSource{}, &v1alpha1.SourceReference{Kind: v1alpha1.SourceGitRepository, Name: "pools"}
	if got := cloop(t, "fleet", "status", "--cluster", "eu", "-o", "json"); !strings.Contains(got.stdout, `"repository": "GitRepository cloop-fleet/pools"`) {
		t.Errorf("of a source of Flux it says %s", got.stdout)
	}
}

// Where cluster and hub disagree, what applies the pool is not well either.
func TestFleetStatusCountsWhereHubAndClusterDisagree(t *testing.T) {
	noHub(t)
	broken := []v1alpha1.DriftEntry{{Path: "/spec/maxRunners", Cause: v1alpha1.DriftRuleBroken}, {Path: "/spec/runnerLabels", Corrected: &metav1.Time{Time: time.Now()}}}
	ofSync, ofFlux, ofNobody := liveGPU(9), besideFlux(9, strings.Repeat("ab", 20)), liveGPU(9)
	ofSync.Labels = map[string]string{v1alpha1.LabelPoolSyncName: "fleet", v1alpha1.LabelPoolSyncNamespace: "cloop-fleet"}
	ofNobody.Name = "hand"
	cluster := &stubCluster{syncs: []v1alpha1.PoolSync{poolSync(metav1.ConditionTrue, "applied")}, objects: ofFlux.objects,
		pools: []v1alpha1.ExecutorPool{ofSync, ofFlux.pools[0], ofNobody, liveGPU(1)}}
	for i := range cluster.pools[:3] {
		cluster.pools[i].Status.Drift = broken
	}
	cluster.serve(t)
	cloop(t, "fleet", "status", "--cluster", "eu").want(t, 1, ""+
		"SURFACE      NAME                              READY     APPLIED                  DRIFT   MESSAGE\n"+
		"cluster eu   cloop-fleet/fleet                 True      main@sha1:abababababab   1       applied\n"+
		"cluster eu   Kustomization flux-system/fleet   True      main@sha1:abababababab   1       applied\n"+
		"cluster eu   ExecutorPool cloop-pools/hand     Unknown   -                        1       nothing that is shown applies it\n", unasked)
}

// Who asks for a sync and waits sees what fleet status counts; that nobody asked does
// not make it fail.
func TestFleetReconcileCountsAsFleetStatusDoes(t *testing.T) {
	noHub(t)
	ofSync, ofNobody := liveGPU(9), liveGPU(9)
	ofSync.Labels = map[string]string{v1alpha1.LabelPoolSyncName: "fleet", v1alpha1.LabelPoolSyncNamespace: "cloop-fleet"}
	ofNobody.Name = "hand"
	cluster := &stubCluster{syncs: []v1alpha1.PoolSync{poolSync(metav1.ConditionTrue, "applied")}, pools: []v1alpha1.ExecutorPool{ofSync, ofNobody}}
	for i := range cluster.pools {
		cluster.pools[i].Status.Drift = []v1alpha1.DriftEntry{{Path: "/spec/maxRunners", Cause: v1alpha1.DriftRuleBroken}}
	}
	cluster.watched = func(asked string) v1alpha1.PoolSync {
		sync := poolSync(metav1.ConditionTrue, "applied")
		sync.Status.LastHandledReconcileAt = asked
		return sync
	}
	cluster.serve(t)
	table := "" +
		"SURFACE      NAME                            READY     APPLIED                  DRIFT   MESSAGE\n" +
		"cluster eu   cloop-fleet/fleet               True      main@sha1:abababababab   1       applied\n" +
		"cluster eu   ExecutorPool cloop-pools/hand   Unknown   -                        1       nothing that is shown applies it\n"
	cloop(t, "fleet", "status", "--cluster", "eu").want(t, 1, table, unasked)
	cloop(t, "fleet", "reconcile", "--cluster", "eu", "--wait").want(t, 0, table, unasked)
	cloop(t, "fleet", "reconcile", "--cluster", "eu").want(t, 0, "Asked cluster eu to sync cloop-fleet/fleet now.\n", unasked)
}

// What is not known is not counted, and a message of several lines is one.
func TestFleetStatusClaimsNoMoreThanIsKnown(t *testing.T) {
	noHub(t)
	sync := poolSync(metav1.ConditionFalse, "applied 1 of 2 objects; held back:\npools/a.yaml:1: a\npools/b.yaml:1: b\n")
	sync.Status.Conditions = append(sync.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionDrifted, Status: metav1.ConditionUnknown, Reason: string(v1alpha1.ReasonCommitWaits)})
	cluster := &stubCluster{syncs: []v1alpha1.PoolSync{sync}}
	cluster.serve(t)
	cloop(t, "fleet", "status", "--cluster", "eu", "--hub=").want(t, 1, ""+
		"SURFACE      NAME                READY   APPLIED                  DRIFT   MESSAGE\n"+
		"cluster eu   cloop-fleet/fleet   False   main@sha1:abababababab   ?       applied 1 of 2 objects; held back: pools/a.yaml:1: a; pools/b.yaml:1: b\n", "")
	if got := cloop(t, "fleet", "status", "--cluster", "eu", "--hub=", "-o", "json"); !strings.Contains(got.stdout, `"driftUnknown": true`) {
		t.Errorf("it says %s", got.stdout)
	}
}

func TestFleetReconcileWaitsForBothSurfaces(t *testing.T) {
	ran := time.Now()
	after := hubSync(hubv1.SyncReady)
	after.LastRun = &ran
	seen := stubHub(t, map[string]any{
		"GET /api/v1/syncs":                  hubv1.SyncList{Items: []hubv1.Sync{hubSync(hubv1.SyncPending)}},
		"POST /api/v1/syncs/fleet/reconcile": hubSync(hubv1.SyncPending),
		"GET /api/v1/syncs/fleet/watch":      events(hubSync(hubv1.SyncPending), after),
	})
	cluster := &stubCluster{syncs: []v1alpha1.PoolSync{poolSync(metav1.ConditionTrue, "applied")}}
	cluster.watched = func(asked string) v1alpha1.PoolSync {
		sync := poolSync(metav1.ConditionFalse, "pools/gpu.yaml:10: minRunners")
		sync.Status.LastHandledReconcileAt = asked
		return sync
	}
	cluster.serve(t)
	cloop(t, "fleet", "reconcile", "--cluster", "eu", "--wait").want(t, 1, ""+
		"SURFACE      NAME                READY   APPLIED                  DRIFT   MESSAGE\n"+
		"hub          fleet               True    cdcdcdcdcdcd             0       applied\n"+
		"cluster eu   cloop-fleet/fleet   False   main@sha1:abababababab   0       pools/gpu.yaml:10: minRunners\n", "")
	if !slices.Contains(*seen, "POST /api/v1/syncs/fleet/reconcile") || cluster.patched == "" {
		t.Errorf("the hub got %q, the cluster's annotation is %q", *seen, cluster.patched)
	}
}

func TestFleetReconcileWithoutWaiting(t *testing.T) {
	noHub(t)
	cluster := &stubCluster{syncs: []v1alpha1.PoolSync{poolSync(metav1.ConditionTrue, "applied")}}
	cluster.serve(t)
	cloop(t, "fleet", "reconcile", "--cluster", "eu").want(t, 0, "Asked cluster eu to sync cloop-fleet/fleet now.\n", unasked)
	cloop(t, "fleet", "reconcile", "--cluster", "eu", "--hub=").want(t, 0, "Asked cluster eu to sync cloop-fleet/fleet now.\n", "")

	cluster.syncs[0].Spec.Suspend, cluster.syncs[0].Spec.SuspendReason, cluster.patched = true, "the move to eu-2", ""
	got := cloop(t, "fleet", "reconcile", "--cluster", "eu")
	if got.code != 1 || !strings.Contains(got.stdout, "Left cloop-fleet/fleet of cluster eu alone: ") || !strings.Contains(got.stdout, "the move to eu-2") || cluster.patched != "" {
		t.Errorf("of a suspended one: exit code %d: %s%s, asked %q", got.code, got.stdout, got.stderr, cluster.patched)
	}
}

// liveGPU is what the cluster made of executorPoolYAML.
func liveGPU(maxRunners int32) v1alpha1.ExecutorPool {
	return v1alpha1.ExecutorPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: "cloop.dev/v1alpha1", Kind: "ExecutorPool"},
		ObjectMeta: metav1.ObjectMeta{Name: "gpu", Namespace: "cloop-pools"},
		Spec: v1alpha1.ExecutorPoolSpec{
			HubURL: "https://hub.example.com", MaxRunners: maxRunners, ScaleDownDelay: metav1.Duration{Duration: 5 * time.Minute},
			PoolCredentialSecretRef: v1alpha1.SecretKeyRef{Name: "gpu-pool-credential", Key: "credential"},
		},
	}
}

func TestFleetDriftOnlyReads(t *testing.T) {
	fleetRepository(t)
	seen := stubHub(t, map[string]any{
		"GET /api/v1/syncs": hubv1.SyncList{Items: []hubv1.Sync{hubSync(hubv1.SyncReady)}},
		"GET /api/v1/pools": hubv1.PoolList{Items: []hubv1.Pool{{
			ID: "p1", Name: "gpu", State: hubv1.PoolActive,
			PoolDefinition: hubv1.PoolDefinition{MaxRunners: 4, Harness: "command", DeletionPolicy: "Orphan"},
		}}},
	})
	cluster := &stubCluster{
		syncs: []v1alpha1.PoolSync{poolSync(metav1.ConditionTrue, "applied")},
		pools: []v1alpha1.ExecutorPool{liveGPU(4)},
	}
	cluster.serve(t)
	if got := cloop(t, "fleet", "drift", "--cluster", "eu"); got.code != 0 {
		t.Errorf("exit code %d without drift: %s%s", got.code, got.stdout, got.stderr)
	}
	cluster.pools[0] = liveGPU(3)
	got := cloop(t, "fleet", "drift", "--cluster", "eu")
	if got.code != 1 || !strings.Contains(got.stdout, "maxRunners") {
		t.Errorf("exit code %d with drift: %s%s", got.code, got.stdout, got.stderr)
	}
	for _, call := range append(*seen, cluster.methods...) {
		if !strings.HasPrefix(call, "GET") {
			t.Errorf("drift made the call %s", call)
		}
	}
}

func TestFleetDriftNeedsARepository(t *testing.T) {
	noHub(t)
	t.Chdir(t.TempDir())
	got := cloop(t, "fleet", "drift")
	if got.code != 2 || !strings.Contains(got.stderr, "is no clone of a fleet repository: run this in one, or name one with --repo PATH") {
		t.Errorf("exit code %d, stderr %s", got.code, got.stderr)
	}
}
