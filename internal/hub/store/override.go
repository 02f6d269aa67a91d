package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// Overriding is what somebody gives for setting aside what Git says of a pool.
type Overriding struct {
	// Reason is shown to whoever wonders why the pool is not as Git says.
	Reason string
	// For is how long it lasts, at most hubv1.MaxOverride.
	For time.Duration
}

// setAside notes that a pool is to be otherwise than Git says, and what that is.
// What Git said is not overwritten by another override on top of the first. cordon
// is Git's, where that is set aside too.
func (tx *Tx) setAside(actor string, pool poolRow, over Overriding, cordon *hubv1.Cordon) (poolRow, error) {
	switch {
	case pool.State != hubv1.PoolActive:
		return pool, problem.New(hubv1.CodePoolRevoked, "pool %s is %s", pool.Name, pool.State)
	case pool.Source == nil:
		p := problem.New(hubv1.CodeConflict, "pool %s is not managed by Git, so there is nothing to override", pool.Name)
		p.Remedy = "leave the override out"
		return pool, p
	}
	if err := tx.reachesOverride(pool); err != nil {
		return pool, err
	}
	builds, err := tx.buildsWithout(hubv1.FeatureOverrides)
	if err != nil {
		return pool, err
	}
	if len(builds) > 0 {
		return pool, problem.New(hubv1.CodeMemberTooOld, "a member of the hub of build %s would undo the override at its next sync", strings.Join(builds, " and "))
	}
	now := hubv1.Override{Reason: over.Reason, By: actor, At: tx.now, Since: tx.now, Until: tx.now.Add(over.For), Git: pool.PoolDefinition}
	if before := pool.Override; before != nil {
		now.Since, now.Git, now.GitCordon = before.Since, before.Git, before.GitCordon
	}
	if cordon != nil {
		now.GitCordon = cordon
	}
	if _, err := tx.exec("UPDATE pools SET override = ?, override_until = ?, revision = revision + 1 WHERE id = ?",
		asJSON(now), nano(now.Until), pool.ID); err != nil {
		return pool, err
	}
	pool.Override = &now
	tx.touch(pool.ID)
	tx.hurry = true
	return pool, tx.audit(record{actor: actor, action: ActionPoolOverride, pool: pool.ID, object: pool.ID, state: string(pool.State),
		detail: asJSON(map[string]any{"reason": now.Reason, "until": now.Until})})
}

// dropOverride ends an override, if there is one, and leaves the pool as that made
// it, which is then what the pool is.
func (tx *Tx) dropOverride(actor string, pool poolRow, why string) (poolRow, error) {
	over := pool.Override
	if over == nil {
		return pool, nil
	}
	if _, err := tx.exec("UPDATE pools SET override = NULL, override_until = NULL, revision = revision + 1 WHERE id = ?", pool.ID); err != nil {
		return pool, err
	}
	tx.touch(pool.ID)
	if err := tx.audit(record{actor: actor, action: ActionPoolOverrideEnd, pool: pool.ID, object: pool.ID, state: string(pool.State),
		detail: fmt.Sprintf("%s; it was by %s: %s", why, over.By, over.Reason)}); err != nil {
		return pool, err
	}
	pool.Override = nil
	return pool, nil
}

// clearOverride ends an override, if there is one, and leaves the definition to
// the caller. Git's cordon holds again.
func (tx *Tx) clearOverride(actor string, pool poolRow, why string) (poolRow, error) {
	over := pool.Override
	pool, err := tx.dropOverride(actor, pool, why)
	if err != nil || over == nil || over.GitCordon == nil {
		return pool, err
	}
	if err := tx.gitCordon(actor, pool, &over.GitCordon.Reason); err != nil {
		return pool, err
	}
	return findPool(context.Background(), tx, pool.ID)
}

