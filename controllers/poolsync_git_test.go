package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
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
