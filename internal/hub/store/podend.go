package store

import (
	"context"

	"cloop.dev/cloop/apis/hubv1"
)

// A busy runner with a watch open whose controller says that its Pod has ended:
// either the controller is wrong, or the end of the connection has yet to
// arrive. The runner keeps its run until the watch has ended too and the runner
// has not spoken in between, or its lease is over. One that speaks shows that the
// controller was wrong, and goes on.

// saidEnd is what a controller says of a runner that has a watch open.
type saidEnd struct {
	hubv1.GoneRequest
	// Spoke says that the runner has said something since, and Contradicted that it
	// had so of an earlier time: the audit trail tells that once.
	Spoke        bool `json:"spoke,omitempty"`
	Contradicted bool `json:"contradicted,omitempty"`
}

func (r runnerRow) saidEnd() (said saidEnd, err error) {
	if r.podEnd != "" {
		err = fromJSON(r.podEnd, &said)
	}
	return said, err
}

// podEnded keeps what a controller says of a runner that has a watch open.
func (tx *Tx) podEnded(actor string, r runnerRow, request hubv1.GoneRequest) error {
	said, err := r.saidEnd()
	if err != nil || r.podEnd != "" && !said.Spoke {
		return err
	}
	said = saidEnd{GoneRequest: request, Contradicted: said.Spoke || said.Contradicted}
	if _, err := tx.exec("UPDATE runners SET pod_end = ? WHERE id = ?", asJSON(said), r.ID); err != nil || said.Contradicted {
		return err
	}
	return tx.audit(record{actor: actor, action: ActionRunnerPodEnd, pool: r.PoolID, object: r.ID, state: string(r.state),
		detail: goneText(request) + "; the runner has its watch open"})
}

// spoke takes back that the runner's Pod has ended: it has said something since.
func (s *Store) spoke(ctx context.Context, runner runnerRow) error {
	if said, err := runner.saidEnd(); err != nil || said.Spoke {
		return err // which need not take a turn for every request
	}
	return s.update(ctx, func(tx *Tx) error {
		r, found, err := first(ctx, tx, scanRunner, selectRunners+" WHERE id = ? AND state <> 'retired' AND pod_end IS NOT NULL", runner.ID)
		if err != nil || !found {
			return err
		}
		said, err := r.saidEnd()
		if err != nil || said.Spoke {
			return err
		}
		said.Spoke = true
		if _, err := tx.exec("UPDATE runners SET pod_end = ? WHERE id = ?", asJSON(said), r.ID); err != nil || said.Contradicted {
			return err
		}
		return tx.audit(record{actor: r.actor(), action: ActionRunnerPodEnd, pool: r.PoolID, object: r.ID, state: string(r.state),
			detail: "it goes on: it has spoken since its controller said that its Pod has ended, which is not true"})
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
		said, err := r.saidEnd()
		if err != nil {
			return err
		}
		run, _, err := heldRun(tx.ctx, tx, r.ID)
		if err != nil {
			return err
		}
		if listens(r) || said.Spoke || said.ExitCode == nil && run.State != hubv1.RunCancelling {
			continue // where nobody saw it end, its lease decides
		}
		if err := tx.runnerLost(actorHub, r, goneText(said.GoneRequest)); err != nil {
			return err
		}
		if err := tx.cause(actorHub, r, said.GoneRequest); err != nil {
			return err
		}
	}
	return nil
}