// endOverride ends an override, if there is one, and gives the pool back to what
// Git said last.
func (tx *Tx) endOverride(actor string, pool poolRow, why string) (poolRow, error) {
	if pool.Override == nil {
		return pool, nil
	}
	git := pool.Override.Git
	pool, err := tx.clearOverride(actor, pool, why)
	if err != nil {
		return pool, err
	}
	if err := tx.define(actor, pool, git); err != nil {
		return pool, err
	}
	pool.PoolDefinition = git
	return pool, nil
}

// asGit says whether a document says of a pool what Git said last.
func (p poolRow) asGit(d PoolDocument) bool {
	said, cordon := p.PoolDefinition, p.Cordon
	if !p.gitCordon {
		cordon = nil
	}
	if over := p.Override; over != nil {
		said = over.Git
		if over.GitCordon != nil {
			cordon = over.GitCordon
		}
	}
	if (cordon == nil) != (d.CordonReason == nil) || cordon != nil && cordon.Reason != *d.CordonReason {
		return false
	}
	return asJSON(said) == asJSON(d.Definition)
}

// OverridePool is UpdatePool for a pool that Git manages, for as long as over says.
func (s *Store) OverridePool(ctx context.Context, actor, ref string, ifMatch int64, request hubv1.UpdatePoolRequest, over Overriding) (hubv1.Pool, error) {
	return s.updatePool(ctx, actor, ref, ifMatch, request, &over)
}

// OverrideCordon is Uncordon for a pool that Git cordons, for as long as over says.
func (s *Store) OverrideCordon(ctx context.Context, actor, ref string, over Overriding) (hubv1.Pool, error) {
	return s.uncordon(ctx, actor, ref, &over)
}

// EndOverride ends a pool's override before its time, if there is one.
func (s *Store) EndOverride(ctx context.Context, actor, ref string) (hubv1.Pool, error) {
	return s.changePool(ctx, ref, func(tx *Tx, pool poolRow) error {
		if pool.Source == nil {
			p := problem.New(hubv1.CodeConflict, "pool %s is not managed by Git, so there is no override to end", pool.Name)
			p.Remedy = "change it with `cloop executor pool update`"
			return p
		}
		if err := tx.reachesOverride(pool); err != nil {
			return err
		}
		_, err := tx.endOverride(actor, pool, "it was taken back")
		return err
	})
}

// expireOverrides ends those whose time is up.
func expireOverrides(tx *Tx) error {
	due, err := collect(context.Background(), tx, scanPool, selectPools+" WHERE p.override_until <= ?", nano(tx.now))
	if err != nil {
		return err
	}
	for _, pool := range due {
		if _, err := tx.endOverride(actorHub, pool, "its time was up"); err != nil {
			return err
		}
	}
	return nil
}

// followOverrides lets overrides last for as long as they were made for, by a clock that
// was set.
func (tx *Tx) followOverrides(by time.Duration) error {
	pools, err := collect(context.Background(), tx, scanPool, selectPools+" WHERE p.override_until IS NOT NULL")
	if err != nil {
		return err
	}
	for _, pool := range pools {
		over := *pool.Override
		over.Until = over.Until.Add(by)
		if err := tx.send("UPDATE pools SET override = ?, override_until = ? WHERE id = ?", asJSON(over), nano(over.Until), pool.ID); err != nil {
			return err
		}
	}
	return nil
}

// unapplied is what syncs know and do not apply.
type unapplied struct {
	// held: name of a pool → the sync whose document of it is held back, and why.
	held map[string]of[hubv1.HeldBack]
	// observed: name of a pool → the sync that only compares it, and with what.
	observed map[string]of[hubv1.Observed]
	// removed: name of a pool → the sync whose newest revision lacks it, and waits.
	removed map[string]of[*hubv1.PruneWaits]
}

// of is something of a sync.
type of[T any] struct {
	sync string
	what T
}

