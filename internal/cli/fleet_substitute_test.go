package cli_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// A variable without a value is neither right nor wrong: exit code 2, until a
// file or a PoolSync has the value.
func TestFleetCheckSubstitutes(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	edit(t, filepath.Join(dir, "pools/gpu.yaml"), strings.Replace(executorPoolYAML, "minRunners: 0", "minRunners: ${MIN}", 1))
	cloop(t, "fleet", "check", "-o", "json=report.json").want(t, 2, "", "cloop: not everything was checked: 1 variable without a value; set what is missing in the PoolSync, or give --substitute FILE\n")
	if report := read(t, "report.json"); !strings.Contains(report, `"verdict": "unanswered"`) || !strings.Contains(report, `"rule": "unresolved-variable"`) {
		t.Errorf("the report is %s", report)
	}
	edit(t, "vars.yaml", "MIN: 0\n")
	edit(t, "more.yaml", "MIN: -1\n")
	cloop(t, "fleet", "check", "--substitute", "vars.yaml", "-o", "json=report.json").want(t, 0, "", "")
	got := cloop(t, "fleet", "check", "--substitute", "vars.yaml", "--substitute", "more.yaml")
	if got.code != 1 || !strings.Contains(got.stdout, "more.yaml:1:1: ExecutorPool") {
		t.Errorf("exit code %d, stdout %s, stderr %s", got.code, got.stdout, got.stderr)
	}
	for file, want := range map[string]string{"nowhere.yaml": "--substitute nowhere.yaml: no such file", "pools": "--substitute pools: is a directory", "hub/kustomization.yaml": "the value of resources is no text"} {
		if got := cloop(t, "fleet", "check", "--substitute", file); got.code != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("of %s: exit code %d, %s", file, got.code, got.stderr)
		}
	}
}
