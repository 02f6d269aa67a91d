package store

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

const (
	// contactsKept is how long the hub remembers a controller that stays away.
	contactsKept = 24 * time.Hour
	// contactsOfOne bounds how many the hub remembers of one credential: the holder
	// of one can give any number of names.
	contactsOfOne = 64
	// contactsShown bounds the controllers that a pool shows.
	contactsShown = 16
)

// Controller is a controller's process, as it introduces itself.
type Controller struct {
	Credential
	Instance, Build string
	Features        []string
	Serves          Served
}

// Served is the ExecutorPool that a controller's watch is for. A controller that
// does not say has the zero value.
type Served struct {
	// Name is "namespace/name" in its cluster; UID tells it from every other.
	Name, UID string
	// HubPool is the pool that it names, and Created when it was made, in Unix
	// seconds.
	HubPool string
	Created int64
}

// precedes says which of two ExecutorPools with one credential serves the pool:
// the one that names it, and then the older one. It is the rule by which a
// controller chooses between two of its own namespace.
func (s Served) precedes(other Served, pool string) bool {
	if names := s.HubPool == pool; names != (other.HubPool == pool) {
		return names
	}
	return cmp.Or(cmp.Compare(s.Created, other.Created), cmp.Compare(s.Name, other.Name), cmp.Compare(s.UID, other.UID)) < 0
}

// seat tells controllers' processes apart, and what each of them serves.
type seat struct{ credential, instance, uid string }

func (c Controller) seat() seat { return seat{c.ID, c.Instance, c.Serves.UID} }

// presence knows which controllers have a watch open. They are in contact for
// as long as they have: nothing is written down meanwhile.
type presence struct {
	mu sync.Mutex // guards the maps
	// open: credential id → seat → its open watches.
	open map[string]map[seat]*watches
	// left: seat → when its last watch closed, until that is in the database.
	left map[seat]time.Time
}

// watches are those that one seat has open.
type watches struct {
	count  int
	serves Served
}

// arrive says whether it is the seat's first watch.
func (p *presence) arrive(c Controller) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open, p.left = map[string]map[seat]*watches{}, map[seat]time.Time{}
	}
	if p.open[c.ID] == nil {
		p.open[c.ID] = map[seat]*watches{}
	}
	there := p.open[c.ID][c.seat()]
	if there == nil {
		there = &watches{}
		p.open[c.ID][c.seat()] = there
	}
	there.count++
	there.serves = c.Serves
	return there.count == 1
}

