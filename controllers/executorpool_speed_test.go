package controllers

import (
	"slices"
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
	time.Sleep(2 * time.Second) // the last Events are on their way
	const quiet = 10 * time.Second
	before := s.requests()
	// Snapshots that say nothing new come all the time.
	for range 10 {
		s.hub.change(func() {})
		time.Sleep(quiet / 10)
	}
	if after := s.requests(); len(after) > len(before) {
		t.Errorf("requests in %s: %q", quiet, after[len(before):])
	}
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
	slices.Sort(took)
	t.Logf("median %s, slowest %s", took[len(took)/2], took[len(took)-1])
	if median := took[len(took)/2]; median > 300*time.Millisecond {
		t.Errorf("the median is %s", median)
	}
}
