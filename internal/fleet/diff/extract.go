package diff

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"cloop.dev/cloop/internal/fleet/closure"
	"cloop.dev/cloop/internal/fleet/ignored"
)

// Bounds on what is extracted of the base.
const (
	maxExtracted      = 256 << 20
	maxExtractedFiles = 50_000
)

// extract writes files of a commit to a directory. os.Root holds it there
// whatever names and links the tree has; what a link leads to is judged by
// whoever follows it.
type extract struct {
	tree  *closure.Commit
	root  *os.Root
	done  map[string]bool
	bytes int64
	// at is the directory of the last file, open as in: files of a directory
	// follow each other.
	at string
	in *os.Root
}

func newExtract(tree *closure.Commit, dir string) (*extract, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("make room for the base: %w", err)
	}
	return &extract{tree: tree, root: root, done: map[string]bool{}}, nil
}

func (x *extract) close() {
	if x.in != nil {
		_ = x.in.Close()
	}
	_ = x.root.Close()
}

// directory opens the directory of a file, and makes it.
func (x *extract) directory(name string) (*os.Root, error) {
	dir := path.Dir(name)
	if x.in != nil && x.at == dir {
		return x.in, nil
	}
	if err := x.root.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	in, err := x.root.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	if x.in != nil {
		_ = x.in.Close()
	}
	x.at, x.in = dir, in
	return in, nil
}

// definitions writes what may be a document or a kustomization, and what those
// refer to: what says which overlays there are and how they are applied.
func (x *extract) definitions(ctx context.Context) error {
	if err := x.below(ctx, ".", closure.IsDefinition); err != nil {
		return err
	}
	if err := x.ignores(ctx, "."); err != nil {
		return err
	}
	return x.closure(ctx, closure.OfAll(x.tree))
}

func (x *extract) below(ctx context.Context, dir string, wanted func(string) bool) error {
	for _, name := range x.tree.List(dir) {
		full := path.Join(dir, name)
		var err error
		switch is := x.tree.Lstat(full); {
		case ctx.Err() != nil:
			return ctx.Err()
		case is == closure.Directory && (wanted == nil || !strings.HasPrefix(name, ".")):
			err = x.below(ctx, full, wanted)
		case is == closure.Link || is == closure.Regular && (wanted == nil || wanted(name)):
			err = x.write(full)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ignores writes the files that say what Flux leaves out of an artifact. They count also
// in hidden directories.
func (x *extract) ignores(ctx context.Context, dir string) error {
	for _, name := range x.tree.List(dir) {
		full := path.Join(dir, name)
		is := x.tree.Lstat(full)
		var err error
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case is == closure.Directory:
			err = x.ignores(ctx, full)
		case name == ignored.Name && (is == closure.Regular || is == closure.Link):
			err = x.write(full)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// closure writes what an overlay is made of.
func (x *extract) closure(ctx context.Context, of *closure.Closure) error {
	if of.Unbounded {
		return x.below(ctx, ".", nil)
	}
	for _, name := range slices.Sorted(maps.Keys(of.Names)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch x.tree.Lstat(name) {
		case closure.Regular, closure.Link:
			if err := x.write(name); err != nil {
				return err
			}
		case closure.Directory:
			if err := x.root.MkdirAll(name, 0o700); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *extract) write(name string) error {
	if x.done[name] {
		return nil
	}
	x.done[name] = true
	if len(x.done) > maxExtractedFiles {
		return fmt.Errorf("%w: more than %d files of it may be definitions", closure.ErrTooLarge, maxExtractedFiles)
	}
	in, err := x.directory(name)
	if err != nil {
		return err
	}
	if x.tree.Lstat(name) == closure.Link {
		target, err := x.tree.Target(name)
		if err != nil {
			return err
		}
		if target == "" || len(target) >= closure.MaxTarget || strings.ContainsRune(target, 0) {
			// No file system has such a link.
			return nil
		}
		return in.Symlink(target, path.Base(name))
	}
	// One byte more than is read of a file tells that it is too large.
	data, err := x.tree.Read(name, closure.MaxFile+1)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if x.bytes += int64(len(data)); x.bytes > maxExtracted {
		return fmt.Errorf("%w: more than %d MiB of it may be definitions", closure.ErrTooLarge, maxExtracted>>20)
	}
	return in.WriteFile(path.Base(name), data, 0o600)
}
