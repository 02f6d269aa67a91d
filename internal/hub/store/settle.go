package store

import (
	"context"

	"cloop.dev/cloop/apis/hubv1"
)

// settlePool brings a pool to rest at the end of each transaction that touched
// it: an active one hands its queued runs to its idle runners, a draining one
// lets go of what it can. Nothing is left for a later step, so a crash between
// two steps cannot happen.
func (tx *Tx) settlePool(id string) error {
	if restless, _, err := first(tx.ctx, tx, scanFlag, selectRestless, id); err != nil || !restless {
		return err
	}
	pool, err := findPool(context.Background(), tx, id)
	if err != nil {
		return err
	}
	tx.names[pool.ID] = pool.Name // the audit of each run asks for it
	switch {
	case pool.State == hubv1.PoolActive && pool.Cordon == nil && pool.Queued > 0 && pool.Runners.Idle > 0:
		return tx.handOff(pool, tx.listensHere)
	case pool.State == hubv1.PoolDraining:
		return tx.drain(pool)
	}
	return nil
}

// selectRestless says whether there may be something to do. Nearly every change
// asks it, and nearly always there is not.
const selectRestless = `SELECT p.state = 'draining' OR p.state = 'active' AND p.cordon_reason IS NULL AND p.git_cordon_reason IS NULL
	AND EXISTS (SELECT 1 FROM runs u WHERE u.pool_id = p.id AND u.settled_at IS NULL AND u.state = 'queued')
	AND EXISTS (SELECT 1 FROM runners r WHERE r.pool_id = p.id AND r.state <> 'retired' AND r.state = 'idle')
	FROM pools p WHERE p.id = ?`

func scanFlag(row scanner) (bool, error) {
	var flag bool
	err := row.Scan(&flag)
	return flag, err
}

func (tx *Tx) hand(run candidate, r runnerRow) error {
	if err := tx.send("UPDATE runners SET state = 'busy', revision = revision + 1 WHERE id = ? AND state = 'idle'", r.ID); err != nil {
		return err
	}
	if err := tx.send(`UPDATE runs SET state = 'handed', reason = '', runner_id = ?, handed_at = ?, deadline = ?, hand_offs = hand_offs + 1,
		revision = revision + 1 WHERE id = ? AND state = 'queued'`,
		r.ID, nano(tx.now), nano(tx.now.Add(tx.store.Limits.StartTimeout)), run.id); err != nil {
		return err
	}
	// This runs while the pool is being settled: marking it again would do so
	// for ever, so only its watchers are told.
	tx.fed[r.PoolID] = struct{}{}
	tx.wake(RunnerTopic(r.ID))
	tx.wake(RunTopic(run.id))
	tx.hurry = true
	if err := tx.audit(record{actor: actorHub, action: ActionRunnerBusy, pool: r.PoolID, object: r.ID, state: string(hubv1.RunnerBusy), detail: "run " + run.id}); err != nil {
		return err
	}
	return tx.audit(record{actor: actorHub, action: ActionRunHand, pool: r.PoolID, object: run.id, state: string(hubv1.RunHanded),
		detail: "runner " + r.ID, took: tx.now.Sub(run.waitsSince)})
}

// startDrain begins what ends in a revoked pool without stopping a run. What comes
// of it is the owner's doing: by that a pool is told from one that was revoked by
// hand.
func (tx *Tx) startDrain(by committer, pool poolRow, reason string) error {
	if err := tx.send("UPDATE pools SET state = 'draining', state_by = ?, state_reason = ?, revision = revision + 1 WHERE id = ?",
		actorOf(by.owner), reason, pool.ID); err != nil {
		return err
	}
	if err := tx.audit(record{actor: by.actor, action: ActionPoolDrain, pool: pool.ID, object: pool.ID, state: string(hubv1.PoolDraining), detail: reason}); err != nil {
		return err
	}
	if pool.Queued == 0 && pool.Runners == (hubv1.RunnerCounts{}) {
		// There is nothing to wait for.
		return tx.close(actorOf(by.owner), pool, reason)
	}
	tx.touch(pool.ID)
	return nil
}

