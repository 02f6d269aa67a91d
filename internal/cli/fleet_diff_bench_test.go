package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet/fleettest"
)

// overlayFiles are as many overlays of one base of so many pools. Each overlay
// patches ten of them.
func overlayFiles(overlays, pools int) map[string]string {
	files := map[string]string{}
	base := "resources:\n"
	for i := range pools {
		name := fmt.Sprintf("pool-%03d", i)
		base += "  - " + name + ".yaml\n"
		files["pools/base/"+name+".yaml"] = strings.NewReplacer("gpu-pool", name, "name: gpu", "name: "+name).Replace(executorPoolYAML)
	}
	files["pools/base/kustomization.yaml"] = base
	for overlay := range overlays {
		text := "resources: [../../pools/base]\npatches:\n"
		for i := range 10 {
			text += fmt.Sprintf("  - target: {kind: ExecutorPool, name: pool-%03d}\n    patch: |\n      - {op: replace, path: /spec/maxRunners, value: %d}\n", i*7+overlay, 5+i)
		}
		files[fmt.Sprintf("clusters/c%02d/kustomization.yaml", overlay)] = text
	}
	return files
}

// overlayRepository commits ten overlays of a hundred pools each, every one of
// which patches ten of the pools.
func overlayRepository(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	fleettest.WriteFiles(b, dir, overlayFiles(10, 100))
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "-q", "-m", "Begin"}, {"gc", "-q"}} {
		command := exec.Command("git", args...)
		command.Dir = dir
		if printed, err := command.CombinedOutput(); err != nil {
			b.Fatalf("git %v: %v: %s", args, err, printed)
		}
	}
	return dir
}

// benchmarkDiff runs `fleet diff` after one edit.
func benchmarkDiff(b *testing.B, code int, file, from, to, want string) {
	dir := overlayRepository(b)
	name := filepath.Join(dir, file)
	content, err := os.ReadFile(name)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(content), from, to, 1)), 0o644); err != nil {
		b.Fatal(err)
	}
	benchmarkProcess(b, "diff", dir, code, want, "fleet", "diff", "--base", "HEAD", "--hub", "")
}

func BenchmarkFleetDiffNothing(b *testing.B) {
	benchmarkDiff(b, 0, "pools/base/pool-000.yaml", "", "", "10 roots: no difference")
}

func BenchmarkFleetDiffOneOverlay(b *testing.B) {
	benchmarkDiff(b, 1, "clusters/c03/kustomization.yaml", "value: 5", "value: 6", "1 of 10 roots differ: 1 changed (1 raise)")
}

// A pool of the base is in every overlay, so all of them are rendered twice.
func BenchmarkFleetDiffEveryOverlay(b *testing.B) {
	benchmarkDiff(b, 1, "pools/base/pool-099.yaml", "minRunners: 0", "minRunners: 1", "10 of 10 roots differ: 10 changed (10 raise)")
}
