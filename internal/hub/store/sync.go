package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// PoolDocument is one pool as Git defines it.
type PoolDocument struct {
	Name       string
	Definition hubv1.PoolDefinition
	// CordonReason cordons the pool; nil: Git has no opinion.
	CordonReason *string
	Source       hubv1.Provenance
}

// Applied says what applying the documents came to.
type Applied struct {
	// Created, Changed, Draining and Orphaned name the pools that the documents
	// made, changed, or no longer hold.
	Created, Changed, Draining, Orphaned []string
	// Waiting names pools whose document came back while they drain; they are
	// made again when applying is repeated after that.
	Waiting []string
	// Revoked names pools that somebody revoked by hand and whose document has
	// not changed since: they stay revoked.
	Revoked []string
}

// ApplyDocuments makes the hub's pools what a sync's documents say, in one
// transaction: all of it or, with an error, nothing. A pool of the sync whose
// document is gone is drained or let go, as its last definition says. A pool
// that is not the sync's becomes so only where it is within the ceiling as it is.
func (s *Store) ApplyDocuments(ctx context.Context, sync string, allow hubv1.Ceiling, documents []PoolDocument) (out Applied, err error) {
	actor := "sync:" + sync
	err = s.update(ctx, func(tx *Tx) error {
		out = Applied{}
		var refused []error
		for _, document := range documents {
			if err := tx.applyDocument(actor, allow, document, &out); err != nil {
				var p *hubv1.Problem
				if !errors.As(err, &p) {
					return err
				}
				refused = append(refused, errors.New(document.Source.Path+": "+said(p)))
			}
		}
		if len(refused) > 0 {
			return errors.Join(refused...)
		}
		return tx.applyAbsence(actor, sync, documents, &out)
	})
	return out, err
}

// said is a refusal with what to do about it, where it says that itself.
func said(p *hubv1.Problem) string {
	if p.Code == hubv1.CodeForbidden {
		return p.Detail + ": " + p.Remedy
	}
	return p.Detail
}

// adopts refuses to take over a pool that the sync may not have as it is now.
// What is the sync's already it has; a revoked pool comes back with what is bound
// to it, and is no less somebody's.
func adopts(allow hubv1.Ceiling, d PoolDocument, pool poolRow) error {
	if pool.Source != nil && pool.Source.Sync == d.Source.Sync {
		return nil
	}
	return beyond(allow, pool, "sync "+d.Source.Sync, fmt.Sprintf("give the HubPool another name, or have somebody who may change pool %s bring it within "+
		"`allow` of the hub's configuration: `cloop executor pool update %s`", pool.Name, pool.Name))
}

func (tx *Tx) applyDocument(actor string, allow hubv1.Ceiling, d PoolDocument, out *Applied) error {
	pool, found, err := first(context.Background(), tx, scanPool, selectPools+" WHERE p.name = ?", d.Name)
	if err != nil {
		return err
	}
	if found && pool.State != hubv1.PoolRevoked && pool.Source != nil && pool.Source.Sync != d.Source.Sync {
		return problem.New(hubv1.CodePoolManagedByGit, "pool %s belongs to sync %s already", d.Name, pool.Source.Sync)
	}
	if found {
		if err := adopts(allow, d, pool); err != nil {
			return err
		}
	}
	switch {
	case found && pool.State == hubv1.PoolDraining:
		out.Waiting = append(out.Waiting, d.Name)
		return nil
	case found && pool.State == hubv1.PoolRevoked && pool.Source != nil && pool.stateBy != actor && pool.Source.Digest == d.Source.Digest:
		out.Revoked = append(out.Revoked, d.Name)
		return nil
	case !found || pool.State == hubv1.PoolRevoked:
		out.Created = append(out.Created, d.Name)
		if pool, err = tx.makePool(actor, d.Name, d.Definition, &d.Source); err != nil {
			return err
		}
		return tx.gitCordon(actor, pool, d.CordonReason)
	}
	if pool.Source == nil || *pool.Source != d.Source {
		if pool.Source == nil || pool.Source.Digest != d.Source.Digest {
			out.Changed = append(out.Changed, d.Name)
		}
		if err := tx.setSource(pool.ID, &d.Source); err != nil {
			return err
		}
		tx.touch(pool.ID)
		if err := tx.audit(record{actor: actor, action: ActionPoolSource, pool: pool.ID, object: pool.ID, state: string(pool.State), detail: asJSON(d.Source)}); err != nil {
			return err
		}
	}
	if err := tx.define(actor, pool, d.Definition); err != nil {
		return err
	}
	return tx.gitCordon(actor, pool, d.CordonReason)
}

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

// applyAbsence carries out the deletion policy of pools that lost their
// document.
func (tx *Tx) applyAbsence(actor, sync string, documents []PoolDocument, out *Applied) error {
	owned, err := collect(context.Background(), tx, scanPool, selectPools+" WHERE p.source_sync = ? ORDER BY p.name", sync)
	if err != nil {
		return err
	}
	for _, pool := range owned {
		if slices.ContainsFunc(documents, func(d PoolDocument) bool { return d.Name == pool.Name }) || pool.State == hubv1.PoolDraining {
			continue
		}
		if pool.State == hubv1.PoolActive && pool.DeletionPolicy == deletionRevoke {
			reason := fmt.Sprintf("pool %s was removed from Git: %s %s, last at %s", pool.Name, pool.Source.Repository, pool.Source.Path, pool.Source.Revision)
			if err := tx.startDrain(actor, pool, reason); err != nil {
				return err
			}
			out.Draining = append(out.Draining, pool.Name)
			continue
		}
		if pool.State == hubv1.PoolActive {
			out.Orphaned = append(out.Orphaned, pool.Name)
		}
		if err := tx.orphan(actor, pool, "its document was removed from Git"); err != nil {
			return err
		}
	}
	return nil
}

