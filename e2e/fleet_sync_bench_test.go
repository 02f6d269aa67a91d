package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster"
	"cloop.dev/cloop/e2e/cluster/clustertest"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// The overlay of the figures: files of fifty pools each, with a namespace, labels
// and a patch over all of them.
const (
	poolsAFile     = 50
	fleetNamespace = "fleet-of-many"
)

// BenchmarkFleetSync measures what a fleet controller, a process of its own, takes
// to bring a cluster to what Git says, from the request to reconcile until
// everything is applied: from nothing, with one pool changed, all, none, with one
// that the API server refuses, and from a hundred edits by hand until all are
// undone, without a request. A real API server runs on the same cores.
func BenchmarkFleetSync(b *testing.B) {
	for _, pools := range fleetSizes() {
		b.Run(fmt.Sprintf("pools=%d", pools), func(b *testing.B) {
			for b.Loop() {
				f := newManyPools(b, pools)
				f.measure("cold", f.create, f.applied)
				f.measure("one", f.pushed(map[string]string{f.file(0): f.pools(0, 4, 5)}), f.applied)
				f.measure("all", f.pushed(f.files(7)), f.applied)
				f.measure("none", f.pushed(map[string]string{"README.md": "nothing of a pool"}), f.applied)
				f.measure("heal", func() { f.edit(100) }, func() { f.have(7, f.n) })
				f.measure("invalid", f.pushed(f.files(8, "refused")), func() { f.have(8, f.n-1) })
				b.ReportMetric(f.peak(), "peak-MiB")
				b.ReportMetric(0, "ns/op")
				f.stop()
			}
		})
	}
}

// fleetSizes are 1,000 pools and, where CLOOP_BENCH_POOLS names others, those.
func fleetSizes() []int {
	var sizes []int
	for _, text := range strings.Fields(os.Getenv("CLOOP_BENCH_POOLS")) {
		if n, err := strconv.Atoi(text); err == nil {
			sizes = append(sizes, n)
		}
	}
	if sizes == nil {
		sizes = []int{1000}
	}
	return sizes
}

// manyPools is a control plane, a repository and a fleet controller.
type manyPools struct {
	b       *testing.B
	n       int
	cluster client.WithWatch
	git     *fleettest.Server
	metrics string
	pid     int
	stop    func()
	// asked is the request to reconcile that was made last.
	asked string

	most float64
	mu   sync.Mutex // guards most
}

func newManyPools(b *testing.B, n int) *manyPools {
	b.Helper()
	f := &manyPools{b: b, n: n, git: fleettest.Serve(b)}
	binaries, err := cluster.FindBinaries(b.Context(), os.Stderr)
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	up, err := cluster.Up(b.Context(), cluster.Options{Dir: filepath.Join(dir, "cluster"), Binaries: binaries, Parts: cluster.APIServerOnly})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cluster.Down(context.Background(), filepath.Join(dir, "cluster")) })
	config, err := up.RESTConfig()
	if err != nil {
		b.Fatal(err)
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			b.Fatal(err)
		}
	}
	f.cluster, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		b.Fatal(err)
	}
	clustertest.InstallCRDs(b, config)
	f.define()
	f.git.Create("fleet")
	f.git.Commit("fleet", f.files(4))
	f.startController(dir, up.Kubeconfig)
	return f
}

// define creates the namespace, the certificates of the Git server, and a rule that
// refuses what is labelled so.
func (f *manyPools) define() {
	f.b.Helper()
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleetNamespace}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: "fleet-git"}, Data: map[string][]byte{"ca.crt": f.git.CABundle()}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "refuse"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{v1alpha1.Group}, APIVersions: []string{"*"}, Resources: []string{"executorpools"}},
					},
				}}},
				Validations: []admissionregistrationv1.Validation{{Expression: "!has(object.metadata.labels) || !('refused' in object.metadata.labels)", Message: "refused as asked"}},
			},
		},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "refuse"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: "refuse", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		},
	} {
		if err := f.cluster.Create(f.b.Context(), object); err != nil {
			f.b.Fatal(err)
		}
	}
}

