package store

import (
	"context"
	"sync"
	"time"
)

const (
	// beatEvery is how often a member says that it is alive, and alive how long
	// it is believed: four lost signs, and time to write the fifth.
	beatEvery = 3 * time.Second
	alive     = 15 * time.Second
	// tickEvery is how often a member looks whether the clock was set.
	tickEvery = time.Second
	// leaveTimeout bounds how long a hub that stops takes leave.
	leaveTimeout = 5 * time.Second
)

// membersTopic wakes when a member has come or gone.
const membersTopic = "members"

// Member is what a hub says of itself to the others that use its database.
type Member struct {
	// Build is the version that it was built from.
	Build string
	// Features are those that it has; left out, all that this build has.
	Features []string
	// Address is where it can be reached, for people; it may be empty.
	Address string
}

// members is this hub among those that share the database.
type members struct {
	id   string
	self Member
	// stop ends the member's goroutines.
	stop context.CancelFunc
	done sync.WaitGroup
	// beat has one value when the next sign of life is due at once.
	beat chan struct{}
	// settle has one value when pending has an entry.
	settle chan struct{}

	mu sync.Mutex // guards the rest
	// features are those that all members have.
	features []string
	// duties: name → work of this hub's that one member at a time does.
	duties map[string]*duty
	// pending holds ids of pools that another member changed.
	pending map[string]struct{}
}

// MemberID is this hub's among ListMembers; empty where the database is its own.
func (s *Store) MemberID() string { return s.members.id }

// ListMembers lists the hubs that use the database and are alive, oldest first.
func (s *Store) ListMembers(ctx context.Context) ([]MemberInfo, error) {
	if !s.engine.shared() {
		return []MemberInfo{{Member: s.members.self}}, nil
	}
	return collect(ctx, s.reader, scanMember, selectMembers+" WHERE seen_at > ? ORDER BY started_at, id", nano(s.clock.Now().Add(-alive)))
}

// MemberInfo is a hub that uses the database.
type MemberInfo struct {
	Member
	ID                string
	StartedAt, SeenAt time.Time
}

const selectMembers = "SELECT id, build, features, address, started_at, seen_at FROM members"

func scanMember(row scanner) (MemberInfo, error) {
	var m MemberInfo
	var text string
	var started, seen int64
	if err := row.Scan(&m.ID, &m.Build, &text, &m.Address, &started, &seen); err != nil {
		return m, err
	}
	m.StartedAt, m.SeenAt = fromNano(started), fromNano(seen)
	return m, fromJSON(text, &m.Features)
}

// join makes this hub one of those that use the database.
func (s *Store) join(ctx context.Context, o Options) error {
	m := &s.members
	m.self = o.Member
	if m.self.Features == nil {
		m.self.Features = features
	}
	m.features, m.duties, m.pending = m.self.Features, map[string]*duty{}, map[string]struct{}{}
	m.beat, m.settle = make(chan struct{}, 1), make(chan struct{}, 1)
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	if !s.engine.shared() {
		return nil
	}
	if err := s.beat(ctx); err != nil {
		return err
	}
	m.done.Go(func() { s.listen(ctx) })
	m.done.Go(func() { s.settleHeard(ctx) })
	if s.databaseClock {
		m.done.Go(func() { s.live(ctx) })
	}
	return nil
}

// leave ends what join began.
func (s *Store) leave() error {
	m := &s.members
	if m.stop == nil {
		return nil // it never joined
	}
	m.stop()
	m.done.Wait()
	if !s.engine.shared() {
		return nil
	}
	m.mu.Lock()
	for _, d := range m.duties {
		d.lose()
	}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	return s.update(ctx, func(tx *Tx) error { return tx.dismissMember(m.id, "it was stopped") })
}

// live says that this member is alive until it is told to stop. What fails is
// tried again: the writer tells whom it concerns.
func (s *Store) live(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.members.beat:
			last = time.Time{}
		case <-tick.C:
			_ = s.keepTime(ctx)
		}
		if time.Since(last) >= beatEvery-tickEvery/2 {
			last = time.Now()
			_ = s.beat(ctx)
		}
	}
}

// beat is one sign of life, with what comes of looking at the other members:
// those that are dead are taken out, and their duties over.
func (s *Store) beat(ctx context.Context) error {
	m := &s.members
	began := time.Now()
	wanted := m.wanted()
	held := map[string]bool{}
	gone := s.takeUnheard()
	var common []string
	err := s.update(ctx, func(tx *Tx) error {
		if err := tx.seen(); err != nil {
			return err
		}
		if err := tx.unheard(gone); err != nil {
			return err
		}
		dead, err := collect(tx.ctx, tx, scanText, "SELECT id FROM members WHERE id <> ? AND seen_at <= ?", m.id, nano(tx.now.Add(-alive)))
		if err != nil {
			return err
		}
		for _, id := range dead {
			if err := tx.dismissMember(id, "it was silent for "+alive.String()); err != nil {
				return err
			}
		}
		// Another member may have been told of the end of a Pod after the watch here
		// had ended, and before that was written down.
		if err := tx.freeEnded(""); err != nil {
			return err
		}
		for _, name := range wanted {
			if held[name], err = tx.take(name); err != nil {
				return err
			}
		}
		all, err := collect(tx.ctx, tx, scanMember, selectMembers)
		common = commonFeatures(all)
		return err
	})
	if err != nil {
		s.stillUnheard(gone)
		return err
	}
	m.mu.Lock()
	m.features = common
	m.mu.Unlock()
	for _, name := range wanted {
		s.settleDuty(name, held[name], began)
	}
	// Another member may have brought a deadline nearer, or died with one to keep.
	s.wakeTimers()
	s.considerAttached()
	return nil
}

