package closure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// Library reads commits with go-git.
type Library struct{ Store storer.EncodedObjectStorer }

// Commit lists all of a commit's tree.
func (l Library) Commit(ctx context.Context, commit string) (*Commit, error) {
	found, err := object.GetCommit(l.Store, plumbing.NewHash(commit))
	if err != nil {
		return nil, err
	}
	t := NewCommit(l)
	return t, l.walk(ctx, t, found.TreeHash, ".")
}

func (l Library) walk(ctx context.Context, t *Commit, hash plumbing.Hash, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	tree, err := object.GetTree(l.Store, hash)
	if err != nil {
		return fmt.Errorf("read directory %s: %w", dir, err)
	}
	for i := range tree.Entries {
		e := &tree.Entries[i]
		name := strings.TrimPrefix(dir+"/"+e.Name, "./")
		if strings.Contains(e.Name, "/") {
			t.refused = true
			continue
		}
		added, err := t.Add(name, Entry{Kind: KindOfMode(e.Mode), Hash: e.Hash.String()})
		if err != nil {
			return err
		}
		if added && e.Mode == filemode.Dir {
			if err := l.walk(ctx, t, e.Hash, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// KindOfMode is what an entry of a tree is.
func KindOfMode(mode filemode.FileMode) Kind {
	switch mode {
	case filemode.Dir:
		return Directory
	case filemode.Submodule:
		return Module
	case filemode.Symlink:
		return Link
	case filemode.Regular, filemode.Executable, filemode.Deprecated:
		return Regular
	}
	return Odd
}

// Blob is that of Contents.
func (l Library) Blob(hash string, limit int64) (data []byte, err error) {
	blob, err := object.GetBlob(l.Store, plumbing.NewHash(hash))
	if err != nil {
		return nil, err
	}
	reader, err := blob.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	return io.ReadAll(io.LimitReader(reader, limit))
}
