package store

import (
	"context"
	"fmt"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/problem"
)

// PoolDocument is one pool as Git defines it.
type PoolDocument struct {
	Name       string
	Definition hubv1.PoolDefinition
	// CordonReason cordons the pool; nil: Git has no opinion.
	CordonReason *string
	// Source.Sync is who keeps the pool as the document says.
	Source hubv1.Provenance
	// Line of the file at which the document begins; 0 where that is not known.
	Line int
	// MovedFrom is the pool's name until now, where the document says so.
	MovedFrom string
	// Observe has the document compared with the pool, and nothing else.
	Observe bool
	// Problems of the document hold it back: the pool stays as it is, and so does
	// one that it was before. Definition counts for nothing then.
	Problems []string
}

// Applied says what applying the documents came to.
type Applied struct {
	// Created, Changed, Draining and Orphaned name the pools that the documents
	// made, changed, or no longer hold.
	Created, Changed, Draining, Orphaned []string
	// Renamed: new name → old name.
	Renamed map[string]string
	// Waiting names pools whose document came back while they drain; they are
	// made again when applying is repeated after that.
	Waiting []string
	// Revoked names pools that somebody revoked by hand and whose document has
	// not changed since: they stay revoked.
	Revoked []string
	// HeldBack are the documents that were not applied, in order.
	HeldBack []hubv1.HeldBack
	// Observed are the documents that are only compared, in order.
	Observed []hubv1.Observed
	// Kept names pools whose document is gone and that stay, because a document of a
	// new name is held back: they may have been renamed to it.
	Kept []string
	// PruneWaits are the pools whose document is gone and that stay because they are
	// more than the limit; its Since is not set. Nil: none.
	PruneWaits *hubv1.PruneWaits
}

// committer is who applies documents: the actor of the audit trail, and the
// Provenance.Sync of the pools that are its own.
type committer struct{ actor, owner string }

// actorOf is the actor of what follows from documents that are an owner's.
func actorOf(owner string) string { return "sync:" + owner }

// permits refuses a definition beyond what the committer may define.
func (tx *Tx) permits(allow hubv1.Ceiling, d PoolDocument) error {
	if tx.caller != nil {
		return tx.within(d.Name, d.Definition)
	}
	exceeded := access.Exceeds(allow, d.Name, d.Definition)
	if len(exceeded) == 0 {
		return nil
	}
	p := problem.New(hubv1.CodeForbidden, "HubPool %s goes beyond what sync %s may define", d.Name, d.Source.Sync)
	p.Errors, p.Remedy = exceeded, "stay within it, or widen `allow` of the sync in the hub's configuration"
	return p
}

// adopts refuses to take over a pool that the committer may not have as it is now.
// What is its own already it has; a revoked pool comes back with what is bound to
// it, and is no less somebody's.
func (tx *Tx) adopts(allow hubv1.Ceiling, d PoolDocument, pool poolRow) error {
	if pool.Source != nil && pool.Source.Sync == d.Source.Sync {
		return nil
	}
	if tx.caller != nil {
		return tx.reaches(pool)
	}
	return beyond(allow, pool, "sync "+d.Source.Sync, fmt.Sprintf("give the HubPool another name, or have somebody who may change pool %s bring it within "+
		"`allow` of the hub's configuration: `cloop executor pool update %s`", pool.Name, pool.Name))
}

// claimed refuses a pool that is another's. What the hub reads from Git itself
// comes before what clusters say.
func claimed(d PoolDocument, pool poolRow) error {
	if pool.State == hubv1.PoolRevoked || pool.Source == nil || pool.Source.Sync == d.Source.Sync {
		return nil
	}
	_, _, _, ofCluster := pool.Source.Cluster()
	if _, _, _, byCluster := d.Source.Cluster(); ofCluster && !byCluster {
		return nil
	}
	p := managedByGit(pool)
	p.Remedy = "keep the pool in one of the two places, and take it out of the other"
	return p
}

