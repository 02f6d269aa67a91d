package controllers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/prometheus/client_golang/prometheus"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

// fault stands between a controller and the API server. It answers a request itself,
// with an answer or an error, or with neither passes it on.
type fault func(*http.Request) (*http.Response, error)

// faulty is a transport with a fault, which may change.
type faulty struct {
	next http.RoundTripper
	mu   *sync.Mutex // guards is
	is   *fault
}

// RoundTrip is http.RoundTripper's.
func (f faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	now := *f.is
	f.mu.Unlock()
	if now != nil {
		if response, err := now(r); response != nil || err != nil {
			return response, err
		}
	}
	return f.next.RoundTrip(r)
}

// failure is an answer of the API server's that is no success.
func failure(r *http.Request, code int, status string, header ...string) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	body := `{"kind":"Status","apiVersion":"v1","status":"Failure","code":` + fmt.Sprint(code) + `,` + status + `}`
	return &http.Response{StatusCode: code, Header: h, Request: r, Body: io.NopCloser(bytes.NewBufferString(body)), ProtoMajor: 1, ProtoMinor: 1}
}

func isWrite(r *http.Request) bool { return r.Method != http.MethodGet }

// ofPools says that a request writes an ExecutorPool.
func ofPools(r *http.Request) bool {
	return isWrite(r) && strings.Contains(r.URL.Path, "/executorpools/")
}

// syncProcess is a fleet controller that is driven by hand, without caches.
type syncProcess struct {
	s  *syncStage
	r  *poolSyncReconciler
	mu sync.Mutex // guards is
	is fault
}

// sharedValidator is one for all: what it is made of takes longer than a pass.
var sharedValidator = sync.OnceValues(schemas.NewValidator)

// process starts one. It knows nothing of those before it.
func (s *syncStage) process(is fault) *syncProcess {
	s.t.Helper()
	p := &syncProcess{s: s, is: is}
	config := rest.CopyConfig(s.config)
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return faulty{next, &p.mu, &p.is} })
	c, err := client.New(config, client.Options{Scheme: newScheme(), Mapper: s.client.RESTMapper()})
	if err != nil {
		s.t.Fatal(err)
	}
	validator, err := sharedValidator()
	if err != nil {
		s.t.Fatal(err)
	}
	p.r = &poolSyncReconciler{
		client: client.WithFieldOwner(c, v1alpha1.FieldManagerPoolSync), pools: c, live: c, appliers: newAppliers(config, s.client.RESTMapper(), newScheme()),
		cacheDir: s.t.TempDir(), validator: validator, events: newPoolEvents(&eventRecorder{EventRecorder: &record.FakeRecorder{}}, s.clock),
		metrics: newSyncMetrics(prometheus.NewRegistry()), clock: s.clock, jitter: jittered, memories: map[types.NamespacedName]*syncMemory{},
		sides: &sideWatches{stopped: true}, patience: time.Hour,
	}
	return p
}

func (p *syncProcess) now(is fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.is = is
}

// pass asks for a sync and makes one pass.
func (p *syncProcess) pass() error {
	p.s.poke()
	_, err := p.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: p.s.ns, Name: p.s.name}})
	return err
}

// inStep makes passes until all of a commit is applied and what it lacks is gone.
func (p *syncProcess) inStep(commit string, pools ...string) {
	p.s.t.Helper()
	var err error
	for range 8 {
		if err = p.pass(); err != nil {
			continue
		}
		sync := p.s.get()
		if condition(sync, v1alpha1.ConditionReady).Status == metav1.ConditionTrue && strings.HasSuffix(sync.Status.LastAppliedRevision, commit) && slices.Equal(p.s.pools(), pools) {
			return
		}
	}
	p.s.t.Fatalf("not in step with %s: %v; the pools are %v instead of %v\n%+v", commit, err, p.s.pools(), pools, p.s.get().Status)
}

