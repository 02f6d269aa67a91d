package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// historyBounds are what commits between two looks may come to, in bytes.
var historyBounds = packBounds{object: 1 << 20, made: 1 << 20, total: 64 << 20, objects: 500_000}

var (
	// errNotAcked is a server that does not have a commit that it had.
	errNotAcked = errors.New("the server does not have the commit")
	errAtFilter = errors.New("the server cannot leave files out")
)

// Follow is Resolve for a ref that named something before, in Revision's form: what
// was there and is not any more is told from what never was.
func (g *Git) Follow(ctx context.Context, ref Ref, before string) (Revision, error) {
	revision, err := g.Resolve(ctx, ref)
	name, commit := Of(before)
	told := (*fault)(nil)
	if err == nil || commit == "" || !errors.As(err, &told) {
		return revision, err
	}
	lost := *told
	none := (*noRefError)(nil)
	switch {
	case errors.As(err, &none) && name == none.name():
		lost.cause = fmt.Errorf("%w any more: it was deleted or renamed after it named %s", told.cause, Short(commit))
		lost.remedy = fmt.Sprintf("push it again (`git push origin %s:%s`), or correct the ref", Short(commit), none.full())
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		lost.cause = fmt.Errorf("%w: it was emptied after %s was at %s", told.cause, orName(name), Short(commit))
		lost.remedy = "push its commits again, or correct the URL"
	default:
		return revision, err
	}
	return revision, &lost
}

func orName(name string) string {
	if name == "" {
		return "it"
	}
	return name
}

// name is what is followed, and full is it as Git has it.
func (e *noRefError) name() string {
	if e.ref.Tag != "" {
		return e.ref.Tag
	}
	return branchOf(e.ref)
}

func (e *noRefError) full() string {
	if e.ref.Tag != "" {
		return plumbing.NewTagReferenceName(e.ref.Tag).String()
	}
	return plumbing.NewBranchReferenceName(branchOf(e.ref)).String()
}

// Rewritten says what was done to the history that was followed: a branch that does
// not lead from where it was before, in Revision's form, to where it is now, or a tag
// that was moved. Empty: nothing. With an error it is not known, which happens with a
// server that cannot leave files out. The clone holds the revision.
func (g *Git) Rewritten(ctx context.Context, before string, now Revision) (string, error) {
	name, old := Of(before)
	if old == "" || old == now.Commit || name == "" || name != now.name() {
		return "", nil
	}
	if now.Tag != "" {
		return fmt.Sprintf("tag %s was moved from %s to %s", name, Short(old), Short(now.Commit)), nil
	}
	follows, err := g.follows(ctx, plumbing.NewHash(old), plumbing.NewHash(now.Commit))
	if err != nil || follows {
		return "", err
	}
	return fmt.Sprintf("the history of branch %s was rewritten: %s is no ancestor of %s", name, Short(old), Short(now.Commit)), nil
}

// follows says whether a commit has another among its ancestors.
func (g *Git) follows(ctx context.Context, old, now plumbing.Hash) (bool, error) {
	clone := openStore(filepath.Join(g.dir, cloneName))
	defer func() { _ = clone.Close() }()
	if commit, err := object.GetCommit(clone, now); err == nil && slices.Contains(commit.ParentHashes, old) {
		return true, nil
	}
	ctx, cancel := attempt(ctx)
	defer cancel()
	refs, session, err := g.advertised(ctx)
	if err != nil {
		return false, err
	}
	defer ended(session)
	dir, err := os.MkdirTemp(g.dir, "history-")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store := openStore(dir)
	defer func() { _ = store.Close() }()
	err = g.between(ctx, session, refs, store, old, now)
	switch {
	case errors.Is(err, errNotAcked), errors.Is(err, packfile.ErrEmptyPackfile):
		// An ancestor would be there, and the way from it would not be empty.
		return false, nil
	case err != nil:
		return false, g.sent.Error(err)
	}
	return leadsFrom(store, old)
}

// between fetches the commits that lead to one without those that lead to another,
// and without files.
func (g *Git) between(ctx context.Context, session transport.UploadPackSession, refs *packp.AdvRefs, store *filesystem.Storage, old, now plumbing.Hash) error {
	options := fetchOptions{have: old, vet: g.dir, bounds: historyBounds, filter: packp.FilterTreeDepth(0)}
	if !refs.Capabilities.Supports(capability.Filter) {
		return errAtFilter
	}
	return fetchPack(ctx, session, refs, store, []plumbing.Hash{now}, options)
}

// leadsFrom says whether one of the commits has another as its parent.
func leadsFrom(store *filesystem.Storage, old plumbing.Hash) (bool, error) {
	all, err := store.IterEncodedObjects(plumbing.CommitObject)
	if err != nil {
		return false, err
	}
	defer all.Close()
	found := false
	err = all.ForEach(func(stored plumbing.EncodedObject) error {
		commit, err := object.DecodeCommit(store, stored)
		found = found || err == nil && slices.Contains(commit.ParentHashes, old)
		return err
	})
	return found, err
}
