package gitserver_test

import (
	"crypto/rand"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"cloop.dev/cloop/internal/gitserver"
)

// A push of more than a mebibyte arrives in chunks, a small one does not.
func TestPushAndClone(t *testing.T) {
	root := t.TempDir()
	git(t, root, "init", "-q", "--bare", "-b", "main", "fleet.git")
	server := httptest.NewServer(gitserver.Handler(root))
	defer server.Close()

	for name, size := range map[string]int{"small": 100, "large": 3 << 20} {
		t.Run(name, func(t *testing.T) {
			work, data := t.TempDir(), make([]byte, size)
			_, _ = rand.Read(data)
			git(t, work, "init", "-q", "-b", name)
			if err := os.WriteFile(filepath.Join(work, "data"), data, 0o600); err != nil {
				t.Fatal(err)
			}
			git(t, work, "add", "data")
			git(t, work, "commit", "-q", "-m", "Add data")
			git(t, work, "push", "-q", server.URL+"/fleet.git", name)

			clone := t.TempDir()
			git(t, clone, "clone", "-q", "-b", name, server.URL+"/fleet.git", "out")
			got, err := os.ReadFile(filepath.Join(clone, "out", "data"))
			if err != nil || string(got) != string(data) {
				t.Errorf("the clone has %d bytes (%v), want what was pushed", len(got), err)
			}
		})
	}
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Fleet", "GIT_AUTHOR_EMAIL=fleet@example.com",
		"GIT_COMMITTER_NAME=Fleet", "GIT_COMMITTER_EMAIL=fleet@example.com")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}
