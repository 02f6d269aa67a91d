package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// poolRow is a pool with what only the hub needs to know.
type poolRow struct {
	hubv1.Pool
	// ref is the name or id by which it was looked for; empty where it was not.
	ref       string
	feed      int64
	gitCordon bool
	// ownCordon is the operator's cordon, also where Git's hides it.
	ownCordon   bool
	stateBy     string
	stateReason string
}

// cordonByGit is who cordoned a pool whose document in Git says so.
const cordonByGit = "git"

// The counts come from partial indexes, whose condition the queries repeat.
const selectPools = `SELECT p.id, p.name, p.state, p.state_by, p.state_reason, p.definition, p.cordon_reason, p.cordon_by,
	p.cordon_at, p.git_cordon_reason, p.git_cordon_at, p.source, p.override, p.install, p.revision, p.feed, p.created_at,
	(SELECT COUNT(*) FROM runners r WHERE r.pool_id = p.id AND r.state <> 'retired' AND r.state = 'starting'),
	(SELECT COUNT(*) FROM runners r WHERE r.pool_id = p.id AND r.state <> 'retired' AND r.state = 'idle'),
	(SELECT COUNT(*) FROM runners r WHERE r.pool_id = p.id AND r.state <> 'retired' AND r.state = 'busy'),
	(SELECT COUNT(*) FROM runners r WHERE r.pool_id = p.id AND r.state <> 'retired' AND r.state = 'retiring'),
	(SELECT COUNT(*) FROM runs u WHERE u.pool_id = p.id AND u.settled_at IS NULL AND u.state = 'queued')
	FROM pools p`

func scanPool(row scanner) (poolRow, error) {
	var (
		p                            poolRow
		definition, install          string
		reason, by, gitReason, about sql.NullString
		override                     sql.NullString
		at, gitAt                    sql.NullInt64
		created                      int64
	)
	err := row.Scan(&p.ID, &p.Name, &p.State, &p.stateBy, &p.stateReason, &definition, &reason, &by, &at, &gitReason, &gitAt,
		&about, &override, &install, &p.Revision, &p.feed, &created,
		&p.Runners.Starting, &p.Runners.Idle, &p.Runners.Busy, &p.Runners.Retiring, &p.Queued)
	if err != nil {
		return p, err
	}
	p.CreatedAt = fromNano(created)
	if p.State != hubv1.PoolActive {
		p.End = &hubv1.PoolEnd{By: p.stateBy, Reason: p.stateReason, Drained: strings.HasPrefix(p.stateBy, actorOf(""))}
	}
	if err := fromJSON(definition, &p.PoolDefinition); err != nil {
		return p, err
	}
	if p.Source, err = optionalJSON[hubv1.Provenance](about); err != nil {
		return p, err
	}
	if p.Override, err = optionalJSON[hubv1.Override](override); err != nil {
		return p, err
	}
	if install != "" {
		p.Install = &hubv1.InstallHints{}
		if err := fromJSON(install, p.Install); err != nil {
			return p, err
		}
	}
	p.gitCordon, p.ownCordon = gitReason.Valid, reason.Valid
	switch {
	case gitReason.Valid:
		p.Cordon = &hubv1.Cordon{Reason: gitReason.String, By: cordonByGit, At: fromNano(gitAt.Int64)}
	case reason.Valid:
		p.Cordon = &hubv1.Cordon{Reason: reason.String, By: by.String, At: fromNano(at.Int64)}
	}
	return p, nil
}

// findPool finds a pool by name or id.
func findPool(ctx context.Context, q querier, ref string) (poolRow, error) {
	p, found, err := first(ctx, q, scanPool, selectPools+" WHERE p.name = ? OR p.id = ?", ref, ref)
	if err == nil && !found {
		err = noPool(ref)
	}
	p.ref = ref
	return p, err
}

func noPool(ref string) *hubv1.Problem {
	return problem.New(hubv1.CodeNotFound, "there is no pool %q", ref)
}

// ListPools lists the pools by name; the revoked ones only where asked for.
func (s *Store) ListPools(ctx context.Context, revoked bool) ([]hubv1.Pool, error) {
	var out []hubv1.Pool
	err := s.view(ctx, func(q querier) error {
		rows, err := collect(ctx, q, scanPool, selectPools+" WHERE ? = 1 OR p.state <> 'revoked' ORDER BY p.name", revoked)
		if err != nil {
			return err
		}
		held, err := readUnapplied(ctx, q)
		if err != nil {
			return err
		}
		out = make([]hubv1.Pool, 0, len(rows))
		for _, row := range rows {
			pool, err := s.poolShown(ctx, q, row, held)
			if err != nil {
				return err
			}
			out = append(out, pool)
		}
		return nil
	})
	return out, err
}

