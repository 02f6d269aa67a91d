package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
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
// what a pass took, the answers of Git and the API server included.
func BenchmarkNothingChanged(b *testing.B) {
	s := newSyncStage(b, thousands(1000))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.sync()
	passes, took := s.passes()
	before := len(requestsBy(b, s.agent()))
	b.ResetTimer()
	for b.Loop() {
		s.sync()
	}
	b.StopTimer()
	morePasses, moreTook := s.passes()
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
