package store

import (
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

// reading is the clock and how long the machine has been up at one time.
type reading struct {
	at time.Time
	up time.Duration
}

// reading reads both at once: a process that is stopped between the two would
// take its own pause for a clock that was set.
func (s *Store) reading() reading {
	for {
		before := s.uptime()
		// Without its monotonic part, which hides that the clock was set.
		at := s.clock.Now().Round(0)
		if after := s.uptime(); after-before < minJump/10 {
			return reading{at: at, up: after}
		}
	}
}

// jump is by how much the clock was set since the last change; 0 where it was
// not, or where nobody can know.
func (s *Store) jump() (by time.Duration, now reading) {
	if s.uptime == nil {
		return 0, now
	}
	now = s.reading()
	s.clockMu.Lock()
	defer s.clockMu.Unlock()
	by = now.at.Sub(s.seen.at) - (now.up - s.seen.up)
	if by.Abs() < minJump {
		by = 0
	}
	return by, now
}

// follow makes leases and deadlines follow a clock that was set. They are points
// in time and stand for how long something takes: a clock that is set forward by
// an hour would end every lease, and hand every run out again, while the runners
// are in contact; one that is set back would keep the lost ones for an hour.
func follow(by time.Duration) func(*Tx) error {
	return func(tx *Tx) error {
		for _, statement := range []string{
			"UPDATE runners SET lost_at = lost_at + ? WHERE state <> 'retired' AND lost_at IS NOT NULL",
			"UPDATE runners SET token_expires_at = token_expires_at + ? WHERE state = 'starting'",
			"UPDATE runs SET deadline = deadline + ? WHERE settled_at IS NULL AND deadline IS NOT NULL",
		} {
			if _, err := tx.exec(statement, int64(by)); err != nil {
				return err
			}
		}
		tx.hurry = true
		return tx.audit(record{actor: actorHub, action: ActionClockSet, detail: fmt.Sprintf("the clock was set by %s; leases and deadlines follow it", by.Round(time.Millisecond))})
	}
}

// followed keeps that leases and deadlines are by the clock of the reading.
func (s *Store) followed(now reading) {
	s.clockMu.Lock()
	defer s.clockMu.Unlock()
	s.seen = now
}

// leapt keeps that the clock was set.
func (s *Store) leapt(by time.Duration, now reading) {
	s.clockMu.Lock()
	defer s.clockMu.Unlock()
	if by.Abs() >= longJump {
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
