package store

import (
	"context"
	"time"

	"cloop.dev/cloop/internal/printable"
)

// Actions of the audit trail and of Events.
const (
	ActionUserCreate   = "user.create"
	ActionUserRemove   = "user.remove"
	ActionGroupCreate  = "group.create"
	ActionGroupRemove  = "group.remove"
	ActionGroupAdd     = "group.add"
	ActionGroupDrop    = "group.drop"
	ActionRoleDefine   = "role.define"
	ActionRoleRemove   = "role.remove"
	ActionRoleGive     = "role.give"
	ActionRoleTake     = "role.take"
	ActionTokenCreate  = "token.create"
	ActionTokenRevoke  = "token.revoke"
	ActionPoolCreate   = "executor_pool.create"
	ActionPoolUpdate   = "executor_pool.update"
	ActionPoolCordon   = "executor_pool.cordon"
	ActionPoolUncordon = "executor_pool.uncordon"
	ActionPoolSource   = "executor_pool.source"
	ActionPoolOrphan   = "executor_pool.orphan"
	ActionPoolRename   = "executor_pool.rename"
	// ActionPoolOverride and ActionPoolOverrideEnd: what Git says of a pool was set
	// aside, and holds again.
	ActionPoolOverride     = "executor_pool.override"
	ActionPoolOverrideEnd  = "executor_pool.override.end"
	ActionPoolDrain        = "executor_pool.drain"
	ActionPoolRevoke       = "executor_pool.revoke"
	ActionCredentialCreate = "executor_pool.credential.create"
	ActionCredentialRevoke = "executor_pool.credential.revoke"
	// ActionCredentialRefusal: its controller said what keeps runners from starting.
	ActionCredentialRefusal = "executor_pool.credential.refusal"
	// ActionCredentialSucceed: its controller has another one now and has shown both.
	ActionCredentialSucceed = "executor_pool.credential.succeed"
	ActionRunnerMint        = "executor_pool.runner.mint"
	ActionRunnerRemint      = "executor_pool.runner.remint"
	ActionRunnerEnroll      = "executor_pool.runner.enroll"
	ActionRunnerBusy        = "executor_pool.runner.busy"
	ActionRunnerRetiring    = "executor_pool.runner.retiring"
	ActionRunnerRetired     = "executor_pool.runner.retired"
	// ActionRunnerPodEnd: its controller said that its Pod has ended although it has
	// a watch open, or it has spoken since.
	ActionRunnerPodEnd  = "executor_pool.runner.pod_end"
	ActionProjectCreate = "project.create"
	ActionProjectBind   = "project.bind"
	ActionRunQueue      = "run.queue"
	ActionRunHand       = "run.hand"
	ActionRunStarted    = "run.started"
	ActionRunRequeue    = "run.requeue"
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
	// ActionSyncApprovePrune: somebody said that pools may go which a revision lacks.
	ActionSyncApprovePrune = "sync.approve_prune"
	// ActionClockSet: the clock was set, and leases and deadlines follow it.
	ActionClockSet = "clock.set"
)

const (
	// actorHub is the actor of what time decides.
	actorHub = "hub"
	// actorOperator is who acts at the hub's machine, past the API.
	actorOperator = "operator"
)

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
	token := ""
	if tx.caller != nil && r.actor == tx.caller.Actor() {
		token = tx.caller.Token.ID
	}
	if err := tx.send("INSERT INTO audit (at, actor, token, action, pool, object, state, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		nano(tx.now), r.actor, token, r.action, pool, r.object, r.state, r.detail); err != nil {
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
