package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/hub/problem"
)

// usedEvery is how exact the database knows when a credential was used: a
// controller asks often, and each time need not be a write.
const usedEvery = time.Minute

// uses knows when credentials were used, to the moment, since the hub began.
type uses struct {
	mu sync.Mutex // guards the maps
	// last: credential id → when it was used last; written → which of these times
	// the database has.
	last, written map[string]time.Time
}

// note says whether the time is to be written down.
func (u *uses) note(id string, at time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil {
		u.last, u.written = map[string]time.Time{}, map[string]time.Time{}
	}
	u.last[id] = at
	if since := at.Sub(u.written[id]); since >= 0 && since < usedEvery {
		return false
	}
	u.written[id] = at
	return true
}

func (u *uses) seen(id string) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last[id]
}

// forget lets go of a credential that nobody can use any more.
func (u *uses) forget(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.last, id)
	delete(u.written, id)
}

// used notes that a credential was accepted. Where the time cannot be written
// down, whatever the request changes cannot be either, and says so.
func (s *Store) used(ctx context.Context, c Credential) {
	at := s.clock.Now().UTC()
	if !s.uses.note(c.ID, at) {
		return
	}
	_ = s.update(ctx, func(tx *Tx) error {
		_, err := tx.exec("UPDATE credentials SET used_at = ? WHERE id = ? AND revoked_at IS NULL", nano(at), c.ID)
		return err
	})
}

// The counts come from the index that keeps a credential's mint keys apart.
const selectCredentials = `SELECT c.id, c.created_at, c.used_at, c.revoked_at,
	(SELECT COUNT(*) FROM runners r WHERE r.credential_id = c.id AND r.state = 'starting'),
	(SELECT COUNT(*) FROM runners r WHERE r.credential_id = c.id AND r.state = 'idle'),
	(SELECT COUNT(*) FROM runners r WHERE r.credential_id = c.id AND r.state = 'busy'),
	(SELECT COUNT(*) FROM runners r WHERE r.credential_id = c.id AND r.state = 'retiring')
	FROM credentials c`

func scanCredential(row scanner) (hubv1.Credential, error) {
	var (
		c             hubv1.Credential
		created       int64
		used, revoked sql.NullInt64
	)
	err := row.Scan(&c.ID, &created, &used, &revoked, &c.Runners.Starting, &c.Runners.Idle, &c.Runners.Busy, &c.Runners.Retiring)
	c.CreatedAt, c.UsedAt, c.RevokedAt = fromNano(created), optionalTime(used), optionalTime(revoked)
	return c, err
}

// credentials lists a pool's credentials, the newest first, each with its
// controllers and with its last use to the moment.
func (s *Store) credentials(ctx context.Context, q querier, pool, condition string) ([]hubv1.Credential, error) {
	list, err := collect(ctx, q, scanCredential, selectCredentials+" WHERE c.pool_id = ?"+condition+" ORDER BY c.created_at DESC", pool)
	if err != nil {
		return nil, err
	}
	contacts, err := s.allContacts(ctx, q, pool)
	if err != nil {
		return nil, err
	}
	for i := range list {
		c := &list[i]
		usedBy(c, s.uses.seen(c.ID))
		for _, contact := range contacts {
			if contact.CredentialID == c.ID {
				c.Controllers = append(c.Controllers, contact)
				usedBy(c, contact.LastContact)
			}
		}
	}
	return list, nil
}

const onlyLive = " AND c.revoked_at IS NULL"

// usedBy makes the credential's last use no earlier than at.
func usedBy(c *hubv1.Credential, at time.Time) {
	if !at.IsZero() && (c.UsedAt == nil || at.After(*c.UsedAt)) {
		c.UsedAt = &at
	}
}

