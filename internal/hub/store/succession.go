package store

import (
	"context"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/token"
)

// A controller gives back only runners that its own credential minted. After a
// rotation it has a new one and the runners of the one before: by showing that
// too it proves that they are its own.

// ofController is true of the runners that were minted with a credential, or with
// one that its holder has shown. It takes the pool's id and twice the credential's.
const ofController = "credential_id IN (SELECT k.id FROM credentials k WHERE k.pool_id = ? AND (k.id = ? OR k.succeeded_by = ?))"

// Succeed makes the runners of an earlier credential of the pool, whose secret the
// caller shows, those of its own, too. Repeating it changes nothing.
func (s *Store) Succeed(ctx context.Context, c Credential, earlier string) error {
	if token.Check(token.Pool, earlier) != nil {
		return problem.New(hubv1.CodeInvalid, "that is no pool credential")
	}
	return s.update(ctx, func(tx *Tx) error {
		if err := tx.live(c); err != nil {
			return err
		}
		old, found, err := first(ctx, tx, scanSuccession, `SELECT id, COALESCE(succeeded_by, '') FROM credentials
			WHERE hash = ? AND pool_id = ? AND revoked_at IS NULL`, token.Hash(earlier), c.PoolID)
		switch {
		case err != nil:
			return err
		case !found:
			return problem.New(hubv1.CodeConflict, "the earlier credential is no live one of this pool")
		case old.id == c.ID, old.by == c.ID:
			return nil
		}
		// Whom a Secret's rollback brings back has no successor any more.
		if err := tx.send("UPDATE credentials SET succeeded_by = NULL WHERE id = ?", c.ID); err != nil {
			return err
		}
		if err := tx.send("UPDATE credentials SET succeeded_by = ?, refusal = '' WHERE id = ?", c.ID, old.id); err != nil {
			return err
		}
		if _, err := tx.exec("UPDATE credentials SET succeeded_by = ? WHERE succeeded_by = ? AND id <> ?", c.ID, old.id, c.ID); err != nil {
			return err
		}
		tx.touch(c.PoolID)
		return tx.audit(record{actor: c.actor(), action: ActionCredentialSucceed, pool: c.PoolID, object: old.id, state: "live",
			detail: "the controller that had it goes on with its runners as " + c.ID})
	})
}

type succession struct{ id, by string }

func scanSuccession(row scanner) (succession, error) {
	var s succession
	err := row.Scan(&s.id, &s.by)
	return s, err
}

// runnerFor finds a runner of the controller's pool, and says whether it is the
// controller's own.
func (tx *Tx) runnerFor(c Credential, id string) (row runnerRow, own bool, err error) {
	if err := tx.live(c); err != nil {
		return row, false, err
	}
	row, own, err = first(context.Background(), tx, scanRunner, selectRunners+" WHERE id = ? AND "+ofController, id, c.PoolID, c.ID, c.ID)
	if err != nil || own {
		return row, own, err
	}
	row, found, err := first(context.Background(), tx, scanRunner, selectRunners+" WHERE id = ? AND pool_id = ?", id, c.PoolID)
	if err == nil && !found {
		err = problem.New(hubv1.CodeNotFound, "the pool has no runner %q", id)
	}
	return row, false, err
}

// notOwn refuses a controller that knows the runner of another. Its Pod may be
// about to enroll, or busy.
func notOwn(id string) error {
	p := problem.New(hubv1.CodeForbidden, "runner %s was minted with another credential of the pool, which this controller has not shown", id)
	p.Remedy = "leave it to the controller that minted it; it ends by itself, by its token's time or its lease's"
	return p
}
