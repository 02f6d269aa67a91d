// Package pki makes the certificates of a system that brings its own: the hub
// where no certificate is configured, and everything that `cloop dev` starts.
//
// It takes names and gives PEM; keys are ECDSA P-256. It never contacts a
// certificate authority and never overwrites a key that exists.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"cloop.dev/cloop/internal/atomicfile"
)

// validity of what this package signs. Such a system has nobody who renews a
// certificate, so it outlives the machine.
const validity = 10 * 365 * 24 * time.Hour

// backdate allows for clocks that run behind the one that signed.
const backdate = 5 * time.Minute

// Pair is a certificate and its private key, both PEM.
type Pair struct {
	Certificate []byte
	Key         []byte
}

// CA signs certificates.
type CA struct {
	Pair
	certificate *x509.Certificate
	signer      crypto.Signer
}

// NewCA makes a certificate authority with that common name.
func NewCA(commonName string, now time.Time) (*CA, error) {
	template := template(pkix.Name{CommonName: commonName}, now)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	pair, err := sign(template, nil)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority %s: %w", commonName, err)
	}
	return ParseCA(pair)
}

// ParseCA reads a certificate authority from PEM.
func ParseCA(pair Pair) (*CA, error) {
	block, _ := pem.Decode(pair.Certificate)
	if block == nil {
		return nil, errors.New("the certificate authority's certificate is not PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse the certificate authority: %w", err)
	}
	block, _ = pem.Decode(pair.Key)
	if block == nil {
		return nil, errors.New("the certificate authority's key is not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse the certificate authority's key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the certificate authority's key (%T) cannot sign", key)
	}
	return &CA{Pair: pair, certificate: certificate, signer: signer}, nil
}

// Server signs a server certificate for host names and IP addresses. The
// first is its common name.
func (ca *CA) Server(now time.Time, hosts ...string) (Pair, error) {
	if len(hosts) == 0 {
		return Pair{}, errors.New("a server certificate needs at least one name")
	}
	template := template(pkix.Name{CommonName: hosts[0]}, now)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	addHosts(template, hosts)
	return sign(template, ca)
}

// Extend signs a certificate of this authority again, for more host names and IP
// addresses than before. Its key and its times stay. The answer is PEM.
func (ca *CA) Extend(certificate *x509.Certificate, hosts ...string) ([]byte, error) {
	template := &x509.Certificate{
		Subject:   certificate.Subject,
		NotBefore: certificate.NotBefore, NotAfter: certificate.NotAfter,
		KeyUsage: certificate.KeyUsage, ExtKeyUsage: certificate.ExtKeyUsage,
		BasicConstraintsValid: certificate.BasicConstraintsValid,
		DNSNames:              slices.Clone(certificate.DNSNames), IPAddresses: slices.Clone(certificate.IPAddresses),
	}
	addHosts(template, hosts)
	return issue(template, ca.certificate, certificate.PublicKey, ca.signer)
}

func addHosts(template *x509.Certificate, hosts []string) {
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
}

// Client signs a client certificate. Kubernetes reads the common name as the
// user and the organizations as the user's groups.
func (ca *CA) Client(now time.Time, commonName string, organizations ...string) (Pair, error) {
	template := template(pkix.Name{CommonName: commonName, Organization: organizations}, now)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return sign(template, ca)
}

func template(subject pkix.Name, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:   subject,
		NotBefore: now.Add(-backdate),
		NotAfter:  now.Add(validity),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
}

// sign makes a key for the template and signs it with the authority, or with
// itself where there is none.
func sign(template *x509.Certificate, ca *CA) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	parent, signer := template, crypto.Signer(key)
	if ca != nil {
		parent, signer = ca.certificate, ca.signer
	}
	certificate, err := issue(template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Certificate: certificate, Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})}, nil
}

// issue gives the template a serial number and signs it as PEM.
func issue(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) ([]byte, error) {
	// RFC 5280, 4.1.2.2: positive and at most 20 octets.
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, fmt.Errorf("sign certificate for %s: %w", template.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// Keep returns the pair stored as dir/name.crt and dir/name.key, and makes and
// stores it where it is missing. The key's file is readable by its owner only.
func Keep(dir, name string, make func() (Pair, error)) (Pair, error) {
	certificateFile, keyFile := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	certificate, err := os.ReadFile(certificateFile)
	if err == nil {
		key, err := os.ReadFile(keyFile)
		return Pair{Certificate: certificate, Key: key}, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Pair{}, err
	}
	pair, err := make()
	if err != nil {
		return Pair{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Pair{}, err
	}
	// The certificate goes last: whoever finds it finds the key too.
	if err := atomicfile.Write(keyFile, pair.Key, 0o600); err != nil {
		return Pair{}, err
	}
	return pair, atomicfile.Write(certificateFile, pair.Certificate, 0o644)
}
