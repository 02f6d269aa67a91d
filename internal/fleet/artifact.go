package fleet

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"cloop.dev/cloop/internal/secret"
)

// Artifact is a repository as a source of Flux offers it: a compressed archive.
type Artifact struct {
	// URL of the archive, http or https.
	URL string
	// Revision is what the source says that is in it.
	Revision string
	// Digest of the archive: its algorithm, a colon and hexadecimal digits.
	Digest string
}

// maxArtifact bounds an archive, in bytes. It is a variable for tests.
var maxArtifact int64 = 256 << 20

// artifactDir is where archives and their trees lie, named as directories of OpenGit's
// are so that Sweep finds it.
const artifactDir = "0000000000000000"

// digests: algorithm → the hash.
var digests = map[string]func() hash.Hash{"sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}

// parseDigest is the hash to check with, and what it must come to.
func parseDigest(digest string) (hash.Hash, string, error) {
	algorithm, sum, _ := strings.Cut(digest, ":")
	if digests[algorithm] == nil {
		return nil, "", fmt.Errorf("the digest %q is none of sha256, sha384 and sha512", digest)
	}
	return digests[algorithm](), strings.ToLower(sum), nil
}

// Checkout writes the archive's files to a new directory below dir, which the caller
// closes. Nothing is unpacked before the digest is known to be right. dir must be for
// one artifact at a time; what a killed process left in it goes. An archive that is too
// large, or has a file or a link outside of itself, is refused. It ends within five
// minutes, and within one where the server says nothing. Errors are ErrSource, or
// ErrBuild where only another archive helps.
func (a Artifact) Checkout(ctx context.Context, dir string) (tree *Tree, err error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	inUse, err := use(dir)
	if err != nil {
		return nil, a.unstored(dir, err)
	}
	defer func() { err = errors.Join(err, inUse.Close()) }()
	work := filepath.Join(dir, artifactDir)
	if err := errors.Join(removeOthers(dir, artifactDir), os.RemoveAll(work), os.MkdirAll(work, 0o700)); err != nil {
		return nil, a.unstored(work, err)
	}
	archive, err := a.fetch(ctx, work)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, archive.Close(), os.Remove(archive.Name())) }()
	to, err := os.MkdirTemp(work, "tree-")
	if err != nil {
		return nil, a.unstored(work, err)
	}
	if err := unpack(ctx, archive, to); err != nil {
		return nil, errors.Join(a.treeError(work, err), os.RemoveAll(to))
	}
	return &Tree{Dir: to, Revision: a.Revision}, nil
}

// shown is the URL without what nobody needs to see.
func (a Artifact) shown() string {
	at, err := url.Parse(a.URL)
	if err != nil {
		return "an artifact"
	}
	at.User, at.RawQuery = nil, ""
	return at.String()
}

func (a Artifact) unstored(dir string, err error) error {
	remedy := "make " + dir + " writable"
	if isFull(err) {
		remedy = "make room where " + dir + " is; it goes on by itself then"
	}
	return sourceError("keep", a.shown(), err, remedy)
}

func (a Artifact) treeError(dir string, err error) error {
	switch {
	case errors.Is(err, errUnsafe):
		return &fault{kind: ErrBuild, doing: "unpack " + a.shown(), cause: err, remedy: "have the source make an archive without it"}
	case isFull(err):
		return a.unstored(dir, err)
	case errors.Is(err, errTooLarge):
		return sourceError("unpack", a.shown(), err, "leave files out that are no definitions, with the source's spec.ignore")
	default:
		return sourceError("unpack", a.shown(), err, "have the source make the artifact anew: it is no archive of tar and gzip")
	}
}

// fetch writes the archive to a file, which the caller closes and removes, and holds it
// to the digest.
func (a Artifact) fetch(ctx context.Context, dir string) (*os.File, error) {
	sum, want, err := parseDigest(a.Digest)
	if err != nil {
		return nil, sourceError("fetch", a.shown(), err, "have the source compute one of them")
	}
	file, err := os.CreateTemp(dir, "archive-")
	if err != nil {
		return nil, a.unstored(dir, err)
	}
	dropped := func(err error) error { return errors.Join(err, file.Close(), os.Remove(file.Name())) }
	if err := a.download(ctx, io.MultiWriter(file, sum)); err != nil {
		if isFull(err) {
			return nil, dropped(a.unstored(dir, err))
		}
		return nil, dropped(sourceError("fetch", a.shown(), secret.SentTo().Error(because(ctx, err)), "check that the controller reaches Flux's source-controller, also through NetworkPolicies"))
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return nil, dropped(sourceError("fetch", a.shown(), fmt.Errorf("its digest ends with %s and not with %s", got, want),
			"have the source fetched again: annotate it with reconcile.fluxcd.io/requestedAt"))
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, dropped(a.unstored(dir, err))
	}
	return file, nil
}

