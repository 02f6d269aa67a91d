package store_test

import (
	"fmt"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// BenchmarkDocuments is one sync of 10,000 pools, and the longest that another change
// waits meanwhile: as they are made, when another commit leaves them alone, when it changes all of them or one,
// when nothing is new, and when their documents go.
func BenchmarkDocuments(b *testing.B) {
	const pools = 10_000
	eachDurable(b, func(b *testing.B, d durable) {
		store.DocumentsAtOnce(100)
		w := d.busy(b, 1)
		s := w.s
		names := []string{"made", "another-commit", "all-changed", "one-changed", "nothing-new", "gone"}
		took := make([]time.Duration, len(names))
		rounds, waited := 0, time.Duration(0)
		for b.Loop() {
			rounds++
			documents := make([]store.PoolDocument, pools)
			for i := range documents {
				documents[i] = written("fleet", fmt.Sprintf("pool-%d-%05d", rounds, i), 1, "Revoke")
			}
			at := func(revision string, change func(i int) bool) {
				for i := range documents {
					documents[i].Source.Revision = revision
					if change(i) {
						documents[i].Definition.MaxRunners++
						documents[i].Source.Digest += "+"
					}
				}
			}
			steps := []func(){
				func() {},
				func() { at("r2", func(int) bool { return false }) },
				func() { at("r3", func(int) bool { return true }) },
				func() { at("r3", func(i int) bool { return i == 0 }) },
				func() {},
				func() { documents = []store.PoolDocument{written("fleet", "last", 1, "Orphan")} },
			}
			for i, prepare := range steps {
				prepare()
				began := time.Now()
				longest := othersWait(b, s)
				applied, err := s.ApplyDocuments(background, store.Revision{Sync: "fleet"}, documents)
				took[i] += time.Since(began)
				waited = max(waited, longest())
				check(b, err)
				if len(applied.HeldBack) > 0 || i == 5 && len(applied.Draining) != pools {
					b.Fatalf("%s: %d held back, %d drain", names[i], len(applied.HeldBack), len(applied.Draining))
				}
			}
		}
		for i, name := range names {
			b.ReportMetric(float64(took[i].Milliseconds())/float64(rounds), name+"-ms")
		}
		b.ReportMetric(float64(waited.Milliseconds()), "others-wait-ms")
		b.ReportMetric(0, "ns/op")
	})
}

// othersWait makes a small change again and again until longest is asked for, which says
// how long one took at most.
func othersWait(tb testing.TB, s *store.Store) (longest func() time.Duration) {
	tb.Helper()
	stop, done := make(chan struct{}), make(chan time.Duration)
	go func() {
		most := time.Duration(0)
		for {
			began := time.Now()
			if err := s.SaveSync(background, hubv1.Sync{Name: "nobody"}); err != nil {
				tb.Error(err)
			}
			most = max(most, time.Since(began))
			select {
			case <-stop:
				done <- most
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-done
	}
}
