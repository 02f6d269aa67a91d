package hub_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet"
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

func TestASyncOfSignedTags(t *testing.T) {
	alice := fleettest.Ed25519Key(t)
	sign := fleettest.SSHSign(t, alice, "git")
	signers := fileOf(t, "alice@example.com "+string(ssh.MarshalAuthorizedKey(alice.PublicKey())))
	f := follow(t, func(c *hub.SyncConfig) {
		c.Ref, c.Verify = fleet.Ref{Semver: ">=1.0.0 <2.0.0"}, &hub.VerifyConfig{Mode: "Tag", SignersFile: signers}
	})
	first := f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", 5, "Revoke", "")})
	f.git.SignedTag("fleet", "v1.0.0", "", first, sign)
	f.git.SignedTag("fleet", "v2.0.0", "", first, nil)
	if s := f.synced(first, hubv1.SyncReady); !strings.Contains(s.Message, "tag v1.0.0 at") || !strings.Contains(s.Message, "signed by alice@example.com (ssh-ed25519") {
		t.Errorf("it says %s", s.Message)
	}
	second := f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", 6, "Revoke", "")})
	f.git.SignedTag("fleet", "v1.1.0", "", second, nil)
	if s := f.synced(second, hubv1.SyncFailed); !strings.Contains(s.Message, "verify tag v1.1.0") || !strings.Contains(s.Message, "it is not signed") || s.LastAppliedRevision != first {
		t.Errorf("it says %s", s.Message)
	}
	if got := f.get("demo").MaxRunners; got != 5 {
		t.Errorf("demo has %d runners at most", got)
	}
	// A look that comes to the same refuses it again.
	f.synced(second, hubv1.SyncFailed)
	f.git.SignedTag("fleet", "v1.2.0", "", second, sign)
	f.synced(second, hubv1.SyncReady)
	if got := f.get("demo").MaxRunners; got != 6 {
		t.Errorf("demo has %d runners at most", got)
	}
}

func TestASyncSaysThatHistoryWasRewritten(t *testing.T) {
	f := follow(t, nil)
	first := f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", 5, "Revoke", "")})
	f.synced(first, hubv1.SyncReady)
	second := f.git.Replace("fleet", map[string]string{"hub/kustomization.yaml": kustomization("keep.yaml"), "hub/keep.yaml": hubPool("keep", 4, "Orphan", "")})
	s := f.synced(second, hubv1.SyncReady)
	if !strings.Contains(s.Message, "the history of branch main was rewritten: "+fleet.Short(first)+" is no ancestor of "+fleet.Short(second)) {
		t.Errorf("it says %s", s.Message)
	}
	third := f.commit(map[string]string{"hub/keep.yaml": hubPool("keep", 3, "Orphan", "")})
	if s := f.synced(third, hubv1.SyncReady); strings.Contains(s.Message, "rewritten") {
		t.Errorf("it says %s", s.Message)
	}
	f.git.CommitTo("fleet", "other", nil)
	f.git.DeleteBranch("fleet", "main")
	must(t)(f.admin.ReconcileSync(f.ctx(), "fleet"))
	gone := until(t, f.admin.WatchSync(f.ctx(), "fleet"), "the sync failed", func(s hubv1.Sync) bool { return s.State == hubv1.SyncFailed })
	if !strings.Contains(gone.Message, "there is no branch main any more") || gone.LastAppliedRevision != third {
		t.Errorf("it says %s", gone.Message)
	}
}

// Clones of syncs that are not configured any more go when the hub starts.
func TestClonesOfSyncsThatAreGoneAreSwept(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"fleet", "gone"} {
		check(t, os.MkdirAll(filepath.Join(dir, "hub", "git", name, "0123456789abcdef", "clone"), 0o700))
	}
	serveIn(t, dir, func(o *hub.Options) {
		o.Syncs = []hub.SyncConfig{{Name: "fleet", URL: "https://127.0.0.1:1/fleet.git"}}
	})
	if _, err := os.Stat(filepath.Join(dir, "hub", "git", "fleet")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "hub", "git", "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the other clone is there: %v", err)
	}
}