// pools are the names of the pools that there are, sorted.
func (s *syncStage) pools() []string {
	s.t.Helper()
	list := &v1alpha1.ExecutorPoolList{}
	if err := s.client.List(s.ctx, list, client.InNamespace(s.ns)); err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// byHand is a stage whose controller is not running.
func byHand(t *testing.T, pools ...string) *syncStage {
	t.Helper()
	s := newSyncStage(t, overlay(pools...))
	s.stop()
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.PruneLimit.Percent = 0 })
	return s
}

// What the API server answers instead of doing what it is asked is said, with what to
// do about it, and passes with its cause.
func TestFaultsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	s := byHand(t, "batch", "gpu")
	p := s.process(nil)
	if err := p.pass(); err != nil {
		t.Fatal(err)
	}
	once := func(is fault) fault {
		done := false
		return func(r *http.Request) (*http.Response, error) {
			if done || !ofPools(r) {
				return nil, nil //nolint:nilnil // passed on
			}
			done = true
			return is(r)
		}
	}
	always := func(is fault) fault {
		return func(r *http.Request) (*http.Response, error) {
			if !ofPools(r) {
				return nil, nil //nolint:nilnil // passed on
			}
			return is(r)
		}
	}
	for i, c := range []struct {
		name string
		is   fault
		// says are parts of the message, none: nothing is wrong.
		says []string
	}{
		{"409", always(func(r *http.Request) (*http.Response, error) {
			return failure(r, http.StatusConflict, `"reason":"Conflict","message":"the object has been modified"`), nil
		}), []string{"the object has been modified", "tried again"}},
		{"429 once, with Retry-After", once(func(r *http.Request) (*http.Response, error) {
			return failure(r, http.StatusTooManyRequests, `"reason":"TooManyRequests","message":"too many requests"`, "Retry-After", "1"), nil
		}), nil},
		{"500", always(func(r *http.Request) (*http.Response, error) {
			return failure(r, http.StatusInternalServerError, `"reason":"InternalError","message":"etcdserver: request timed out"`), nil
		}), []string{"etcdserver: request timed out", "tried again"}},
		{"the connection breaks", always(func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNRESET }), []string{"connection reset", "tried again"}},
		{"an admission webhook is down", always(func(r *http.Request) (*http.Response, error) {
			return failure(r, http.StatusInternalServerError, `"reason":"InternalError","message":"Internal error occurred: failed calling webhook \"pools.example.com\": connection refused"`), nil
		}), []string{`failed calling webhook "pools.example.com"`, "tried again"}},
		{"the definition is missing", always(func(r *http.Request) (*http.Response, error) {
			return failure(r, http.StatusNotFound, `"reason":"NotFound","message":"the server could not find the requested resource","details":{}`), nil
		}), []string{"ExecutorPool", "cloop executor controller crd"}},
		{"the account is nobody any more", always(func(r *http.Request) (*http.Response, error) {
			return failure(r, http.StatusUnauthorized, `"reason":"Unauthorized","message":"Unauthorized"`), nil
		}), []string{"Unauthorized"}},
	} {
		commit := s.git.Commit(fleetRepository, map[string]string{"pools/gpu.yaml": poolFile("gpu", 100+i)})
		p.now(c.is)
		err := p.pass()
		sync := s.get()
		ready := condition(sync, v1alpha1.ConditionReady)
		if len(c.says) == 0 {
			if ready.Status != metav1.ConditionTrue || !strings.HasSuffix(sync.Status.LastAppliedRevision, commit) || err != nil {
				t.Errorf("%s: %+v, %v", c.name, ready, err)
			}
			continue
		}
		if ready.Reason != string(v1alpha1.ReasonApplyFailed) || ready.Status != metav1.ConditionFalse || condition(sync, v1alpha1.ConditionStalled).Type != "" {
			t.Errorf("%s: %+v, %v", c.name, ready, err)
		}
		for _, part := range c.says {
			if !strings.Contains(ready.Message, part) {
				t.Errorf("%s: %q does not say %q", c.name, ready.Message, part)
			}
		}
		if got := s.pool("gpu").Spec.MaxRunners; got == int32(100+i) { //nolint:gosec // small
			t.Errorf("%s: it was applied", c.name)
		}
		p.now(nil)
		p.inStep(commit, "batch", "gpu")
	}
}

