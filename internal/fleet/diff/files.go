package diff

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
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

// workTree is the work tree as it is when it is first looked at.
type workTree struct {
	dir  string
	root *os.Root
	// listings: directory → its entries by name. Looking at one directory once is
	// a small part of looking at each of its files.
	listings map[string]map[string]kind
}

func openWorkTree(dir string) (*workTree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read the work tree: %w", err)
	}
	return &workTree{dir: dir, root: root, listings: map[string]map[string]kind{}}, nil
}

func (w *workTree) close() { _ = w.root.Close() }

// listing is empty for what is no directory, or leads over a link to one.
func (w *workTree) listing(dir string) map[string]kind {
	found, known := w.listings[dir]
	if known {
		return found
	}
	found = map[string]kind{}
	if dir == "." || w.entry(dir) == directory {
		if file, err := w.root.Open(dir); err == nil {
			// What can be read of it counts.
			entries, _ := file.ReadDir(-1)
			_ = file.Close()
			for _, entry := range entries {
				found[entry.Name()] = kindOfType(entry.Type())
			}
		}
	}
	w.listings[dir] = found
	return found
}

func kindOfType(mode fs.FileMode) kind {
	switch {
	case mode.IsRegular():
		return regular
	case mode&fs.ModeSymlink != 0:
		return link
	case mode.IsDir():
		return directory
	}
	return odd
}

// entry is lstat without a look into the directory.
func (w *workTree) entry(name string) kind {
	if name == "." {
		return directory
	}
	return w.listing(path.Dir(name))[path.Base(name)]
}

func (w *workTree) lstat(name string) kind {
	is := w.entry(name)
	if is == directory && name != "." && w.listing(name)[".git"] != nothing {
		return module
	}
	return is
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

func (w *workTree) list(dir string) []string { return slices.Sorted(maps.Keys(w.listing(dir))) }

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
	if _, twice := t.entries[name]; twice {
		return false, nil
	}
	dir := path.Dir(name)
	t.children[dir] = append(t.children[dir], base)
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
