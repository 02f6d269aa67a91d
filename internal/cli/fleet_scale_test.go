package cli_test

import (
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/internal/fleet/fleettest"
)

// Fifty clusters of two hundred pools each are checked within bounds of time and
// memory, and the one value that is wrong among the ten thousand pools is found
// where it was written. It is measured as a process, of the binary that people
// run: the race detector takes many times as much of both.
func TestTenThousandPoolsInFiftyOverlaysAreBounded(t *testing.T) {
	const processor, resident = 90 * time.Second, 250 << 20
	files := overlayFiles(50, 200)
	wrong := "clusters/c37/kustomization.yaml"
	files[wrong] = strings.Replace(files[wrong], "value: 9}", "value: -9}", 1)
	dir := t.TempDir()
	fleettest.WriteFiles(t, dir, files)
	got := runProcess(t, dir, "fleet", "check")
	if got.processor > processor || got.resident > resident || got.resident == 0 {
		t.Errorf("it took %s of processors and %d MiB, want at most %s and %d MiB", got.processor, got.resident>>20, processor, resident>>20)
	}
	if got.code != 1 || !strings.Contains(got.printed, wrong+":") || !strings.Contains(got.printed, "spec.maxRunners") || !strings.Contains(got.printed, "10000 documents") {
		t.Errorf("exit code %d, %d bytes:\n%.2000s", got.code, len(got.printed), got.printed)
	}
}
