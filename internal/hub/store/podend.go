package store

import (
	"context"

	"cloop.dev/cloop/apis/hubv1"
)

// A busy runner with a watch open whose controller says that its Pod has ended:
// either the controller is wrong, or the end of the connection has yet to
// arrive. The run goes to nobody else until the watch has ended too and the
// runner has not spoken in between, or its lease is over.

// podEnded keeps what a controller says of a runner that has a watch open.
func (tx *Tx) podEnded(actor string, r runnerRow, request hubv1.GoneRequest) error {
	if r.podEnd != "" {
		return nil
	}
	if _, err := tx.exec("UPDATE runners SET pod_end = ? WHERE id = ?", asJSON(request), r.ID); err != nil {
		return err
	}
	return tx.audit(record{actor: actor, action: ActionRunnerPodEnd, pool: r.PoolID, object: r.ID, state: string(r.state),
		detail: goneText(request) + "; the runner has its watch open"})
}

// spoke takes back that the runner's Pod has ended: it has said something since.
func (s *Store) spoke(ctx context.Context, runner Runner) error {
	return s.update(ctx, func(tx *Tx) error {
		r, found, err := first(ctx, tx, scanRunner, selectRunners+" WHERE id = ? AND state <> 'retired' AND pod_end IS NOT NULL", runner.ID)
		if err != nil || !found {
			return err
		}
		if _, err := tx.exec("UPDATE runners SET pod_end = NULL WHERE id = ?", r.ID); err != nil {
			return err
		}
		return tx.audit(record{actor: r.actor(), action: ActionRunnerPodEnd, pool: r.PoolID, object: r.ID, state: string(r.state),
			detail: "it has spoken since its Pod was said to have ended"})
	})
}

// watchEnded acts on the end of a runner's last watch here. What fails is left
// to the runner's lease.
func (s *Store) watchEnded(runner Runner) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	r, found, err := first(ctx, s.reader, scanRunner, selectRunners+" WHERE id = ?", runner.ID)
	if err != nil || !found || r.state != hubv1.RunnerBusy {
		return // nothing can have been said that matters, and looking first costs no turn
	}
	_ = s.update(ctx, func(tx *Tx) error { return tx.freeEnded(r.ID) })
}

// freeEnded frees the run of a runner whose Pod has ended and whose watch has
// too; of any such runner where the id is empty.
func (tx *Tx) freeEnded(id string) error {
	ended, err := collect(tx.ctx, tx, scanRunner,
		selectRunners+" WHERE state <> 'retired' AND state = 'busy' AND pod_end IS NOT NULL AND (? = '' OR id = ?)", id, id)
	if err != nil || len(ended) == 0 {
		return err
	}
	listens, err := tx.listensAnywhere()
	if err != nil {
		return err
	}
	for _, r := range ended {
		if listens(r) {
			continue
		}
		var request hubv1.GoneRequest
		if err := fromJSON(r.podEnd, &request); err != nil {
			return err
		}
		if err := tx.runnerLost(actorHub, r, goneText(request)); err != nil {
			return err
		}
		if err := tx.cause(actorHub, r, request); err != nil {
			return err
		}
	}
	return nil
}
