package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"cloop.dev/cloop/internal/pki"
)

func TestAServerCertificateIsTrustedForItsNamesOnly(t *testing.T) {
	now := time.Now()
	ca, err := pki.NewCA("test", now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server(now, "hub.example.com", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(pair.Certificate, pair.Key); err != nil {
		t.Errorf("certificate and key do not belong together: %v", err)
	}
	leaf := parse(t, pair.Certificate)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Certificate)
	for host, trusted := range map[string]bool{"hub.example.com": true, "127.0.0.1": true, "evil.example.com": false} {
		_, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots})
		if (err == nil) != trusted {
			t.Errorf("verify %s: %v, want trusted %v", host, err, trusted)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
		t.Error("a server certificate passes as a client's")
	}
}

func TestExtendKeepsTheKeyTheTimesAndTheNames(t *testing.T) {
	ca, err := pki.NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server(time.Now().Add(-time.Hour), "hub.example.com", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	before := parse(t, pair.Certificate)
	extended, err := ca.Extend(before, "new.example.com", "192.0.2.7")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(extended, pair.Key); err != nil {
		t.Errorf("the certificate is for another key: %v", err)
	}
	after := parse(t, extended)
	if !after.NotBefore.Equal(before.NotBefore) || !after.NotAfter.Equal(before.NotAfter) {
		t.Errorf("valid from %s to %s, was from %s to %s", after.NotBefore, after.NotAfter, before.NotBefore, before.NotAfter)
	}
	if after.SerialNumber.Cmp(before.SerialNumber) == 0 {
		t.Error("two certificates of one authority have the same serial number")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Certificate)
	for _, host := range []string{"hub.example.com", "127.0.0.1", "new.example.com", "192.0.2.7"} {
		if _, err := after.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err != nil {
			t.Errorf("verify %s: %v", host, err)
		}
	}
	if before.VerifyHostname("new.example.com") == nil {
		t.Error("the certificate that was extended has changed")
	}
}

func parse(t *testing.T, certificate []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(certificate)
	if block == nil {
		t.Fatal("the certificate is not PEM")
		return nil
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func TestKeepReturnsTheSamePairAndProtectsTheKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	var last *pki.CA
	makePair := func() (pki.Pair, error) {
		ca, err := pki.NewCA("test", time.Now())
		last = ca
		return ca.Pair, err
	}
	first, err := pki.Keep(dir, "ca", makePair)
	if err != nil {
		t.Fatal(err)
	}
	made := last
	second, err := pki.Keep(dir, "ca", makePair)
	if err != nil {
		t.Fatal(err)
	}
	if last != made || !bytes.Equal(first.Certificate, second.Certificate) || !bytes.Equal(first.Key, second.Key) {
		t.Error("the second call did not return the stored pair")
	}
	info, err := os.Stat(filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v", info.Mode())
	}
	if _, err := pki.ParseCA(second); err != nil {
		t.Errorf("parse the stored pair: %v", err)
	}
}

func TestParseCARefusesWhatIsNoPair(t *testing.T) {
	ca, err := pki.NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string]pki.Pair{
		"empty":          {},
		"no key":         {Certificate: ca.Certificate},
		"no certificate": {Key: ca.Key},
		"key twice":      {Certificate: ca.Key, Key: ca.Key},
	} {
		if _, err := pki.ParseCA(pair); err == nil {
			t.Errorf("%s: parsed", name)
		}
	}
}