// rival names another ExecutorPool that is served with the seat's credential,
// here or elsewhere, and has precedence; empty: there is none. Two processes
// with one ExecutorPool are a leader and the one that takes over from it.
func (p *presence) rival(s seat, pool string, elsewhere []Served) string {
	if s.uid == "" {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := elsewhere
	for _, there := range p.open[s.credential] {
		all = append(all, there.serves)
	}
	at := slices.IndexFunc(all, func(o Served) bool { return o.UID == s.uid })
	if at < 0 {
		return ""
	}
	best := all[at]
	for _, other := range all {
		if other.UID != "" && other.precedes(best, pool) {
			best = other
		}
	}
	if best.UID == s.uid {
		return ""
	}
	return best.Name
}

// leave says whether it was the seat's last watch.
func (p *presence) leave(s seat, at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	there := p.open[s.credential][s]
	if there == nil {
		return false
	}
	if there.count--; there.count > 0 {
		return false
	}
	if delete(p.open[s.credential], s); len(p.open[s.credential]) == 0 {
		delete(p.open, s.credential)
	}
	maps.DeleteFunc(p.left, func(_ seat, left time.Time) bool { return at.Sub(left) > contactsKept })
	p.left[s] = at
	return true
}

// written forgets what the database knows by now.
func (p *presence) written(s seat, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left[s].Equal(at) {
		delete(p.left, s)
	}
}

// seats are those with a watch open.
func (p *presence) seats() (all []seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, seats := range p.open {
		all = slices.AppendSeq(all, maps.Keys(seats))
	}
	return all
}

// serves is what a seat with a watch open serves.
func (p *presence) serves(s seat) (serves Served, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if there := p.open[s.credential][s]; there != nil {
		return there.serves, true
	}
	return Served{}, false
}

// seen returns the last sign of life, of which the database knows stored, and
// whether the controller is in contact at the time now, here or elsewhere.
func (p *presence) seen(s seat, stored, now time.Time, elsewhere bool) (at time.Time, connected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[s.credential][s] != nil || elsewhere {
		return now, true
	}
	if left := p.left[s]; left.After(stored) {
		return left, false
	}
	return stored, false
}

// Arrive notes that a controller has opened its watch, and counts it as in
// contact until the caller calls leave, whose error says that the time is not
// written down. The pool's watchers are woken by both.
func (s *Store) Arrive(ctx context.Context, c Controller) (leave func(context.Context) error, err error) {
	// In this order a watcher that is woken reads what it was woken for.
	first := s.present.arrive(c)
	if err := s.contact(ctx, c, first); err != nil {
		s.present.leave(c.seat(), s.clock.Now().UTC())
		return nil, err
	}
	return func(ctx context.Context) error {
		at := s.clock.Now().UTC()
		if !s.present.leave(c.seat(), at) {
			return nil
		}
		var refused *hubv1.Problem
		if err := s.contact(ctx, c, true); errors.As(err, &refused) && refused.Code == hubv1.CodeUnauthenticated {
			// Nobody is shown a revoked credential's controllers.
			return s.update(ctx, func(tx *Tx) error { return tx.watching(c.seat()) })
		} else if err != nil {
			return err
		}
		s.present.written(c.seat(), at)
		return nil
	}, nil
}

// Present writes down that a controller's watch is still open, so that a hub
// that dies remembers it nearly to the end.
func (s *Store) Present(ctx context.Context, c Controller) error { return s.contact(ctx, c, false) }

// contact writes a sign of life down. Watchers learn of it where they are to,
// and where the instance or its build is new.
func (s *Store) contact(ctx context.Context, c Controller, tell bool) error {
	return s.update(ctx, func(tx *Tx) error {
		if err := tx.live(c.Credential); err != nil {
			return err
		}
		was, known, err := first(ctx, tx, scanText, `SELECT build FROM controllers
			WHERE credential_id = ? AND instance = ? AND executor_pool_uid = ?`, c.ID, c.Instance, c.Serves.UID)
		if err != nil {
			return err
		}
		if _, err := tx.exec("DELETE FROM controllers WHERE last_contact < ?", nano(tx.now.Add(-contactsKept))); err != nil {
			return err
		}
		features := c.Features
		if features == nil {
			features = []string{}
		}
		if _, err := tx.exec(`INSERT INTO controllers (credential_id, instance, executor_pool, executor_pool_uid, build, features, last_contact)
			VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (credential_id, instance, executor_pool_uid) DO UPDATE SET executor_pool = excluded.executor_pool,
			build = excluded.build, features = excluded.features, last_contact = excluded.last_contact`,
			c.ID, c.Instance, c.Serves.Name, c.Serves.UID, c.Build, asJSON(features), nano(tx.now)); err != nil {
			return err
		}
		if !known {
			if err := tx.forgetContacts(c.ID); err != nil {
				return err
			}
		}
		if err := tx.watching(c.seat()); err != nil {
			return err
		}
		if tell || !known || was != c.Build {
			tx.touch(c.PoolID)
		}
		return nil
	})
}

// forgetContacts keeps the last heard of a credential's controllers where there are
// too many, and those that have a watch open.
func (tx *Tx) forgetContacts(credential string) error {
	heard, err := collect(tx.ctx, tx, scanSeat, `SELECT credential_id, instance, executor_pool_uid FROM controllers c WHERE credential_id = ?
		AND NOT EXISTS (SELECT 1 FROM watches w WHERE w.credential_id = c.credential_id AND w.instance = c.instance
			AND w.executor_pool_uid = c.executor_pool_uid)
		ORDER BY last_contact DESC, instance, executor_pool_uid`, credential)
	if err != nil || len(heard) <= contactsOfOne {
		return err
	}
	for _, s := range heard[contactsOfOne:] {
		if _, open := tx.store.present.serves(s); open {
			continue
		}
		if err := tx.send("DELETE FROM controllers WHERE credential_id = ? AND instance = ? AND executor_pool_uid = ?", s.credential, s.instance, s.uid); err != nil {
			return err
		}
	}
	return nil
}

func scanSeat(row scanner) (s seat, err error) {
	return s, row.Scan(&s.credential, &s.instance, &s.uid)
}

// contacts lists a pool's controllers whose credentials are live: those in
// contact first, then the last heard of.
func (s *Store) contacts(ctx context.Context, q querier, pool string) ([]hubv1.ControllerContact, error) {
	all, err := s.allContacts(ctx, q, pool)
	return all[:min(len(all), contactsShown)], err
}

// contactRow is a contact with what tells its ExecutorPool from others.
type contactRow struct {
	hubv1.ControllerContact
	uid, pool string
}

// allContacts is contacts without its bound.
func (s *Store) allContacts(ctx context.Context, q querier, pool string) ([]hubv1.ControllerContact, error) {
	now := s.clock.Now().UTC()
	rows, err := collect(ctx, q, scanContact, `SELECT c.credential_id, c.instance, c.executor_pool, c.executor_pool_uid, c.build, c.features, c.last_contact, p.name,
		(SELECT COUNT(*) FROM watches w JOIN members m ON m.id = w.member_id WHERE w.credential_id = c.credential_id
			AND w.instance = c.instance AND w.executor_pool_uid = c.executor_pool_uid AND w.member_id <> ? AND m.seen_at > ?)
		FROM controllers c JOIN credentials k ON k.id = c.credential_id JOIN pools p ON p.id = k.pool_id
		WHERE k.pool_id = ? AND k.revoked_at IS NULL`, s.members.id, nano(now.Add(-alive)), pool)
	if err != nil {
		return nil, err
	}
	out := make([]hubv1.ControllerContact, 0, len(rows))
	for _, row := range rows {
		c, seat := row.ControllerContact, seat{row.CredentialID, row.Instance, row.uid}
		c.LastContact, c.Connected = s.present.seen(seat, c.LastContact, now, c.Connected)
		if c.Rival, err = s.rival(ctx, q, seat, row.pool); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b hubv1.ControllerContact) int {
		return cmp.Or(b.LastContact.Compare(a.LastContact), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.CredentialID, b.CredentialID),
			cmp.Compare(a.ExecutorPool, b.ExecutorPool))
	})
	return out, nil
}

func scanContact(row scanner) (contactRow, error) {
	var c contactRow
	var features string
	var at, elsewhere int64
	err := row.Scan(&c.CredentialID, &c.Instance, &c.ExecutorPool, &c.uid, &c.Build, &features, &at, &c.pool, &elsewhere)
	if err != nil {
		return c, err
	}
	c.LastContact, c.Connected = fromNano(at), elsewhere > 0
	return c, fromJSON(features, &c.Features)
}