// drain cancels what waits, lets idle runners go, takes the tokens back, and
// revokes the pool once no runner is left.
func (tx *Tx) drain(pool poolRow) error {
	if err := tx.cancelQueued(pool, pool.stateReason); err != nil {
		return err
	}
	runners, err := tx.liveRunners(pool.ID)
	if err != nil {
		return err
	}
	left := 0
	for _, r := range runners {
		switch r.state {
		case hubv1.RunnerStarting:
			err = tx.retired(pool.stateBy, r, pool.stateReason)
		case hubv1.RunnerIdle:
			left++
			err = tx.retiring(pool.stateBy, r, pool.stateReason)
		default:
			left++
		}
		if err != nil {
			return err
		}
	}
	if left > 0 {
		return nil
	}
	return tx.close(pool.stateBy, pool, pool.stateReason)
}

// revoke ends a pool at once, with every run on it.
func (tx *Tx) revoke(actor string, pool poolRow, reason string) error {
	pool, err := tx.endOverride(actor, pool, "the pool was revoked")
	if err != nil {
		return err
	}
	if err := tx.cancelQueued(pool, reason); err != nil {
		return err
	}
	runners, err := tx.liveRunners(pool.ID)
	if err != nil {
		return err
	}
	for _, r := range runners {
		if err := tx.stop(actor, r, reason); err != nil {
			return err
		}
	}
	return tx.close(actor, pool, reason)
}

// stop ends a runner at once, with the run on it.
func (tx *Tx) stop(actor string, r runnerRow, reason string) error {
	run, held, err := heldRun(context.Background(), tx, r.ID)
	if err != nil {
		return err
	}
	if err := tx.retired(actor, r, reason); err != nil || !held {
		return err
	}
	return tx.settleRun(actor, run, outcome{state: hubv1.RunCancelled, reason: reason + "; the run was stopped"})
}

// close revokes the pool's credentials and the pool.
func (tx *Tx) close(actor string, pool poolRow, reason string) error {
	live, err := collect(context.Background(), tx, scanText, "SELECT id FROM credentials WHERE pool_id = ? AND revoked_at IS NULL", pool.ID)
	if err != nil {
		return err
	}
	for _, id := range live {
		if err := tx.endCredential(actor, pool, id, reason); err != nil {
			return err
		}
	}
	if err := tx.send("UPDATE pools SET state = 'revoked', state_by = ?, state_reason = ?, revision = revision + 1 WHERE id = ?",
		actor, reason, pool.ID); err != nil {
		return err
	}
	tx.fed[pool.ID] = struct{}{}
	tx.wake(RevokedTopic)
	return tx.audit(record{actor: actor, action: ActionPoolRevoke, pool: pool.ID, object: pool.ID, state: string(hubv1.PoolRevoked), detail: reason})
}

func (tx *Tx) cancelQueued(pool poolRow, reason string) error {
	waiting, err := collect(context.Background(), tx, scanRun, selectHeads+" WHERE r.pool_id = ? AND r.settled_at IS NULL AND r.state = 'queued' ORDER BY r.seq", pool.ID)
	if err != nil {
		return err
	}
	for _, run := range waiting {
		if err := tx.drop(pool.stateByOr(actorHub), run, reason); err != nil {
			return err
		}
	}
	return nil
}

func (p poolRow) stateByOr(actor string) string {
	if p.stateBy == "" {
		return actor
	}
	return p.stateBy
}

func (tx *Tx) liveRunners(pool string) ([]runnerRow, error) {
	return collect(context.Background(), tx, scanRunner, selectRunners+" WHERE pool_id = ? AND state <> 'retired' ORDER BY created_at, id", pool)
}
