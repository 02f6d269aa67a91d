package store

import (
	"context"
	"fmt"
	"time"
)

const (
	// minJump is by how much the clock must be off from the time that has passed
	// for it to have been set: less is how it is kept right.
	minJump = 2 * time.Second
	// jumpCalm is how long nothing old is removed after the clock was set by
	// longJump or more: what is old by a clock that is wrong may be young.
	jumpCalm = 24 * time.Hour
	longJump = time.Hour
)

// reading is the clock and how long the machine has been up at one time, and by
// how much leases and deadlines have followed the clock until then.
type reading struct {
	at       time.Time
	up       time.Duration
	followed time.Duration
}

// clockReader reads the clock that leases are by, and by how much they have
// followed it.
type clockReader func(context.Context) (at time.Time, followed time.Duration, err error)

// look reads all of it at once: a process that is stopped between the two
// clocks, or whose question waits, would take its own pause for a clock that
// was set.
func (s *Store) look(ctx context.Context, clock clockReader) (reading, error) {
	if s.uptime == nil {
		return reading{}, nil
	}
	for {
		before := s.uptime()
		at, followed, err := clock(ctx)
		if err != nil {
			return reading{}, err
		}
		if after := s.uptime(); after-before < minJump/10 {
			// Without its monotonic part, which hides that the clock was set.
			return reading{at: at.Round(0), up: after, followed: followed}, nil
		}
	}
}

// jump is by how much the clock was set since the last change, less what leases
// and deadlines have followed meanwhile, at another member; 0 where there is
// nothing to follow, or where nobody can know.
func (s *Store) jump(now reading) (by time.Duration) {
	if s.uptime == nil {
		return 0
	}
	s.clockMu.Lock()
	defer s.clockMu.Unlock()
	by = s.seen.set(now) - (now.followed - s.seen.followed)
	if by.Abs() < minJump {
		by = 0
	}
	return by
}

// set is by how much the clock was set between two readings.
func (r reading) set(later reading) time.Duration {
	return later.at.Sub(r.at) - (later.up - r.up)
}

// timeIn is the time of a change that began with the reading.
func (s *Store) timeIn(began reading) time.Time {
	if !s.databaseClock {
		return s.clock.Now().UTC()
	}
	return began.at.Add(s.uptime() - began.up).UTC()
}

// databaseTime is the database's clock as this member knows it: by its last
// reading and the time that has passed.
type databaseTime struct{ store *Store }

// Now is the time by the database's clock.
func (d databaseTime) Now() time.Time {
	d.store.clockMu.Lock()
	defer d.store.clockMu.Unlock()
	return d.store.seen.at.Add(d.store.uptime() - d.store.seen.up)
}

// Since is how long ago a time was.
func (d databaseTime) Since(t time.Time) time.Duration { return d.Now().Sub(t) }

// follow makes leases and deadlines follow a clock that was set. They are points
// in time and stand for how long something takes: a clock that is set forward by
// an hour would end every lease, and hand every run out again, while the runners
// are in contact; one that is set back would keep the lost ones for an hour.
func follow(by time.Duration) func(*Tx) error {
	return func(tx *Tx) error {
		for _, statement := range []string{
			"UPDATE runners SET lost_at = lost_at + ? WHERE state <> 'retired' AND lost_at IS NOT NULL",
			// Since when it has waited; what comes later has the new clock's times.
			"UPDATE runners SET enrolled_at = enrolled_at + ? WHERE state <> 'retired' AND state = 'idle'",
			"UPDATE runners SET token_expires_at = token_expires_at + ? WHERE state = 'starting'",
			"UPDATE runs SET deadline = deadline + ? WHERE settled_at IS NULL AND deadline IS NOT NULL",
			"UPDATE members SET seen_at = seen_at + ?",
			"UPDATE duties SET until = until + ?",
			"UPDATE hub_clock SET followed = followed + ?",
		} {
			if _, err := tx.exec(statement, int64(by)); err != nil {
				return err
			}
		}
		if err := tx.followOverrides(by); err != nil {
			return err
		}
		tx.hurry = true
		return tx.audit(record{actor: actorHub, action: ActionClockSet, detail: fmt.Sprintf("the clock was set by %s; leases and deadlines follow it", by.Round(time.Millisecond))})
	}
}

// followed keeps that leases and deadlines are by the clock of the reading.
func (s *Store) followed(now reading) {
	s.clockMu.Lock()
	defer s.clockMu.Unlock()
	if now.up >= s.seen.up {
		s.seen = now
	}
}

// leapt keeps that the clock was set by much, whoever makes deadlines follow.
func (s *Store) leapt(now reading) {
	if s.uptime == nil {
		return
	}
	s.clockMu.Lock()
	defer s.clockMu.Unlock()
	if s.seen.set(now).Abs() >= longJump {
		s.jumped, s.everJumped = now.up, true
	}
}

// unsettled says that the clock was set by much a short while ago.
func (s *Store) unsettled() bool {
	if s.uptime == nil {
		return false
	}
	now := s.uptime()
	s.clockMu.Lock()
	defer s.clockMu.Unlock()
	return s.everJumped && now-s.jumped < jumpCalm
}

// keepTime makes leases and deadlines follow a clock that was set, although
// nobody changes anything.
func (s *Store) keepTime(ctx context.Context) error {
	now, err := s.look(ctx, s.engine.clock)
	if err != nil {
		return err
	}
	if s.jump(now) != 0 {
		// Any change makes them follow.
		return s.update(ctx, func(*Tx) error { return nil })
	}
	s.leapt(now)
	s.followed(now)
	return nil
}
