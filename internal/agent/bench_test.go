package agent

import (
	"slices"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

// BenchmarkAssignmentToStart measures what stands between a snapshot with a run
// and its command, as a runner that is ready does it: fetch over HTTPS from a Git
// server on this machine, check out, execute.
func BenchmarkAssignmentToStart(b *testing.B) {
	repository := testRepository(b)
	for name, assignment := range map[string]hubv1.Assignment{
		"ref":    {Ref: "main"},
		"commit": {Commit: repository.main},
	} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				b.StopTimer()
				h := newFakeHub()
				l := begin(b, h)
				h.await(b, "enrolled", func() bool { return h.enrolled == 1 })
				assignment.RunID, assignment.Attempt, assignment.Remote, assignment.Command = "run1", 1, repository.url, []string{"true"}
				b.StartTimer()
				began := time.Now()
				h.assign(assignment)
				h.await(b, "started", func() bool { return h.started != nil })
				took = append(took, time.Since(began))
				b.StopTimer()
				if err := l.end(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}
