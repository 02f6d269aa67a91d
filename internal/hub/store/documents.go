package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet/moved"
	"cloop.dev/cloop/internal/fleet/prunelimit"
	"cloop.dev/cloop/internal/hub/problem"
)

// documentsAtOnce are applied in one transaction, for which all other changes wait: a
// fraction of a second, also on a database that is a round trip away. Tests change it.
var documentsAtOnce = 100

// Revision is what a sync found in its repository, and what that may do.
type Revision struct {
	// Sync that has the pools, and the Commit that was found.
	Sync, Commit string
	// Allow bounds what the documents may define.
	Allow hubv1.Ceiling
	// Limit bounds how many pools go with their documents, unless somebody has approved
	// of this commit (ApprovePrune); nil: any number.
	Limit *prunelimit.Limit
}

// ApplyDocuments makes the hub's pools what a sync's documents say. A document that may
// not be applied is held back alone. A pool of the sync whose document is gone is
// drained or let go, as its last definition says, unless a document of a new name is
// held back or more go than the limit allows; one whose document is held back is not gone. A pool that is not the
// sync's becomes so only where it is within the ceiling as it is.
//
// Pools know nothing of each other, so many documents are applied a part at a time, and
// other changes come in between. What is cut short by an error or the end of ctx is
// right as far as it came, and done again from the start it comes to the same. Nothing
// is drained or let go before every document was looked at.
func (s *Store) ApplyDocuments(ctx context.Context, revision Revision, documents []PoolDocument) (Applied, error) {
	c, err := s.newCommit(ctx, committer{actor: actorOf(revision.Sync), owner: revision.Sync}, revision.Allow, documents)
	if err != nil {
		return Applied{}, err
	}
	for part := range slices.Chunk(documents, documentsAtOnce) {
		if err := s.applyPart(ctx, c, func(p *commitPart) error { return p.apply(part) }); err != nil {
			return c.out, err
		}
	}
	gone, err := s.goneOf(ctx, revision, c)
	if err != nil {
		return c.out, err
	}
	for part := range slices.Chunk(gone, documentsAtOnce) {
		if err := s.applyPart(ctx, c, func(p *commitPart) error { return p.absences(part) }); err != nil {
			return c.out, err
		}
	}
	return c.out, nil
}

// goneOf are the names of the pools to let go: whose document is gone, unless they are
// too many, which the commit then says. Those that nobody can use any more count for
// nothing.
func (s *Store) goneOf(ctx context.Context, revision Revision, c *commit) ([]string, error) {
	gone, err := s.ownedNames(ctx, revision.Sync, "state <> 'draining'")
	if err != nil {
		return nil, err
	}
	has := func(name string) bool { return c.kept[name] }
	gone = slices.DeleteFunc(gone, has)
	if revision.Limit == nil || c.newHeld {
		return gone, nil
	}
	all, err := s.ownedNames(ctx, revision.Sync, "state = 'active'")
	if err != nil {
		return nil, err
	}
	living := slices.DeleteFunc(slices.Clone(all), has)
	if revision.Limit.Allows(len(living), len(all)) {
		return gone, nil
	}
	approved, _, err := first(ctx, s.reader, scanText, "SELECT approved_prune FROM syncs WHERE name = ?", revision.Sync)
	if err != nil || approved == revision.Commit && approved != "" {
		return gone, err
	}
	c.out.PruneWaits = &hubv1.PruneWaits{Revision: revision.Commit, Pools: living, Of: len(all)}
	return nil, nil
}

// ownedNames are the names of an owner's pools, sorted; in says which of them.
func (s *Store) ownedNames(ctx context.Context, owner, in string) ([]string, error) {
	return collect(ctx, s.reader, scanText, "SELECT name FROM pools WHERE source_sync = ? AND "+in+" ORDER BY name", owner)
}

// commit is the applying of one revision's documents.
type commit struct {
	by    committer
	allow hubv1.Ceiling
	// kept: names of pools that are not gone.
	kept map[string]bool
	// renames: new name → old name.
	renames map[string]string
	// newHeld: a document of a new name is held back.
	newHeld bool
	out     Applied
}

