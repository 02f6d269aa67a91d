package diff

import (
	"slices"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

// standing is all that serves a hub pool, as it is and as it will be: what waits
// at the hub is given out once, over all clusters.
type standing struct {
	of      string
	members []*member
	queued  int32
	// was and now are the hub's half.
	was, now hubHalf
	// estimate: not all that serves the pool could be read.
	estimate bool
	// guessed: what becomes of a member is not known for sure.
	guessed bool
	// completed: what was not read is among the members.
	completed bool
}

// read counts the ExecutorPools that were.
func (s *standing) read() (n int) {
	for _, m := range s.members {
		if m.xpool != nil {
			n++
		}
	}
	return n
}

func (s *standing) index(of *member) int { return slices.Index(s.members, of) }

// hubHalf is what the hub allows; halted says that it hands out nothing.
type hubHalf struct {
	maximum int32
	halted  bool
}

// member is one ExecutorPool that serves a hub pool, or all those that were not
// read.
type member struct {
	xpool    *v1alpha1.ExecutorPool
	was, now scene
}

// dealt is how a standing's runs are given out.
type dealt struct {
	// retires and serves: member → idle runners that it retires, and runners that
	// it has for what waits.
	retires, serves []int32
	// waiting runs get no runner. contested: several members would start runners
	// for more than there is.
	waiting   int32
	contested bool
}

// deal asks the decision of each member's controller, and gives what waits to the
// runners that there will be.
func (s *standing) deal(half hubHalf, at func(*member) scene) dealt {
	scenes := make([]scene, len(s.members))
	var available int32
	for i, m := range s.members {
		scenes[i] = at(m)
		if !scenes[i].absent && !scenes[i].deleting {
			available += scenes[i].starting + scenes[i].idle
		}
	}
	out := dealt{retires: make([]int32, len(scenes)), serves: make([]int32, len(scenes))}
	wants := make([]int32, len(scenes))
	room, needed, wanting, wanted := int64(half.maximum), int64(s.queued), 0, int64(0)
	for i, one := range scenes {
		one.queued, one.hubMaximum, one.halted, one.others = s.queued, half.maximum, half.halted, available
		if !one.absent && !one.deleting {
			one.others -= one.starting + one.idle
		}
		decided := one.decide()
		out.retires[i] = decided.retires
		room -= int64(one.active() - decided.retires)
		if one.absent || one.deleting || one.halted {
			continue
		}
		out.serves[i] = one.starting + one.idle - decided.retires
		needed -= int64(out.serves[i])
		if wants[i] = max(0, decided.desired-one.active()); wants[i] > 0 {
			wanting++
			wanted += int64(wants[i])
		}
	}
	out.contested = wanting > 1 && wanted > max(0, min(room, needed))
	for i := range wants {
		starts := int32(max(0, min(int64(wants[i]), room))) //nolint:gosec // at most wants
		room -= int64(starts)
		out.serves[i] += starts
		needed -= min(int64(starts), max(0, needed))
	}
	out.waiting = int32(max(0, needed)) //nolint:gosec // at most queued
	return out
}

func before(m *member) scene { return m.was }

// changes is what a change means for a standing, and for its members.
type changes struct {
	was, now dealt
	// retires, starts: member → idle runners that the change retires, waiting runs
	// that it gives a runner.
	retires, starts []int32
}

// change compares what is done as it is with what is done as it will be, with a
// member as given and all others as they will be.
func (s *standing) change(of *member, as scene) changes {
	c := changes{was: s.deal(s.was, before), now: s.deal(s.now, func(m *member) scene {
		if m == of {
			return as
		}
		return m.now
	})}
	given := max(0, c.was.waiting-c.now.waiting)
	for i := range s.members {
		starts := min(given, max(0, c.now.serves[i]-c.was.serves[i]))
		given -= starts
		c.starts = append(c.starts, starts)
		c.retires = append(c.retires, max(0, c.now.retires[i]-c.was.retires[i]))
	}
	return c
}

// total is the impact on all members.
func (c *changes) total() Impact {
	out := Impact{Waiting: int(c.now.waiting), Starts: int(max(0, c.was.waiting-c.now.waiting))}
	for _, retires := range c.retires {
		out.Retires += int(retires)
	}
	return out
}

// count adds what the hub counts and no member has: a member that stands for what
// was not read; read says that some cluster was. It says whether the members are
// all there is.
func (s *standing) count(hub *hubv1.Pool, read bool) (whole bool) {
	counts := hub.Runners
	var all, idle, busy int32
	for _, m := range s.members {
		all, idle, busy = all+m.was.active(), idle+m.was.idle, busy+m.was.busy
	}
	rest := scene{idle: max(0, counts.Idle-idle), busy: max(0, counts.Busy-busy)}
	rest.starting = max(0, counts.Starting+counts.Idle+counts.Busy+counts.Retiring-all-rest.idle-rest.busy)
	if read && rest.active() == 0 {
		return all <= counts.Starting+counts.Idle+counts.Busy+counts.Retiring
	}
	// Nobody says how many are kept idle: as many as there are. Where runs wait
	// though the hub has room, nobody starts more.
	rest.minimum, rest.maximum = rest.idle+rest.starting, unlimited
	available := counts.Starting + counts.Idle
	if read && s.queued > available && counts.Busy+available+counts.Retiring < hub.MaxRunners {
		rest.maximum = rest.active()
	}
	s.members = append(s.members, &member{was: rest, now: rest})
	return false
}
