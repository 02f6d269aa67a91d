package diff

import (
	"context"
	"errors"
	"fmt"
	"os"

	"cloop.dev/cloop/internal/fleet/closure"
	"cloop.dev/cloop/internal/secret"
)

// Base is a revision of a repository, with all that it defines in a directory of
// its own.
type Base struct {
	// Dir is the directory; Close removes it.
	Dir string

	repo   *repository
	commit string
	tree   *closure.Commit
	out    *extract
}

// OpenBase reads a revision, named as `git diff` takes it, from the repository of
// a work tree: absolute, without symbolic links. Its errors say what to do.
func OpenBase(ctx context.Context, workTree, revision string) (*Base, error) {
	b := &Base{}
	if err := b.open(ctx, workTree, revision); err != nil {
		b.Close()
		if shown := secret.Redact(err.Error()); shown != err.Error() {
			// Somebody gives a URL with a password for a revision.
			err = errors.New(shown)
		}
		return nil, err
	}
	return b, nil
}

func (b *Base) open(ctx context.Context, workTree, revision string) (err error) {
	if b.repo, err = openRepository(workTree); err != nil {
		return err
	}
	if b.commit, err = b.repo.resolve(ctx, revision); err != nil {
		return err
	}
	if b.tree, err = b.repo.objects.tree(ctx, b.commit); err != nil {
		return b.repo.absent(revision, err)
	}
	if b.Dir, err = os.MkdirTemp("", "cloop-base-"); err != nil {
		return fmt.Errorf("make room for %s: %w", revision, err)
	}
	if b.out, err = newExtract(b.tree, b.Dir); err != nil {
		return err
	}
	if err := b.out.definitions(ctx); err != nil {
		return b.repo.absent(revision, err)
	}
	return nil
}

// Close ends it.
func (b *Base) Close() {
	if b.out != nil {
		b.out.close()
	}
	if b.Dir != "" {
		_ = os.RemoveAll(b.Dir)
	}
	if b.repo != nil {
		b.repo.close()
	}
}
