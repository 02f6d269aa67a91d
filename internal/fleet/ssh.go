package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"

	"cloop.dev/cloop/internal/secret"
)

const (
	sshPort = "22"
	// sshUser is who forges know Git by.
	sshUser = "git"
)

var (
	errHandshake   = errors.New("the server did not finish the ssh handshake")
	errNotLetIn    = errors.New("the server does not let the identity in")
	errServerSays  = errors.New("the server says")
	errNoIdentity  = errors.New("there is no private key")
	errEncrypted   = errors.New("the private key is encrypted")
	errPassphrase  = errors.New("the passphrase of the private key is another one")
	errNoKey       = errors.New("it is no private key")
	errChatter     = errors.New("the server says too much beside its answer")
	errNoAlgorithm = errors.New("the server and this program have no algorithm in common")
)

// sshServer runs git-upload-pack on a server. It uses nothing of the machine's own
// SSH: no agent, no configuration, no keys and known hosts but those it is given.
//
// The transport of go-git is not used, since it can neither be cancelled while it
// connects nor be kept from waiting for a server that says nothing.
type sshServer struct {
	// address is host:port.
	address string
	// path of the repository on the server.
	path   string
	config ssh.ClientConfig
	// identity is the fingerprint of the key that is shown to the server.
	identity string
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	limits   timeouts
	// maxPack bounds a pack, in bytes.
	maxPack int64
	// sent is what the server may know of the credential.
	sent secret.Sent
}

func newSSHServer(dir string, at *url.URL, auth Auth) (server, error) {
	signer, err := parseIdentity(auth)
	if err != nil {
		return nil, err
	}
	hosts, err := parseKnownHosts(dir, auth.KnownHosts)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), sshPort))
	return &sshServer{
		address: address,
		path:    pathOf(at),
		config: ssh.ClientConfig{
			User:              cmp.Or(at.User.Username(), sshUser),
			Auth:              []ssh.AuthMethod{ssh.PublicKeys(signer)},
			HostKeyCallback:   hosts.judge,
			HostKeyAlgorithms: hosts.algorithms(address),
		},
		identity: describeKey(signer.PublicKey()),
		dial:     (&net.Dialer{Timeout: limits.Connect}).DialContext,
		limits:   limits,
		maxPack:  maxPack,
		sent:     auth.sent(),
	}, nil
}

// pathOf is a URL's path as git sends it: what begins with ~ is below a home.
func pathOf(at *url.URL) string {
	if strings.HasPrefix(at.Path, "/~") {
		return at.Path[1:]
	}
	return at.Path
}

// parseIdentity reads the private key. No error shows any of it.
func parseIdentity(auth Auth) (ssh.Signer, error) {
	if auth.Identity.Empty() {
		return nil, &remedied{errNoIdentity, "give the private key of a deploy key that may read the repository as the identity"}
	}
	pem := []byte(auth.Identity.Reveal())
	signer, err := ssh.ParsePrivateKey(pem)
	if missing := (*ssh.PassphraseMissingError)(nil); !errors.As(err, &missing) {
		if err != nil {
			return nil, &remedied{errNoKey, "give the identity as ssh-keygen writes it, from its first line, -----BEGIN …, to its last"}
		}
		return signer, nil
	}
	if auth.Passphrase.Empty() {
		return nil, &remedied{errEncrypted, "give its passphrase, too, or a key without one"}
	}
	if signer, err = ssh.ParsePrivateKeyWithPassphrase(pem, []byte(auth.Passphrase.Reveal())); err != nil {
		return nil, &remedied{errPassphrase, "correct the passphrase"}
	}
	return signer, nil
}

// describeKey is a key as people compare it: its type and fingerprint.
func describeKey(key ssh.PublicKey) string { return key.Type() + " " + ssh.FingerprintSHA256(key) }

