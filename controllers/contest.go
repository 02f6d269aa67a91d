package controllers

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
)

// contest is how often something was corrected lately that somebody else keeps
// changing.
type contest struct {
	times       int
	first, last time.Time
	// by changed it last, and what it changed, in words for people.
	by, what string
	// disputed: corrections are put off. told: that was said in an Event.
	disputed, told bool
}

const (
	// freeCorrections of one thing within contestEnds are made at once: a person
	// edits that often. A controller that wants something else edits as fast as
	// it is corrected; it is answered ever later, contestSlowest apart at most.
	freeCorrections = 5
	contestEnds     = 10 * time.Minute
	contestSlowest  = time.Minute
)

// mayWrite says whether a status is written now. What the controller has to say is
// written at once; what only takes back somebody else's edit, as long as that does not
// come again and again. found is what the object has, wrote what the controller wrote
// last. Where it is not written now, it says when it will be; zero: there is nothing to
// write.
func (c *contest) mayWrite(found, wrote, status any, now time.Time) (at time.Time, may bool) {
	if equality.Semantic.DeepEqual(found, status) {
		return time.Time{}, false
	}
	if !equality.Semantic.DeepEqual(wrote, status) {
		return now, true
	}
	return c.enter(now)
}

// enter counts a correction that is about to be made. Where it is not time for
// it yet, it says when it will be, and counts nothing.
func (c *contest) enter(now time.Time) (at time.Time, may bool) {
	if at, may = c.next(now); may {
		c.count(now)
	}
	return at, may
}

// next says when a correction may be made, and whether that is now.
func (c *contest) next(now time.Time) (at time.Time, may bool) {
	if now.Sub(c.last) >= contestEnds {
		*c = contest{}
	}
	if c.times >= freeCorrections {
		if next := c.last.Add(backoff(c.times-freeCorrections, contestSlowest)); now.Before(next) {
			c.disputed = true
			return next, false
		}
	}
	return now, true
}

// count notes a correction that was made.
func (c *contest) count(now time.Time) {
	if c.times == 0 {
		c.first = now
	}
	c.times, c.last = c.times+1, now
	c.disputed = c.disputed || c.times > freeCorrections
}