func readUnapplied(ctx context.Context, q querier) (unapplied, error) {
	rows, err := collect(ctx, q, scanSync, selectSyncs+" WHERE held_back <> '[]' OR observed <> '[]' OR prune_waits IS NOT NULL ORDER BY name")
	out := unapplied{map[string]of[hubv1.HeldBack]{}, map[string]of[hubv1.Observed]{}, map[string]of[*hubv1.PruneWaits]{}}
	for _, row := range rows {
		for _, held := range row.HeldBack {
			out.held[held.Pool] = of[hubv1.HeldBack]{row.Name, held}
		}
		for _, observed := range row.Observed {
			out.observed[observed.Pool] = of[hubv1.Observed]{row.Name, observed}
		}
		if row.PruneWaits == nil {
			continue
		}
		for _, pool := range row.PruneWaits.Pools {
			out.removed[pool] = of[*hubv1.PruneWaits]{row.Name, row.PruneWaits}
		}
	}
	return out, err
}

// drifted fills in where a pool is otherwise than Git says.
func (s *Store) drifted(pool *hubv1.Pool, known unapplied) {
	s.broken(pool)
	h, waits := known.held[pool.Name]
	if waits && pool.Source != nil && pool.Source.Sync == h.sync {
		pool.Drift = append(pool.Drift, hubv1.Drift{
			Cause: hubv1.CauseCommitNotApplied, Outcome: hubv1.OutcomeRefused, By: actorOf(h.sync), Since: h.what.Since, Message: strings.Join(h.what.Problems, "; "),
		})
	}
	if r, waits := known.removed[pool.Name]; waits && pool.Source != nil && pool.Source.Sync == r.sync {
		pool.Drift = append(pool.Drift, hubv1.Drift{
			Cause: hubv1.CauseCommitNotApplied, Outcome: hubv1.OutcomeRefused, By: actorOf(r.sync), Since: r.what.Since,
			Message: "Git has the pool no more at " + r.what.Revision + ", which removes more at once than the limit; to approve: " + ApprovePruneCommand(r.sync, r.what.Revision),
		})
	}
	if o, compared := known.observed[pool.Name]; compared && pool.State != hubv1.PoolRevoked {
		pool.Drift = append(pool.Drift, s.observed(pool, o)...)
	}
}

// observed is where a pool is otherwise than a document says that is only compared.
func (s *Store) observed(pool *hubv1.Pool, o of[hubv1.Observed]) []hubv1.Drift {
	var drift []hubv1.Drift
	if s.compare != nil {
		drift = s.compare(o.what.Definition, pool.PoolDefinition)
	}
	if want := o.what.CordonReason; want != "" && (pool.Cordon == nil || pool.Cordon.Reason != want) {
		entry := hubv1.Drift{Path: "/spec/cordon/reason", Git: asJSON(want)}
		if pool.Cordon != nil {
			entry.Hub = asJSON(pool.Cordon.Reason)
		}
		drift = append(drift, entry)
	}
	for i := range drift {
		d := &drift[i]
		d.Cause, d.Outcome, d.By, d.Since = hubv1.CauseCommitNotApplied, hubv1.OutcomeObserved, actorOf(o.sync), o.what.Since
		d.Message = o.what.Path + " is only compared, by its annotation cloop.dev/observe"
	}
	return drift
}

// broken fills in what an override makes differ from Git.
func (s *Store) broken(pool *hubv1.Pool) {
	over := pool.Override
	if over == nil {
		return
	}
	if s.compare != nil {
		pool.Drift = s.compare(over.Git, pool.PoolDefinition)
	}
	if over.GitCordon != nil {
		pool.Drift = append(pool.Drift, hubv1.Drift{Path: "/spec/cordon/reason", Git: asJSON(over.GitCordon.Reason)})
	}
	for i := range pool.Drift {
		d := &pool.Drift[i]
		d.Cause, d.By, d.Since, d.Until = hubv1.CauseBreakGlass, over.By, over.Since, &over.Until
		d.Outcome, d.Message = hubv1.OutcomeWaiting, over.Reason
	}
}
