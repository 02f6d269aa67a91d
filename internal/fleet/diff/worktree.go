package diff

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"cloop.dev/cloop/internal/fleet/closure"
)

// workTree is the work tree as it is when it is first looked at.
type workTree struct {
	dir  string
	root *os.Root
	// listings: directory → its entries by name. Looking at one directory once is
	// a small part of looking at each of its files.
	listings map[string]map[string]closure.Kind
}

func openWorkTree(dir string) (*workTree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read the work tree: %w", err)
	}
	return &workTree{dir: dir, root: root, listings: map[string]map[string]closure.Kind{}}, nil
}

// Dir is where it is.
func (w *workTree) Dir() string { return w.dir }

func (w *workTree) close() { _ = w.root.Close() }

// listing is empty for what is no directory, or leads over a link to one.
func (w *workTree) listing(dir string) map[string]closure.Kind {
	found, known := w.listings[dir]
	if known {
		return found
	}
	found = map[string]closure.Kind{}
	if dir == "." || w.entry(dir) == closure.Directory {
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

func kindOfType(mode fs.FileMode) closure.Kind {
	switch {
	case mode.IsRegular():
		return closure.Regular
	case mode&fs.ModeSymlink != 0:
		return closure.Link
	case mode.IsDir():
		return closure.Directory
	}
	return closure.Odd
}

// entry is lstat without a look into the directory.
func (w *workTree) entry(name string) closure.Kind {
	if name == "." {
		return closure.Directory
	}
	return w.listing(path.Dir(name))[path.Base(name)]
}

// Lstat is that of closure.Files.
func (w *workTree) Lstat(name string) closure.Kind {
	is := w.entry(name)
	if is == closure.Directory && name != "." && w.listing(name)[".git"] != closure.Nothing {
		return closure.Module
	}
	return is
}

func (w *workTree) open(name string) (*os.File, error) {
	// A pipe would be waited for.
	if w.Lstat(name) != closure.Regular {
		return nil, fmt.Errorf("%s is no file", name)
	}
	return w.root.Open(name)
}

// Read is that of closure.Files.
func (w *workTree) Read(name string, limit int64) ([]byte, error) {
	file, err := w.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, limit))
}

// Target is that of closure.Files.
func (w *workTree) Target(name string) (string, error) { return w.root.Readlink(name) }

// List is that of closure.Files.
func (w *workTree) List(dir string) []string { return slices.Sorted(maps.Keys(w.listing(dir))) }

// shaOneDigits is how long a name is in a repository of the common format.
const shaOneDigits = 40

// Sum is that of closure.Files.
func (w *workTree) Sum(name, like string) (string, error) {
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
