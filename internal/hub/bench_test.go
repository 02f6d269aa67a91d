package hub_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

// BenchmarkHandOff measures from the request that starts a run to the runner
// that has it, over TLS, with an idle runner waiting.
func BenchmarkHandOff(b *testing.B) {
	r := serve(b, nil)
	pool, controller := r.pool("gpu", 1)
	r.project("app", pool)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		_, runner := r.enroll(controller, fmt.Sprintf("runner-%06d", i))
		var began time.Time
		var got string
		for snapshot, err := range runner.RunnerWatch(r.ctx()) {
			check(b, err)
			if snapshot.Run != nil {
				got = snapshot.Run.RunID
				break
			}
			began = time.Now()
			r.run("app")
		}
		took = append(took, time.Since(began))
		check(b, runner.RunResult(r.ctx(), got, hubv1.ResultRequest{Attempt: 1, FinishedAt: r.clock.Now()}))
		check(b, runner.Bye(r.ctx(), ""))
		runner.CloseIdleConnections()
	}
	slices.Sort(took)
	for _, p := range []int{50, 95, 99} {
		b.ReportMetric(float64(took[min(len(took)*p/100, len(took)-1)].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
	}
}
