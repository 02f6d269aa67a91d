package fleet_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// wide is one overlay of so many pools, several to a file, with a namespace, common
// labels and a patch of all.
func wide(pools, each int) map[string]string {
	files := map[string]string{}
	overlay := "namespace: runners\ncommonLabels: {team: platform}\npatches:\n" +
		"- target: {kind: ExecutorPool}\n  patch: '[{\"op\": \"add\", \"path\": \"/spec/scaleDownDelay\", \"value\": \"10m\"}]'\nresources:\n"
	for at := 0; at < pools; at += each {
		var text strings.Builder
		for i := at; i < min(at+each, pools); i++ {
			text.WriteString("---\n" + strings.ReplaceAll(basePool, "name: gpu\n", fmt.Sprintf("name: pool-%05d\n", i)) + templateText)
		}
		name := fmt.Sprintf("pools-%03d.yaml", at/each)
		files["eu/"+name] = text.String()
		overlay += "- " + name + "\n"
	}
	files["eu/kustomization.yaml"] = overlay
	return files
}

const templateText = `  runnerLabels: {gpu: "true"}
  template:
    image: registry.example.com/runner:1.2
    serviceAccountName: runs
    resources:
      requests: {cpu: 500m, memory: 1Gi}
    nodeSelector: {pool: gpu}
`

// BenchmarkBuild builds and checks an overlay: with nothing known of it, with one of
// its pools changed, and with nothing changed; and with kustomize alone.
func BenchmarkBuild(b *testing.B) {
	v := validator(b)
	for _, pools := range []int{1000, 10_000} {
		dir := b.TempDir()
		files := wide(pools, 50)
		fleettest.WriteFiles(b, dir, files)
		build := func(b *testing.B, builder *fleet.Builder) *fleet.Built {
			built, err := builder.Build(b.Context(), dir, "eu", &fleet.Variables{})
			if err != nil || len(built.Errors()) > 0 || len(built.Objects) != pools {
				b.Fatal(err, built)
			}
			return built
		}
		b.Run(fmt.Sprintf("cold/%d", pools), func(b *testing.B) {
			defer processors(b)()
			for b.Loop() {
				build(b, fleet.NewBuilder(v))
			}
		})
		builder := fleet.NewBuilder(v)
		b.Run(fmt.Sprintf("changed/%d", pools), func(b *testing.B) {
			build(b, builder)
			defer processors(b)()
			const name = "eu/pools-007.yaml"
			for at := 5; b.Loop(); at++ {
				text := strings.Replace(files[name], "maxRunners: 4", fmt.Sprintf("maxRunners: %d", at), 1)
				fleettest.WriteFiles(b, dir, map[string]string{name: text})
				if built := build(b, builder); built.Rendered == 0 || built.Rendered > 200 {
					b.Fatalf("%d were rendered", built.Rendered)
				}
			}
		})
		b.Run(fmt.Sprintf("same/%d", pools), func(b *testing.B) {
			build(b, builder)
			defer processors(b)()
			for b.Loop() {
				build(b, builder)
			}
		})
		b.Run(fmt.Sprintf("kept/%d", pools), func(b *testing.B) {
			for b.Loop() {
				builder := fleet.NewBuilder(v)
				before := heap()
				built := build(b, builder)
				built.Report = nil
				with := heap()
				builder.Forget()
				b.ReportMetric(float64(heap()-before)/float64(pools), "B/object")
				b.ReportMetric(float64(with-heap())/float64(pools), "B-beside/object")
				runtime.KeepAlive(built)
			}
		})
		if pools <= 1000 {
			b.Run(fmt.Sprintf("kustomize/%d", pools), func(b *testing.B) {
				defer processors(b)()
				for b.Loop() {
					kustomizeAlone(b, dir, "eu")
				}
			})
		}
	}
}

// processors reports the time of processors that each turn takes from here on.
func processors(b *testing.B) func() {
	before := processorTime()
	return func() {
		b.ReportMetric(float64((processorTime()-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	}
}
