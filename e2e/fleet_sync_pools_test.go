package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"cloop.dev/cloop/apis/v1alpha1"
)

// manyPools is an overlay of many pools in a repository of its own, a namespace, and
// who applies the one to the other.
type manyPools struct {
	*ground
	n int
	// namespace and repository have one name.
	namespace string
	by        fleetApplier
	// metrics: process → URL.
	metrics map[string]string
	stop    func()
	// commit is the newest, and asked the request to reconcile that was made last.
	commit, asked string

	most map[string]float64 // process → MiB
	mu   sync.Mutex         // guards most
}

func (g *ground) manyPools(n int, by fleetApplier) *manyPools {
	g.b.Helper()
	f := &manyPools{ground: g, n: n, namespace: "fleet-of-" + strings.ToLower(by.name()), by: by, most: map[string]float64{}}
	g.create(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "fleet-git"}, Data: map[string][]byte{"ca.crt": g.git.CABundle()}},
	)
	g.git.Create(f.namespace)
	f.commit = g.git.Commit(f.namespace, f.files(4))
	dir := filepath.Join(g.dir, f.namespace)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		g.b.Fatal(err)
	}
	processes, metrics, stop := by.start(f, dir, g.kubeconfig)
	f.metrics = metrics
	sampling, end := context.WithCancel(context.Background())
	var sampler sync.WaitGroup
	sampler.Go(func() { f.sample(sampling, processes) })
	f.stop = sync.OnceFunc(func() {
		end()
		sampler.Wait()
		stop()
	})
	g.b.Cleanup(f.stop)
	for _, address := range metrics {
		eventually(g.b, func(ctx context.Context) bool {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
			if err != nil {
				return false
			}
			response, err := http.DefaultClient.Do(request)
			return err == nil && response.Body.Close() == nil
		})
	}
	return f
}

// sample follows the memory of processes.
func (f *manyPools) sample(ctx context.Context, processes map[string]int) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for name, pid := range processes {
				now := resident(f.b, pid)
				f.mu.Lock()
				f.most[name] = max(f.most[name], now)
				f.mu.Unlock()
			}
		}
	}
}

// peak adds the most memory that each process had.
func (f *manyPools) peak(took *comparison) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, most := range f.most {
		took.add("resident memory of "+name+" at most, MiB", f.by.name(), most)
	}
}

// measure adds how long something takes once it has begun, and what it asks of the
// API server.
func (f *manyPools) measure(took *comparison, what string, begin, finished func()) {
	f.b.Helper()
	before, worked := f.requests(), f.work()
	begin()
	began := time.Now()
	finished()
	took.add(what+", ms", f.by.name(), float64(time.Since(began).Milliseconds()))
	// The pass that saw it done may still write the status.
	pause(f.b, 2*time.Second)
	took.add(what+", work in ms", f.by.name(), 1000*(f.work()-worked))
	after := f.requests()
	for _, method := range []string{http.MethodGet, http.MethodPatch} {
		took.add(what+", "+method, f.by.name(), after[method]-before[method])
	}
}

// work is how many seconds the processes' reconciles have taken, their waiting for Git
// and the API server included.
func (f *manyPools) work() (seconds float64) {
	f.b.Helper()
	for _, address := range f.metrics {
		samples(f.b, address, func(name string, value float64) {
			if strings.HasPrefix(name, "gotk_reconcile_duration_seconds_sum{") {
				seconds += value
			}
		})
	}
	return seconds
}

// requests of the processes to the API server, by method, without watches.
func (f *manyPools) requests() map[string]float64 {
	f.b.Helper()
	sums := map[string]float64{}
	for _, address := range f.metrics {
		samples(f.b, address, func(name string, value float64) {
			if !strings.HasPrefix(name, "rest_client_requests_total{") {
				return
			}
			_, method, _ := strings.Cut(name, `method="`)
			method, _, _ = strings.Cut(method, `"`)
			sums[method] += value
		})
	}
	return sums
}

// files are the overlay whose pools may have so many runners; one may have what the
// API server refuses.
func (f *manyPools) files(maxRunners int, refused ...string) map[string]string {
	files := map[string]string{}
	kustomization := "namespace: " + f.namespace + "\nlabels:\n  - pairs: {team: platform}\npatches:\n  - path: patch.yaml\n    target: {kind: ExecutorPool}\nresources:\n"
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

// pushed commits files now, and asks for a sync when it is called.
func (f *manyPools) pushed(files map[string]string) func() {
	f.b.Helper()
	f.commit = f.git.Commit(f.namespace, files)
	return func() { f.ask(false) }
}

func (f *manyPools) create() { f.by.create(f) }

func (f *manyPools) applied() { f.by.applied(f) }

func (f *manyPools) refused() { f.by.refused(f) }

// ask asks for a sync by a new value of Flux's annotation.
func (f *manyPools) ask(edited bool) {
	f.asked = time.Now().Format(time.RFC3339Nano)
	f.by.ask(f, edited)
}

// annotate asks an object for a sync.
func (f *manyPools) annotate(object client.Object) {
	f.b.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, fluxmeta.ReconcileRequestAnnotation, f.asked)
	if err := f.cluster.Patch(f.b.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		f.b.Fatal(err)
	}
}

// count says how many pools may have so many runners.
func (f *manyPools) count(maxRunners int32) (pools int) {
	f.b.Helper()
	list := &v1alpha1.ExecutorPoolList{}
	if err := f.cluster.List(f.b.Context(), list, client.InNamespace(f.namespace)); err != nil {
		f.b.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.MaxRunners == maxRunners {
			pools++
		}
	}
	return pools
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
	most := time.Duration(max(5, f.n/500)) * time.Minute
	ctx, cancel := context.WithTimeout(f.b.Context(), most)
	defer cancel()
	watcher, err := f.cluster.Watch(ctx, list, client.InNamespace(f.namespace))
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
	f.b.Fatalf("not in %s", most)
}

// edit changes pools as a person would, one after another, and asks who only looks when
// he is asked to.
func (f *manyPools) edit(pools int) {
	f.b.Helper()
	for i := range pools {
		pool := &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: fmt.Sprintf("pool-%d", i)}}
		err := f.cluster.Patch(f.b.Context(), pool, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"maxRunners":1}}`)), client.FieldOwner("kubectl-edit"))
		if err != nil {
			f.b.Fatal(err)
		}
	}
	f.ask(true)
}
