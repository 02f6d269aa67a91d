package hub

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"cloop.dev/cloop/internal/atomicfile"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/pki"
)

// Pin is how clients pin the certificate's key.
func Pin(cert *x509.Certificate) string { return hubclient.Pin(cert) }

// CAFile is where a hub that makes its own certificates keeps the authority's,
// for clients to trust.
func CAFile(dataDir string) string { return filepath.Join(dataDir, tlsDir, "ca.crt") }

const tlsDir = "tls"

// ownCertificate is the one that the hub makes for itself and keeps.
func (o *Options) ownCertificate() (tls.Certificate, error) {
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
	return withNames(cert, server, pair, filepath.Join(dir, "hub.crt"), o.Names)
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
func withNames(cert tls.Certificate, server, authority pki.Pair, file string, names []string) (tls.Certificate, error) {
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return cert.Leaf.VerifyHostname(name) == nil })
	if len(missing) == 0 {
		return cert, nil
	}
	ca, err := pki.ParseCA(authority)
	if err != nil {
		return cert, fmt.Errorf("read the hub's certificate authority: %w", err)
	}
	server.Certificate, err = ca.Extend(cert.Leaf, missing...)
	if err != nil {
		return cert, fmt.Errorf("sign the hub's certificate again: %w", err)
	}
	if err := atomicfile.Write(file, server.Certificate, 0o644); err != nil {
		return cert, fmt.Errorf("keep the hub's certificate: %w", err)
	}
	return tls.X509KeyPair(server.Certificate, server.Key)
}
