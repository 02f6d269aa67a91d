package fleet_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/kustomize/filesys"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// overlays are as many clusters, each with a base of its own of so many pools
// and an overlay that patches every one of them.
func overlays(clusters, pools int) map[string]string {
	files := map[string]string{}
	for c := range clusters {
		for file, content := range patched(pools) {
			content = strings.ReplaceAll(strings.ReplaceAll(content, "  foo: 1\n", ""), "eu-", fmt.Sprintf("c%d-", c))
			files[fmt.Sprintf("clusters/cluster-%02d/%s", c, file)] = content
		}
	}
	return files
}

// kustomizeAlone builds a directory as the kustomize library does by itself.
func kustomizeAlone(tb testing.TB, root, dir string) int {
	tb.Helper()
	secure, err := filesys.MakeFsOnDiskSecure(root)
	if err != nil {
		tb.Fatal(err)
	}
	resources, err := krusty.MakeKustomizer(&krusty.Options{
		LoadRestrictions: types.LoadRestrictionsNone, PluginConfig: types.DisabledPluginConfig(),
	}).Run(secure, filepath.Join(root, dir))
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := resources.AsYaml(); err != nil {
		tb.Fatal(err)
	}
	return resources.Size()
}

func benchmarkOverlays(b *testing.B, clusters, pools int, run func(dir string)) {
	dir := b.TempDir()
	fleettest.WriteFiles(b, dir, overlays(clusters, pools))
	before := heap()
	stop, sampled := make(chan struct{}), make(chan uint64)
	go func() { sampled <- peakHeap(stop) }()
	for b.Loop() {
		run(dir)
	}
	close(stop)
	b.ReportMetric(float64(int64(<-sampled)-int64(before))/(1<<20), "MiB-heap")
}

// BenchmarkCheckOverlays compares a check with what the kustomize library takes to
// build the same overlays and print them, in one run.
func BenchmarkCheckOverlays(b *testing.B) {
	for _, size := range []struct{ clusters, pools int }{{10, 100}, {1, 1000}, {50, 200}} {
		name := fmt.Sprintf("%dx%d", size.clusters, size.pools)
		v := validator(b)
		b.Run(name+"/check", func(b *testing.B) {
			benchmarkOverlays(b, size.clusters, size.pools, func(dir string) {
				report, err := fleet.Check(b.Context(), v, dir)
				if err != nil || report.Failed() || report.Documents != size.clusters*size.pools {
					b.Fatalf("%d documents, %.3v, %v", report.Documents, report.Problems, err)
				}
			})
		})
		b.Run(name+"/kustomize", func(b *testing.B) {
			benchmarkOverlays(b, size.clusters, size.pools, func(dir string) {
				for c := range size.clusters {
					if n := kustomizeAlone(b, dir, fmt.Sprintf("clusters/cluster-%02d/eu", c)); n != size.pools {
						b.Fatalf("%d documents", n)
					}
				}
			})
		})
	}
}
