package fleet_test

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/secret"
)

// overSSH is a repository behind ssh, and what reaches it.
type overSSH struct {
	*fleettest.SSH
	server *fleettest.Server
	auth   fleet.Auth
	public ssh.PublicKey
}

func serveSSH(t *testing.T, hostKeys ...ssh.Signer) *overSSH {
	t.Helper()
	server := serve(t)
	if len(hostKeys) == 0 {
		hostKeys = []ssh.Signer{fleettest.Ed25519Key(t)}
	}
	s := server.ServeSSH(hostKeys...)
	identity, public := fleettest.Identity(t, "")
	s.Allow(public)
	return &overSSH{SSH: s, server: server, public: public,
		auth: fleet.Auth{Identity: secret.New(identity), KnownHosts: s.KnownHosts(hostKeys[0].PublicKey())}}
}

func (s *overSSH) open(t *testing.T, auth fleet.Auth) *fleet.Git {
	t.Helper()
	git, err := fleet.OpenGit(t.TempDir(), s.URL(repository), auth)
	if err != nil {
		t.Fatalf("OpenGit: %v", err)
	}
	return git
}

func describe(key ssh.PublicKey) string { return key.Type() + " " + ssh.FingerprintSHA256(key) }

func TestCheckoutOverSSH(t *testing.T) {
	// Neither is used: nobody answers at the one, and the other knows no host.
	t.Setenv("SSH_AUTH_SOCK", filepath.Join(t.TempDir(), "agent"))
	t.Setenv("HOME", t.TempDir())
	s := serveSSH(t)
	first := s.server.Commit(repository, map[string]string{"pool.yaml": "one", "dir/deep/x": "x"})
	s.server.Tag(repository, "v1", first)
	git := s.open(t, s.auth)
	if revision, err := git.Resolve(t.Context(), fleet.Ref{}); err != nil || revision.Commit != first {
		t.Fatalf("Resolve = %s, %v, want %s", revision, err, first)
	}
	if tree := checkout(t, git, fleet.Ref{}); tree.Revision != first || read(t, tree, "dir/deep/x") != "x" {
		t.Errorf("the tree is not that of %s", first)
	}
	second := s.server.Commit(repository, map[string]string{"pool.yaml": "two"})
	for ref, want := range map[fleet.Ref]string{{Branch: "main"}: second, {Tag: "v1"}: first, {Commit: first}: first} {
		if tree := checkout(t, git, ref); tree.Revision != want {
			t.Errorf("%s is at %s, want %s", ref, tree.Revision, want)
		}
	}
	if users := s.Users(); users[0] != "git" {
		t.Errorf("it signs in as %s", users[0])
	}
	_, err := git.Checkout(t.Context(), fleet.Ref{Commit: strings.Repeat("ab", 20)})
	wantSource(t, err, strings.Repeat("ab", 20), "push it, or correct the ref")
	_, err = git.Resolve(t.Context(), fleet.Ref{Branch: "staging"})
	wantSource(t, err, "there is no branch staging", "git@"+s.Address())
}

func TestAnEmptyRepositoryOverSSHIsAnError(t *testing.T) {
	s := serveSSH(t)
	_, err := s.open(t, s.auth).Checkout(t.Context(), fleet.Ref{})
	wantSource(t, err, "push a first commit")
}

func TestAKeyWithAPassphrase(t *testing.T) {
	s := serveSSH(t)
	s.server.Commit(repository, map[string]string{"a": "a"})
	identity, public := fleettest.Identity(t, "hunter2")
	s.Allow(public)
	s.auth.Identity, s.auth.Passphrase = secret.New(identity), secret.New("hunter2")
	checkout(t, s.open(t, s.auth), fleet.Ref{})

	for passphrase, says := range map[string]string{"": "give its passphrase", "wr0ng": "correct the passphrase"} {
		s.auth.Passphrase = secret.New(passphrase)
		_, err := fleet.OpenGit(t.TempDir(), s.URL(repository), s.auth)
		wantSource(t, err, says)
		if strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("%q shows the passphrase", err)
		}
	}
}

func TestWhatSSHNeeds(t *testing.T) {
	s := serveSSH(t)
	for name, test := range map[string]struct {
		change func(*fleet.Auth)
		says   string
	}{
		"no key":            {func(a *fleet.Auth) { a.Identity = secret.String{} }, "there is no private key"},
		"no private key":    {func(a *fleet.Auth) { a.Identity = secret.New("hunter2") }, "give the identity as ssh-keygen writes it"},
		"no known hosts":    {func(a *fleet.Auth) { a.KnownHosts = []byte(" \n") }, "there are no known hosts"},
		"broken known host": {func(a *fleet.Auth) { a.KnownHosts = []byte("git.example.com ssh-ed25519\n") }, "write them as ssh-keyscan does"},
	} {
		t.Run(name, func(t *testing.T) {
			auth := s.auth
			test.change(&auth)
			dir := t.TempDir()
			_, err := fleet.OpenGit(dir, s.URL(repository), auth)
			wantSource(t, err, test.says, s.URL(repository))
			t.Log(err)
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), dir) {
				t.Errorf("%q shows the key or the machine", err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*", "*")); len(left) > 0 {
				t.Errorf("it leaves %v", left)
			}
		})
	}
}