func (s *sshServer) open(ctx context.Context) (transport.UploadPackSession, error) {
	config := s.config
	c, err := s.connect(ctx, &config)
	if none := (*ssh.AlgorithmNegotiationError)(nil); errors.As(err, &none) {
		// It has no key of a known type. Which it has it only shows who takes any;
		// the callback refuses that one, before anything else is said.
		config.HostKeyAlgorithms = nil
		if c, err = s.connect(ctx, &config); errors.As(err, &none) {
			err = fmt.Errorf("%w for its %s: it offers %s", errNoAlgorithm, none.What, strings.Join(none.RequestedAlgorithms, ", "))
		}
	}
	if err != nil {
		return nil, err
	}
	session := &sshSession{conn: c, maxPack: s.maxPack, sent: s.sent}
	if err := session.start("git-upload-pack " + shellQuoted(s.path)); err != nil {
		return nil, errors.Join(session.because(err), session.Close())
	}
	return session, nil
}

// shellQuoted is a word for the server's shell, whichever it is: csh reads an
// exclamation mark even between quotes.
func shellQuoted(word string) string {
	return "'" + strings.NewReplacer(`'`, `'\''`, `!`, `'\!'`).Replace(word) + "'"
}

// connect makes a connection that ends with the context.
func (s *sshServer) connect(ctx context.Context, config *ssh.ClientConfig) (*sshConn, error) {
	shaking, cancel := context.WithTimeoutCause(ctx, 2*s.limits.Connect, fmt.Errorf("%w within %s", errHandshake, 2*s.limits.Connect))
	defer cancel()
	raw, err := s.dial(shaking, "tcp", s.address)
	if err != nil {
		return nil, because(shaking, err)
	}
	patient := &patientConn{Conn: raw, silence: s.limits.Silence}
	// Closing is what ends a read; the error of one that is closed twice says nothing.
	stop := context.AfterFunc(shaking, func() { _ = raw.Close() })
	conn, channels, requests, err := ssh.NewClientConn(patient, s.address, config)
	if !stop() || err != nil {
		_ = raw.Close()
		if err == nil {
			err = shaking.Err()
		}
		return nil, because(shaking, patient.because(s.refused(err)))
	}
	c := &sshConn{ctx: ctx, client: ssh.NewClient(conn, channels, requests), patient: patient}
	c.stop = context.AfterFunc(ctx, func() { _ = raw.Close() })
	return c, nil
}

// refused tells a server that refuses the identity from one that cannot be spoken to.
func (s *sshServer) refused(err error) error {
	if strings.Contains(err.Error(), "unable to authenticate") {
		return fmt.Errorf("%w %s as user %s", errNotLetIn, s.identity, s.config.User)
	}
	return err
}

// sshConn is a connection to a server.
type sshConn struct {
	ctx     context.Context //nolint:containedctx // it bounds the connection
	client  *ssh.Client
	patient *patientConn
	stop    func() bool
}

// because is why something on the connection failed.
func (c *sshConn) because(err error) error { return because(c.ctx, c.patient.because(err)) }

func (c *sshConn) close() error {
	c.stop()
	err := c.client.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// patientConn ends a connection whose other side has gone silent.
type patientConn struct {
	net.Conn
	silence time.Duration
	// silent and chatty say why the connection was ended.
	silent, chatty atomic.Bool
}

// Read is io.Reader's.
func (c *patientConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	return n, c.heard(err)
}

// Write is io.Writer's.
func (c *patientConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.silence)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	return n, c.heard(err)
}

func (c *patientConn) heard(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.silent.Store(true)
	}
	return err
}

// because is why the connection failed: what lies above it only sees its end.
func (c *patientConn) because(err error) error {
	if c.chatty.Load() {
		return fmt.Errorf("%w: more than %d MiB", errChatter, maxChatter>>20)
	}
	if c.silent.Load() {
		return fmt.Errorf("%w for %s", errSilent, c.silence)
	}
	return err
}

const (
	// maxSaid bounds what is kept of what a server says to people, in bytes.
	maxSaid = 1 << 10
	// maxChatter bounds what it says, in bytes: one that says it without end would keep
	// a processor busy for as long as an attempt may take.
	maxChatter = 4 << 20
)

// said keeps the beginning of what a server says to people.
type said struct {
	// enough is called for more than maxChatter.
	enough func()

	mu   sync.Mutex
	text strings.Builder
	all  int
}

