package store

import (
	"context"
	"fmt"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/hub/problem"
)

// freeRun decides what becomes of a run whose runner is lost: not started, it
// is queued again; started, it is started again once, or lost. What would be queued
// where nobody hands it out any more is not.
func (tx *Tx) freeRun(actor string, run runRow, cause string) error {
	if run.recalled && run.State != hubv1.RunCancelling {
		cause = run.Reason // that it has let go is what was waited for
	}
	switch {
	case run.State == hubv1.RunCancelling:
		return tx.settleRun(actor, run, outcome{state: hubv1.RunCancelled, reason: run.Reason + "; " + cause})
	case run.State == hubv1.RunHanded && run.handOffs >= tx.store.Limits.MaxHandOffs:
		return tx.settleRun(actor, run, outcome{state: hubv1.RunFailed,
			reason: fmt.Sprintf("no runner started the run, which was handed out %s; the last: %s", count.Of(run.handOffs, "time"), cause)})
	case run.State == hubv1.RunHanded:
		return tx.again(actor, run, run.Attempt, cause)
	case run.Failover == hubv1.FailoverOnce && run.Attempt == 1:
		return tx.again(actor, run, run.Attempt+1, cause)
	}
	if run.Attempt > 1 {
		cause += fmt.Sprintf("; it was attempt %d, and the run starts no more", run.Attempt)
	}
	return tx.settleRun(actor, run, outcome{state: hubv1.RunLost, reason: cause})
}

// recall asks the runner to let go of its run, and believes nothing that it says
// of it from now on. The runner keeps the run until it has said goodbye or its
// lease, which is not renewed any more, is over: handed to another at once, the
// command might run twice at a time.
func (tx *Tx) recall(actor string, run runRow, cause string) error {
	if run.recalled {
		return nil
	}
	if err := tx.send("UPDATE runs SET recalled_at = ?, deadline = NULL, reason = ?, revision = revision + 1 WHERE id = ?", nano(tx.now), cause, run.ID); err != nil {
		return err
	}
	if err := tx.bumpRunner(run.Runner); err != nil {
		return err
	}
	tx.runChanged(run)
	return tx.audit(record{actor: actor, action: ActionRunRecall, pool: run.PoolID, object: run.ID, state: string(run.State), detail: cause})
}

// again queues the run once more, unless it could never be handed out: what has
// happened since it was is not asked of a run that a runner has.
func (tx *Tx) again(actor string, run runRow, attempt int32, cause string) error {
	pool, err := findPool(context.Background(), tx, run.PoolID)
	if err != nil {
		return err
	}
	refused, err := tx.refuses(pool, run.candidate())
	if err != nil {
		return err
	}
	if pool.State != hubv1.PoolActive {
		refused = problem.New(hubv1.CodePoolRevoked, "%s", pool.stateReason)
	}
	if refused == nil {
		return tx.requeue(actor, run, attempt, cause, "the run starts again")
	}
	why := "the run starts no more: " + noLonger(refused)
	if err := tx.requeue(actor, run, attempt, cause, why); err != nil {
		return err
	}
	return tx.drop(actor, run, cause+"; "+why)
}

// requeue puts the run back where it was in the queue. The log goes on behind a
// notice; the next runner counts its offsets from 0.
func (tx *Tx) requeue(actor string, run runRow, attempt int32, cause, notice string) error {
	handOffs := run.handOffs
	if attempt != run.Attempt {
		handOffs = 0
	}
	if run.LogBytes > 0 {
		if err := tx.storeLog(run, []byte("\n[cloop] "+cause+"; "+notice+"\n")); err != nil {
			return err
		}
	}
	if err := tx.keepAttempt(run, cause); err != nil {
		return err
	}
	if err := tx.send(`UPDATE runs SET state = 'queued', reason = ?, attempt = ?, hand_offs = ?, requeued_at = ?, runner_id = NULL, handed_at = NULL,
		started_at = NULL, deadline = NULL, recalled_at = NULL, log_next = 0, revision = revision + 1 WHERE id = ?`,
		"attempt "+fmt.Sprint(attempt)+" after: "+cause, attempt, handOffs, nano(tx.now), run.ID); err != nil {
		return err
	}
	tx.runChanged(run)
	return tx.audit(record{actor: actor, action: ActionRunRequeue, pool: run.PoolID, object: run.ID, state: string(hubv1.RunQueued), detail: cause})
}

// lostAt is when the hub gives up a runner that it hears of now and never again.
func (tx *Tx) lostAt() time.Time {
	return tx.now.Add(tx.store.Limits.Lease + tx.store.Limits.Margin)
}
