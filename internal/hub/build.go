package hub

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hub/hubpool"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/printable"
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
	found, err := f.render(ctx, tree)
	if err != nil {
		return fmt.Errorf("revision %s is not applied: %w", fleet.Short(tree.Revision), err)
	}
	f.documents, f.besides, f.closure = found.documents, found.besides, closure
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

// render builds and judges the hub's half. A document with a problem of its own is
// held back; an error is for what makes unknown which documents there are.
func (f *follower) render(ctx context.Context, tree *fleet.Tree) (*revision, error) {
	if f.builder == nil {
		f.builder = fleet.NewBuilder(f.validator)
	}
	built, err := f.builder.Build(ctx, tree.Dir, f.config.Path, &fleet.Variables{})
	if err != nil {
		return nil, err
	}
	if len(built.Refused) > 0 {
		return nil, fleet.Refusal(built.Errors())
	}
	pools := fleet.HubPools(built.Objects)
	if len(pools) == 0 {
		// A wrong path or a broken build looks like this, and the pools must
		// outlive it.
		return nil, fmt.Errorf("%s builds no HubPool: correct the path; to remove the last pool, revoke it at the hub", f.config.Path)
	}
	out := &revision{documents: make([]store.PoolDocument, 0, len(pools))}
	for _, r := range pools {
		out.documents = append(out.documents, f.document(r, tree.Revision, built.HeldBack[fleet.Identity(r.Object)]))
	}
	holdTwins(out.documents)
	out.besides = besides(built, pools)
	return out, nil
}

// revision is what the hub's half says at one commit.
type revision struct {
	documents []store.PoolDocument
	// besides are the problems of documents that the hub does not apply, but that
	// the repository has in its half.
	besides []string
}

// besides are the problems that none of the pools has.
func besides(built *fleet.Built, pools []fleet.Rendered) []string {
	of := map[string]bool{}
	for _, r := range pools {
		for _, problem := range built.HeldBack[fleet.Identity(r.Object)] {
			of[problem.String()] = true
		}
	}
	var out []string
	for _, problem := range built.Errors() {
		if text := problem.String(); !of[text] {
			out = append(out, text)
		}
	}
	return out
}

// holdTwins holds back every document of a name that one is held back of: nobody
// can tell which of them is meant.
func holdTwins(documents []store.PoolDocument) {
	held := map[string]bool{}
	for _, d := range documents {
		if len(d.Problems) > 0 {
			held[d.Name] = true
		}
	}
	for i := range documents {
		if d := &documents[i]; held[d.Name] && len(d.Problems) == 0 {
			d.Problems = []string{fmt.Sprintf("%s:%d: pool %s is defined more than once, so nobody can tell which is meant", d.Source.Path, d.Line, d.Name)}
		}
	}
}

// document is the hub's own of a rendered HubPool, with what holds it back.
func (f *follower) document(r fleet.Rendered, revision string, problems []schemas.Problem) store.PoolDocument {
	source := hubv1.Provenance{Sync: f.config.Name, Repository: f.config.URL, Path: r.SourcePath, Revision: revision}
	out := store.PoolDocument{Name: r.Object.GetName(), Source: source}
	if len(problems) == 0 {
		var err error
		if out, err = hubpool.Document(f.validator, r.Object, source); err != nil {
			out.Problems = []string{fmt.Sprintf("%s:%d: %v", r.SourcePath, r.Line, err)}
		}
	}
	for i := range problems {
		out.Problems = append(out.Problems, printable.Clip(problems[i].String(), maxProblem))
	}
	out.Line = r.Line
	return out
}

// maxProblem bounds what is kept of one problem, in bytes.
const maxProblem = 1 << 10