// deletionRevoke is the policy of a pool that goes with its document.
const deletionRevoke = "Revoke"

// orphan makes a pool nobody's: the hub owns its definition from now on.
func (tx *Tx) orphan(actor string, pool poolRow, reason string) error {
	if err := tx.setSource(pool.ID, nil); err != nil {
		return err
	}
	if err := tx.gitCordon(actor, pool, nil); err != nil {
		return err
	}
	if _, err := tx.exec("UPDATE pools SET revision = revision + 1 WHERE id = ?", pool.ID); err != nil {
		return err
	}
	tx.touch(pool.ID)
	return tx.audit(record{actor: actor, action: ActionPoolOrphan, pool: pool.ID, object: pool.ID, state: string(pool.State), detail: reason})
}

// KeepSyncs makes the configured syncs the only ones: pools of any other are
// let go, so that they can be changed by hand again. A sync that is new, or
// whose repository or path is, starts as pending.
func (s *Store) KeepSyncs(ctx context.Context, configured []hubv1.Sync) error {
	return s.update(ctx, func(tx *Tx) error {
		bg := context.Background()
		owned, err := collect(bg, tx, scanPool, selectPools+" WHERE p.source_sync IS NOT NULL")
		if err != nil {
			return err
		}
		names := make([]string, 0, len(configured))
		for _, c := range configured {
			names = append(names, c.Name)
		}
		for _, pool := range owned {
			if slices.Contains(names, pool.Source.Sync) || pool.State == hubv1.PoolDraining {
				continue
			}
			if err := tx.orphan(actorHub, pool, "sync "+pool.Source.Sync+" is not configured any more"); err != nil {
				return err
			}
		}
		known, err := collect(bg, tx, scanText, "SELECT name FROM syncs")
		if err != nil {
			return err
		}
		for _, name := range known {
			if slices.Contains(names, name) {
				continue
			}
			if _, err := tx.exec("DELETE FROM syncs WHERE name = ?", name); err != nil {
				return err
			}
		}
		for _, c := range configured {
			if _, err := tx.exec(`INSERT INTO syncs (name, repository, path, state, revision) VALUES (?, ?, ?, 'pending', 1)
				ON CONFLICT (name) DO UPDATE SET repository = excluded.repository, path = excluded.path,
				state = CASE WHEN syncs.repository = excluded.repository AND syncs.path = excluded.path THEN syncs.state ELSE 'pending' END,
				revision = syncs.revision + 1`, c.Name, c.Repository, c.Path); err != nil {
				return err
			}
		}
		return nil
	})
}

// SaveSync keeps how a sync stands. A sync that is not configured is left out.
func (s *Store) SaveSync(ctx context.Context, sync hubv1.Sync) error {
	return s.update(ctx, func(tx *Tx) error {
		pools := sync.Pools
		if pools == nil {
			pools = []string{}
		}
		var at any
		if sync.LastRun != nil {
			at = nano(*sync.LastRun)
		}
		_, err := tx.exec(`UPDATE syncs SET state = ?, message = ?, last_attempted = ?, last_applied = ?, pools = ?, last_run = ?,
			revision = revision + 1 WHERE name = ?`,
			string(sync.State), sync.Message, sync.LastAttemptedRevision, sync.LastAppliedRevision, asJSON(pools), at, sync.Name)
		tx.wake(SyncTopic(sync.Name))
		return err
	})
}

const selectSyncs = "SELECT name, repository, path, state, message, last_attempted, last_applied, pools, last_run, revision FROM syncs"

type syncRow struct {
	hubv1.Sync
	revision int64
}

func scanSync(row scanner) (syncRow, error) {
	var s syncRow
	var pools string
	var at sql.NullInt64
	err := row.Scan(&s.Name, &s.Repository, &s.Path, &s.State, &s.Message, &s.LastAttemptedRevision, &s.LastAppliedRevision, &pools, &at, &s.revision)
	if err != nil {
		return s, err
	}
	s.LastRun = optionalTime(at)
	return s, fromJSON(pools, &s.Pools)
}

// ListSyncs lists the syncs by name.
func (s *Store) ListSyncs(ctx context.Context) ([]hubv1.Sync, error) {
	rows, err := collect(ctx, s.reader, scanSync, selectSyncs+" ORDER BY name")
	out := make([]hubv1.Sync, 0, len(rows))
	for _, row := range rows {
		out = append(out, row.Sync)
	}
	return out, err
}

// GetSync returns a sync and the revision of its record.
func (s *Store) GetSync(ctx context.Context, name string) (hubv1.Sync, int64, error) {
	row, found, err := first(ctx, s.reader, scanSync, selectSyncs+" WHERE name = ?", name)
	if err == nil && !found {
		err = problem.New(hubv1.CodeNotFound, "there is no sync %q", name)
	}
	return row.Sync, row.revision, err
}
