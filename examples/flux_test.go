package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheFleetOfFluxPassesItsCheckWithoutAWarning(t *testing.T) {
	code, stdout, stderr := cloop(t, repository(t, "flux"), "fleet", "check")
	if code != 0 || stdout != "3 roots, 6 documents, 1 pool: all is well\n" {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

// A change of what Flux puts in the place of a variable is a change of the pools.
func TestWhatAChangeOfTheFleetOfFluxDoes(t *testing.T) {
	dir := repository(t, "flux")
	file := filepath.Join(dir, "bootstrap/eu/fleet.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(data), "eu-central-1", "eu-west-1", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	commit(t, dir)
	code, stdout, stderr := cloop(t, dir, "fleet", "diff", "--base", "HEAD~1")
	if said := strings.Join(strings.Fields(stdout), " "); code != 1 || !strings.Contains(said, "clusters/eu ExecutorPool") || !strings.Contains(said, "eu-central-1 → eu-west-1") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}