// The keys of a server are told apart by type and fingerprint.
func TestHostKeys(t *testing.T) {
	known, other, rsa, ecdsa := fleettest.Ed25519Key(t), fleettest.Ed25519Key(t), fleettest.RSAKey(t), fleettest.ECDSAKey(t)
	for name, test := range map[string]struct {
		served []ssh.Signer
		lines  func(s *fleettest.SSH) []byte
		says   []string
	}{
		"the known one": {[]ssh.Signer{known}, func(s *fleettest.SSH) []byte { return s.KnownHosts(known.PublicKey()) }, nil},
		"the known one beside others that the server likes better": {[]ssh.Signer{ecdsa, known, rsa},
			func(s *fleettest.SSH) []byte { return s.KnownHosts(rsa.PublicKey()) }, nil},
		"another of the same type": {[]ssh.Signer{other}, func(s *fleettest.SSH) []byte { return s.KnownHosts(known.PublicKey()) },
			[]string{"expected " + describe(known.PublicKey()), "got " + describe(other.PublicKey()), "once the server's operator confirms"}},
		"one of another type": {[]ssh.Signer{rsa}, func(s *fleettest.SSH) []byte { return s.KnownHosts(known.PublicKey()) },
			[]string{"expected " + describe(known.PublicKey()), "got " + describe(rsa.PublicKey())}},
		"one of two other types": {[]ssh.Signer{ecdsa}, func(s *fleettest.SSH) []byte { return s.KnownHosts(known.PublicKey(), rsa.PublicKey()) },
			[]string{"expected " + describe(known.PublicKey()) + " or " + describe(rsa.PublicKey()), "got " + describe(ecdsa.PublicKey())}},
		"of another host": {[]ssh.Signer{known}, func(*fleettest.SSH) []byte {
			return []byte(knownhosts.Line([]string{"git.example.com"}, known.PublicKey()) + "\n")
		}, []string{"has none in known_hosts", "got " + describe(known.PublicKey()), "ssh-keyscan"}},
		"of a hashed host": {[]ssh.Signer{known}, func(s *fleettest.SSH) []byte {
			return []byte(knownhosts.Line([]string{knownhosts.HashHostname(knownhosts.Normalize(s.Address()))}, known.PublicKey()) + "\n")
		}, nil},
		"a revoked one": {[]ssh.Signer{known}, func(s *fleettest.SSH) []byte {
			return append(s.KnownHosts(known.PublicKey()), []byte("@revoked * "+string(ssh.MarshalAuthorizedKey(known.PublicKey())))...)
		}, []string{"is revoked: " + describe(known.PublicKey())}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveSSH(t, test.served...)
			s.server.Commit(repository, map[string]string{"a": "a"})
			s.auth.KnownHosts = test.lines(s.SSH)
			_, err := s.open(t, s.auth).Resolve(t.Context(), fleet.Ref{})
			if test.says == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantSource(t, err, test.says...)
			t.Log(err)
			if users := s.Users(); len(users) > 0 {
				t.Errorf("it signs in all the same, as %v", users)
			}
		})
	}
}