// seen writes down that this member is alive. One that was taken for dead
// comes back with all that it has.
func (tx *Tx) seen() error {
	m := &tx.store.members
	changed, err := tx.exec("UPDATE members SET seen_at = ? WHERE id = ?", nano(tx.now), m.id)
	if err != nil || changed > 0 {
		return err
	}
	if _, err := tx.exec("INSERT INTO members (id, build, features, address, started_at, seen_at) VALUES (?, ?, ?, ?, ?, ?)",
		m.id, m.self.Build, asJSON(m.self.Features), m.self.Address, nano(tx.now), nano(tx.now)); err != nil {
		return err
	}
	for _, s := range tx.store.present.seats() {
		if err := tx.watching(s); err != nil {
			return err
		}
	}
	tx.wake(membersTopic)
	return tx.audit(record{actor: actorHub, action: ActionMemberJoin, object: m.id, state: "alive", detail: m.self.Build})
}

// dismissMember takes a member out that is dead or stops, with the watches that
// were open at it. Its runners and controllers come to another by themselves.
func (tx *Tx) dismissMember(id, reason string) error {
	pools, err := collect(tx.ctx, tx, scanText, "SELECT DISTINCT k.pool_id FROM watches w JOIN credentials k ON k.id = w.credential_id WHERE w.member_id = ?", id)
	if err != nil {
		return err
	}
	for _, pool := range pools {
		tx.touch(pool)
	}
	// Until the member was seen last, so were its controllers.
	if err := tx.send(`UPDATE controllers SET last_contact = (SELECT m.seen_at FROM members m WHERE m.id = ?)
		WHERE EXISTS (SELECT 1 FROM watches w JOIN members m ON m.id = w.member_id WHERE w.member_id = ?
		AND w.credential_id = controllers.credential_id AND w.instance = controllers.instance
		AND w.executor_pool_uid = controllers.executor_pool_uid AND m.seen_at > controllers.last_contact)`, id, id); err != nil {
		return err
	}
	for _, statement := range []string{
		"DELETE FROM watches WHERE member_id = ?", "DELETE FROM duties WHERE member_id = ?", "UPDATE runners SET heard_by = '' WHERE state <> 'retired' AND heard_by = ?",
	} {
		if err := tx.send(statement, id); err != nil {
			return err
		}
	}
	gone, err := tx.exec("DELETE FROM members WHERE id = ?", id)
	if err != nil || gone == 0 {
		return err
	}
	tx.wake(membersTopic)
	return tx.audit(record{actor: actorHub, action: ActionMemberLeave, object: id, state: "gone", detail: reason})
}

// watching writes down whether a controller has a watch open at this member.
func (tx *Tx) watching(s seat) error {
	if !tx.store.engine.shared() {
		return nil
	}
	serves, open := tx.store.present.serves(s)
	if !open {
		return tx.send("DELETE FROM watches WHERE credential_id = ? AND instance = ? AND executor_pool_uid = ? AND member_id = ?",
			s.credential, s.instance, s.uid, tx.store.members.id)
	}
	return tx.send(`INSERT INTO watches (credential_id, instance, executor_pool_uid, member_id, executor_pool, hub_pool, pool_created)
		VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (credential_id, instance, executor_pool_uid, member_id) DO UPDATE SET
		executor_pool = excluded.executor_pool, hub_pool = excluded.hub_pool, pool_created = excluded.pool_created`,
		s.credential, s.instance, s.uid, tx.store.members.id, serves.Name, serves.HubPool, serves.Created)
}

// rival is presence.rival over all members.
func (s *Store) rival(ctx context.Context, q querier, of seat, pool string) (string, error) {
	if !s.engine.shared() || of.uid == "" {
		return s.present.rival(of, pool, nil), nil
	}
	elsewhere, err := collect(ctx, q, scanServed, `SELECT w.executor_pool, w.executor_pool_uid, w.hub_pool, w.pool_created
		FROM watches w JOIN members m ON m.id = w.member_id WHERE w.credential_id = ? AND w.member_id <> ? AND m.seen_at > ?`,
		of.credential, s.members.id, nano(s.clock.Now().Add(-alive)))
	return s.present.rival(of, pool, elsewhere), err
}

func scanServed(row scanner) (Served, error) {
	var s Served
	err := row.Scan(&s.Name, &s.UID, &s.HubPool, &s.Created)
	return s, err
}

// wakeTimers makes whoever waits for the next deadline look again.
func (s *Store) wakeTimers() {
	select {
	case s.deadline <- struct{}{}:
	default:
	}
}
