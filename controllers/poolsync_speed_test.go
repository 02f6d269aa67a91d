package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
)

// A sync that finds nothing new reads its credential and what stands beside pools,
// once an interval, and writes nothing.
func TestIdleSyncHardlyAsksAndNeverWrites(t *testing.T) {
	s := newSyncStage(t, overlay("gpu", "batch"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Interval = metav1.Duration{Duration: time.Second} })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.until("the Events are written", func() bool { return len(s.events(v1alpha1.ReasonReconciliationSucceeded)) == 1 })
	s.sync()
	// Once there was another pass, what this one asked for is in the log.
	requests := func(from int) []string { return requestsBy(t, s.agent())[from:] }
	served := len(requests(0))
	s.until("another pass", func() bool { return len(requests(served)) > 0 })
	before := len(requests(0))
	const idle = 4 * time.Second
	started := time.Now()
	time.Sleep(idle)
	s.until("two passes", func() bool { return strings.Count(strings.Join(requests(before), "\n"), "/secrets/fleet-git") >= 2 })
	after := requests(before)
	passes := 0
	for _, request := range after {
		verb, _, _ := strings.Cut(request, " ")
		switch {
		case verb != "get":
			t.Errorf("an idle sync asked for %s", request)
		case strings.Contains(request, "/secrets/fleet-git"):
			passes++
		case !strings.Contains(request, "/resourcequotas/runners"):
			t.Errorf("an idle sync asked for %s", request)
		}
	}
	// A tenth sooner and later is the jitter; the machine may have slept longer.
	if most := int(time.Since(started)/(900*time.Millisecond)) + 2; passes > most || len(after) > 2*most {
		t.Errorf("%d passes in %s: %s", passes, time.Since(started), strings.Join(after, "\n"))
	}
}

// quantile of durations, which it sorts.
func quantile(of []time.Duration, q float64) time.Duration {
	slices.Sort(of)
	return of[min(int(q*float64(len(of))), len(of)-1)]
}

// From a push that is announced to the applied pool: the promise is one second
// for 95 of 100. The bound on the median leaves room for a machine that other
// tests share.
func TestPushIsAppliedAtOnce(t *testing.T) {
	s := newSyncStage(t, overlay("gpu", "batch"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	runners := 10
	soon(t, time.Second, func() time.Duration {
		var took []time.Duration
		for range 20 {
			runners++
			s.git.Commit(fleetRepository, map[string]string{"pools/gpu.yaml": poolFile("gpu", runners)})
			started := time.Now()
			s.poke()
			s.until("the commit is applied", func() bool { return s.pool("gpu").Spec.MaxRunners == int32(runners) })
			took = append(took, time.Since(started))
		}
		median, most := quantile(took, 0.5), quantile(took, 0.95)
		t.Logf("push to applied: median %s, 95 of 100 within %s", median, most)
		return median
	})
}

// From an edit in the cluster to its entry in the status.
func TestDriftShowsAtOnce(t *testing.T) {
	s := newSyncStage(t, overlay("gpu", "batch"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Drift.Mode = v1alpha1.DriftReport })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	runners := 4
	soon(t, time.Second, func() time.Duration {
		runners++
		started := time.Now()
		s.kubectlEdit("gpu", fmt.Sprintf(`{"spec":{"maxRunners":%d}}`, runners))
		s.drift("maxRunners", func(e v1alpha1.DriftEntry) bool {
			return e.Path == "/spec/maxRunners" && e.Cluster == fmt.Sprint(runners)
		})
		took := time.Since(started)
		t.Logf("edit to status: %s", took)
		return took
	})
}
