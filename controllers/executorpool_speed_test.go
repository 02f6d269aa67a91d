package controllers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
)

// A pool whose every number stands still costs the API server its watches and
// nothing else.
func TestAQuietPoolMakesNoRequests(t *testing.T) {
	s := newStage(t, 4)
	s.pool(func(spec *v1alpha1.ExecutorPoolSpec) { spec.MinRunners = 1 })
	s.run(s.untilPods(1)[0])
	s.until("the runner is idle", func() bool {
		p := &v1alpha1.ExecutorPool{}
		return s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: "gpu"}, p) == nil && p.Status.Idle == 1
	})
	const quiet = 10 * time.Second
	// The last Events are on their way.
	before := s.requests()
	s.until("the requests of the start are over", func() bool {
		last := len(before)
		time.Sleep(2 * time.Second)
		before = s.requests()
		return len(before) == last
	})
	// Snapshots that say nothing new come all the time.
	for range 10 {
		s.hub.change(func() {})
		time.Sleep(quiet / 10)
	}
	if after := s.requests(); len(after) > len(before) {
		t.Errorf("requests in %s: %q", quiet, after[len(before):])
	}
}

// soon measures a median until one is within the bound, three times at most: a machine
// that other tests share is slow now and then, and what is slow itself always is.
func soon(t *testing.T, bound time.Duration, median func() time.Duration) {
	t.Helper()
	var took []time.Duration
	for range 3 {
		took = append(took, median())
		if took[len(took)-1] <= bound {
			return
		}
	}
	t.Errorf("medians are %s, more than %s each time", took, bound)
}

// From a run that begins to wait to its Pod: the promise is 100 ms at the
// median; the bound leaves room for a machine that other tests share.
func TestAWaitingRunGetsItsPodAtOnce(t *testing.T) {
	s := newStage(t, 100)
	s.pool(func(spec *v1alpha1.ExecutorPoolSpec) { spec.MaxRunners = 100 })
	clientset, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := clientset.CoreV1().Pods(s.ns).Watch(s.ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	soon(t, 300*time.Millisecond, func() time.Duration {
		var took []time.Duration
		for range 15 {
			began := time.Now()
			s.hub.queue(1)
			for event := range watch.ResultChan() {
				if event.Type == apiwatch.Added {
					break
				}
			}
			took = append(took, time.Since(began))
		}
		median, slowest := quantile(took, 0.5), quantile(took, 1)
		t.Logf("median %s, slowest %s", median, slowest)
		return median
	})
}
