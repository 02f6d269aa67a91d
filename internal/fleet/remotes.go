package fleet

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"cloop.dev/cloop/internal/secret"
)

var (
	// ErrNoRef is a server that answers and has no such branch, tag or commit.
	ErrNoRef = errors.New("there is no such branch, tag or commit")
	// ErrNoFile is a commit without the file.
	ErrNoFile = errors.New("the commit does not have the file")
	// ErrNotRegular is a path of a commit where something else than a file is.
	ErrNotRegular = errors.New("it is no regular file")
	// ErrLongFile is a file that is longer than its reader takes.
	ErrLongFile = errors.New("the file is too long")
)

// maxPeek bounds the pack that is fetched for one file, in bytes: a server that
// cannot leave the rest out sends the whole tree.
const maxPeek = 32 << 20

// peekBounds are what it may come to.
var peekBounds = packBounds{object: 16 << 20, made: 16 << 20, total: 512 << 20, objects: 500_000}

// Remotes reads single files of any repository over https, without a
// credential, and keeps nothing of them. It follows no redirect to another
// server and connects to no address of the link it is on, where clouds keep
// their machines' credentials. It is safe for concurrent use.
type Remotes struct {
	dir  string
	http *http.Client
}

// NewRemotes keeps what is being fetched below dir, which it makes and empties.
// The PEM certificates are trusted in addition to the system's.
func NewRemotes(dir string, certificates []byte) (*Remotes, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("empty %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make %s: %w", dir, err)
	}
	// As with a credential: what another server has is not the project's.
	client, err := httpClient(nil, true, environmentsProxy(), secret.SentTo())
	if err != nil {
		return nil, err
	}
	bounded, _ := client.Transport.(boundedTransport)
	bounded.maxPack = maxPeek
	client.Transport = bounded
	inner, _ := bounded.next.(*http.Transport)
	inner.DialContext = (&net.Dialer{Timeout: limits.Connect, Control: offLink}).DialContext
	if len(certificates) > 0 {
		roots, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("read the system's certificates: %w", err)
		}
		if !roots.AppendCertsFromPEM(certificates) {
			return nil, errors.New("the file of certificates to trust for projects holds none: write PEM")
		}
		inner.TLSClientConfig.RootCAs = roots
	}
	return &Remotes{dir: dir, http: client}, nil
}

// offLink refuses addresses that only mean something on this machine's own link.
func offLink(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return fmt.Errorf("%s is no address of a Git server", host)
	}
	return nil
}

// Remote is one repository, as its server described it.
type Remote struct {
	git     *Git
	refs    *packp.AdvRefs
	session transport.UploadPackSession
}

// Open asks the server for its references. Errors are ErrSource.
func (r *Remotes) Open(ctx context.Context, url string) (*Remote, error) {
	shown := withoutUser(url)
	endpoint, err := parseEndpoint(url)
	if err != nil {
		return nil, sourceError("read", shown, err, "write the URL as https://HOST/PATH")
	}
	out := &Remote{git: &Git{dir: r.dir, url: shown, sent: secret.SentTo(), server: httpsServer{endpoint: endpoint, client: r.http}}}
	out.refs, out.session, err = out.git.advertised(ctx)
	return out, err
}

// IsCommit says whether a ref is a commit by its whole name.
func IsCommit(ref string) bool { return commitHash.MatchString(ref) }

// Commit is what the ref stands for: a whole commit, HEAD where it is empty, a
// full name, or a branch or else a tag. An error is ErrNoRef.
func (r *Remote) Commit(ref string) (string, error) {
	names := []string{"refs/heads/" + ref, "refs/tags/" + ref}
	switch {
	case IsCommit(ref):
		return ref, nil
	case ref == "":
		if r.refs.Head != nil {
			return r.refs.Head.String(), nil
		}
		names = []string{"HEAD"}
	case strings.HasPrefix(ref, "refs/"):
		names = []string{ref}
	}
	for _, name := range names {
		if peeled, ok := r.refs.Peeled[name]; ok {
			return peeled.String(), nil
		}
		if hash, ok := r.refs.References[name]; ok {
			return hash.String(), nil
		}
	}
	return "", fmt.Errorf("%s of %s: %w", ref, r.git.url, ErrNoRef)
}