// GetPool returns a pool by name or id.
func (s *Store) GetPool(ctx context.Context, ref string) (pool hubv1.Pool, feed int64, err error) {
	err = s.view(ctx, func(q querier) error {
		row, err := findPool(ctx, q, ref)
		if err != nil {
			return err
		}
		feed = row.feed
		held, err := readUnapplied(ctx, q)
		if err != nil {
			return err
		}
		pool, err = s.poolShown(ctx, q, row, held)
		return err
	})
	return pool, feed, err
}

// PoolName is the name of a pool that is given by name or id.
func (s *Store) PoolName(ctx context.Context, ref string) (string, error) {
	name, found, err := first(ctx, s.reader, scanText, "SELECT name FROM pools WHERE name = ? OR id = ?", ref, ref)
	if err == nil && !found {
		err = noPool(ref)
	}
	return name, err
}

// poolShown is a pool as people see it.
func (s *Store) poolShown(ctx context.Context, q querier, row poolRow, held unapplied) (hubv1.Pool, error) {
	var err error
	row.Controllers, err = s.contacts(ctx, q, row.ID)
	s.drifted(&row.Pool, held)
	return row.Pool, err
}

// CreatePool makes a pool, or brings a revoked one back under its old id, with a
// first credential.
func (s *Store) CreatePool(ctx context.Context, actor string, key Key, request hubv1.CreatePoolRequest) (out hubv1.CreatePoolResponse, err error) {
	err = s.update(ctx, func(tx *Tx) error {
		if id, repeated, err := tx.repeats(actor, key, request); err != nil {
			return err
		} else if repeated {
			out.Credential, out.Pool, err = tx.createdBefore(id)
			if err == nil && out.Pool.State == hubv1.PoolRevoked {
				out, err = hubv1.CreatePoolResponse{}, undone("pool "+request.Name)
			}
			return err
		}
		pool, err := tx.makePool(actor, request.Name, request.PoolDefinition)
		if err != nil {
			return err
		}
		if pool, err = tx.setInstall(pool, request.Install); err != nil {
			return err
		}
		if out.Credential, err = tx.makeCredential(actor, pool); err != nil {
			return err
		}
		out.Pool = pool.Pool
		return tx.remember(actor, key, request, out.Credential.ID)
	})
	return out, err
}

// makePool inserts a pool or revives a revoked one.
func (tx *Tx) makePool(actor, name string, definition hubv1.PoolDefinition) (poolRow, error) {
	definition.Harness = cmp.Or(definition.Harness, hubv1.DefaultHarness)
	if err := tx.within(name, definition); err != nil {
		return poolRow{}, err
	}
	old, found, err := first(context.Background(), tx, scanPool, selectPools+" WHERE p.name = ?", name)
	if err != nil {
		return old, err
	}
	if found {
		// A pool that was revoked comes back with what is bound to it.
		if err := tx.reaches(old); err != nil {
			return old, err
		}
	}
	switch {
	case found && old.State == hubv1.PoolDraining:
		return old, problem.New(hubv1.CodePoolRevoked, "pool %s is draining (%s); it can be created again once it is drained", name, old.stateReason)
	case found && old.State == hubv1.PoolActive:
		return old, problem.New(hubv1.CodePoolExists, "pool %s exists", name)
	}
	id, err := tx.establish(actor, old.ID, name, definition, nil)
	if err != nil {
		return old, err
	}
	return findPool(context.Background(), tx, id)
}

// establish inserts a pool, or revives the revoked one of an id.
func (tx *Tx) establish(actor, id, name string, definition hubv1.PoolDefinition, source *hubv1.Provenance) (string, error) {
	about, sync := sourceColumns(source)
	var err error
	if id != "" {
		err = tx.send(`UPDATE pools SET state = 'active', state_by = '', state_reason = '', definition = ?,
			cordon_reason = NULL, cordon_by = NULL, cordon_at = NULL, git_cordon_reason = NULL, git_cordon_at = NULL,
			install = '', source = ?, source_sync = ?, revision = revision + 1 WHERE id = ?`, asJSON(definition), about, sync, id)
	} else {
		id = newID("pool")
		err = tx.send("INSERT INTO pools (id, name, state, definition, source, source_sync, revision, feed, created_at) VALUES (?, ?, 'active', ?, ?, ?, 1, 1, ?)",
			id, name, asJSON(definition), about, sync, nano(tx.now))
	}
	if err != nil {
		return id, err
	}
	// It is settled together with whoever lets a run wait for it.
	tx.names[id], tx.fed[id] = name, struct{}{}
	tx.wake(PoolNameTopic(name))
	return id, tx.audit(record{actor: actor, action: ActionPoolCreate, pool: id, object: id, state: string(hubv1.PoolActive), detail: asJSON(definition)})
}