// applyDocument makes one pool what its document says. A refusal is a problem, and
// nothing was changed then.
func (tx *Tx) applyDocument(by committer, allow hubv1.Ceiling, d PoolDocument, pool poolRow, found bool, out *Applied) error {
	if found {
		if err := claimed(d, pool); err != nil {
			return err
		}
		if err := tx.adopts(allow, d, pool); err != nil {
			return err
		}
	}
	switch {
	case found && pool.State == hubv1.PoolDraining:
		out.Waiting = append(out.Waiting, d.Name)
		return nil
	case found && pool.State == hubv1.PoolRevoked && pool.Source != nil && pool.stateBy != actorOf(pool.Source.Sync) && pool.Source.Digest == d.Source.Digest:
		out.Revoked = append(out.Revoked, d.Name)
		return nil
	case !found || pool.State == hubv1.PoolRevoked:
		out.Created = append(out.Created, d.Name)
		id, err := tx.establish(by.actor, pool.ID, d.Name, d.Definition, &d.Source)
		if err != nil {
			return err
		}
		return tx.gitCordon(by.actor, poolRow{Pool: hubv1.Pool{ID: id, Name: d.Name, State: hubv1.PoolActive}}, d.CordonReason)
	}
	if err := tx.provenance(by.actor, pool, d, out); err != nil {
		return err
	}
	if pool.Override != nil {
		if pool.asGit(d) {
			return nil
		}
		var err error
		if pool, err = tx.clearOverride(by.actor, pool, "Git says something else of the pool"); err != nil {
			return err
		}
	}
	if err := tx.define(by.actor, pool, d.Definition); err != nil {
		return err
	}
	return tx.gitCordon(by.actor, pool, d.CordonReason)
}

// provenance notes where a pool's definition comes from. A newer revision that says
// the same of the pool, at the same place, changes nothing of it: the sync's record
// says what was applied last, and a row for each pool and commit, most of which touch
// no pool, would bury the changes.
func (tx *Tx) provenance(actor string, pool poolRow, d PoolDocument, out *Applied) error {
	if pool.Source != nil && *pool.Source == d.Source {
		return nil
	}
	if pool.Source == nil || pool.Source.Digest != d.Source.Digest {
		out.Changed = append(out.Changed, d.Name)
	}
	if err := tx.setSource(pool.ID, &d.Source); err != nil {
		return err
	}
	tx.changed(pool)
	if pool.Source != nil {
		now := d.Source
		now.Revision = pool.Source.Revision
		if now == *pool.Source {
			return nil
		}
	}
	return tx.audit(record{actor: actor, action: ActionPoolSource, pool: pool.ID, object: pool.ID, state: string(pool.State), detail: asJSON(d.Source)})
}

// gitCordon makes Git's cordon what the document says.
func (tx *Tx) gitCordon(actor string, pool poolRow, reason *string) error {
	was := ""
	if pool.gitCordon {
		was = pool.Cordon.Reason
	}
	if pool.gitCordon == (reason != nil) && (reason == nil || *reason == was) {
		return nil
	}
	action, detail := ActionPoolUncordon, ""
	var text, at any
	if reason != nil {
		action, detail, text, at = ActionPoolCordon, *reason, *reason, nano(tx.now)
	}
	if _, err := tx.exec("UPDATE pools SET git_cordon_reason = ?, git_cordon_at = ?, revision = revision + 1 WHERE id = ?", text, at, pool.ID); err != nil {
		return err
	}
	tx.touch(pool.ID)
	return tx.audit(record{actor: actor, action: action, pool: pool.ID, object: pool.ID, state: string(pool.State), detail: detail})
}

// deletionRevoke is the policy of a pool that goes with its document.
const deletionRevoke = "Revoke"

// absent drains a pool whose document is gone or lets it go, as its definition in
// Git said last.
func (tx *Tx) absent(by committer, pool poolRow, out *Applied) error {
	reason := "its document was removed: " + pool.Source.String()
	pool, err := tx.endOverride(by.actor, pool, "Git has the pool no more")
	if err != nil {
		return err
	}
	if pool.State == hubv1.PoolActive && pool.DeletionPolicy == deletionRevoke {
		out.Draining = append(out.Draining, pool.Name)
		return tx.startDrain(by, pool, fmt.Sprintf("pool %s was removed from Git, last known as %s", pool.Name, pool.Source))
	}
	if pool.State == hubv1.PoolActive {
		out.Orphaned = append(out.Orphaned, pool.Name)
	}
	return tx.orphan(by.actor, pool, reason)
}