func (s *Store) newCommit(ctx context.Context, by committer, allow hubv1.Ceiling, documents []PoolDocument) (*commit, error) {
	c := &commit{by: by, allow: allow, kept: make(map[string]bool, len(documents))}
	var claims []moved.Claim[string]
	for _, d := range documents {
		c.kept[d.Name] = true
		if d.MovedFrom != "" && !d.Observe {
			claims = append(claims, moved.Claim[string]{At: d.Name, From: d.MovedFrom})
		}
	}
	if len(claims) == 0 {
		return c, nil
	}
	names, err := s.ownedNames(ctx, by.owner, "state = 'active'")
	if err != nil {
		return nil, err
	}
	was := make(map[string]bool, len(names))
	for _, name := range names {
		was[name] = true
	}
	c.renames, _ = moved.Pairs(claims, func(name string) bool { return was[name] }, func(name string) bool { return c.kept[name] })
	return c, nil
}

// commitPart is what one transaction applies of a commit. It changes nothing of the
// commit before the transaction has come to its end.
type commitPart struct {
	*commit
	tx *Tx
	// pools: name → the pool of that name, whoever has it, as far as the part is about it.
	pools map[string]poolRow
	// done are the names that a document was applied to.
	done map[string]bool
	// alsoKept: names of pools that are not gone, in the light of the part.
	alsoKept []string
	newHeld  bool
	out      Applied
}

// applyPart carries out one part, and then counts what came of it.
func (s *Store) applyPart(ctx context.Context, c *commit, do func(*commitPart) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var p *commitPart
	err := s.update(ctx, func(tx *Tx) error {
		p = &commitPart{commit: c, tx: tx, pools: map[string]poolRow{}, done: map[string]bool{}}
		return do(p)
	})
	if err != nil {
		return err
	}
	for _, name := range p.alsoKept {
		c.kept[name] = true
	}
	c.newHeld = c.newHeld || p.newHeld
	c.out.add(p.out)
	return nil
}

func (a *Applied) add(b Applied) {
	a.Created, a.Changed = append(a.Created, b.Created...), append(a.Changed, b.Changed...)
	a.Draining, a.Orphaned = append(a.Draining, b.Draining...), append(a.Orphaned, b.Orphaned...)
	a.Waiting, a.Revoked = append(a.Waiting, b.Waiting...), append(a.Revoked, b.Revoked...)
	a.Observed = append(a.Observed, b.Observed...)
	a.HeldBack, a.Kept = append(a.HeldBack, b.HeldBack...), append(a.Kept, b.Kept...)
	if a.Renamed == nil {
		a.Renamed = b.Renamed
	} else {
		maps.Copy(a.Renamed, b.Renamed)
	}
}

// read reads the pools of some names.
func (p *commitPart) read(names []string) error {
	if len(names) == 0 {
		return nil
	}
	// Few lengths make few queries: the database and the store keep each.
	arguments := make([]any, 1<<bits.Len(uint(len(names)-1)))
	for i := range arguments {
		arguments[i] = names[min(i, len(names)-1)]
	}
	rows, err := collect(context.Background(), p.tx, scanPool, selectPools+" WHERE p.name IN ("+places(len(arguments))+")", arguments...)
	if err != nil {
		return err
	}
	for _, pool := range rows {
		p.pools[pool.Name], p.tx.names[pool.ID] = pool, pool.Name
	}
	return nil
}

// owned is the committer's pool of a name.
func (p *commitPart) owned(name string) (poolRow, bool) {
	pool, found := p.pools[name]
	return pool, found && pool.Source != nil && pool.Source.Sync == p.by.owner
}

