package fleet

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

var (
	errNoKnownHosts = errors.New("there are no known hosts")
	errHostKey      = errors.New("the server's host key is not the known one")
	errHostUnknown  = errors.New("the server's host key is not known")
	errHostRevoked  = errors.New("the server's host key is revoked")
)

// knownHosts are the keys that servers may have.
type knownHosts struct {
	check ssh.HostKeyCallback
	// authorities: some line trusts whatever an authority has signed.
	authorities bool
}

// parseKnownHosts reads lines in OpenSSH's form. dir is for a file that is gone
// again at the end: the parser takes files only.
func parseKnownHosts(dir string, lines []byte) (_ *knownHosts, err error) {
	if strings.TrimSpace(string(lines)) == "" {
		return nil, &remedied{errNoKnownHosts, "give the server's line of known_hosts, as ssh-keyscan prints it and the server's operator confirms it"}
	}
	file, err := os.CreateTemp(dir, "known-hosts-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	if _, err := file.Write(lines); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	check, err := knownhosts.New(file.Name())
	if err != nil {
		cause := strings.ReplaceAll(err.Error(), file.Name()+":", "line ")
		return nil, &remedied{fmt.Errorf("the known hosts cannot be read: %s", strings.TrimPrefix(cause, "knownhosts: ")), "write them as ssh-keyscan does, a line for each key"}
	}
	return &knownHosts{check: check, authorities: strings.Contains(string(lines), "@cert-authority")}, nil
}

// judge is an ssh.HostKeyCallback. It names both keys, since who is asked whether
// the new one is right needs them.
func (k *knownHosts) judge(address string, remote net.Addr, key ssh.PublicKey) error {
	err := k.check(address, remote, key)
	var other *knownhosts.KeyError
	var revoked *knownhosts.RevokedError
	switch {
	case errors.As(err, &revoked):
		return fmt.Errorf("%w: %s of %s", errHostRevoked, describeKey(key), address)
	case !errors.As(err, &other):
		return err
	case len(other.Want) == 0:
		return fmt.Errorf("%w: %s has none in known_hosts, got %s", errHostUnknown, address, describeKey(key))
	}
	var expected []string
	for _, want := range other.Want {
		expected = append(expected, describeKey(want.Key))
	}
	return fmt.Errorf("%w: expected %s of %s, got %s", errHostKey, strings.Join(expected[:min(len(expected), 8)], " or "), address, describeKey(key))
}

// algorithms are what a server is asked for, so that one with several keys shows
// one that is known. Nil: nothing is known of it.
func (k *knownHosts) algorithms(address string) []string {
	// No server has this key, so the answer is which ones are known.
	nobody, err := ssh.NewPublicKey(ed25519.PublicKey(make([]byte, ed25519.PublicKeySize)))
	if err != nil {
		return nil
	}
	var known *knownhosts.KeyError
	if !errors.As(k.check(address, &net.TCPAddr{IP: net.IPv4zero}, nobody), &known) {
		return nil
	}
	var all []string
	if k.authorities {
		all = []string{
			ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01, ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01,
		}
	}
	for _, want := range known.Want {
		kind := []string{want.Key.Type()}
		if kind[0] == ssh.KeyAlgoRSA {
			// What is called after the key signs with SHA-1.
			kind = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
		}
		for _, algorithm := range kind {
			if !slices.Contains(all, algorithm) {
				all = append(all, algorithm)
			}
		}
	}
	return all
}