func (a Artifact) download(ctx context.Context, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		return err
	}
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return fmt.Errorf("its scheme is %q and not http or https", req.URL.Scheme)
	}
	// The digest is that of what is stored, not of what it unpacks to.
	req.Header.Set("Accept-Encoding", "identity")
	client, err := artifactClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers %s", res.Status)
	}
	_, err = io.Copy(to, res.Body)
	return err
}

// artifactClient follows redirects within one server only.
func artifactClient() (*http.Client, error) {
	client, err := httpClient(nil, false, environmentsProxy(), secret.SentTo())
	if err != nil {
		return nil, err
	}
	if transport, ok := client.Transport.(boundedTransport); ok {
		transport.maxGet = maxArtifact
		client.Transport = transport
	}
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		switch first := via[0].URL; {
		case req.URL.Host != first.Host || req.URL.Scheme != first.Scheme:
			return fmt.Errorf("%w to %s, another server", errRedirect, req.URL.Host)
		case len(via) > maxRedirects:
			return fmt.Errorf("%w more than %d times", errRedirect, maxRedirects)
		}
		return nil
	}
	return client, nil
}

// unpacker writes an archive's files below a directory, within the bounds of a
// checked-out tree.
type unpacker struct {
	treeWriter
	// made are the directories that are there.
	made map[string]bool
	// links: name → target. They are made last, so that nothing is written over one.
	links []tar.Header
}

func unpack(ctx context.Context, archive io.Reader, dir string) error {
	packed, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	u := &unpacker{treeWriter: treeWriter{root: root}, made: map[string]bool{".": true}}
	// Headers come beside the files: as much again is more than they need.
	entries := tar.NewReader(&cappedReader{from: packed, left: 2 * maxTreeBytes})
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := u.entry(header, entries); err != nil {
			return err
		}
	}
	for i := range u.links {
		if err := u.put(u.links[i].Name, func(name string) error { return u.link(name, u.links[i].Linkname) }); err != nil {
			return err
		}
	}
	return u.checkLinks()
}

func (u *unpacker) entry(header *tar.Header, from io.Reader) error {
	if err := u.countFile(); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeXGlobalHeader:
		return nil // of git archive: the commit
	case tar.TypeDir:
		return u.put(header.Name, func(name string) error { return u.mkdir(name) })
	case tar.TypeReg:
		return u.put(header.Name, func(name string) error { return u.write(name, header.Size, from) })
	case tar.TypeSymlink:
		u.links = append(u.links, tar.Header{Name: header.Name, Linkname: header.Linkname})
		return nil
	default:
		return fmt.Errorf("%w: %q is neither a file nor a directory nor a symbolic link", errUnsafe, header.Name)
	}
}

// put makes an entry by its name in the tree, after the directories that it is in.
func (u *unpacker) put(name string, do func(name string) error) error {
	clean := path.Clean(name)
	if clean == "." {
		return nil
	}
	parts := strings.Split(clean, "/")
	if len(parts) > maxTreeDepth {
		return fmt.Errorf("%w: %s is more than %d directories deep", errTooLarge, clean, maxTreeDepth)
	}
	for _, part := range parts {
		if !safeName(part) {
			return fmt.Errorf("%w: it has a file named %q", errUnsafe, name)
		}
	}
	err := u.mkdir(path.Dir(clean))
	if err == nil {
		err = do(clean)
	}
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: it has %q twice", errUnsafe, name)
	}
	return err
}

// mkdir makes a directory and those that it is in.
func (u *unpacker) mkdir(name string) error {
	if u.made[name] {
		return nil
	}
	if err := u.mkdir(path.Dir(name)); err != nil {
		return err
	}
	if err := u.countFile(); err != nil {
		return err
	}
	u.made[name] = true
	return u.root.Mkdir(name, 0o755)
}
