package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
)

// A sync that finds nothing new reads the PoolSync, its credential and what is
// not watched, once an interval, and writes nothing.
func TestIdleSyncHardlyAsksAndNeverWrites(t *testing.T) {
	s := newSyncStage(t, overlay("gpu", "batch"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Interval = metav1.Duration{Duration: time.Second} })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.until("the Events are written", func() bool { return len(s.events(v1alpha1.ReasonReconciliationSucceeded)) == 1 })
	s.sync()
	before := len(requestsBy(t, s.agent()))
	const idle = 4 * time.Second
	started := time.Now()
	time.Sleep(idle)
	after := requestsBy(t, s.agent())[before:]
	passes := 0
	for _, request := range after {
		verb, _, _ := strings.Cut(request, " ")
		switch {
		case verb != "get":
			t.Errorf("an idle sync asked for %s", request)
		case strings.Contains(request, "/poolsyncs/fleet"):
			passes++
		case !strings.Contains(request, "/secrets/fleet-git") && !strings.Contains(request, "/resourcequotas/runners"):
			t.Errorf("an idle sync asked for %s", request)
		}
	}
	// A tenth sooner and later is the jitter; the machine may have slept longer.
	if most := int(time.Since(started)/(900*time.Millisecond)) + 2; passes < 2 || passes > most || len(after) > 3*most {
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
	var took []time.Duration
	for i := range 20 {
		s.git.Commit(fleetRepository, map[string]string{"pools/gpu.yaml": poolFile("gpu", 10+i)})
		started := time.Now()
		s.poke()
		s.until("the commit is applied", func() bool { return s.pool("gpu").Spec.MaxRunners == int32(10+i) })
		took = append(took, time.Since(started))
	}
	median, most := quantile(took, 0.5), quantile(took, 0.95)
	t.Logf("push to applied: median %s, 95 of 100 within %s", median, most)
	if median > time.Second {
		t.Errorf("the median is %s", median)
	}
}

// From an edit in the cluster to its entry in the status.
func TestDriftShowsAtOnce(t *testing.T) {
	s := newSyncStage(t, overlay("gpu", "batch"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Drift.Mode = v1alpha1.DriftReport })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	started := time.Now()
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":3}}`)
	s.drift("maxRunners", func(e v1alpha1.DriftEntry) bool { return e.Path == "/spec/maxRunners" })
	took := time.Since(started)
	t.Logf("edit to status: %s", took)
	if took > time.Second {
		t.Errorf("drift showed after %s", took)
	}
}
