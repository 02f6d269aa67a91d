package cli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// overlayRepository commits ten overlays of a hundred pools each: a base of a
// hundred, which every overlay patches ten of.
func overlayRepository(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	write := func(name, content string) {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	base := "resources:\n"
	for i := range 100 {
		name := fmt.Sprintf("pool-%03d", i)
		base += "  - " + name + ".yaml\n"
		write("pools/base/"+name+".yaml", strings.NewReplacer("gpu-pool", name, "name: gpu", "name: "+name).Replace(executorPoolYAML))
	}
	write("pools/base/kustomization.yaml", base)
	for overlay := range 10 {
		text := "resources: [../../pools/base]\npatches:\n"
		for i := range 10 {
			text += fmt.Sprintf("  - target: {kind: ExecutorPool, name: pool-%03d}\n    patch: |\n      - {op: replace, path: /spec/maxRunners, value: %d}\n", i*7+overlay, 5+i)
		}
		write(fmt.Sprintf("clusters/c%02d/kustomization.yaml", overlay), text)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "-q", "-m", "Begin"}, {"gc", "-q"}} {
		command := exec.Command("git", args...)
		command.Dir = dir
		if printed, err := command.CombinedOutput(); err != nil {
			b.Fatalf("git %v: %v: %s", args, err, printed)
		}
	}
	return dir
}

// benchmarkDiff runs `fleet diff` as a process of its own after one edit, and
// reports what benchmarkCheck does.
func benchmarkDiff(b *testing.B, file, from, to, want string) {
	binary, err := builtOnce()
	if err != nil {
		b.Fatal(err)
	}
	dir := overlayRepository(b)
	name := filepath.Join(dir, file)
	content, err := os.ReadFile(name)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(content), from, to, 1)), 0o644); err != nil {
		b.Fatal(err)
	}
	var processor time.Duration
	var peak int64
	for b.Loop() {
		diff := exec.Command(binary, "fleet", "diff", "--base", "HEAD", "--hub", "")
		diff.Dir = dir
		printed, err := diff.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || !strings.Contains(string(printed), want) {
			b.Fatalf("%v: %s", err, printed)
		}
		state := diff.ProcessState
		processor += state.UserTime() + state.SystemTime()
		// Linux counts it in KiB.
		peak = max(peak, state.SysUsage().(*syscall.Rusage).Maxrss)
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/diff")
	b.ReportMetric(float64(processor.Milliseconds())/float64(b.N), "cpu-ms/diff")
	b.ReportMetric(float64(peak)/1024, "peak-MiB")
}

func BenchmarkFleetDiffNothing(b *testing.B) {
	benchmarkDiff(b, "pools/base/pool-000.yaml", "", "", "10 overlays: no difference")
}

func BenchmarkFleetDiffOneOverlay(b *testing.B) {
	benchmarkDiff(b, "clusters/c03/kustomization.yaml", "value: 5", "value: 6", "1 of 10 overlays differ: 1 changed (1 raise)")
}

// A pool of the base is in every overlay, so all of them are rendered twice.
func BenchmarkFleetDiffEveryOverlay(b *testing.B) {
	benchmarkDiff(b, "pools/base/pool-099.yaml", "minRunners: 0", "minRunners: 1", "10 of 10 overlays differ: 10 changed (10 raise)")
}
