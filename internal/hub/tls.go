package hub

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/pki"
)

// Pin is how clients pin the certificate's key.
func Pin(cert *x509.Certificate) string { return hubclient.Pin(cert) }

// CAFile is where a hub that makes its own certificates keeps the authority's,
// for clients to trust.
func CAFile(dataDir string) string { return filepath.Join(dataDir, tlsDir, "ca.crt") }

const tlsDir = "tls"

// certificate loads the configured certificate, or makes and keeps one.
func (o *Options) certificate() (tls.Certificate, error) {
	if o.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
		if err != nil {
			return cert, fmt.Errorf("load the TLS certificate: %w", err)
		}
		return cert, nil
	}
	dir, now := filepath.Join(o.DataDir, tlsDir), o.Clock.Now()
	pair, err := pki.Keep(dir, "ca", func() (pki.Pair, error) {
		ca, err := pki.NewCA("cloop hub", now)
		if err != nil {
			return pki.Pair{}, err
		}
		return ca.Pair, nil
	})
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("keep the hub's certificate authority: %w", err)
	}
	hosts := o.hosts()
	server, err := pki.Keep(dir, "hub", func() (pki.Pair, error) {
		ca, err := pki.ParseCA(pair)
		if err != nil {
			return pki.Pair{}, err
		}
		return ca.Server(now, hosts...)
	})
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("keep the hub's certificate: %w", err)
	}
	cert, err := tls.X509KeyPair(server.Certificate, server.Key)
	if err != nil {
		return cert, fmt.Errorf("read the hub's certificate in %s: %w", dir, err)
	}
	return withNames(cert, pair, filepath.Join(dir, "hub.crt"), o.Names)
}

// hosts are the names that the hub's own certificate is for.
func (o *Options) hosts() []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	if host, _, err := net.SplitHostPort(o.Addr); err == nil && host != "" && host != "0.0.0.0" && host != "::" {
		hosts = append(hosts, host)
	}
	return append(hosts, o.Names...)
}

// withNames signs the certificate again, with the key that clients have pinned,
// when names were configured since it was made.
func withNames(cert tls.Certificate, authority pki.Pair, file string, names []string) (tls.Certificate, error) {
	leaf := cert.Leaf
	again := &x509.Certificate{
		Subject: leaf.Subject, NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, KeyUsage: leaf.KeyUsage, ExtKeyUsage: leaf.ExtKeyUsage,
		BasicConstraintsValid: leaf.BasicConstraintsValid,
		DNSNames:              slices.Clone(leaf.DNSNames), IPAddresses: slices.Clone(leaf.IPAddresses),
		SerialNumber: big.NewInt(time.Now().UnixNano()),
	}
	missing := false
	for _, name := range names {
		if leaf.VerifyHostname(name) == nil {
			continue
		}
		missing = true
		if ip := net.ParseIP(name); ip != nil {
			again.IPAddresses = append(again.IPAddresses, ip)
		} else {
			again.DNSNames = append(again.DNSNames, name)
		}
	}
	if !missing {
		return cert, nil
	}
	ca, err := tls.X509KeyPair(authority.Certificate, authority.Key)
	if err != nil {
		return cert, fmt.Errorf("read the hub's certificate authority: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, again, ca.Leaf, leaf.PublicKey, ca.PrivateKey)
	if err != nil {
		return cert, fmt.Errorf("sign the hub's certificate again: %w", err)
	}
	var text bytes.Buffer
	if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
		return cert, err
	}
	if err := os.WriteFile(file+".new", text.Bytes(), 0o644); err != nil { //nolint:gosec // a certificate is public
		return cert, fmt.Errorf("keep the hub's certificate: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return cert, fmt.Errorf("keep the hub's certificate: %w", err)
	}
	cert.Certificate = [][]byte{der}
	cert.Leaf, err = x509.ParseCertificate(der)
	return cert, err
}