// ListCredentials lists a pool's credentials, the newest first; the revoked ones
// only where asked for.
func (s *Store) ListCredentials(ctx context.Context, ref string, revoked bool) (list []hubv1.Credential, err error) {
	condition := onlyLive
	if revoked {
		condition = ""
	}
	err = s.view(ctx, func(q querier) error {
		pool, err := findPool(ctx, q, ref)
		if err != nil {
			return err
		}
		list, err = s.credentials(ctx, q, pool.ID, condition)
		return err
	})
	return list, err
}

// FinishRotation revokes the credentials of the pool that the request says another
// has replaced, every one but the newest where it does not. Unless it
// is forced it does so only where the newest was used later than each of the
// others, which shows that the controller has it, and where no busy runner was
// started with one of them, because its run would be stopped. Repeating it
// changes nothing, and with the same key says what it did the first time.
func (s *Store) FinishRotation(ctx context.Context, actor string, key Key, ref string, request hubv1.FinishRotationRequest) (out hubv1.FinishRotationResponse, err error) {
	err = s.update(ctx, func(tx *Tx) error {
		pool, err := findPool(ctx, tx, ref)
		if err != nil {
			return err
		}
		if err := tx.reaches(pool); err != nil {
			return err
		}
		asked := finishing{pool.ID, request}
		if was, repeated, err := tx.repeats(actor, key, asked); err != nil {
			return err
		} else if repeated {
			return fromJSON(was, &out)
		}
		live, err := s.credentials(ctx, tx, pool.ID, onlyLive)
		if err != nil {
			return err
		}
		if len(live) == 0 {
			return problem.New(hubv1.CodeConflict, "pool %s has no live credential: mint one with `cloop executor pool rotate-credential %s`", pool.Name, pool.Name)
		}
		newest, older, err := replaced(pool, live, request)
		if err != nil {
			return err
		}
		out = hubv1.FinishRotationResponse{Kept: newest, Revoked: []hubv1.Credential{}}
		if !request.Force {
			if err := unfinished(pool, newest, older, s.unknownUse); err != nil {
				return err
			}
		}
		for _, c := range older {
			if err := tx.revokeCredential(actor, pool, c.ID, fmt.Sprintf("%s finished the rotation to credential %s", actor, newest.ID)); err != nil {
				return err
			}
			c.RevokedAt = &tx.now
			out.Revoked = append(out.Revoked, c)
		}
		return tx.remember(actor, key, asked, asJSON(out))
	})
	return out, err
}

// finishing is the request to finish a pool's rotation.
type finishing struct {
	Pool string
	hubv1.FinishRotationRequest
}

// replaced are the live credential that stays, and those that it replaces.
func replaced(pool poolRow, live []hubv1.Credential, request hubv1.FinishRotationRequest) (to hubv1.Credential, from []hubv1.Credential, err error) {
	to = live[0]
	if request.To != "" {
		at := slices.IndexFunc(live, func(c hubv1.Credential) bool { return c.ID == request.To })
		if at < 0 {
			return to, nil, problem.New(hubv1.CodeConflict, "pool %s has no live credential %q", pool.Name, request.To)
		}
		to = live[at]
	}
	for _, c := range live {
		if c.ID != to.ID && (len(request.From) == 0 || slices.Contains(request.From, c.ID)) {
			from = append(from, c)
		}
	}
	return to, from, nil
}

// unknownUse is how much later than is known here a credential may have been used:
// not every use is written down, and others are known to another member or were to
// the hub before it was started.
func (s *Store) unknownUse(id string) time.Duration {
	if s.engine.shared() || s.uses.seen(id).IsZero() {
		return usedEvery
	}
	return 0
}

