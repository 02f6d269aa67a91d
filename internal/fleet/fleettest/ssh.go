package fleettest

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// SSH serves a Server's repositories over ssh, on another port, until the test
// ends. It runs git-upload-pack and nothing else.
type SSH struct {
	t        testing.TB
	root     string
	listener net.Listener
	hostKeys []ssh.Signer

	mu      sync.Mutex // guards what follows
	allowed map[string]bool
	// before is called with the command before it runs; an error is what it fails with.
	before func(command string, stderr io.Writer) (status uint32, refuse bool)
	users  []string
	conns  map[net.Conn]bool
}

// ServeSSH starts a server with these host keys.
func (s *Server) ServeSSH(hostKeys ...ssh.Signer) *SSH {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	out := &SSH{t: s.t, root: s.root, listener: listener, hostKeys: hostKeys, allowed: map[string]bool{}, conns: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			out.keep(conn, true)
			serving.Go(func() {
				defer out.keep(conn, false)
				out.serve(conn)
			})
		}
	})
	s.t.Cleanup(func() {
		out.Close()
		serving.Wait()
	})
	return out
}

func (s *SSH) keep(conn net.Conn, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open {
		s.conns[conn] = true
		return
	}
	delete(s.conns, conn)
	_ = conn.Close()
}

// Close makes the server unreachable and cuts what is open.
func (s *SSH) Close() {
	_ = s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close()
	}
}

// Address is host:port.
func (s *SSH) Address() string { return s.listener.Addr().String() }

// URL of a repository that Create made.
func (s *SSH) URL(repository string) string {
	return "ssh://git@" + s.Address() + "/" + repository + ".git"
}

// KnownHosts has a line for each key.
func (s *SSH) KnownHosts(keys ...ssh.PublicKey) []byte {
	var lines strings.Builder
	for _, key := range keys {
		lines.WriteString(knownhosts.Line([]string{s.Address()}, key) + "\n")
	}
	return []byte(lines.String())
}

// Allow lets a key in.
func (s *SSH) Allow(key ssh.PublicKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed[string(key.Marshal())] = true
}

// Before has every command asked about first: one that is refused ends with the
// status and what was written to stderr.
func (s *SSH) Before(ask func(command string, stderr io.Writer) (status uint32, refuse bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = ask
}

// Users are the names that signed in, in order.
func (s *SSH) Users() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.users...)
}

func (s *SSH) serve(conn net.Conn) {
	// The callback only says who may: a client may ask about keys that it does not have.
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.allowed[string(key.Marshal())] {
			return nil, io.EOF
		}
		return &ssh.Permissions{}, nil
	}}
	for _, key := range s.hostKeys {
		config.AddHostKey(key)
	}
	signedIn, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.users = append(s.users, signedIn.User())
	s.mu.Unlock()
	go ssh.DiscardRequests(requests)
	for offered := range channels {
		channel, requests, err := offered.Accept()
		if err != nil {
			return
		}
		for request := range requests {
			if request.Type != "exec" {
				_ = request.Reply(false, nil)
				continue
			}
			var command struct{ Line string }
			_ = request.Reply(ssh.Unmarshal(request.Payload, &command) == nil, nil)
			status := s.run(command.Line, channel)
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
			_ = channel.Close()
		}
	}
}

func (s *SSH) run(line string, channel ssh.Channel) uint32 {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		if status, refuse := before(line, channel.Stderr()); refuse {
			return status
		}
	}
	name, ok := strings.CutPrefix(line, "git-upload-pack '/")
	name, closed := strings.CutSuffix(name, "'")
	if !ok || !closed || strings.Contains(name, "..") {
		return 128
	}
	cmd := exec.Command("git", "-c", "safe.directory=*", "-c", "uploadpack.allowReachableSHA1InWant=true", "-c", "uploadpack.allowFilter=true", "upload-pack", filepath.Join(s.root, name))
	cmd.Env = gitEnvironment()
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	stdin, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return 126
	}
	// Not cmd.Stdin, which would be waited for when the client sends no end.
	go func() {
		_, _ = io.Copy(stdin, channel)
		_ = stdin.Close()
	}()
	if cmd.Wait() != nil {
		return 128
	}
	return 0
}

// Ed25519Key makes a key.
func Ed25519Key(t testing.TB) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return signer(t, key, err)
}

// RSAKey makes a key.
func RSAKey(t testing.TB) ssh.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	return signer(t, key, err)
}

// ECDSAKey makes a key.
func ECDSAKey(t testing.TB) ssh.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return signer(t, key, err)
}

func signer(t testing.TB, key any, err error) ssh.Signer {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	out, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Identity makes a key and its private half as ssh-keygen writes it, encrypted where
// there is a passphrase.
func Identity(t testing.TB, passphrase string) (private string, public ssh.PublicKey) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	made := signer(t, key, err)
	var block *pem.Block
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(key, "")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block)), made.PublicKey()
}
