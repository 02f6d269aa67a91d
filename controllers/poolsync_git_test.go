package controllers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// secret makes a Secret, or gives it other data.
func (s *syncStage) secret(name string, data map[string]string) {
	s.t.Helper()
	bytes := map[string][]byte{}
	for key, value := range data {
		bytes[key] = []byte(value)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}, Data: bytes}
	if err := s.client.Update(s.ctx, secret); err != nil {
		s.create(secret)
	}
}

func (s *syncStage) says(sync *v1alpha1.PoolSync, words ...string) {
	s.t.Helper()
	message := condition(sync, v1alpha1.ConditionReady).Message
	for _, word := range words {
		if !strings.Contains(message, word) {
			s.t.Errorf("Ready says %s, not %q", message, word)
		}
	}
}

func TestSyncOverSSH(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	key := fleettest.RSAKey(t)
	server := s.git.ServeSSH(key)
	private, public := fleettest.Identity(t, "hunter2")
	server.Allow(public)
	// Flux has the passphrase under password.
	data := map[string]string{"identity": private, "password": "hunter2", "known_hosts": string(server.KnownHosts(fleettest.Ed25519Key(t).PublicKey()))}
	s.secret("fleet-key", data)
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
		spec.Source.Git = v1alpha1.GitSource{URL: server.URL(fleetRepository), SecretRef: &v1alpha1.LocalObjectReference{Name: "fleet-key"}}
	})
	s.says(s.ready(v1alpha1.ReasonSourceUnavailable), "expected ssh-ed25519 SHA256:", "got ssh-rsa SHA256:", "known hosts")
	data["known_hosts"] = string(server.KnownHosts(key.PublicKey()))
	s.secret("fleet-key", data)
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	if !s.hasPool("gpu") {
		t.Error("nothing is applied")
	}
}

// An unsigned commit is not applied, whoever pushed it; the cluster stays with the
// last one that was verified.
func TestSyncOfSignedCommits(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	alice := fleettest.Ed25519Key(t)
	sign := fleettest.SSHSign(t, alice, "git")
	line := "alice@example.com " + string(ssh.MarshalAuthorizedKey(alice.PublicKey()))
	s.secret("signers", map[string]string{"us": line})
	s.git.SignedCommit(fleetRepository, nil, time.Now(), sign, nil)
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
		spec.Source.Git.Verify = &v1alpha1.GitVerification{Mode: v1alpha1.VerifyHead, SecretRef: v1alpha1.LocalObjectReference{Name: "signers"}}
	})
	sync := s.ready(v1alpha1.ReasonReconciliationSucceeded)
	applied := sync.Status.LastAppliedRevision
	if !strings.HasPrefix(sync.Status.VerifiedBy, "alice@example.com (ssh-ed25519 SHA256:") {
		t.Errorf("verified by %q", sync.Status.VerifiedBy)
	}
	s.says(sync, "signed by alice@example.com")

	s.git.Commit(fleetRepository, map[string]string{"pools/gpu.yaml": poolFile("gpu", 7)})
	s.sync()
	sync = s.ready(v1alpha1.ReasonNotVerified)
	s.says(sync, "it is not signed", "alice@example.com", "nothing was changed")
	if condition(sync, v1alpha1.ConditionStalled).Status != metav1.ConditionTrue || sync.Status.LastAppliedRevision != applied || s.pool("gpu").Spec.MaxRunners != 4 {
		t.Error("it was applied")
	}
	// Edits are still taken back, to what was verified.
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":3}}`)
	s.until("an edit is taken back", func() bool { return s.pool("gpu").Spec.MaxRunners == 4 })

	s.git.SignedTag(fleetRepository, "v1.2.3", "", s.git.SignedCommit(fleetRepository, nil, time.Now(), sign, nil), sign)
	s.git.Commit(fleetRepository, map[string]string{"pools/gpu.yaml": poolFile("gpu", 9)})
	s.edit(func(sync *v1alpha1.PoolSync) {
		sync.Spec.Source.Git.Ref = v1alpha1.GitRef{Semver: "1.x"}
		sync.Spec.Source.Git.Verify.Mode = v1alpha1.VerifyTagAndHead
	})
	sync = s.ready(v1alpha1.ReasonReconciliationSucceeded)
	if !strings.HasPrefix(sync.Status.LastAppliedRevision, "v1.2.3@sha1:") || s.pool("gpu").Spec.MaxRunners != 7 {
		t.Errorf("applied is %s", sync.Status.LastAppliedRevision)
	}
	// Who is no signer any more has signed nothing.
	s.secret("signers", map[string]string{"us": "bob " + string(ssh.MarshalAuthorizedKey(fleettest.Ed25519Key(t).PublicKey()))})
	s.says(s.sync(), "no signer's key", "bob (ssh-ed25519")
	s.secret("signers", map[string]string{"us": "# nobody"})
	s.says(s.sync(), "nobody is among the signers", "put the signers' public keys into the Secret "+s.ns+"/signers, or name another one in spec.source.git.verify.secretRef; nothing was changed")
	if err := s.client.Delete(s.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "signers"}}); err != nil {
		t.Fatal(err)
	}
	sync = s.sync()
	s.says(sync, "not found", "into the Secret "+s.ns+"/signers, ")
	if message := condition(sync, v1alpha1.ConditionReady).Message; strings.Contains(message, "signed by") {
		t.Errorf("it advises to sign: %s", message)
	}
}

