package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"cloop.dev/cloop/apis/v1alpha1"
)

// thousands is an overlay of so many pools, fifty a file.
func thousands(pools int) map[string]string {
	files, list := map[string]string{}, "resources:\n"
	for file := range (pools + 49) / 50 {
		text := ""
		for i := range min(50, pools-file*50) {
			text += "---\n" + poolFile(fmt.Sprintf("pool-%05d", file*50+i), 4)
		}
		name := fmt.Sprintf("pools-%03d.yaml", file)
		files["clusters/dev/"+name] = text
		list += "  - " + name + "\n"
	}
	files["clusters/dev/kustomization.yaml"] = list
	return files
}

// BenchmarkNothingChanged is a request to reconcile that finds nothing to do. Work is
// what a pass took, the answers of Git and the API server included; first is from the
// making of the PoolSync until all is applied, and what that and a pass take of
// processors without the API server's. times-per-pool is how many times as long as for
// the smaller overlay the first takes for each pool, with and without waiting.
func BenchmarkNothingChanged(b *testing.B) {
	var passed, processors float64
	for _, pools := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(pools), func(b *testing.B) {
			first, cpu := benchmarkNothingChanged(b, pools)
			first, cpu = first/float64(pools), cpu/float64(pools)
			if passed > 0 {
				b.ReportMetric(first/passed, "times-per-pool")
				b.ReportMetric(cpu/processors, "times-cpu-per-pool")
			} else {
				passed, processors = first, cpu
			}
		})
	}
}

// applied waits until all is applied. It does so by a watch: an inventory of thousands,
// read again and again, takes the API server as long as what is measured.
func (s *syncStage) applied(most time.Duration) {
	s.t.Helper()
	c, err := client.NewWithWatch(s.config, client.Options{Scheme: newScheme()})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.ctx, most)
	defer cancel()
	watcher, err := c.Watch(ctx, &v1alpha1.PoolSyncList{}, client.InNamespace(s.ns))
	if err != nil {
		s.t.Fatal(err)
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if sync, ok := event.Object.(*v1alpha1.PoolSync); ok && condition(sync, v1alpha1.ConditionReady).Status == metav1.ConditionTrue {
			return
		}
	}
	s.t.Fatalf("not applied in %s: %+v", most, s.get().Status.Conditions)
}

// processorSeconds are those of this process so far, in which the controller runs.
func processorSeconds(t testing.TB) float64 {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

func benchmarkNothingChanged(b *testing.B, pools int) (firstSeconds, cpuSeconds float64) {
	s := newSyncStage(b, thousands(pools))
	began, cpu := time.Now(), processorSeconds(b)
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Timeout.Duration = 10 * time.Minute })
	s.applied(10 * time.Minute)
	first := time.Since(began)
	cpu = processorSeconds(b) - cpu
	s.sync()
	passes, took := s.passes()
	before := len(requestsBy(b, s.agent()))
	b.ResetTimer()
	for b.Loop() {
		s.sync()
	}
	b.StopTimer()
	morePasses, moreTook := s.passes()
	b.ReportMetric(first.Seconds(), "s-first")
	b.ReportMetric(cpu, "cpu-s-first")
	b.ReportMetric(1000*(moreTook-took)/float64(morePasses-passes), "ms-work/pass")
	writes := 0
	for _, request := range requestsBy(b, s.agent())[before:] {
		if !strings.HasPrefix(request, "get ") {
			writes++
		}
	}
	b.ReportMetric(float64(writes)/float64(b.N), "writes/op")
	b.ReportMetric(s.unasked(10), "ms-work/unasked-pass")
	return first.Seconds(), cpu
}

// unasked is how many milliseconds a pass takes that the interval brings, which has
// nothing to write: so many of them on average.
func (s *syncStage) unasked(n uint64) float64 {
	s.t.Helper()
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Interval.Duration = time.Second })
	s.until("the interval is a second", func() bool { return s.get().Status.ObservedGeneration == s.get().Generation })
	time.Sleep(3 * time.Second) // what the edit brought is over
	passes, took := s.passes()
	before := len(requestsBy(s.t, s.agent()))
	more, moreTook := passes, took
	for more < passes+n {
		time.Sleep(500 * time.Millisecond)
		more, moreTook = s.passes()
	}
	for _, request := range requestsBy(s.t, s.agent())[before:] {
		if !strings.HasPrefix(request, "get ") {
			s.t.Errorf("a pass with nothing to do asks for %s", request)
		}
	}
	return 1000 * (moreTook - took) / float64(more-passes)
}

// passes are how many looks at the PoolSync there were, and how many seconds they took.
func (s *syncStage) passes() (n uint64, seconds float64) {
	s.t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() != gotkDuration.Name || !slices.ContainsFunc(metric.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == s.ns }) {
				continue
			}
			return metric.GetHistogram().GetSampleCount(), metric.GetHistogram().GetSampleSum()
		}
	}
	return 0, 0
}
