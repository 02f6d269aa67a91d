package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/sandbox"
)

// Where the hub could not read what a project asks for, the runner does, and
// starts nothing on a pool that does not meet it.
func TestARunnerHoldsThePoolToWhatTheCommitAsksFor(t *testing.T) {
	git := fleettest.Serve(t)
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, git.CABundle(), 0o600); err != nil {
		t.Fatal(err)
	}
	const asks = "capabilities:\n  hypervisor: true\n"
	for name, test := range map[string]struct {
		files map[string]string
		pool  hubv1.Declared
		err   string
	}{
		"nothing":                 {map[string]string{"a": "b"}, hubv1.Declared{Pool: "gpu"}, ""},
		"what the pool has":       {map[string]string{sandbox.Path: asks}, hubv1.Declared{Pool: "gpu", Capabilities: map[string]bool{"hypervisor": true}}, ""},
		"what the pool has not":   {map[string]string{sandbox.Path: asks}, hubv1.Declared{Pool: "gpu"}, "capability hypervisor: true, of which pool gpu declares nothing"},
		"what nobody knows":       {map[string]string{sandbox.Path: "\nimage: x\n"}, hubv1.Declared{Pool: "gpu"}, ".cloop/sandbox.yaml:2: unknown key"},
		"a link":                  {map[string]string{sandbox.Path: fleettest.Symlink("../a"), "a": ""}, hubv1.Declared{Pool: "gpu"}, "no regular file"},
		"a linked directory":      {map[string]string{".cloop": fleettest.Symlink("x"), "x/sandbox.yaml": asks}, hubv1.Declared{Pool: "gpu"}, "no directory"},
		"a directory":             {map[string]string{sandbox.Path + "/x": asks}, hubv1.Declared{Pool: "gpu"}, "no regular file"},
		"more than it may be":     {map[string]string{sandbox.Path: strings.Repeat("#", sandbox.MaxBytes+1)}, hubv1.Declared{Pool: "gpu"}, "longer than"},
		"far more than it may be": {map[string]string{sandbox.Path: strings.Repeat("#", 1<<20)}, hubv1.Declared{Pool: "gpu"}, "longer than"},
	} {
		repository := strings.ReplaceAll(name, " ", "-")
		git.Create(repository)
		git.Commit(repository, test.files)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := checkedOut(t, caFile, hubv1.Assignment{Remote: git.URL(repository), Ref: "main", Declared: &test.pool})
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
}
