package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"cloop.dev/cloop/internal/secret"
)

// Git reads one repository. It keeps a bare clone of the newest revision that
// was checked out, one commit deep, and replaces it whole when another revision
// is asked for: a fetch that dies leaves the old clone, a force-push is a fetch
// like any other, and the clone never grows with the repository's history.
//
// A Git is used by one goroutine at a time, and its directory by one Git.
type Git struct {
	dir string
	// inUse keeps the directory from being swept away.
	inUse *os.File
	// url is for people.
	url    string
	server server
	// sent is of credentials what the server and its proxy get.
	sent secret.Sent
	// proxyHint is what to do where a proxy does not let through.
	proxyHint string
}

var commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// OpenGit prepares to read the repository at url, which is https without user
// information, or ssh without a password. It makes dir, which must be for this Git
// alone, and removes what a killed process left in it and what was kept of another
// repository; it does not reach the network. Errors are ErrSource.
func OpenGit(dir, url string, auth Auth) (*Git, error) {
	shown := withoutUser(url)
	sum := sha256.Sum256([]byte(url))
	g := &Git{
		dir: filepath.Join(dir, hex.EncodeToString(sum[:8])), url: shown, sent: auth.sent(),
		proxyHint: "correct HTTPS_PROXY of this process, or name the server in NO_PROXY",
	}
	if auth.Proxy != nil {
		g.proxyHint = "correct the Secret of proxySecretRef: address, username and password"
	}
	var err error
	if g.inUse, err = use(dir); err == nil {
		err = errors.Join(removeOthers(dir, filepath.Base(g.dir)), g.clean())
	}
	if err != nil {
		return nil, g.unstored("open", err)
	}
	if g.server, err = newServer(g.dir, url, auth); err != nil {
		return nil, g.unreachable("open", err)
	}
	return g, nil
}

