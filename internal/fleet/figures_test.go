package fleet_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fluxcd/pkg/kustomize/filesys"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/openapi"

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
	resources := byLibrary(tb, root, dir)
	if _, err := resources.AsYaml(); err != nil {
		tb.Fatal(err)
	}
	return resources.Size()
}

func byLibrary(tb testing.TB, root, dir string) resmap.ResMap {
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
	return resources
}

// libraryTexts are the objects that the library renders by itself.
func libraryTexts(t *testing.T, root, dir string) (all []string) {
	t.Helper()
	openapi.ResetOpenAPI()
	t.Cleanup(openapi.ResetOpenAPI)
	for _, resource := range byLibrary(t, root, dir).Resources() {
		text, err := resource.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return all
}

// BenchmarkCheckOverlays compares a check with what the kustomize library takes to
// build the same overlays and print them: by turns, so that whatever else the
// machine does bears on both.
func BenchmarkCheckOverlays(b *testing.B) {
	v := validator(b)
	for _, size := range []struct{ clusters, pools int }{{10, 100}, {1, 1000}, {50, 200}} {
		b.Run(fmt.Sprintf("%dx%d", size.clusters, size.pools), func(b *testing.B) {
			dir := b.TempDir()
			fleettest.WriteFiles(b, dir, overlays(size.clusters, size.pools))
			var check, kustomize expense
			for b.Loop() {
				check.measure(func() {
					report, err := fleet.Check(b.Context(), v, dir)
					if err != nil || report.Failed() || report.Documents != size.clusters*size.pools {
						b.Fatalf("%d documents, %.3v, %v", report.Documents, report.Problems, err)
					}
				})
				kustomize.measure(func() {
					for c := range size.clusters {
						if n := kustomizeAlone(b, dir, fmt.Sprintf("clusters/cluster-%02d/eu", c)); n != size.pools {
							b.Fatalf("%d documents", n)
						}
					}
				})
			}
			n := float64(b.N)
			b.ReportMetric(check.elapsed.Seconds()/n, "s/check")
			b.ReportMetric(kustomize.elapsed.Seconds()/n, "s/kustomize")
			b.ReportMetric(check.elapsed.Seconds()/kustomize.elapsed.Seconds(), "ratio")
			b.ReportMetric(check.processor.Seconds()/n, "cpu-s/check")
			b.ReportMetric(kustomize.processor.Seconds()/n, "cpu-s/kustomize")
			b.ReportMetric(float64(check.peak)/(1<<20), "MiB-heap")
		})
	}
}

// expense is what something took: time, time of processors, and the most that it
// had on the heap, in bytes.
type expense struct {
	elapsed, processor time.Duration
	peak               int64
}

func (s *expense) measure(run func()) {
	s.peak = max(s.peak, peakOf(func() {
		began, used := time.Now(), processorTime()
		run()
		s.elapsed += time.Since(began)
		s.processor += processorTime() - used
	}))
}

// processorTime is what this process has used so far, of all processors: what others
// do on the machine does not count.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
