package closure

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Kind is what is at a path.
type Kind int

const (
	// Nothing is also what lies behind something that is no directory.
	Nothing Kind = iota
	// Regular is a file.
	Regular
	// Directory may have entries.
	Directory
	// Link is a symbolic one.
	Link
	// Module is another repository: a submodule, or a work tree within this one.
	Module
	// Odd is what no repository has, such as a pipe.
	Odd
)

// Files is a revision's tree as far as comparing needs it. Paths are relative to
// the repository's root, with slashes; none leads over a link.
type Files interface {
	// Lstat says what is at a path, links not followed.
	Lstat(name string) Kind
	// Read returns a regular file, at most limit bytes of it.
	Read(name string, limit int64) ([]byte, error)
	// Target is what a link says.
	Target(name string) (string, error)
	// List has the names in a directory, sorted.
	List(dir string) []string
	// Sum is the name that Git gives to a regular file's content, by the
	// algorithm whose names have as many digits as like.
	Sum(name, like string) (string, error)
}

// Entry is one entry of a commit's tree.
type Entry struct {
	Kind Kind
	// Hash names the content of a regular file or a link.
	Hash string
}

// Contents is where the contents of a commit's tree are.
type Contents interface {
	// Blob returns at most limit bytes of a content.
	Blob(hash string, limit int64) ([]byte, error)
}

// Commit is a commit's tree: every entry is known, contents are read when
// they are asked for.
type Commit struct {
	contents Contents
	entries  map[string]Entry
	children map[string][]string
	// refused: it has an entry that is not checked out.
	refused bool
}

// Bounds on a commit's tree, so that a repository of something else ends with a
// message rather than with the machine's memory.
const (
	maxEntries   = 100_000
	maxTreeDepth = 64
)

// ErrTooLarge is a tree beyond the bounds.
var ErrTooLarge = errors.New("the tree is too large")

// NewCommit is a commit without an entry yet.
func NewCommit(o Contents) *Commit {
	return &Commit{contents: o, entries: map[string]Entry{".": {Kind: Directory}}, children: map[string][]string{}}
}

// Add takes in an entry whose directory was added before, and says whether it is
// there then: Git itself checks out none of the others.
func (t *Commit) Add(name string, e Entry) (added bool, err error) {
	if len(t.entries) > maxEntries || strings.Count(name, "/") > maxTreeDepth {
		return false, fmt.Errorf("%w: it has more than %d files, or is nested more than %d deep", ErrTooLarge, maxEntries, maxTreeDepth)
	}
	base := path.Base(name)
	if !filepath.IsLocal(name) || path.Clean(name) != name || name == "." || strings.EqualFold(base, ".git") || strings.ContainsAny(base, "\x00\\") {
		t.refused = true
		return false, nil
	}
	if _, twice := t.entries[name]; twice {
		t.refused = true
		return false, nil
	}
	dir := path.Dir(name)
	t.children[dir] = append(t.children[dir], base)
	t.entries[name] = e
	return true, nil
}

// Len counts the entries.
func (t *Commit) Len() int { return len(t.entries) }

// Lstat is that of Files.
func (t *Commit) Lstat(name string) Kind { return t.entries[name].Kind }

// Read is that of Files.
func (t *Commit) Read(name string, limit int64) ([]byte, error) {
	e := t.entries[name]
	if e.Kind != Regular {
		return nil, fmt.Errorf("%s is no file", name)
	}
	return t.contents.Blob(e.Hash, limit)
}

// MaxTarget bounds a link's text, in bytes.
const MaxTarget = 4096

// Target is that of Files.
func (t *Commit) Target(name string) (string, error) {
	text, err := t.contents.Blob(t.entries[name].Hash, MaxTarget)
	return string(text), err
}

// List is that of Files.
func (t *Commit) List(dir string) []string { return slices.Sorted(slices.Values(t.children[dir])) }

// Sum is that of Files.
func (t *Commit) Sum(name, _ string) (string, error) { return t.entries[name].Hash, nil }