// Write is io.Writer's.
func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p[:min(len(p), maxSaid-s.text.Len())])
	if s.all += len(p); s.all > maxChatter {
		s.enough()
	}
	return len(p), nil
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(s.text.String())
}

// sshSession is one git-upload-pack: it answers with its references and then with
// one pack.
type sshSession struct {
	conn    *sshConn
	session *ssh.Session
	stdin   io.WriteCloser
	stdout  io.Reader
	said    said
	refs    *packp.AdvRefs
	maxPack int64
	sent    secret.Sent
}

func (s *sshSession) start(command string) error {
	var err error
	if s.session, err = s.conn.client.NewSession(); err != nil {
		return err
	}
	if s.stdin, err = s.session.StdinPipe(); err != nil {
		return err
	}
	if s.stdout, err = s.session.StdoutPipe(); err != nil {
		return err
	}
	s.said.enough = func() {
		s.conn.patient.chatty.Store(true)
		_ = s.conn.patient.Close() // which ends all that waits for it
	}
	s.session.Stderr = &s.said
	return s.session.Start(command)
}

// because is why something failed; nothing of what a server sends may be missing.
func (s *sshSession) because(err error) error { return s.conn.because(err) }

// AdvertisedReferences is transport.Session's.
func (s *sshSession) AdvertisedReferences() (*packp.AdvRefs, error) {
	return s.AdvertisedReferencesContext(s.conn.ctx)
}

// AdvertisedReferencesContext is transport.Session's.
func (s *sshSession) AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error) {
	if s.refs != nil {
		return s.refs, nil
	}
	refs := packp.NewAdvRefs()
	err := refs.Decode(&cappedReader{from: s.stdout, left: maxRefs})
	line := (*pktline.ErrorLine)(nil)
	switch {
	case errors.As(err, &line):
		return nil, fmt.Errorf("%w: %s", errServerSays, s.sent.Line(line.Text))
	case errors.Is(err, packp.ErrEmptyAdvRefs), err == nil && refs.IsEmpty():
		return nil, transport.ErrEmptyRemoteRepository
	case err != nil:
		return nil, s.refusal(err)
	}
	transport.FilterUnsupportedCapabilities(refs.Capabilities)
	s.refs = refs
	return refs, nil
}

// refusal is why there was no answer: what the server said about it, where it did.
func (s *sshSession) refusal(err error) error {
	if errors.Is(err, packp.ErrEmptyInput) || errors.Is(err, io.ErrUnexpectedEOF) {
		// What it says comes apart from its answer, and may come after its end.
		_ = s.session.Wait()
		if text := s.said.String(); text != "" {
			return s.because(fmt.Errorf("%w: %s", errServerSays, s.sent.Line(text)))
		}
	}
	return s.because(err)
}

// UploadPack is transport.UploadPackSession's; it can be used once.
func (s *sshSession) UploadPack(ctx context.Context, request *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if request.IsEmpty() {
		return nil, transport.ErrEmptyUploadPackRequest
	}
	if err := request.Validate(); err != nil {
		return nil, err
	}
	if _, err := s.AdvertisedReferencesContext(ctx); err != nil {
		return nil, err
	}
	if err := s.ask(request); err != nil {
		return nil, s.because(err)
	}
	response := packp.NewUploadPackResponse(request)
	if err := response.Decode(readCloser{&sshReader{s, &cappedReader{from: s.stdout, left: s.maxPack}}, s}); err != nil {
		return nil, s.refusal(err)
	}
	return response, nil
}

func (s *sshSession) ask(request *packp.UploadPackRequest) error {
	if err := request.UploadRequest.Encode(s.stdin); err != nil {
		return err
	}
	if err := request.UploadHaves.Encode(s.stdin, true); err != nil {
		return err
	}
	if err := pktline.NewEncoder(s.stdin).Encodef("done\n"); err != nil {
		return err
	}
	return s.stdin.Close()
}

// Close is io.Closer's.
func (s *sshSession) Close() error { return s.conn.close() }

// sshReader says why a pack ended early: a connection that was cut looks like the
// pack's end.
type sshReader struct {
	session *sshSession
	from    io.Reader
}

// Read is io.Reader's.
func (r *sshReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil {
		err = r.session.because(err)
	}
	return n, err
}
