package hub

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/schemas"
)

// build renders the newest revision into documents. It changes nothing but the
// follower's documents and the record's revision, and not even those with an
// error.
func (f *follower) build(ctx context.Context, record *hubv1.Sync) error {
	f.rendering.Lock()
	defer f.rendering.Unlock()
	// Rendering leaves tens of megabytes of garbage that an idle hub would keep.
	defer debug.FreeOSMemory()
	tree, err := f.git.Checkout(ctx, f.config.Ref)
	if err != nil {
		return err
	}
	defer func() {
		if err := tree.Close(); err != nil {
			f.log.Error("checkout is not removed", "error", err)
		}
	}()
	record.LastAttemptedRevision = tree.Revision
	documents, err := f.render(ctx, tree)
	if err != nil {
		return fmt.Errorf("revision %s is not applied: %w", fleet.Short(tree.Revision), err)
	}
	f.documents = documents
	return nil
}

func (f *follower) render(ctx context.Context, tree *fleet.Tree) ([]store.PoolDocument, error) {
	rendered, report, err := fleet.BuildChecked(ctx, f.validator, tree.Dir, f.config.Path, &fleet.Variables{})
	if err != nil {
		return nil, err
	}
	if report.Failed() {
		return nil, fleet.Refusal(report.Errors())
	}
	pools := fleet.HubPools(rendered)
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
	if err := f.config.Allow.check(pool.Name, definition); err != nil {
		return store.PoolDocument{}, err
	}
	out := store.PoolDocument{Name: pool.Name, Definition: definition, Source: hubv1.Provenance{
		Sync: f.config.Name, Repository: f.config.URL, Path: r.SourcePath, Revision: revision, Digest: fleet.Digest(definition),
	}}
	if pool.Spec.Cordon != nil {
		out.CordonReason = &pool.Spec.Cordon.Reason
	}
	return out, nil
}

// check holds a pool to what this repository may define.
func (c SyncCeiling) check(name string, definition hubv1.PoolDefinition) error {
	allowed := len(c.Names) == 0 || slices.ContainsFunc(c.Names, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	})
	if !allowed {
		return fmt.Errorf("HubPool %s: this sync may define pools named %s only (allow.names of the hub's configuration)", name, strings.Join(c.Names, ", "))
	}
	if c.MaxRunners > 0 && definition.MaxRunners > c.MaxRunners {
		return fmt.Errorf("HubPool %s: maxRunners %d is above %d, which this sync may give (allow.maxRunners of the hub's configuration)", name, definition.MaxRunners, c.MaxRunners)
	}
	return nil
}