func sourceColumns(source *hubv1.Provenance) (text, sync any) {
	if source == nil {
		return nil, nil
	}
	return asJSON(source), source.Sync
}

func (tx *Tx) setSource(pool string, source *hubv1.Provenance) error {
	text, sync := sourceColumns(source)
	return tx.send("UPDATE pools SET source = ?, source_sync = ? WHERE id = ?", text, sync, pool)
}

// setInstall keeps how a pool is installed.
func (tx *Tx) setInstall(pool poolRow, install *hubv1.InstallHints) (poolRow, error) {
	if install == nil || *install == (hubv1.InstallHints{}) {
		return pool, nil
	}
	pool.Install = install
	_, err := tx.exec("UPDATE pools SET install = ? WHERE id = ?", asJSON(install), pool.ID)
	return pool, err
}

// managedByGit is the refusal to change by hand what Git owns.
func managedByGit(pool poolRow) *hubv1.Problem {
	s := pool.Source
	p := problem.New(hubv1.CodePoolManagedByGit, "pool %s is managed by %s", pool.Name, s)
	p.Source = s
	if _, _, _, ofCluster := s.Cluster(); ofCluster {
		p.Remedy = fmt.Sprintf("change the HubPool, or set it aside for a time with --override REASON; where it is gone for good or only compared, `cloop executor pool release %s`", pool.Name)
	}
	return p
}

// UpdatePool changes the fields that the request sets, while the pool's
// revision is ifMatch unless that is 0.
func (s *Store) UpdatePool(ctx context.Context, actor, ref string, ifMatch int64, request hubv1.UpdatePoolRequest) (hubv1.Pool, error) {
	return s.updatePool(ctx, actor, ref, ifMatch, request, nil)
}