// unfinished says everything that keeps the older credentials from being
// revoked, and what each of it needs; nil where nothing does. An older one may
// have been used by slack later than is known here.
func unfinished(pool poolRow, newest hubv1.Credential, older []hubv1.Credential, slack func(id string) time.Duration) error {
	p := problem.New(hubv1.CodeRotationUnfinished, "pool %s still needs its older credentials", pool.Name)
	add := func(c hubv1.Credential, format string, args ...any) {
		p.Errors = append(p.Errors, hubv1.FieldError{Location: "credential " + c.ID, Message: fmt.Sprintf(format, args...)})
	}
	if newest.UsedAt == nil && len(older) > 0 {
		add(newest, "the newest was never used: put it into the controller's Secret, which the controller reads again within five minutes, or mint another if it is lost")
	}
	for _, c := range older {
		switch {
		case newest.UsedAt == nil || c.UsedAt == nil || newest.UsedAt.After(c.UsedAt.Add(slack(c.ID))):
		case newest.UsedAt.After(*c.UsedAt):
			add(c, "it was used at %s, less than %s before the newest, %s: finish again once the controller has used that for a while, because the hub does not write down every use",
				c.UsedAt.Format(time.RFC3339), slack(c.ID), newest.ID)
		default:
			add(c, "it was used at %s%s, and the newest, %s, last at %s: put the newest into the Secret of every controller that has this one",
				c.UsedAt.Format(time.RFC3339), byWhom(c), newest.ID, newest.UsedAt.Format(time.RFC3339))
		}
		if c.Runners.Busy > 0 {
			add(c, "%s of it %s busy: wait until `cloop executor pool show %s` shows none", count.Of(c.Runners.Busy, "runner"), count.Is(c.Runners.Busy), pool.Name)
		}
	}
	if len(p.Errors) == 0 {
		return nil
	}
	return p
}

// byWhom names the controllers that are in contact with the credential.
func byWhom(c hubv1.Credential) string {
	var names []string
	for _, contact := range c.Controllers {
		if contact.Connected {
			names = append(names, contact.Instance)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " by " + strings.Join(names, ", ") + ", in contact now"
}

// RevokeCredential revokes one credential of the pool: its runners are retired,
// their tokens refused, and their runs stopped. One that is revoked is returned
// as it is.
func (s *Store) RevokeCredential(ctx context.Context, actor, ref, id string) (out hubv1.Credential, err error) {
	err = s.update(ctx, func(tx *Tx) error {
		pool, err := findPool(ctx, tx, ref)
		if err != nil {
			return err
		}
		if err := tx.reaches(pool); err != nil {
			return err
		}
		c, found, err := first(ctx, tx, scanCredential, selectCredentials+" WHERE c.pool_id = ? AND c.id = ?", pool.ID, id)
		if err == nil && !found {
			err = problem.New(hubv1.CodeNotFound, "pool %s has no credential %q", pool.Name, id)
		}
		if err != nil {
			return err
		}
		if _, err := tx.once(keyedIn(ctx), func() error {
			if c.RevokedAt != nil {
				return nil
			}
			return tx.revokeCredential(actor, pool, c.ID, fmt.Sprintf("credential %s was revoked by %s", c.ID, actor))
		}); err != nil {
			return err
		}
		out, _, err = first(ctx, tx, scanCredential, selectCredentials+" WHERE c.id = ?", id)
		return err
	})
	return out, err
}

// revokeCredential ends a credential with everything that was started with it.
func (tx *Tx) revokeCredential(actor string, pool poolRow, id, reason string) error {
	runners, err := collect(context.Background(), tx, scanRunner, selectRunners+" WHERE credential_id = ? AND state <> 'retired' ORDER BY created_at, id", id)
	if err != nil {
		return err
	}
	for _, r := range runners {
		if err := tx.stop(actor, r, reason); err != nil {
			return err
		}
	}
	tx.touch(pool.ID)
	return tx.endCredential(actor, pool, id, reason)
}

// endCredential has a credential refused from now on.
func (tx *Tx) endCredential(actor string, pool poolRow, id, reason string) error {
	if _, err := tx.exec("UPDATE credentials SET revoked_at = ?, refusal = '' WHERE id = ?", nano(tx.now), id); err != nil {
		return err
	}
	tx.store.uses.forget(id)
	return tx.audit(record{actor: actor, action: ActionCredentialRevoke, pool: pool.ID, object: id, state: "revoked", detail: reason})
}
