package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// making of the PoolSync until all is applied.
func BenchmarkNothingChanged(b *testing.B) {
	for _, pools := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(pools), func(b *testing.B) { benchmarkNothingChanged(b, pools) })
	}
}

func benchmarkNothingChanged(b *testing.B, pools int) {
	s := newSyncStage(b, thousands(pools))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Timeout.Duration = 10 * time.Minute })
	began := time.Now()
	for condition(s.get(), v1alpha1.ConditionReady).Status != metav1.ConditionTrue {
		if time.Since(began) > 10*time.Minute {
			b.Fatalf("not applied: %+v", s.get().Status.Conditions)
		}
		time.Sleep(100 * time.Millisecond)
	}
	first := time.Since(began)
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
	b.ReportMetric(1000*(moreTook-took)/float64(morePasses-passes), "ms-work/pass")
	writes := 0
	for _, request := range requestsBy(b, s.agent())[before:] {
		if !strings.HasPrefix(request, "get ") {
			writes++
		}
	}
	b.ReportMetric(float64(writes)/float64(b.N), "writes/op")
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
