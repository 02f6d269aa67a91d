package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"cloop.dev/cloop/internal/fleet/closure"
)

// Bounds on a checked-out tree.
const (
	maxTreeBytes = 256 << 20
	maxTreeFiles = 50_000
	maxTreeDepth = 64
	maxLink      = 4096
)

// Tree is a checked-out commit.
type Tree struct {
	// Dir holds the files.
	Dir string
	// Revision is the commit: 40 hexadecimal digits.
	Revision string
}

// Close removes the directory.
func (t *Tree) Close() error {
	if err := os.RemoveAll(t.Dir); err != nil {
		return fmt.Errorf("remove the checked-out tree: %w", err)
	}
	return nil
}

// checkoutClone writes the commit's tree from the clone. errNotCloned: the
// clone does not hold it, or is damaged.
func (g *Git) checkoutClone(ctx context.Context, revision string) (*Tree, error) {
	store, commit, err := g.cloned(revision)
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.Close() }()
	root, err := commit.Tree()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotCloned, err)
	}
	dir, err := os.MkdirTemp(g.dir, "tree-")
	if err != nil {
		return nil, g.unstored("check out", err)
	}
	if err := writeTree(ctx, root, dir); err != nil {
		return nil, errors.Join(g.treeError(revision, err), os.RemoveAll(dir))
	}
	return &Tree{Dir: dir, Revision: revision}, nil
}

// cloned opens the clone, which the caller closes, for a commit that it holds.
func (g *Git) cloned(revision string) (*filesystem.Storage, *object.Commit, error) {
	clone := filepath.Join(g.dir, cloneName)
	if _, err := os.Stat(clone); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errNotCloned, err)
	}
	store := openStore(clone)
	held, err := store.Reference(fetchedRef)
	if err != nil || held.Hash().String() != revision {
		return nil, nil, errors.Join(errNotCloned, store.Close())
	}
	commit, err := object.GetCommit(store, plumbing.NewHash(revision))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w: %w", errNotCloned, err), store.Close())
	}
	return store, commit, nil
}

// Closure is equal for commits of this repository in which a path, and all that it is
// rendered and checked by, is the same, so that a build of one is a build of the
// other. It is empty where that is not known, and then the commit is to be built. It
// fetches as Checkout does and has its errors.
func (g *Git) Closure(ctx context.Context, ref Ref, path string) (digest string, err error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	revision, err := g.Resolve(ctx, ref)
	if err != nil {
		return "", err
	}
	if err := g.hold(ctx, revision, false); err != nil {
		return "", err
	}
	store, _, err := g.cloned(revision.Commit)
	if err != nil {
		// Whoever checks it out says what is wrong.
		return "", nil //nolint:nilerr // see above
	}
	defer func() { _ = store.Close() }()
	tree, err := closure.Library{Store: store}.Commit(ctx, revision.Commit)
	if err != nil || tree.Len() > maxTreeFiles {
		return "", nil //nolint:nilerr // see above
	}
	digest, _ = tree.Digest(WithinRepository(path))
	return digest, nil
}

// treeError tells a tree that is refused from a clone that is damaged.
func (g *Git) treeError(revision string, err error) error {
	doing := "check out " + Short(revision) + " of"
	switch {
	case errors.Is(err, errUnsafe):
		// Only another commit helps.
		return &fault{kind: ErrBuild, doing: doing + " " + g.url, cause: err, remedy: "commit a tree without it"}
	case errors.Is(err, errTooLarge), isFull(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return g.unreachable(doing, err)
	default:
		return fmt.Errorf("%w: %w", errNotCloned, err)
	}
}

var errUnsafe = errors.New("the tree is refused")

// treeWriter writes below root only: os.Root holds it there whatever names and
// links the tree has.
type treeWriter struct {
	root  *os.Root
	files int
	bytes int64
	links []string
}

func writeTree(ctx context.Context, tree *object.Tree, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	w := &treeWriter{root: root}
	if err := w.tree(ctx, tree, ".", 0); err != nil {
		return err
	}
	return w.checkLinks()
}

func (w *treeWriter) tree(ctx context.Context, tree *object.Tree, dir string, depth int) error {
	if depth > maxTreeDepth {
		return fmt.Errorf("%w: %s is more than %d directories deep", errTooLarge, dir, maxTreeDepth)
	}
	for i := range tree.Entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.countFile(); err != nil {
			return err
		}
		if err := w.entry(ctx, tree, &tree.Entries[i], dir, depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *treeWriter) entry(ctx context.Context, tree *object.Tree, entry *object.TreeEntry, dir string, depth int) error {
	if !safeName(entry.Name) {
		return fmt.Errorf("%w: it has a file named %q", errUnsafe, entry.Name)
	}
	name := path.Join(dir, entry.Name)
	switch entry.Mode {
	case filemode.Dir:
		if err := w.root.Mkdir(name, 0o755); err != nil {
			return err
		}
		sub, err := tree.Tree(entry.Name)
		if err != nil {
			return err
		}
		return w.tree(ctx, sub, name, depth+1)
	case filemode.Submodule:
		// Another repository's files are not this repository's definitions.
		return nil
	}
	file, err := tree.TreeEntryFile(entry)
	if err != nil {
		return err
	}
	if entry.Mode == filemode.Symlink {
		if file.Size > maxLink {
			return tooLongLink(name, file.Size)
		}
		target, err := file.Contents()
		if err != nil {
			return err
		}
		return w.link(name, target)
	}
	return w.file(file, name)
}

// countFile counts what is about to be made.
func (w *treeWriter) countFile() error {
	if w.files++; w.files > maxTreeFiles {
		return fmt.Errorf("%w: more than %d files", errTooLarge, maxTreeFiles)
	}
	return nil
}

// safeName refuses what a directory entry cannot be called, and .git, which
// would make the tree look like a repository to other tools.
func safeName(name string) bool {
	switch {
	case name == "", name == ".", name == "..", strings.EqualFold(name, ".git"):
		return false
	}
	return !strings.ContainsAny(name, "/\\\x00")
}

func (w *treeWriter) file(file *object.File, name string) (err error) {
	from, err := file.Reader()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	return w.write(name, file.Size, from)
}

// write makes a file of so many bytes.
func (w *treeWriter) write(name string, size int64, from io.Reader) error {
	// Not by the sum: an archive may claim any size.
	if size > maxTreeBytes-w.bytes {
		return fmt.Errorf("%w: more than %d MiB", errTooLarge, maxTreeBytes>>20)
	}
	w.bytes += size
	to, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

func tooLongLink(name string, size int64) error {
	return fmt.Errorf("%w: symbolic link %s is %d bytes long", errUnsafe, name, size)
}

func (w *treeWriter) link(name, target string) error {
	if len(target) > maxLink {
		return tooLongLink(name, int64(len(target)))
	}
	if !filepath.IsLocal(path.Join(path.Dir(name), target)) || path.IsAbs(target) {
		return leaves(name, target)
	}
	w.links = append(w.links, name)
	return w.root.Symlink(target, name)
}

// checkLinks follows every link once the tree is whole: one link's way may lead
// over another, and only then out.
func (w *treeWriter) checkLinks() error {
	for _, name := range w.links {
		_, err := w.root.Stat(name)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		target, _ := w.root.Readlink(name)
		return leaves(name, target)
	}
	return nil
}

func leaves(name, target string) error {
	return fmt.Errorf("%w: symbolic link %s leaves the repository or leads nowhere, to %q", errUnsafe, name, target)
}