// File reads a file of a commit, at most limit bytes of it. Errors are
// ErrNoFile, ErrNotRegular, ErrLongFile, or ErrSource where it could not be
// read.
func (r *Remote) File(ctx context.Context, commit, name string, limit int64) ([]byte, error) {
	dir, err := os.MkdirTemp(r.git.dir, "peek-")
	if err != nil {
		return nil, sourceError("read", r.git.url, err, "make "+r.git.dir+" writable")
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store := openStore(dir)
	defer func() { _ = store.Close() }()
	hash := plumbing.NewHash(commit)
	if err := r.fetch(ctx, store, hash, true); err != nil {
		return nil, r.git.unreachable("read "+Short(commit)+" of", err)
	}
	entry, err := find(store, hash, name)
	if err != nil {
		return nil, r.told(commit, err)
	}
	if store.HasEncodedObject(entry) != nil {
		// The server left it out, as it was asked to.
		if err := r.fetch(ctx, store, entry, true); err != nil {
			err = r.fetch(ctx, store, hash, false)
			if err != nil {
				return nil, r.git.unreachable("read "+name+" of", err)
			}
		}
	}
	data, err := contents(store, entry, limit)
	return data, r.told(commit, err)
}

// told leaves what a file is like as it is; the rest says that the repository
// could not be read.
func (r *Remote) told(commit string, err error) error {
	if err == nil || errors.Is(err, ErrNoFile) || errors.Is(err, ErrNotRegular) || errors.Is(err, ErrLongFile) {
		return err
	}
	return sourceError("read "+Short(commit)+" of", r.git.url, err, "try again; if it lasts, run `git fsck` on the server")
}

// fetch fetches one object; a commit comes without its history and, where the
// server can do that and it is asked for, without the contents of its files.
func (r *Remote) fetch(ctx context.Context, store *filesystem.Storage, want plumbing.Hash, lean bool) error {
	options := fetchOptions{depth: 1, vet: r.git.dir, bounds: peekBounds}
	if lean {
		options.filter = packp.FilterBlobNone()
	}
	return fetchPack(ctx, r.session, r.refs, store, []plumbing.Hash{want}, options)
}

// find looks a regular file up in a commit's tree.
func find(store *filesystem.Storage, commit plumbing.Hash, name string) (plumbing.Hash, error) {
	c, err := object.GetCommit(store, commit)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	tree, err := c.Tree()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	steps := strings.Split(name, "/")
	for i, step := range steps {
		at := -1
		for j := range tree.Entries {
			if tree.Entries[j].Name == step {
				at = j
				break
			}
		}
		if at < 0 {
			return plumbing.ZeroHash, ErrNoFile
		}
		entry, last := tree.Entries[at], i == len(steps)-1
		switch {
		case last && (entry.Mode == filemode.Regular || entry.Mode == filemode.Executable || entry.Mode == filemode.Deprecated):
			return entry.Hash, nil
		case last || entry.Mode != filemode.Dir:
			return plumbing.ZeroHash, ErrNotRegular
		}
		if tree, err = object.GetTree(store, entry.Hash); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	return plumbing.ZeroHash, ErrNoFile
}

func contents(store *filesystem.Storage, hash plumbing.Hash, limit int64) (data []byte, err error) {
	blob, err := object.GetBlob(store, hash)
	if err != nil {
		return nil, err
	}
	if blob.Size > limit {
		return nil, ErrLongFile
	}
	from, err := blob.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	return io.ReadAll(io.LimitReader(from, limit))
}
