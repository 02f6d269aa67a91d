package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// builtOnce is the binary that benchmarks run: as `make build` makes it, because
// what a process costs is mostly its binary.
var builtOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "cloop-bench-")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "cloop")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", binary, "cloop.dev/cloop/cmd/cloop")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if printed, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, printed)
	}
	return binary, nil
})

// poolFiles writes pools in plain directories, a hundred files in each.
func poolFiles(b *testing.B, count int) string {
	b.Helper()
	dir := b.TempDir()
	for i := range count {
		team := fmt.Sprintf("team-%03d", i/100)
		name := filepath.Join(dir, team, fmt.Sprintf("pool-%05d.yaml", i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			b.Fatal(err)
		}
		content := strings.NewReplacer("NAME", fmt.Sprintf("pool-%05d", i), "TEAM", team).Replace(`apiVersion: cloop.dev/v1alpha1
kind: ExecutorPool
metadata:
  name: NAME
  namespace: cloop-pools
  labels:
    team: TEAM
spec:
  hubURL: https://cloop.example.com
  poolCredentialSecretRef:
    name: NAME-credential
  minRunners: 0
  maxRunners: 4
  scaleDownDelay: 10m
  runnerLabels:
    gpu: "true"
  template:
    image: registry.example.com/runner:1.2.3
    resources:
      requests:
        cpu: 500m
        memory: 1Gi
      limits:
        memory: 2Gi
    nodeSelector:
      pool: gpu
    tolerations:
      - key: gpu
        operator: Exists
        effect: NoSchedule
`)
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// benchmarkProcess runs a command line in a directory as a process of its own,
// which must exit with the code and print the text. Beside the time it reports
// the processor time, which a busy machine changes less, and the most memory that
// was resident. A unit names what the command does.
func benchmarkProcess(b *testing.B, unit, dir string, code int, want string, args ...string) {
	binary, err := builtOnce()
	if err != nil {
		b.Fatal(err)
	}
	var processor time.Duration
	var peak int64
	for b.Loop() {
		command := exec.Command(binary, args...)
		command.Dir = dir
		printed, err := command.CombinedOutput()
		state := command.ProcessState
		if state == nil || state.ExitCode() != code || !strings.Contains(string(printed), want) {
			b.Fatalf("%v: %s", err, printed)
		}
		processor += state.UserTime() + state.SystemTime()
		// Linux counts it in KiB.
		peak = max(peak, state.SysUsage().(*syscall.Rusage).Maxrss)
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/"+unit)
	b.ReportMetric(float64(processor.Milliseconds())/float64(b.N), "cpu-ms/"+unit)
	b.ReportMetric(float64(peak)/1024, "peak-MiB")
}

func benchmarkCheck(b *testing.B, files int) {
	benchmarkProcess(b, "check", poolFiles(b, files), 0, "all is well", "fleet", "check")
}

func BenchmarkFleetCheckOneFile(b *testing.B)    { benchmarkCheck(b, 1) }
func BenchmarkFleetCheck10000Files(b *testing.B) { benchmarkCheck(b, 10_000) }
