package hub_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/hub"
)

// fileOf writes a file that a configuration can name.
func fileOf(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

// A server's key that was replaced is believed once its file says so.
func TestASyncOverSSH(t *testing.T) {
	var server *fleettest.SSH
	key := fleettest.Ed25519Key(t)
	identity, public := fleettest.Identity(t, "")
	var hosts string
	f := followFrom(t, func(git *fleettest.Server, c *hub.SyncConfig) {
		server = git.ServeSSH(key)
		server.Allow(public)
		hosts = fileOf(t, string(server.KnownHosts(fleettest.Ed25519Key(t).PublicKey())))
		c.URL, c.GitConfig = server.URL("fleet"), hub.GitConfig{IdentityFile: fileOf(t, identity), KnownHostsFile: hosts}
	})
	must(t)(f.admin.ReconcileSync(f.ctx(), "fleet"))
	failed := until(t, f.admin.WatchSync(f.ctx(), "fleet"), "the sync failed", func(s hubv1.Sync) bool { return s.State == hubv1.SyncFailed })
	if !strings.Contains(failed.Message, "expected ssh-ed25519 SHA256:") || !strings.Contains(failed.Message, "got ssh-ed25519 SHA256:") {
		t.Errorf("it says %s", failed.Message)
	}
	check(t, os.WriteFile(hosts, server.KnownHosts(key.PublicKey()), 0o600))
	revision := f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", 5, "Revoke", "")})
	f.synced(revision, hubv1.SyncReady)
	if got := f.get("demo").MaxRunners; got != 5 {
		t.Errorf("demo has %d runners at most", got)
	}
}