// A watch that is told that its place is too old begins anew, and what was edited
// meanwhile is put back.
func TestAWatchThatExpiredMissesNothing(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.stop()
	var mu sync.Mutex
	var is fault
	s.wrap = func(next http.RoundTripper) http.RoundTripper { return faulty{next, &mu, &is} }
	s.startController()
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	expired := make(chan struct{})
	var told sync.Once
	mu.Lock()
	is = func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Get("watch") == "" || !strings.HasSuffix(r.URL.Path, "/executorpools") {
			return nil, nil //nolint:nilnil // passed on
		}
		told.Do(func() { close(expired) })
		return failure(r, http.StatusGone, `"reason":"Expired","message":"too old resource version"`), nil
	}
	mu.Unlock()
	s.stop()
	s.startController()
	<-expired
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":77}}`)
	mu.Lock()
	is = nil
	mu.Unlock()
	s.until("the edit is put back", func() bool { return s.pool("gpu").Spec.MaxRunners == 4 })
}

var errDead = errors.New("the process is dead")

// dying is a process that dies at its n-th write: after the API server has carried it
// out, or before. From then on it reaches nobody.
type dying struct {
	n     int
	after bool
	next  http.RoundTripper
	mu    sync.Mutex // guards dead and n
	dead  bool
}

func (d *dying) fault(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return nil, errDead
	}
	if !isWrite(r) {
		return nil, nil //nolint:nilnil // passed on
	}
	if d.n--; d.n > 0 {
		return nil, nil //nolint:nilnil // passed on
	}
	d.dead = true
	if d.after {
		response, err := d.next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	return nil, errDead
}

// died says whether it is dead.
func (d *dying) died() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

// A process may die at any write of a pass: the next one finds all that it left, and
// brings it to what Git says. Each commit here changes a pool, makes one and deletes
// one, and each process dies one write later than the one before.
func TestAPassThatDiesAtAnyWriteLosesNothing(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"before it is carried out": false, "after it was carried out": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := byHand(t, "gpu", "old-00")
			transport, err := rest.TransportFor(s.config)
			if err != nil {
				t.Fatal(err)
			}
			next := func(n int) (commit string, pools []string) {
				is := fmt.Sprintf("old-%02d", n)
				files := overlay("gpu", is)
				files["pools/gpu.yaml"] = poolFile("gpu", 10+n)
				files["clusters/dev/quota.yaml"] = strings.Replace(quotaFile, "20", fmt.Sprint(20+n), 1)
				return s.git.Replace(fleetRepository, files), []string{"gpu", is}
			}
			died := 0
			for n := 1; ; n++ {
				commit, pools := next(n)
				d := &dying{n: n, after: after, next: transport}
				p := s.process(d.fault)
				for range 3 {
					_ = p.pass()
				}
				if !d.died() {
					s.process(nil).inStep(commit, pools...)
					break
				}
				died++
				s.nothingIsUnknown()
				s.process(nil).inStep(commit, pools...)
				if got := s.pool("gpu").Spec.MaxRunners; got != int32(10+n) { //nolint:gosec // small
					t.Fatalf("after a death at write %d gpu has %d", n, got)
				}
				s.nothingIsUnknown()
			}
			// The finalizer, the announcement, a quota, two pools, a deletion, the report.
			if died < 6 {
				t.Errorf("only %d writes could be died at", died)
			}
		})
	}
}

// nothingIsUnknown holds the inventory to what there is.
func (s *syncStage) nothingIsUnknown() {
	s.t.Helper()
	sync := s.get()
	inventory := map[string]bool{}
	for _, e := range sync.Status.Inventory {
		inventory[e.Kind+"/"+e.Name] = true
	}
	for _, name := range s.pools() {
		if !inventory["ExecutorPool/"+name] {
			s.t.Fatalf("%s is there and not in the inventory %v", name, slices.Sorted(maps.Keys(inventory)))
		}
	}
}
