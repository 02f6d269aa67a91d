package fleet_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// manyPools are files with a pool each, in plain directories.
func manyPools(count int) map[string]string {
	files := map[string]string{}
	for i := range count {
		name := fmt.Sprintf("pool-%05d", i)
		files[fmt.Sprintf("team-%d/%s.yaml", i/100, name)] = strings.ReplaceAll(basePool, "name: gpu\n", "name: "+name+"\n")
	}
	return files
}

// What a check keeps of a document is what its report and the rules between
// documents need: neither its text nor its nodes, which are twenty times more.
func TestCheckKeepsLittleOfADocument(t *testing.T) {
	const documents, each, beside = 2000, 4 << 10, 8 << 20
	dir, v := repo(t, manyPools(documents)), validator(t)
	if _, err := fleet.Check(t.Context(), v, dir, "team-0"); err != nil {
		t.Fatal(err)
	}
	// Garbage must not be taken for what is kept.
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	keepsTo(t, documents*each+beside, time.Hour, func() {
		report, err := fleet.Check(t.Context(), v, dir)
		if err != nil || report.Documents != documents || report.Failed() {
			t.Fatalf("%d documents, %v, %v", report.Documents, report.Problems, err)
		}
	})
}

// What a builder remembers of an object is its text, and what a build that is on its
// way holds of a document beside the objects is an outline: their trees and nodes are
// five and twenty times as much.
func TestBuilderKeepsLittle(t *testing.T) {
	const pools, kept, each, beside = 200, 3 << 10, 15 << 10, 3 << 20
	v, dir := validator(t), repo(t, wide(pools, 50))
	build := func(builder *fleet.Builder) {
		if built, err := builder.Build(t.Context(), dir, "eu", nil); err != nil || len(built.Objects) != pools {
			t.Fatal(err)
		}
	}
	build(fleet.NewBuilder(v))
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	keepsTo(t, pools*each+beside, time.Hour, func() { build(fleet.NewBuilder(v)) })
	before := heap()
	builder := fleet.NewBuilder(v)
	build(builder)
	remembered := (int64(heap()) - int64(before)) / pools
	t.Logf("%d B are kept of an object", remembered)
	if remembered > kept {
		t.Errorf("a builder remembers %d bytes of an object, want at most %d", remembered, kept)
	}
	runtime.KeepAlive(builder)
}

// keepsTo is for what is to take no more than so many bytes of heap beyond what is
// there, and so much processor time. A busy machine only adds to either (garbage that
// nobody has collected yet counts), so what is once within the bounds keeps to them.
func keepsTo(t *testing.T, memory int64, patience time.Duration, run func()) {
	t.Helper()
	var peak int64
	var took time.Duration
	for range 3 {
		began := processorTime()
		peak = peakOf(run)
		took = processorTime() - began
		t.Logf("%s of processor time, %d KiB on the heap", took, peak>>10)
		if peak <= memory && took <= patience {
			return
		}
	}
	t.Errorf("it took %s of processor time and %d KiB, want at most %s and %d KiB", took, peak>>10, patience, memory>>10)
}

// peakOf is the most that the heap held while something ran, beyond what it held
// before.
func peakOf(run func()) int64 {
	before := heap()
	stop, sampled := make(chan struct{}), make(chan uint64)
	go func() { sampled <- peakHeap(stop) }()
	run()
	close(stop)
	return int64(<-sampled) - int64(before)
}

// peakHeap is the most that the heap held until it is stopped.
func peakHeap(stop <-chan struct{}) (peak uint64) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return peak
		case <-ticker.C:
			metrics.Read(sample)
			peak = max(peak, sample[0].Value.Uint64())
		}
	}
}

// Files are judged on all cores; the report does not show in which order.
func TestCheckOfManyFilesIsInOrder(t *testing.T) {
	files := manyPools(300)
	for i := range 30 {
		name := fmt.Sprintf("team-1/pool-%05d.yaml", 100+i)
		files[name] = strings.Replace(files[name], "https://", "http://", 1)
	}
	dir, v := repo(t, files), validator(t)
	var first string
	for range 4 {
		report, err := fleet.Check(t.Context(), v, dir)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%+v", report)
		if first == "" {
			first = text
		}
		if text != first || len(report.Problems) != 30 || report.Documents != 300 {
			t.Fatalf("%d problems in %d documents, or another order than before", len(report.Problems), report.Documents)
		}
		for i, subject := range report.Subjects {
			if want := fmt.Sprintf("pool-%05d", i); subject.Pool != want {
				t.Fatalf("subject %d is pool %s, want %s", i, subject.Pool, want)
			}
		}
	}
}

func BenchmarkCheckOfADocument(b *testing.B) {
	const documents = 200
	dir, v := b.TempDir(), validator(b)
	fleettest.WriteFiles(b, dir, manyPools(documents))
	if _, err := fleet.Check(b.Context(), v, dir); err != nil {
		b.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		if _, err := fleet.Check(b.Context(), v, dir); err != nil {
			b.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	per := float64(b.N) * documents
	b.ReportMetric(float64(b.Elapsed().Microseconds())/per, "µs/document")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/per, "B/document")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/per, "allocs/document")
}
