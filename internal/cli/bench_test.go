package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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
// which must exit with the code and print the text. A unit names what the command
// does.
func benchmarkProcess(b *testing.B, unit, dir string, code int, want string, args ...string) {
	if _, err := built(); err != nil {
		b.Fatal(err)
	}
	var processor time.Duration
	var resident int64
	for b.Loop() {
		got := runProcess(b, dir, args...)
		if got.code != code || !strings.Contains(got.printed, want) {
			b.Fatalf("exit code %d: %s", got.code, got.printed)
		}
		processor += got.processor
		resident = max(resident, got.resident)
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/"+unit)
	b.ReportMetric(float64(processor.Milliseconds())/float64(b.N), "cpu-ms/"+unit)
	b.ReportMetric(float64(resident)/(1<<20), "peak-MiB")
}

func benchmarkCheck(b *testing.B, files int) {
	benchmarkProcess(b, "check", poolFiles(b, files), 0, "all is well", "fleet", "check")
}

func BenchmarkFleetCheckOneFile(b *testing.B)    { benchmarkCheck(b, 1) }
func BenchmarkFleetCheck10000Files(b *testing.B) { benchmarkCheck(b, 10_000) }