// orphan makes a pool nobody's: the hub owns its definition from now on.
func (tx *Tx) orphan(actor string, pool poolRow, reason string) error {
	pool, err := tx.endOverride(actor, pool, reason)
	if err != nil {
		return err
	}
	if err := tx.gitCordon(actor, pool, nil); err != nil {
		return err
	}
	return tx.disown(actor, pool, reason)
}

// release makes a pool nobody's and leaves it exactly as it is, an override's values
// and Git's cordon too, which an operator may lift.
func (tx *Tx) release(actor string, pool poolRow, reason string) error {
	pool, err := tx.dropOverride(actor, pool, reason)
	if err != nil {
		return err
	}
	return tx.disown(actor, pool, reason)
}

// disown notes that a pool is nobody's.
func (tx *Tx) disown(actor string, pool poolRow, reason string) error {
	if err := tx.setSource(pool.ID, nil); err != nil {
		return err
	}
	if _, err := tx.exec("UPDATE pools SET revision = revision + 1 WHERE id = ?", pool.ID); err != nil {
		return err
	}
	tx.touch(pool.ID)
	return tx.audit(record{actor: actor, action: ActionPoolOrphan, pool: pool.ID, object: pool.ID, state: string(pool.State), detail: reason})
}

// Define makes one pool what a HubPool of a cluster says, as a sync's documents do
// and within the ceiling of the caller's token, also one that has another name yet. The pool that it returns is not what
// the document says while it drains, where somebody revoked it by hand, and while it
// is overridden.
func (s *Store) Define(ctx context.Context, actor string, d PoolDocument) (hubv1.Pool, error) {
	err := s.update(ctx, func(tx *Tx) error {
		if err := tx.permits(hubv1.Ceiling{}, d); err != nil {
			return err
		}
		p := &commitPart{commit: &commit{by: committer{actor: actor, owner: d.Source.Sync}}, tx: tx, pools: map[string]poolRow{}}
		if err := p.read([]string{d.Name}); err != nil {
			return err
		}
		repeated, err := tx.once(keyedIn(ctx), func() error {
			if err := p.inherit(d); err != nil {
				return err
			}
			pool, found := p.pools[d.Name]
			return tx.applyDocument(p.by, hubv1.Ceiling{}, d, pool, found, &p.out)
		})
		if pool, found := p.pools[d.Name]; repeated && found && err == nil {
			return tx.adopts(hubv1.Ceiling{}, d, pool) // it may be another's by now
		}
		return err
	})
	if err != nil {
		return hubv1.Pool{}, err
	}
	pool, _, err := s.GetPool(ctx, d.Name)
	return pool, err
}

// inherit gives the pool of the HubPool that a document of a cluster says it was, in
// its namespace, the document's name. That the HubPool is gone, or going, is for the
// cluster to know.
func (p *commitPart) inherit(d PoolDocument) error {
	cluster, namespace, _, _ := d.Source.Cluster()
	if pool, mine := p.owned(d.Name); d.MovedFrom == "" || mine && pool.State == hubv1.PoolActive {
		return nil // a rename that is over
	}
	if err := p.read([]string{d.MovedFrom}); err != nil {
		return err
	}
	was, found := p.pools[d.MovedFrom]
	if !found || was.State != hubv1.PoolActive || was.Source == nil || was.Source.Sync != hubv1.ClusterOwner(cluster, namespace, d.MovedFrom) {
		return nil
	}
	if caller := p.tx.caller; caller != nil && !access.Sees(caller.Ceiling(), was.Name) {
		return nil
	}
	if err := p.tx.reaches(was); err != nil {
		return err
	}
	// The new HubPool has it from here on, and what Git says with it.
	source := *was.Source
	source.Sync = p.by.owner
	if err := p.tx.setSource(was.ID, &source); err != nil {
		return err
	}
	was.Source = &source
	return p.rename(was, d.Name)
}

// Undefine carries out the deletion policy of a pool whose HubPool in a cluster is
// gone. A pool that is not the owner's, or not any more, stays as it is.
func (s *Store) Undefine(ctx context.Context, actor, name, owner string) (hubv1.Pool, error) {
	return s.changePool(ctx, name, func(tx *Tx, pool poolRow) error {
		if pool.Source == nil || pool.Source.Sync != owner || pool.State == hubv1.PoolDraining {
			return nil
		}
		return tx.absent(committer{actor: actor, owner: owner}, pool, &Applied{})
	})
}
