package diff

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// kind is what is at a path.
type kind int

const (
	// nothing is also what lies behind something that is no directory.
	nothing kind = iota
	regular
	directory
	link
	// module is another repository: a submodule, or a work tree within this one.
	module
	// odd is what no repository has, such as a pipe.
	odd
)

// files is a revision's tree as far as comparing needs it. Paths are relative to
// the repository's root, with slashes; none leads over a link.
type files interface {
	lstat(name string) kind
	// read returns a regular file, at most limit bytes of it.
	read(name string, limit int64) ([]byte, error)
	// target is what a link says.
	target(name string) (string, error)
	// list has the names in a directory, sorted.
	list(dir string) []string
	// sum is the name that Git gives to a regular file's content, by the
	// algorithm whose names have as many digits as like.
	sum(name, like string) (string, error)
}

// workTree is the work tree as it is.
type workTree struct {
	dir  string
	root *os.Root
}

func openWorkTree(dir string) (*workTree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read the work tree: %w", err)
	}
	return &workTree{dir: dir, root: root}, nil
}

func (w *workTree) close() { _ = w.root.Close() }

func (w *workTree) lstat(name string) kind {
	info, err := w.root.Lstat(name)
	switch {
	case err != nil:
		return nothing
	case info.Mode().IsRegular():
		return regular
	case info.Mode()&fs.ModeSymlink != 0:
		return link
	case !info.IsDir():
		return odd
	}
	if name != "." {
		if _, err := w.root.Lstat(path.Join(name, ".git")); err == nil {
			return module
		}
	}
	return directory
}

func (w *workTree) open(name string) (*os.File, error) {
	// A pipe would be waited for.
	if w.lstat(name) != regular {
		return nil, fmt.Errorf("%s is no file", name)
	}
	return w.root.Open(name)
}

func (w *workTree) read(name string, limit int64) ([]byte, error) {
	file, err := w.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, limit))
}

func (w *workTree) target(name string) (string, error) { return w.root.Readlink(name) }

func (w *workTree) list(dir string) []string {
	entries, err := fs.ReadDir(w.root.FS(), dir)
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names
}

// shaOneDigits is how long a name is in a repository of the common format.
const shaOneDigits = 40

func (w *workTree) sum(name, like string) (string, error) {
	file, err := w.open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	var h hash.Hash
	if len(like) == shaOneDigits {
		h = plumbing.NewHasher(plumbing.BlobObject, info.Size()).Hash
	} else {
		h = sha256.New()
		_, _ = fmt.Fprintf(h, "blob %d\x00", info.Size())
	}
	if _, err := io.Copy(h, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// entry is one entry of a commit's tree.
type entry struct {
	kind kind
	// hash names the content of a regular file or a link.
	hash string
}

// commitTree is a commit's tree: every entry is known, contents are read when
// they are asked for.
type commitTree struct {
	objects  objects
	entries  map[string]entry
	children map[string][]string
}

// Bounds on a commit's tree, so that a repository of something else ends with a
// message rather than with the machine's memory.
const (
	maxEntries   = 100_000
	maxTreeDepth = 64
)

var errTooLarge = errors.New("the tree is too large")

func newCommitTree(o objects) *commitTree {
	return &commitTree{objects: o, entries: map[string]entry{".": {kind: directory}}, children: map[string][]string{}}
}

// add takes in an entry whose directory was added before, and says whether it is
// there then: Git itself checks out none of the others.
func (t *commitTree) add(name string, e entry) (added bool, err error) {
	if len(t.entries) > maxEntries || strings.Count(name, "/") > maxTreeDepth {
		return false, fmt.Errorf("%w: it has more than %d files, or is nested more than %d deep", errTooLarge, maxEntries, maxTreeDepth)
	}
	base := path.Base(name)
	if !filepath.IsLocal(name) || path.Clean(name) != name || name == "." || strings.EqualFold(base, ".git") || strings.ContainsAny(base, "\x00\\") {
		return false, nil
	}
	dir := path.Dir(name)
	if _, twice := t.entries[name]; !twice {
		t.children[dir] = append(t.children[dir], base)
	}
	t.entries[name] = e
	return true, nil
}

func (t *commitTree) lstat(name string) kind { return t.entries[name].kind }

func (t *commitTree) read(name string, limit int64) ([]byte, error) {
	e := t.entries[name]
	if e.kind != regular {
		return nil, fmt.Errorf("%s is no file", name)
	}
	return t.objects.blob(e.hash, limit)
}

// maxTarget bounds a link's text, in bytes.
const maxTarget = 4096

func (t *commitTree) target(name string) (string, error) {
	text, err := t.objects.blob(t.entries[name].hash, maxTarget)
	return string(text), err
}

func (t *commitTree) list(dir string) []string { return slices.Sorted(slices.Values(t.children[dir])) }

func (t *commitTree) sum(name, _ string) (string, error) { return t.entries[name].hash, nil }