// clean makes the directory and removes trees and half-written clones: nobody
// else uses the directory, so whoever made them is gone.
func (g *Git) clean() error {
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == cloneName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(g.dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Resolve asks the server which commit ref names now. It fetches nothing, and for a
// commit asks nobody. It ends within five minutes, and within one where the server
// says nothing. Errors are ErrSource.
func (g *Git) Resolve(ctx context.Context, ref Ref) (Revision, error) {
	if ref.Commit != "" {
		return g.commit(ref)
	}
	ctx, cancel := attempt(ctx)
	defer cancel()
	refs, session, err := g.advertised(ctx)
	if err != nil {
		return Revision{}, err
	}
	defer ended(session)
	return g.find(refs, ref)
}

func (g *Git) commit(ref Ref) (Revision, error) {
	if !commitHash.MatchString(ref.Commit) {
		return Revision{}, sourceError("read", g.url, fmt.Errorf("%q is no commit", ref.Commit),
			"name the commit by its 40 hexadecimal digits")
	}
	return Revision{Commit: ref.Commit}, nil
}

// advertised returns the server's references and the session to fetch on, which the
// caller ends.
func (g *Git) advertised(ctx context.Context) (*packp.AdvRefs, transport.UploadPackSession, error) {
	session, err := g.server.open(ctx)
	if err != nil {
		return nil, nil, g.unreachable("read", err)
	}
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		ended(session)
		return nil, nil, g.unreachable("read", err)
	}
	return refs, session, nil
}

// ended closes a session. What was to be read is read by then, or known not to be.
func ended(session transport.UploadPackSession) { _ = session.Close() }

// Checkout writes the tree of the commit that ref names to a new directory,
// which the caller closes. It fetches only when the clone does not hold that
// commit. A repository that is too large or has a symbolic link that leaves it
// is refused. It ends as Resolve does. Errors are ErrSource.
func (g *Git) Checkout(ctx context.Context, ref Ref) (*Tree, error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	revision, err := g.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	commit := revision.Commit
	if tree, err := g.checkoutClone(ctx, commit); err == nil {
		return tree, nil
	} else if !errors.Is(err, errNotCloned) {
		return nil, err
	}
	if err := g.fetch(ctx, revision); err != nil {
		return nil, err
	}
	tree, err := g.checkoutClone(ctx, commit)
	if errors.Is(err, errNotCloned) {
		return nil, g.missing(commit, err)
	}
	return tree, err
}

// missing says why a commit that was fetched is not in the clone.
func (g *Git) missing(commit string, err error) error {
	if kind := g.kind(commit); kind != "" {
		return sourceError("check out "+Short(commit)+" of", g.url, fmt.Errorf("it is a %s and no commit", kind),
			"name a commit, as `git rev-parse REF^{commit}` prints it, or a branch or a tag of one")
	}
	return g.damaged(commit, err)
}

func (g *Git) damaged(commit string, err error) error {
	return sourceError("check out "+Short(commit)+" of", g.url, err, "try again; if it lasts, run `git fsck` on the server")
}

// kind is what the clone holds by a hash; empty: a commit, or nothing.
func (g *Git) kind(hash string) string {
	store := openStore(filepath.Join(g.dir, cloneName))
	defer func() { _ = store.Close() }()
	held, err := store.EncodedObject(plumbing.AnyObject, plumbing.NewHash(hash))
	if err != nil || held.Type() == plumbing.CommitObject {
		return ""
	}
	return held.Type().String()
}

// Short is the part of a commit hash that people recognise: its first 12 digits.
func Short(revision string) string { return revision[:min(len(revision), 12)] }

// hints pairs what may go wrong with what to do about it; the first match counts.
var hints = []struct {
	is   error
	hint string
}{
	{transport.ErrAuthenticationRequired, "give a credential that may read the repository"},
	{transport.ErrAuthorizationFailed, "give a credential that may read the repository"},
	{transport.ErrInvalidAuthMethod, "give a user name and password, or a bearer token"},
	{errNotLetIn, "add its public key to the repository as a deploy key that may read, or give the identity that is one"},
	{errHostKey, "if the server has a new key, put its line into the known hosts once the server's operator confirms the fingerprint; if it has not, somebody is in between"},
	{errHostUnknown, "put its line into the known hosts, as ssh-keyscan prints it, once the server's operator confirms the fingerprint"},
	{errHostRevoked, "give the line of a key that the server's operator confirms"},
	{errServerSays, "correct the URL, or give an identity that may read the repository"},
	{errHandshake, "try again; if it lasts, check that an ssh server answers at that address and port"},
	{errNoAlgorithm, "upgrade the server's ssh, or allow one there that is not out of use"},
	{transport.ErrRepositoryNotFound, "correct the URL, or give a credential that may read the repository"},
	{transport.ErrEmptyRemoteRepository, "push a first commit"},
	{pktline.ErrInvalidPktLen, "correct the URL: what answers there is no Git repository"},
	{errChatter, "look at what the server's ssh runs for the identity"},
	{errSilent, "try again; if it lasts, check what answers at that address, and what stands in front of it"},
	{errAttempt, "try again; if it lasts, check how fast the server is from here"},
	{errRedirect, "give the URL that the repository has now, and the credential for that server"},
	{context.DeadlineExceeded, "try again, or allow more time"},
	{context.Canceled, "try again"},
	{errTooLarge, "move what is no fleet definition to another repository"},
}

var errSHA256 = errors.New("its objects have SHA-256 names, which hub and clusters cannot fetch")

// unreachable is where the words of a server and of what stands before it come in: it
// takes out of them what they were sent.
func (g *Git) unreachable(doing string, err error) error {
	// go-git's own errors hide what they are about from errors.Is.
	if hidden := (*plumbing.UnexpectedError)(nil); errors.As(err, &hidden) {
		err = hidden.Err
	}
	if refusal := (*githttp.Err)(nil); errors.As(err, &refusal) {
		return sourceError(doing, g.url, fmt.Errorf("the server answers %s", g.sent.Line(refusal.Response.Status)),
			"try again; if it lasts, look at the server's log or at what stands in front of it")
	}
	if line := (*pktline.ErrorLine)(nil); errors.As(err, &line) {
		err = &remedied{fmt.Errorf("%w: %s", errServerSays, g.sent.Line(line.Text)), "correct the URL, or give a credential that may read the repository"}
	}
	err = g.sent.Error(err)
	if isFull(err) {
		return g.unstored(doing, err)
	}
	if told := (*remedied)(nil); errors.As(err, &told) {
		return sourceError(doing, g.url, err, told.remedy)
	}
	for _, known := range hints {
		if errors.Is(err, known.is) {
			return sourceError(doing, g.url, err, known.hint)
		}
	}
	switch text := err.Error(); {
	case strings.Contains(text, "object-format=sha256"):
		// go-git takes the names of the objects for broken ones, and quotes the line.
		return sourceError(doing, g.url, errSHA256, "move it to one with `git init --object-format=sha1`; `cloop fleet check` takes either")
	case strings.Contains(text, "proxyconnect ") || strings.Contains(text, http.StatusText(http.StatusProxyAuthRequired)):
		// Before what follows: a certificate may be the proxy's.
		return sourceError(doing, g.url, err, g.proxyHint)
	case strings.Contains(text, "x509:") || strings.Contains(text, "tls:"):
		return sourceError(doing, g.url, err, "give the CA bundle that signed the server's certificate: caFile of the sync, or of projects, at the hub, ca.crt in the Secret of a PoolSync")
	case strings.Contains(text, "http redirect:"):
		// go-git's own refusals.
		return sourceError(doing, g.url, err, "give the URL that the repository has now")
	case errors.Is(err, io.ErrUnexpectedEOF) || strings.HasSuffix(text, io.ErrUnexpectedEOF.Error()):
		remedy := "try again; if it lasts, look at the server's log or at what stands in front of it"
		if _, https := g.server.(httpsServer); https && doing == "read" {
			// Static files begin with what reads as the length of more than there is.
			remedy += "; a repository of static files cannot be read: serve it with `git http-backend`, or over ssh"
		}
		return sourceError(doing, g.url, errCut, remedy)
	}
	return sourceError(doing, g.url, err, "check the URL and that the server can be reached from here")
}
