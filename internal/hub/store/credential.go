package store

import (
	"context"
	"database/sql"
	"errors"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/token"
)

// Credential is a controller that has proved who it is.
type Credential struct{ ID, PoolID string }

func (c Credential) actor() string { return "controller:" + c.ID }

// makeCredential mints a credential; the secret leaves the hub this once. Its
// time is later than every other's of the pool, also where the clock went back:
// that is how the newest is known.
func (tx *Tx) makeCredential(actor string, pool poolRow) (hubv1.Credential, error) {
	text := token.New(token.Pool)
	newest, _, err := first(context.Background(), tx, scanInt, "SELECT COALESCE(MAX(created_at), 0) FROM credentials WHERE pool_id = ?", pool.ID)
	if err != nil {
		return hubv1.Credential{}, err
	}
	out := hubv1.Credential{ID: newID("cred"), Secret: text.Reveal(), CreatedAt: fromNano(max(nano(tx.now), newest+1))}
	if _, err := tx.exec("INSERT INTO credentials (id, pool_id, hash, created_at) VALUES (?, ?, ?, ?)",
		out.ID, pool.ID, token.Hash(out.Secret), nano(out.CreatedAt)); err != nil {
		return hubv1.Credential{}, err
	}
	return out, tx.audit(record{actor: actor, action: ActionCredentialCreate, pool: pool.ID, object: out.ID, state: "live"})
}

// createdBefore finds the credential of an earlier request, without its secret,
// and its pool.
func (tx *Tx) createdBefore(id string) (hubv1.Credential, hubv1.Pool, error) {
	out := hubv1.Credential{ID: id}
	var pool string
	var created int64
	var revoked sql.NullInt64
	ctx := context.Background()
	err := tx.QueryRowContext(ctx, "SELECT pool_id, created_at, revoked_at FROM credentials WHERE id = ?", id).Scan(&pool, &created, &revoked)
	if errors.Is(err, sql.ErrNoRows) {
		err = undone("credential " + id)
	}
	if err != nil {
		return out, hubv1.Pool{}, err
	}
	out.CreatedAt, out.RevokedAt = fromNano(created), optionalTime(revoked)
	row, err := findPool(ctx, tx, pool)
	return out, row.Pool, err
}

// CreateCredential mints another credential of a pool.
func (s *Store) CreateCredential(ctx context.Context, actor string, key Key, ref string) (out hubv1.Credential, err error) {
	err = s.update(ctx, func(tx *Tx) error {
		pool, err := findPool(ctx, tx, ref)
		if err != nil {
			return err
		}
		if err := tx.reaches(pool); err != nil {
			return err
		}
		if id, repeated, err := tx.repeats(actor, key, pool.ID); err != nil {
			return err
		} else if repeated {
			if out, _, err = tx.createdBefore(id); err == nil && out.RevokedAt != nil {
				err = undone("credential " + id)
			}
			return err
		}
		if pool.State != hubv1.PoolActive {
			return problem.New(hubv1.CodePoolRevoked, "pool %s is %s", pool.Name, pool.State)
		}
		if out, err = tx.makeCredential(actor, pool); err != nil {
			return err
		}
		return tx.remember(actor, key, pool.ID, out.ID)
	})
	return out, err
}

// AuthPool finds the live credential of a bearer token.
func (s *Store) AuthPool(ctx context.Context, text string) (Credential, error) {
	if token.Check(token.Pool, text) != nil {
		return Credential{}, problem.New(hubv1.CodeUnauthenticated, "the bearer token is no pool credential")
	}
	c, found, err := first(ctx, s.reader, scanProven, "SELECT id, pool_id FROM credentials WHERE hash = ? AND revoked_at IS NULL", token.Hash(text))
	if err == nil && !found {
		return c, problem.New(hubv1.CodeUnauthenticated, "the pool credential is revoked or was never issued")
	}
	if err == nil {
		s.used(ctx, c)
	}
	return c, err
}

func scanProven(row scanner) (Credential, error) {
	var c Credential
	err := row.Scan(&c.ID, &c.PoolID)
	return c, err
}

// live refuses what a controller asks for once its credential is revoked, which
// may have happened since it was checked: nothing may be minted for it then,
// although the pool may be there again.
func (tx *Tx) live(c Credential) error {
	_, live, err := first(context.Background(), tx, scanText, "SELECT id FROM credentials WHERE id = ? AND revoked_at IS NULL", c.ID)
	if err == nil && !live {
		err = problem.New(hubv1.CodeUnauthenticated, "the pool credential is revoked")
	}
	return err
}

// CredentialLive says whether the credential still counts, for watches that are
// open already.
func (s *Store) CredentialLive(ctx context.Context, c Credential) (bool, error) {
	_, live, err := first(ctx, s.reader, scanText, "SELECT id FROM credentials WHERE id = ? AND revoked_at IS NULL", c.ID)
	return live, err
}

// SetRefusal keeps why the credential's controller starts no runners; the runs
// that wait show it.
func (s *Store) SetRefusal(ctx context.Context, c Credential, refusal hubv1.Refusal) error {
	message, kind := shown(refusal.Message, maxReason), refusal.Kind
	if message != "" && kind == "" {
		kind = hubv1.RefusalPods
	}
	return s.update(ctx, func(tx *Tx) error {
		if err := tx.live(c); err != nil {
			return err
		}
		changed, err := tx.exec("UPDATE credentials SET refusal = ?, refusal_kind = ? WHERE id = ? AND (refusal <> ? OR refusal_kind <> ?)",
			message, string(kind), c.ID, message, string(kind))
		if err != nil || changed == 0 {
			return err
		}
		tx.touch(c.PoolID)
		return tx.audit(record{actor: c.actor(), action: ActionCredentialRefusal, pool: c.PoolID, object: c.ID, state: "live", detail: message})
	})
}