func (p *commitPart) apply(documents []PoolDocument) error {
	var names []string
	for _, d := range documents {
		names = append(names, d.Name)
		if old, renamed := p.renames[d.Name]; renamed {
			names = append(names, old)
		}
	}
	if err := p.read(names); err != nil {
		return err
	}
	for _, d := range documents {
		err := p.document(d)
		var refused *hubv1.Problem
		if errors.As(err, &refused) {
			text := refused.Error()
			if d.Line > 0 {
				text = fmt.Sprintf("%s:%d: %s", d.Source.Path, d.Line, text)
			}
			p.holdBack(d, text)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// holdBack leaves a document's pool as it is, also where that has another name.
func (p *commitPart) holdBack(d PoolDocument, problems ...string) {
	p.out.HeldBack = append(p.out.HeldBack, hubv1.HeldBack{Pool: d.Name, Path: d.Source.Path, Problems: problems})
	if old, renamed := p.renames[d.Name]; renamed {
		p.alsoKept = append(p.alsoKept, old)
	}
	if _, mine := p.owned(d.Name); !mine {
		p.newHeld = true
	}
}

func (p *commitPart) document(d PoolDocument) error {
	if len(d.Problems) > 0 {
		p.holdBack(d, d.Problems...)
		return nil
	}
	if d.Observe {
		return p.observe(d)
	}
	if err := p.tx.permits(p.allow, d); err != nil {
		return err
	}
	if p.done[d.Name] {
		if err := p.read([]string{d.Name}); err != nil {
			return err
		}
	}
	p.done[d.Name] = true
	if old, renamed := p.renames[d.Name]; renamed {
		// It may have changed hands since the renames were decided.
		if pool, mine := p.owned(old); mine && pool.State == hubv1.PoolActive {
			if err := p.rename(pool, d.Name); err != nil {
				return err
			}
		}
	}
	pool, found := p.pools[d.Name]
	return p.tx.applyDocument(p.by, p.allow, d, pool, found, &p.out)
}

// observe compares a document and applies nothing of it. A pool that was the
// committer's is nobody's from then on, as it is.
func (p *commitPart) observe(d PoolDocument) error {
	observed := hubv1.Observed{Pool: d.Name, Path: d.Source.Path, Definition: d.Definition}
	if d.CordonReason != nil {
		observed.CordonReason = *d.CordonReason
	}
	p.out.Observed = append(p.out.Observed, observed)
	pool, mine := p.owned(d.Name)
	if !mine || pool.State != hubv1.PoolActive {
		return nil
	}
	delete(p.pools, d.Name)
	return p.tx.release(p.by.actor, pool, "its document is only compared now: "+d.Source.String())
}

// rename gives a pool its new name. Its id stays, and with it what is bound to the
// pool, its credentials and its volumes.
func (p *commitPart) rename(pool poolRow, to string) error {
	was := pool.Name
	if _, known := p.pools[to]; known {
		refusal := problem.New(hubv1.CodePoolExists, "pool %s cannot become %s, because the hub has a pool of that name, which may be revoked", was, to)
		refusal.Remedy = "choose another name, or take the annotation cloop.dev/moved-from out: the hub then lets go of the one and takes the other"
		return refusal
	}
	if _, err := p.tx.exec("UPDATE pools SET name = ?, revision = revision + 1 WHERE id = ?", to, pool.ID); err != nil {
		return err
	}
	pool.Name, p.tx.names[pool.ID] = to, to
	delete(p.pools, was)
	p.pools[to] = pool
	if p.out.Renamed == nil {
		p.out.Renamed = map[string]string{}
	}
	p.out.Renamed[to] = was
	p.tx.touch(pool.ID)
	p.tx.wake(PoolNameTopic(to))
	return p.tx.audit(record{actor: p.by.actor, action: ActionPoolRename, pool: pool.ID, object: pool.ID, state: string(pool.State),
		detail: asJSON(map[string]string{"was": was, "now": to})})
}

// absences carries out the deletion policy of pools that lost their document, unless
// what replaces them may be held back.
func (p *commitPart) absences(names []string) error {
	if err := p.read(names); err != nil {
		return err
	}
	for _, name := range names {
		pool, mine := p.owned(name)
		if !mine || pool.State == hubv1.PoolDraining {
			continue // it changed hands meanwhile
		}
		if p.commit.newHeld && pool.State == hubv1.PoolActive {
			p.out.Kept = append(p.out.Kept, name)
			continue
		}
		if err := p.tx.absent(p.by, pool, &p.out); err != nil {
			return err
		}
	}
	return nil
}
