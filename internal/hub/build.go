package hub

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/secret"
	"cloop.dev/cloop/schemas"
)

// build renders the record's newest revision into documents. It changes nothing but
// the follower's documents, and not even those with an error.
func (f *follower) build(ctx context.Context, record *hubv1.Sync) error {
	f.rendering.Lock()
	defer f.rendering.Unlock()
	// By its hash: the branch may have moved since it was verified.
	at := fleet.Ref{Commit: record.LastAttemptedRevision}
	closure, err := f.git.Closure(ctx, at, f.config.Path)
	if err != nil {
		return err
	}
	if closure != "" && closure == f.closure {
		// The commit is about something else.
		f.documents = atRevision(f.documents, at.Commit)
		return nil
	}
	// Rendering leaves tens of megabytes of garbage that an idle hub would keep.
	defer debug.FreeOSMemory()
	tree, err := f.git.Checkout(ctx, at)
	if err != nil {
		return err
	}
	defer func() {
		if err := tree.Close(); err != nil {
			f.log.Error("checkout is not removed", "error", err)
		}
	}()
	documents, err := f.render(ctx, tree)
	if err != nil {
		return fmt.Errorf("revision %s is not applied: %w", fleet.Short(tree.Revision), err)
	}
	f.documents, f.closure = documents, closure
	return nil
}

// atRevision are documents as another commit has them.
func atRevision(documents []store.PoolDocument, revision string) []store.PoolDocument {
	moved := slices.Clone(documents)
	for i := range moved {
		moved[i].Source.Revision = revision
	}
	return moved
}

func (f *follower) render(ctx context.Context, tree *fleet.Tree) ([]store.PoolDocument, error) {
	if f.builder == nil {
		f.builder = fleet.NewBuilder(f.validator)
	}
	built, err := f.builder.Build(ctx, tree.Dir, f.config.Path, &fleet.Variables{})
	if err != nil {
		return nil, err
	}
	if built.Report.Failed() {
		return nil, fleet.Refusal(built.Report.Errors())
	}
	pools := fleet.HubPools(built.Objects)
	if len(pools) == 0 {
		// A wrong path or a broken build looks like this, and the pools must
		// outlive it.
		return nil, fmt.Errorf("%s builds no HubPool: correct the path; to remove the last pool, revoke it at the hub", f.config.Path)
	}
	documents := make([]store.PoolDocument, 0, len(pools))
	var refused []error
	for _, r := range pools {
		document, err := f.document(r, tree.Revision)
		if err != nil {
			refused = append(refused, fmt.Errorf("%s:%d: %w", r.SourcePath, r.Line, err))
			continue
		}
		documents = append(documents, document)
	}
	return documents, errors.Join(refused...)
}

// poolName is what the hub's API takes as a pool's name.
var poolName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (f *follower) document(r fleet.Rendered, revision string) (store.PoolDocument, error) {
	object := r.Object.DeepCopy()
	if err := f.validator.Default(object); err != nil {
		return store.PoolDocument{}, err
	}
	pool, err := schemas.As[v1alpha1.HubPool](object)
	if err != nil {
		return store.PoolDocument{}, err
	}
	definition := fleet.DefinitionOf(pool)
	if !poolName.MatchString(pool.Name) {
		return store.PoolDocument{}, fmt.Errorf("HubPool %s: the name must be lowercase letters, digits and dashes, at most 63", pool.Name)
	}
	if err := f.checkCeiling(pool.Name, definition); err != nil {
		return store.PoolDocument{}, err
	}
	if places := secret.HeldIn("spec", pool.Spec); len(places) > 0 {
		return store.PoolDocument{}, fmt.Errorf("HubPool %s holds a credential at %s: take it out and revoke it, for everybody who reads the repository has it",
			pool.Name, strings.Join(places, ", "))
	}
	out := store.PoolDocument{Name: pool.Name, Definition: definition, Source: hubv1.Provenance{
		Sync: f.config.Name, Repository: f.config.URL, Path: r.SourcePath, Revision: revision, Digest: fleet.Digest(definition),
	}}
	if pool.Spec.Cordon != nil {
		out.CordonReason = &pool.Spec.Cordon.Reason
	}
	return out, nil
}

// checkCeiling holds a pool to what this repository may define.
func (f *follower) checkCeiling(name string, definition hubv1.PoolDefinition) error {
	exceeded := access.Exceeds(f.config.Allow, name, definition)
	if len(exceeded) == 0 {
		return nil
	}
	texts := make([]string, 0, len(exceeded))
	for _, field := range exceeded {
		texts = append(texts, field.Location+": "+field.Message)
	}
	return fmt.Errorf("HubPool %s goes beyond what this sync may define (allow in the hub's configuration): %s", name, strings.Join(texts, "; "))
}
