package fleet_test

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/internal/fleet"
)

// agreeingMany is agreeing with so many pools, of which all have more runners in the
// cluster than the hub lets them have: Git says so.
func agreeingMany(t testing.TB, pools int) fleet.DriftInput {
	t.Helper()
	in := agreeing(t)
	cluster, hub := &in.Clusters[0], in.Hub
	inGit, live, half, have := cluster.Git[0].Object, cluster.Live[0], hub.Git[0].Object, hub.Pools[0]
	cluster.Git, cluster.Live, hub.Git, hub.Pools = nil, nil, nil, nil
	named := func(object *unstructured.Unstructured, name string) *unstructured.Unstructured {
		object = object.DeepCopy()
		object.SetName(name)
		return object
	}
	for i := range pools {
		name := fmt.Sprintf("pool-%05d", i)
		pool, lives := named(inGit, name), named(&live, name)
		for _, object := range []*unstructured.Unstructured{pool, lives} {
			_ = unstructured.SetNestedField(object.Object, int64(9), "spec", "maxRunners")
		}
		cluster.Git, cluster.Live = append(cluster.Git, rendered(pool)...), append(cluster.Live, *lives)
		hub.Git = append(hub.Git, rendered(named(half, name))...)
		have.ID, have.Name = "id-"+name, name
		hub.Pools = append(hub.Pools, have)
	}
	return in
}

// What the comparison of a pool takes does not depend on how many others there are.
func TestDriftOfManyPools(t *testing.T) {
	each := func(pools int) uint64 {
		in := agreeingMany(t, pools)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		report := fleet.Drift(in)
		runtime.ReadMemStats(&after)
		if len(report.Pools) != 2*pools || !report.Any() {
			t.Fatalf("%d entries for %d pools, %v", len(report.Pools), pools, report.Notes)
		}
		return (after.TotalAlloc - before.TotalAlloc) / uint64(pools)
	}
	each(10)
	few, many := each(100), each(1000)
	t.Logf("%d bytes for each of 100 pools, %d for each of 1,000", few, many)
	if many > few+few/4 {
		t.Errorf("comparing takes %d bytes for each of 100 pools, and %d for each of 1,000", few, many)
	}
}

// BenchmarkDrift compares the three surfaces.
func BenchmarkDrift(b *testing.B) {
	for _, pools := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(pools), func(b *testing.B) {
			in := agreeingMany(b, pools)
			for b.Loop() {
				fleet.Drift(in)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(pools), "µs/pool")
		})
	}
}