// startController starts the fleet controller on the cluster and follows its memory.
func (f *manyPools) startController(dir, kubeconfig string) {
	f.b.Helper()
	name, err := binary()
	if err != nil {
		f.b.Fatal(err)
	}
	ports, err := cluster.PickPorts(2)
	if err != nil {
		f.b.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "controller.log"))
	if err != nil {
		f.b.Fatal(err)
	}
	f.metrics = fmt.Sprintf("http://127.0.0.1:%d/metrics", ports[0])
	command := exec.Command(name, "executor", "controller", "run", "--controllers", "poolsync", "--namespace", fleetNamespace,
		"--kubeconfig", kubeconfig, "--cache-dir", filepath.Join(dir, "cache"),
		"--metrics-addr", fmt.Sprintf("127.0.0.1:%d", ports[0]), "--health-addr", fmt.Sprintf("127.0.0.1:%d", ports[1]))
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		f.b.Fatal(err)
	}
	f.pid = command.Process.Pid
	sampling, end := context.WithCancel(context.Background())
	var sampler sync.WaitGroup
	sampler.Go(func() { f.sample(sampling) })
	f.stop = sync.OnceFunc(func() {
		end()
		sampler.Wait()
		_ = command.Process.Signal(os.Interrupt)
		_ = command.Wait()
		_ = log.Close()
	})
	f.b.Cleanup(f.stop)
	eventually(f.b, func(ctx context.Context) bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.metrics, nil)
		if err != nil {
			return false
		}
		response, err := http.DefaultClient.Do(request)
		return err == nil && response.Body.Close() == nil
	})
}

// sample follows the controller's memory.
func (f *manyPools) sample(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now := resident(f.b, f.pid)
			f.mu.Lock()
			f.most = max(f.most, now)
			f.mu.Unlock()
		}
	}
}

func (f *manyPools) peak() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}

// measure reports how long something takes once it has begun, and what it asks of
// the API server.
func (f *manyPools) measure(what string, begin, finished func()) {
	f.b.Helper()
	before := f.requests()
	begin()
	began := time.Now()
	finished()
	f.b.ReportMetric(float64(time.Since(began).Milliseconds()), what+"-ms")
	// The pass that saw it done may still write the status.
	pause(f.b, 2*time.Second)
	after := f.requests()
	for _, method := range []string{http.MethodGet, http.MethodPatch} {
		f.b.ReportMetric(after[method]-before[method], what+"-"+method)
	}
}

// requests of the controller to the API server, by method, without watches.
func (f *manyPools) requests() map[string]float64 {
	f.b.Helper()
	sums := map[string]float64{}
	samples(f.b, f.metrics, func(name string, value float64) {
		if !strings.HasPrefix(name, "rest_client_requests_total{") {
			return
		}
		_, method, _ := strings.Cut(name, `method="`)
		method, _, _ = strings.Cut(method, `"`)
		sums[method] += value
	})
	return sums
}

// files are the overlay whose pools may have so many runners; one may have what the
// API server refuses.
func (f *manyPools) files(maxRunners int, refused ...string) map[string]string {
	files := map[string]string{}
	kustomization := "namespace: " + fleetNamespace + "\nlabels:\n  - pairs: {team: platform}\npatches:\n  - path: patch.yaml\n    target: {kind: ExecutorPool}\nresources:\n"
	for i := 0; i*poolsAFile < f.n; i++ {
		files[f.file(i)] = f.pools(i, maxRunners, 0)
		kustomization += "  - " + filepath.Base(f.file(i)) + "\n"
	}
	files["clusters/dev/kustomization.yaml"] = kustomization
	files["clusters/dev/patch.yaml"] = "- op: add\n  path: /spec/runnerLabels\n  value: {region: eu}\n"
	for range refused {
		files[f.file(0)] = strings.Replace(files[f.file(0)], "name: pool-0\n", "name: pool-0\n  labels: {refused: \"yes\"}\n", 1)
	}
	return files
}

func (f *manyPools) file(i int) string { return fmt.Sprintf("clusters/dev/pools-%02d.yaml", i) }