// What becomes of the branch is followed, and said.
func TestSyncSaysWhatBecameOfTheBranch(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 5)})
	if told := s.events(v1alpha1.ReasonHistoryRewritten); len(told) > 0 {
		t.Errorf("a commit that follows: %v", told)
	}
	was := s.ready(v1alpha1.ReasonReconciliationSucceeded).Status.LastAppliedRevision
	s.git.Replace(fleetRepository, overlay("gpu"))
	s.sync()
	s.until("it is said that history was rewritten", func() bool {
		told := s.events(v1alpha1.ReasonHistoryRewritten)
		return len(told) == 1 && strings.Contains(told[0], "the history of branch main was rewritten")
	})
	s.until("what Git has now is applied", func() bool { return s.pool("gpu").Spec.MaxRunners == 4 })
	now := s.ready(v1alpha1.ReasonReconciliationSucceeded).Status.LastAppliedRevision
	if now == was {
		t.Error("the revision is the old one")
	}
	// Another process finds nothing new.
	s.stop()
	s.startController()
	s.sync()
	if told := s.events(v1alpha1.ReasonHistoryRewritten); len(told) != 1 {
		t.Errorf("it is said again: %v", told)
	}
	_, commit := fleet.Of(now)
	s.git.CommitTo(fleetRepository, "other", nil)
	s.git.DeleteBranch(fleetRepository, "main")
	s.says(s.sync(), "there is no branch main any more", fleet.Short(commit), "nothing was changed")
	s.git.DeleteBranch(fleetRepository, "other")
	s.says(s.sync(), "it was emptied after main was at "+fleet.Short(commit))
	if !s.hasPool("gpu") {
		t.Error("the pool is gone")
	}
	s.git.Commit(fleetRepository, overlay("gpu", "batch"))
	s.sync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	if !s.hasPool("batch") {
		t.Error("it does not go on")
	}
}

// Clones of PoolSyncs that went while nobody ran go when somebody does.
func TestClonesThatNobodyNeedsAreSwept(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.stop()
	gone := filepath.Join(s.cache, "a-uid-that-was")
	if err := os.MkdirAll(filepath.Join(gone, "0123456789abcdef", "clone"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.startController()
	s.until("the clone is gone", func() bool {
		_, err := os.Stat(gone)
		return errors.Is(err, os.ErrNotExist)
	})
	if _, err := os.Stat(filepath.Join(s.cache, string(s.get().UID))); err != nil {
		t.Error(err)
	}
}

// A repository that can only be reached over a proxy is, with the credential for the
// proxy in a Secret that Flux would take too; a new one is taken up at the next sync.
func TestARepositoryBehindAProxy(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	p := s.git.ServeProxy("robot", "hunter2hunter2")
	s.secret("git-proxy", map[string]string{"address": p.URL, "username": "robot", "password": "wr0ngwr0ng"})
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
		// The name that the server's certificate has, and that nobody answers to.
		spec.Source.Git.URL = "https://example.com/" + fleetRepository + ".git"
		spec.Source.Git.ProxySecretRef = &v1alpha1.LocalObjectReference{Name: "git-proxy"}
	})
	message := condition(s.ready(v1alpha1.ReasonSourceUnavailable), v1alpha1.ConditionReady).Message
	if !strings.Contains(message, "proxySecretRef") || !strings.Contains(message, "Proxy Authentication Required") || strings.Contains(message, "wr0ng") {
		t.Errorf("it says %q", message)
	}
	s.secret("git-proxy", map[string]string{"address": p.URL, "username": "robot", "password": "hunter2hunter2\n"})
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	if !s.hasPool("gpu") {
		t.Error("nothing is applied")
	}
}