func TestAHostKeyOfAnAuthority(t *testing.T) {
	authority, key := fleettest.Ed25519Key(t), fleettest.Ed25519Key(t)
	certificate := &ssh.Certificate{Key: key.PublicKey(), CertType: ssh.HostCert, ValidPrincipals: []string{"127.0.0.1"}, ValidBefore: ssh.CertTimeInfinity}
	if err := certificate.SignCert(bytesReader{}, authority); err != nil {
		t.Fatal(err)
	}
	served, err := ssh.NewCertSigner(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	s := serveSSH(t, served)
	s.server.Commit(repository, map[string]string{"a": "a"})
	line := func(by ssh.PublicKey) []byte {
		return []byte("@cert-authority " + knownhosts.Line([]string{s.Address()}, by) + "\n")
	}
	s.auth.KnownHosts = line(authority.PublicKey())
	checkout(t, s.open(t, s.auth), fleet.Ref{})
	s.auth.KnownHosts = line(fleettest.Ed25519Key(t).PublicKey())
	_, err = s.open(t, s.auth).Resolve(t.Context(), fleet.Ref{})
	wantSource(t, err)
}

// bytesReader is an endless source of zeros, for a nonce that nobody looks at.
type bytesReader struct{}

func (bytesReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestAnIdentityThatIsNotLetIn(t *testing.T) {
	s := serveSSH(t)
	stranger, public := fleettest.Identity(t, "")
	s.auth.Identity = secret.New(stranger)
	_, err := s.open(t, s.auth).Resolve(t.Context(), fleet.Ref{})
	wantSource(t, err, describe(public), "as user git", "as a deploy key")
	t.Log(err)
}

func TestARepositoryThatIsNotThereOverSSH(t *testing.T) {
	s := serveSSH(t)
	git, err := fleet.OpenGit(t.TempDir(), s.URL("other"), s.auth)
	if err != nil {
		t.Fatal(err)
	}
	_, err = git.Resolve(t.Context(), fleet.Ref{})
	wantSource(t, err, "does not appear to be a git repository", "correct the URL")

	s.Before(func(_ string, stderr io.Writer) (uint32, bool) {
		_, _ = io.WriteString(stderr, "ERROR: you may not read this repository\n"+strings.Repeat("x", 1<<20))
		return 1, true
	})
	_, err = s.open(t, s.auth).Resolve(t.Context(), fleet.Ref{})
	wantSource(t, err, "you may not read this repository")
	if len(err.Error()) > 4<<10 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

func TestAPathIsOneWordForTheServer(t *testing.T) {
	s := serveSSH(t)
	var got string
	s.Before(func(command string, _ io.Writer) (uint32, bool) { got = command; return 1, true })
	git, err := fleet.OpenGit(t.TempDir(), "ssh://robot@"+s.Address()+"/it's%20$(id)!.git", s.auth)
	if err != nil {
		t.Fatal(err)
	}
	_, err = git.Resolve(t.Context(), fleet.Ref{})
	wantSource(t, err)
	if want := `git-upload-pack '/it'\''s $(id)'\!'.git'`; got != want {
		t.Errorf("the command is %s, want %s", got, want)
	}
	if users := s.Users(); len(users) != 1 || users[0] != "robot" {
		t.Errorf("it signs in as %v", users)
	}
}

// Whatever an ssh server does, an attempt ends in bounded time and says what to do.
func TestEveryAttemptOverSSHEnds(t *testing.T) {
	connect := generous
	connect.Connect = time.Second
	for name, test := range map[string]struct {
		serve  func(conn net.Conn)
		limits fleet.Timeouts
		says   string
	}{
		"a server that says nothing": {func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }, silence(), "the server sent nothing for 300ms"},
		"a server that speaks http":  {func(conn net.Conn) { _, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n"); _ = conn.Close() }, generous, "check the URL"},
		"a server that goes on for ever": {func(conn net.Conn) {
			for {
				if _, err := io.WriteString(conn, "hello\r\n"); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}, connect, "did not finish the ssh handshake within 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(fleet.SetTimeouts(test.limits))
			s := serveSSH(t)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = listener.Close() }()
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go test.serve(conn)
				}
			}()
			git, err := fleet.OpenGit(t.TempDir(), "ssh://git@"+listener.Addr().String()+"/fleet.git", s.auth)
			if err != nil {
				t.Fatal(err)
			}
			_, err = git.Resolve(t.Context(), fleet.Ref{})
			wantSource(t, err, test.says)
			t.Log(err)
		})
	}
	for name, before := range map[string]struct {
		ask    func(stop <-chan struct{}) func(string, io.Writer) (uint32, bool)
		limits fleet.Timeouts
		says   string
	}{
		"a command that hangs": {func(stop <-chan struct{}) func(string, io.Writer) (uint32, bool) {
			return func(string, io.Writer) (uint32, bool) { <-stop; return 1, true }
		}, silence(), "the server sent nothing for 300ms"},
		"a command that never comes to the point": {func(stop <-chan struct{}) func(string, io.Writer) (uint32, bool) {
			return func(_ string, stderr io.Writer) (uint32, bool) {
				for {
					if _, err := io.WriteString(stderr, "."); err != nil {
						return 1, true
					}
					select {
					case <-stop:
						return 1, true
					case <-time.After(20 * time.Millisecond):
					}
				}
			}
		}, attempt(), "the attempt took longer than 3s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(fleet.SetTimeouts(before.limits))
			s := serveSSH(t)
			stop := make(chan struct{})
			defer close(stop)
			s.Before(before.ask(stop))
			_, err := s.open(t, s.auth).Resolve(t.Context(), fleet.Ref{})
			wantSource(t, err, before.says)
		})
	}
}

func TestAPackOverSSHIsBounded(t *testing.T) {
	s := serveSSH(t)
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(i * i >> 7 * i)
	}
	s.server.Commit(repository, map[string]string{"noise": fmt.Sprintf("%x", noise)})
	t.Cleanup(fleet.SetMaxPack(1 << 10))
	_, err := s.open(t, s.auth).Checkout(t.Context(), fleet.Ref{})
	wantSource(t, err, "too large")
}

func TestAServerThatDiesOverSSH(t *testing.T) {
	s := serveSSH(t)
	s.server.Commit(repository, map[string]string{"a": "a"})
	git := s.open(t, s.auth)
	revision := checkout(t, git, fleet.Ref{}).Revision
	s.Close()
	_, err := git.Resolve(t.Context(), fleet.Ref{})
	wantSource(t, err, "can be reached")
	if tree := checkout(t, git, fleet.Ref{Commit: revision}); read(t, tree, "a") != "a" {
		t.Error("the clone lost its commit")
	}
}