// pools are the documents of a file. The first of them may have more runners.
func (f *manyPools) pools(file, maxRunners, more int) string {
	var text strings.Builder
	for i := file * poolsAFile; i < min((file+1)*poolsAFile, f.n); i++ {
		fmt.Fprintf(&text, "---\napiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata:\n  name: pool-%d\nspec:\n  hubURL: https://hub.example.com\n  hubPool: pool-%d\n"+
			"  poolCredentialSecretRef:\n    name: pool-%d-credential\n  maxRunners: %d\n", i, i, i, maxRunners+more)
		more = 0
	}
	return text.String()
}

// create makes the PoolSync.
func (f *manyPools) create() {
	f.b.Helper()
	f.asked = ""
	err := f.cluster.Create(f.b.Context(), &v1alpha1.PoolSync{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: "fleet"},
		Spec: v1alpha1.PoolSyncSpec{
			Interval: metav1.Duration{Duration: time.Hour}, Timeout: metav1.Duration{Duration: 5 * time.Minute},
			Source: v1alpha1.PoolSyncSource{Git: v1alpha1.GitSource{URL: f.git.URL("fleet"), SecretRef: &v1alpha1.LocalObjectReference{Name: "fleet-git"}}},
			Path:   "./clusters/dev", Prune: true, PruneLimit: v1alpha1.PruneLimit{Count: 5, Percent: 20},
			Drift: v1alpha1.DriftPolicy{Mode: v1alpha1.DriftCorrect},
		},
	})
	if err != nil {
		f.b.Fatal(err)
	}
}

// pushed commits files now, and asks for a sync when it is called.
func (f *manyPools) pushed(files map[string]string) func() {
	f.b.Helper()
	f.git.Commit("fleet", files)
	return func() {
		f.asked = time.Now().Format(time.RFC3339Nano)
		sync := &v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: "fleet"}}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, fluxmeta.ReconcileRequestAnnotation, f.asked)
		if err := f.cluster.Patch(f.b.Context(), sync, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			f.b.Fatal(err)
		}
	}
}

// applied waits until what was asked for last is applied.
func (f *manyPools) applied() {
	f.b.Helper()
	f.follow(&v1alpha1.PoolSyncList{}, func(object client.Object) bool {
		sync, ok := object.(*v1alpha1.PoolSync)
		return ok && sync.Status.LastHandledReconcileAt == f.asked && meta.IsStatusConditionTrue(sync.Status.Conditions, v1alpha1.ConditionReady)
	})
}

// have waits until so many pools may have so many runners.
func (f *manyPools) have(maxRunners int32, pools int) {
	f.b.Helper()
	seen := map[string]bool{}
	f.follow(&v1alpha1.ExecutorPoolList{}, func(object client.Object) bool {
		pool, ok := object.(*v1alpha1.ExecutorPool)
		if ok && pool.Spec.MaxRunners == maxRunners {
			seen[pool.Name] = true
		} else if ok {
			delete(seen, pool.Name)
		}
		return len(seen) == pools
	})
}

// follow watches objects, those that are there first, until done.
func (f *manyPools) follow(list client.ObjectList, done func(client.Object) bool) {
	f.b.Helper()
	ctx, cancel := context.WithTimeout(f.b.Context(), 5*time.Minute)
	defer cancel()
	watcher, err := f.cluster.Watch(ctx, list, client.InNamespace(fleetNamespace))
	if err != nil {
		f.b.Fatal(err)
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(client.Object)
		if event.Type == watch.Error || !ok {
			f.b.Fatalf("the watch ended: %+v", event.Object)
		}
		if done(object) {
			return
		}
	}
	f.b.Fatal("not in five minutes")
}

// edit changes pools as a person would, one after another.
func (f *manyPools) edit(pools int) {
	f.b.Helper()
	for i := range pools {
		pool := &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: fmt.Sprintf("pool-%d", i)}}
		err := f.cluster.Patch(f.b.Context(), pool, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"maxRunners":1}}`)), client.FieldOwner("kubectl-edit"))
		if err != nil {
			f.b.Fatal(err)
		}
	}
}
