package store

import (
	"context"
	"time"
)

const (
	// dutyTime is how long a member has a duty after it took it or said again
	// that it has it. It must be over, and be noticed by another, within the time
	// that a dead member is believed to be alive.
	dutyTime = alive - beatEvery
	// dutyMargin is how much earlier the member itself stops.
	dutyMargin = 3 * time.Second
)

// duty is work that one member at a time does.
type duty struct {
	// gained has one value when the member has the duty.
	gained chan struct{}
	// held ends when the member has it no more; nil while it has it not.
	held context.Context //nolint:containedctx // its end is what it is for
	end  context.CancelFunc
	// over ends held when nobody has said again that the member has it.
	over *time.Timer
}

// Alone does work while no other hub that uses the database does the work of
// that name, from now on until ctx ends: the context that work gets ends when
// another may begin, and work is called again when it is this hub's turn. Work
// goes on until its context ends.
func (s *Store) Alone(ctx context.Context, name string, work func(context.Context)) {
	if !s.engine.shared() {
		work(ctx)
		return
	}
	d := s.members.want(name)
	defer s.members.forget(name)
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.gained:
		}
		s.members.mu.Lock()
		held := d.held
		s.members.mu.Unlock()
		if held == nil {
			continue // and lost since
		}
		both, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(held, cancel)
		work(both)
		<-both.Done()
		stop()
		cancel()
	}
}

func (m *members) want(name string) *duty {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := &duty{gained: make(chan struct{}, 1)}
	m.duties[name] = d
	m.hurry()
	return d
}

// forget gives up a duty. It is free for others when its time is over, or when
// this member leaves.
func (m *members) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.duties[name].lose()
	delete(m.duties, name)
}

// hurry makes the next sign of life due at once.
func (m *members) hurry() {
	select {
	case m.beat <- struct{}{}:
	default:
	}
}

func (m *members) wanted() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.duties {
		names = append(names, name)
	}
	return names
}

// take says whether the duty is this member's.
func (tx *Tx) take(name string) (bool, error) {
	changed, err := tx.exec(`INSERT INTO duties (name, member_id, until) VALUES (?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET member_id = excluded.member_id, until = excluded.until
		WHERE duties.member_id = excluded.member_id OR duties.until <= ?`,
		name, tx.store.members.id, nano(tx.now.Add(dutyTime)), nano(tx.now))
	return changed > 0, err
}

// settleDuty makes work begin, go on or end as the database says, which was
// asked no earlier than at the time began.
func (s *Store) settleDuty(name string, held bool, began time.Time) {
	m := &s.members
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.duties[name]
	if d == nil {
		return
	}
	if !held {
		d.lose()
		return
	}
	trust := dutyTime - dutyMargin - time.Since(began)
	if d.held == nil {
		d.held, d.end = context.WithCancel(context.Background())
		select {
		case d.gained <- struct{}{}:
		default:
		}
		// By a clock of a test time does not pass by itself.
		if s.databaseClock {
			d.over = time.AfterFunc(trust, d.end)
		}
		return
	}
	if d.over != nil && !d.over.Reset(trust) {
		// Its end came first: the work begins anew.
		d.lose()
		m.hurry()
	}
}

// lose ends the work. The caller has the members' lock.
func (d *duty) lose() {
	if d.held == nil {
		return
	}
	if d.over != nil {
		d.over.Stop()
	}
	d.end()
	d.held, d.over = nil, nil
}
