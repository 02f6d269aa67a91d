package store

import (
	"context"
	"time"

	"cloop.dev/cloop/internal/printable"
)

// Actions of the audit trail and of Events.
const (
	ActionAdminCreate      = "admin.create"
	ActionPoolCreate       = "pool.create"
	ActionPoolUpdate       = "pool.update"
	ActionPoolCordon       = "pool.cordon"
	ActionPoolUncordon     = "pool.uncordon"
	ActionPoolSource       = "pool.source"
	ActionPoolOrphan       = "pool.orphan"
	ActionPoolDrain        = "pool.drain"
	ActionPoolRevoke       = "pool.revoke"
	ActionCredentialCreate = "credential.create"
	ActionCredentialRevoke = "credential.revoke"
	// ActionCredentialRefusal: its controller said what keeps runners from starting.
	ActionCredentialRefusal = "credential.refusal"
	ActionRunnerMint        = "runner.mint"
	ActionRunnerRemint      = "runner.remint"
	ActionRunnerEnroll      = "runner.enroll"
	ActionRunnerBusy        = "runner.busy"
	ActionRunnerRetiring    = "runner.retiring"
	ActionRunnerRetired     = "runner.retired"
	ActionProjectCreate     = "project.create"
	ActionProjectBind       = "project.bind"
	ActionRunQueue          = "run.queue"
	ActionRunHand           = "run.hand"
	ActionRunStarted        = "run.started"
	ActionRunRequeue        = "run.requeue"
	// ActionRunRecall: the runner is to let go of the run.
	ActionRunRecall  = "run.recall"
	ActionRunCancel  = "run.cancel"
	ActionRunSettled = "run.settled"
	// ActionRunCause: a controller said how the Pod of the run's runner ended.
	ActionRunCause = "run.cause"
	// ActionPrune: what was over for long was removed.
	ActionPrune = "retention.prune"
	// ActionMemberJoin and ActionMemberLeave: a hub began to use the database, or
	// stopped or died.
	ActionMemberJoin  = "member.join"
	ActionMemberLeave = "member.leave"
	// ActionClockSet: the clock was set, and leases and deadlines follow it.
	ActionClockSet = "clock.set"
)

// actorHub is the actor of what time decides.
const actorHub = "hub"

// record is one row of the audit trail.
type record struct {
	actor, action string
	// pool is the id of the pool that the change belongs to, or empty.
	pool string
	// object is the id of what changed and state what it is now.
	object, state string
	detail        string
	took          time.Duration
}

// audit writes the row in the transaction of the change itself, and keeps the
// event for after the commit.
func (tx *Tx) audit(r record) error {
	pool, err := tx.poolName(r.pool)
	if err != nil {
		return err
	}
	r.detail = printable.Clip(r.detail, 1024)
	if err := tx.send("INSERT INTO audit (at, actor, action, pool, object, state, detail) VALUES (?, ?, ?, ?, ?, ?, ?)",
		nano(tx.now), r.actor, r.action, pool, r.object, r.state, r.detail); err != nil {
		return err
	}
	tx.events = append(tx.events, Event{
		Action: r.action, Actor: r.actor, Pool: pool, Object: r.object, State: r.state, Detail: r.detail, Took: r.took,
	})
	return nil
}

func (tx *Tx) poolName(id string) (string, error) {
	if id == "" {
		return "", nil
	}
	if name, known := tx.names[id]; known {
		return name, nil
	}
	name, _, err := first(context.Background(), tx, scanText, "SELECT name FROM pools WHERE id = ?", id)
	tx.names[id] = name
	return name, err
}
