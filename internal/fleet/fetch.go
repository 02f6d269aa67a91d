package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

const (
	// objectCache is go-git's cache of decompressed objects.
	objectCache = 4 << 20
	// largeObject and beyond are streamed from disk rather than read whole.
	largeObject = 1 << 20
)

// cloneName is the directory of the finished clone. It appears by renaming, so
// it is whole or not there; clones in the making have other names.
const cloneName = "clone"

// fetchedRef in the clone names the commit that it holds.
const fetchedRef = plumbing.ReferenceName("refs/heads/fetched")

// errNotCloned says that the clone does not hold a commit, or not readably.
var errNotCloned = errors.New("not in the clone")

// fetch replaces the clone with one that holds the commit and, where it was found by
// an annotated tag, that tag.
func (g *Git) fetch(ctx context.Context, revision Revision) error {
	refs, session, err := g.advertised(ctx)
	if err != nil {
		return err
	}
	defer ended(session)
	// Somebody may have tidied up.
	err = os.MkdirAll(g.dir, 0o700)
	fresh := ""
	if err == nil {
		fresh, err = os.MkdirTemp(g.dir, "fetching-")
	}
	if err != nil {
		return g.unstored("fetch", err)
	}
	defer func() { _ = os.RemoveAll(fresh) }()

	store := openStore(fresh)
	hash := plumbing.NewHash(revision.Commit)
	wants := []plumbing.Hash{hash}
	if isAdvertised(refs, revision.tag) {
		// It may have been moved since it was resolved; whoever needs it looks.
		wants = append(wants, revision.tag)
	}
	options := fetchOptions{depth: 1, vet: g.dir, bounds: treeBounds}
	if !refs.Capabilities.Supports(capability.Shallow) {
		options.bounds = wholeBounds
	}
	if err := fetchPack(ctx, session, refs, store, wants, options); err != nil {
		if ctx.Err() != nil || isFull(err) || errors.Is(err, errTooLarge) || isAdvertised(refs, hash) {
			return g.unreachable("fetch "+Short(revision.Commit)+" of", err)
		}
		if err := g.fetchWhole(ctx, store, hash); err != nil {
			return err
		}
	}
	if err := store.SetReference(plumbing.NewHashReference(fetchedRef, hash)); err != nil {
		return g.unstored("fetch", err)
	}
	if err := store.Close(); err != nil {
		return g.unstored("fetch", err)
	}
	return g.install(fresh)
}

// install puts a finished clone into its place. Killed between the two steps
// the directory has no clone, and the next checkout fetches.
func (g *Git) install(fresh string) error {
	clone := filepath.Join(g.dir, cloneName)
	err := os.RemoveAll(clone)
	if err == nil {
		err = os.Rename(fresh, clone)
	}
	if err != nil {
		return g.unstored("fetch", err)
	}
	return nil
}

func openStore(dir string) *filesystem.Storage {
	return filesystem.NewStorageWithOptions(osfs.New(dir), cache.NewObjectLRU(objectCache),
		filesystem.Options{LargeObjectThreshold: largeObject})
}

func isAdvertised(refs *packp.AdvRefs, hash plumbing.Hash) bool {
	for _, advertised := range refs.References {
		if advertised == hash {
			return true
		}
	}
	for _, advertised := range refs.Peeled {
		if advertised == hash {
			return true
		}
	}
	return false
}

// fetchWhole fetches every branch and tag with its history, to find a commit
// that the server does not give out by its hash.
func (g *Git) fetchWhole(ctx context.Context, store *filesystem.Storage, hash plumbing.Hash) error {
	refs, session, err := g.advertised(ctx)
	if err != nil {
		return err
	}
	defer ended(session)
	var tips []plumbing.Hash
	for name, tip := range refs.References {
		if strings.HasPrefix(name, "refs/heads/") || strings.HasPrefix(name, "refs/tags/") {
			tips = append(tips, tip)
		}
	}
	if err := fetchPack(ctx, session, refs, store, tips, fetchOptions{vet: g.dir, bounds: wholeBounds}); err != nil {
		if errors.Is(err, errTooLarge) {
			err = &remedied{fmt.Errorf("the server does not give out %s by its hash, and with all history %w", hash, err),
				"set a branch or a tag on the commit, or uploadpack.allowReachableSHA1InWant at the server"}
		}
		return g.unreachable("fetch", err)
	}
	if store.HasEncodedObject(hash) != nil {
		return sourceError("fetch", g.url, fmt.Errorf("there is no commit %s on any branch or tag", hash), "push it, or correct the ref")
	}
	return nil
}

// fetchOptions say what a server may leave out.
type fetchOptions struct {
	// depth is how many commits deep to fetch; 0 is with all history.
	depth int
	// filter is which objects to leave out, where the server can do that.
	filter packp.Filter
	// have is a commit that is known with all that leads to it; zero: none is. A
	// server that does not have it is errNotAcked.
	have plumbing.Hash
	// vet is a directory to keep the pack in while it is held to the bounds.
	vet    string
	bounds packBounds
}

// fetchPack fetches wants.
func fetchPack(ctx context.Context, session transport.UploadPackSession, refs *packp.AdvRefs, store *filesystem.Storage, wants []plumbing.Hash, o fetchOptions) (err error) {
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	req.Wants = wants
	if o.filter != "" && refs.Capabilities.Supports(capability.Filter) {
		req.Filter = o.filter
		if err := req.Capabilities.Set(capability.Filter); err != nil {
			return err
		}
	}
	if o.depth > 0 && refs.Capabilities.Supports(capability.Shallow) {
		req.Depth = packp.DepthCommits(o.depth)
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return err
		}
	}
	if refs.Capabilities.Supports(capability.NoProgress) {
		if err := req.Capabilities.Set(capability.NoProgress); err != nil {
			return err
		}
	}
	if !o.have.IsZero() {
		req.Haves = []plumbing.Hash{o.have}
	}
	response, err := session.UploadPack(ctx, req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Close()) }()
	if !o.have.IsZero() && !slices.Contains(response.ACKs, o.have) {
		return errNotAcked
	}
	if len(response.Shallows) > 0 {
		if err := store.SetShallow(response.Shallows); err != nil {
			return err
		}
	}
	pack, err := vetted(ctx, o.vet, demultiplexed(req.Capabilities, response), o.bounds)
	if err != nil {
		return err
	}
	defer func() { _ = pack.Close() }()
	return packfile.UpdateObjectStorage(store, pack)
}

func demultiplexed(capabilities *capability.List, response io.Reader) io.Reader {
	switch {
	case capabilities.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, response)
	case capabilities.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, response)
	default:
		return response
	}
}