func (s *Store) updatePool(ctx context.Context, actor, ref string, ifMatch int64, request hubv1.UpdatePoolRequest, over *Overriding) (hubv1.Pool, error) {
	return s.changePool(ctx, ref, func(tx *Tx, pool poolRow) error {
		switch {
		case pool.State != hubv1.PoolActive:
			return problem.New(hubv1.CodePoolRevoked, "pool %s is %s", pool.Name, pool.State)
		case pool.Source != nil && over == nil:
			return managedByGit(pool)
		case ifMatch != 0 && ifMatch != pool.Revision:
			return problem.New(hubv1.CodePreconditionFailed, "pool %s has revision %d, not %d", pool.Name, pool.Revision, ifMatch)
		}
		if over != nil {
			var err error
			if pool, err = tx.setAside(actor, pool, *over, nil); err != nil {
				return err
			}
		}
		next := pool.PoolDefinition
		set(&next.MaxRunners, request.MaxRunners)
		set(&next.Labels, request.Labels)
		set(&next.Audience, request.Audience)
		set(&next.Owner, request.Owner)
		set(&next.Harness, request.Harness)
		set(&next.Capabilities, request.Capabilities)
		if err := tx.define(actor, pool, next); err != nil {
			return err
		}
		if made := pool.Override; made != nil && made.GitCordon == nil && asJSON(next) == asJSON(made.Git) {
			_, err := tx.clearOverride(actor, pool, "the pool is as Git says again")
			return err
		}
		return nil
	})
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// define gives a pool another definition, if it is another one.
func (tx *Tx) define(actor string, pool poolRow, next hubv1.PoolDefinition) error {
	if asJSON(pool.PoolDefinition) == asJSON(next) {
		return nil
	}
	if err := tx.within(pool.Name, next); err != nil {
		return err
	}
	if err := tx.send("UPDATE pools SET definition = ?, revision = revision + 1 WHERE id = ?", asJSON(next), pool.ID); err != nil {
		return err
	}
	tx.changed(pool)
	if err := tx.audit(record{actor: actor, action: ActionPoolUpdate, pool: pool.ID, object: pool.ID, state: string(pool.State),
		detail: fmt.Sprintf(`{"was":%s,"now":%s}`, asJSON(pool.PoolDefinition), asJSON(next))}); err != nil {
		return err
	}
	if pool.Queued == 0 {
		return nil
	}
	pool.PoolDefinition = next
	return tx.dismiss(actor, pool)
}

// changePool runs a change of one pool, once for each key, and returns the pool
// after it.
func (s *Store) changePool(ctx context.Context, ref string, change func(*Tx, poolRow) error) (hubv1.Pool, error) {
	err := s.update(ctx, func(tx *Tx) error {
		pool, err := findPool(ctx, tx, ref)
		if err != nil {
			return err
		}
		if err := tx.reaches(pool); err != nil {
			return err
		}
		_, err = tx.once(keyedIn(ctx), func() error { return change(tx, pool) })
		return err
	})
	if err != nil {
		return hubv1.Pool{}, err
	}
	pool, _, err := s.GetPool(ctx, ref)
	return pool, err
}

// gitCordons says whether only Git lifts the pool's cordon. One that a pool kept
// that Git has let go of is anybody's to lift.
func (p poolRow) gitCordons() bool { return p.gitCordon && p.Source != nil }

// Cordon stops the hand-off of runs to the pool's runners. It takes the place of the
// cordon that the pool kept from a Git that has let go of it.
func (s *Store) Cordon(ctx context.Context, actor, ref, reason string) (hubv1.Pool, error) {
	return s.changePool(ctx, ref, func(tx *Tx, pool poolRow) error {
		if pool.State == hubv1.PoolRevoked {
			return problem.New(hubv1.CodePoolRevoked, "pool %s is revoked", pool.Name)
		}
		kept := ""
		if !pool.gitCordons() {
			kept = ", git_cordon_reason = NULL, git_cordon_at = NULL"
		}
		if _, err := tx.exec("UPDATE pools SET cordon_reason = ?, cordon_by = ?, cordon_at = ?"+kept+", revision = revision + 1 WHERE id = ?",
			reason, actor, nano(tx.now), pool.ID); err != nil {
			return err
		}
		tx.touch(pool.ID)
		return tx.audit(record{actor: actor, action: ActionPoolCordon, pool: pool.ID, object: pool.ID, state: string(pool.State), detail: reason})
	})
}

// Uncordon takes the operator's cordon away. Git's it cannot.
func (s *Store) Uncordon(ctx context.Context, actor, ref string) (hubv1.Pool, error) {
	return s.uncordon(ctx, actor, ref, nil)
}

func (s *Store) uncordon(ctx context.Context, actor, ref string, over *Overriding) (hubv1.Pool, error) {
	return s.changePool(ctx, ref, func(tx *Tx, pool poolRow) error {
		switch {
		case over != nil && !pool.gitCordon:
			p := problem.New(hubv1.CodeConflict, "pool %s is not cordoned by Git, so there is nothing to override", pool.Name)
			p.Remedy = "leave the override out"
			return p
		case over == nil && pool.gitCordons():
			p := managedByGit(pool)
			p.Detail = fmt.Sprintf("pool %s is cordoned by %s", pool.Name, pool.Source)
			return p
		}
		if over != nil {
			if _, err := tx.setAside(actor, pool, *over, pool.Cordon); err != nil {
				return err
			}
		}
		if !pool.ownCordon && !pool.gitCordon {
			return nil
		}
		if _, err := tx.exec(`UPDATE pools SET cordon_reason = NULL, cordon_by = NULL, cordon_at = NULL,
			git_cordon_reason = NULL, git_cordon_at = NULL, revision = revision + 1 WHERE id = ?`, pool.ID); err != nil {
			return err
		}
		tx.touch(pool.ID)
		return tx.audit(record{actor: actor, action: ActionPoolUncordon, pool: pool.ID, object: pool.ID, state: string(pool.State)})
	})
}

// ReleasePool makes a pool nobody's that a HubPool of a cluster has, and leaves it
// as it is: for one that is gone and never said so. One that is still there has the
// pool again when its controller looks next. With an owner only its own is released.
func (s *Store) ReleasePool(ctx context.Context, actor, ref, owner string) (hubv1.Pool, error) {
	return s.changePool(ctx, ref, func(tx *Tx, pool poolRow) error {
		switch {
		case owner != "" && (pool.Source == nil || pool.Source.Sync != owner):
			return nil
		case pool.State != hubv1.PoolActive:
			return problem.New(hubv1.CodePoolRevoked, "pool %s is %s", pool.Name, pool.State)
		case pool.Source == nil:
			return nil
		}
		if _, _, _, ofCluster := pool.Source.Cluster(); !ofCluster {
			p := managedByGit(pool)
			p.Remedy = "take its document out of Git with deletionPolicy Orphan, or give it the annotation cloop.dev/observe: the hub reads it itself"
			return p
		}
		if err := tx.reachesOverride(pool); err != nil {
			return err
		}
		return tx.release(actor, pool, fmt.Sprintf("%s released it from %s", actor, pool.Source))
	})
}

// RevokePool revokes a pool at once: it is the one act at the hub that stops
// runs in progress.
func (s *Store) RevokePool(ctx context.Context, actor, ref string) (hubv1.Pool, error) {
	return s.changePool(ctx, ref, func(tx *Tx, pool poolRow) error {
		if pool.State == hubv1.PoolRevoked {
			return nil
		}
		return tx.revoke(actor, pool, "pool "+pool.Name+" was revoked by "+actor)
	})
}
