package store_test

import (
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// machineTime is a clock that can be set and an uptime that cannot.
type machineTime struct {
	*world
	up time.Duration
}

func newMachineTime(t *testing.T) *machineTime {
	t.Helper()
	m := &machineTime{world: newWorld(t, 5)}
	check(t, m.s.Close())
	s, err := store.Open(background, at(t, m.dir, store.Options{Clock: m.clock, Uptime: func() time.Duration { return m.up }}))
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	m.s = s
	return m
}

// passes lets time pass; set sets the clock.
func (m *machineTime) passes(d time.Duration) { m.up += d; m.clock.Step(d) }
func (m *machineTime) set(by time.Duration)   { m.clock.SetTime(m.clock.Now().Add(by)) }

func TestLeasesFollowAClockThatIsSet(t *testing.T) { both(t, testLeasesFollowAClockThatIsSet) }

func testLeasesFollowAClockThatIsSet(t *testing.T) {
	for name, by := range map[string]time.Duration{"forward": time.Hour, "far forward": 10 * 365 * 24 * time.Hour, "back": -time.Hour, "a little": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			m := newMachineTime(t)
			run, r := m.run(t), m.runner(t, "key-one1")
			m.started(t, r, m.get(t, run.ID))
			minted, err := m.s.Mint(background, m.credential, "key-two2")
			check(t, err)
			m.passes(20 * time.Second)
			m.set(by)
			check(t, m.s.Expire(background))
			if held := m.get(t, run.ID); held.State != hubv1.RunRunning || held.Runner != r.ID {
				t.Fatalf("its run is %+v", held)
			}
			// Of the lease and its margin, 50 s, 30 are left; nothing else wakes the hub.
			at, some, err := m.s.NextDeadline(background)
			if left := at.Sub(m.clock.Now()); err != nil || !some || left != 30*time.Second {
				t.Fatalf("the hub looks again in %s, %v", left, err)
			}
			_, err = m.s.Enroll(background, hubv1.EnrollRequest{Token: minted.Token})
			check(t, err)
			m.passes(30 * time.Second)
			check(t, m.s.Expire(background))
			if held := m.get(t, run.ID); held.Runner == r.ID {
				t.Fatalf("after its lease: %+v", held)
			}
		})
	}
}

// The hub may be stopped between looking at one clock and at the other.
func TestAPauseIsNoClockThatWasSet(t *testing.T) { both(t, testAPauseIsNoClockThatWasSet) }

func testAPauseIsNoClockThatWasSet(t *testing.T) {
	m := newMachineTime(t)
	run, r := m.run(t), m.runner(t, "key-one1")
	m.started(t, r, m.get(t, run.ID))
	check(t, m.s.Close())
	looks := 0
	s, err := store.Open(background, at(t, m.dir, store.Options{Clock: m.clock, Uptime: func() time.Duration {
		if looks++; looks == 4 { // the second look of the first change
			m.passes(40 * time.Second)
		}
		return m.up
	}}))
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	at, _, err := s.NextDeadline(background)
	if left := at.Sub(m.clock.Now()); err != nil || left != 10*time.Second || looks < 6 {
		t.Errorf("after 40 s of 50 the hub looks again in %s, %v, after %d looks", left, err, looks)
	}
}

func TestNothingWakesButTheDeadlineWhenTheClockIsSetBack(t *testing.T) {
	both(t, testNothingWakesButTheDeadlineWhenTheClockIsSetBack)
}

func testNothingWakesButTheDeadlineWhenTheClockIsSetBack(t *testing.T) {
	m := newMachineTime(t)
	run, r := m.run(t), m.runner(t, "key-one1")
	m.started(t, r, m.get(t, run.ID))
	m.set(-time.Hour)
	at, some, err := m.s.NextDeadline(background)
	if left := at.Sub(m.clock.Now()); err != nil || !some || left != 50*time.Second {
		t.Fatalf("the hub looks again in %s, %v", left, err)
	}
}

// By a clock that is wrong everything may look old.
func TestNothingIsRemovedForADayAfterTheClockWasSet(t *testing.T) {
	both(t, testNothingIsRemovedForADayAfterTheClockWasSet)
}

func testNothingIsRemovedForADayAfterTheClockWasSet(t *testing.T) {
	m := newMachineTime(t)
	run, _ := m.ended(t, "key-one1")
	m.set(10 * 365 * 24 * time.Hour)
	m.prune(t)
	m.passes(23 * time.Hour)
	m.prune(t)
	if got := m.get(t, run.ID); got.LogRemovedAt != nil {
		t.Fatalf("the log was removed at %s", got.LogRemovedAt)
	}
	m.passes(time.Hour)
	m.prune(t)
	if got := m.get(t, run.ID); got.LogRemovedAt == nil {
		t.Error("the log is kept for ever")
	}
}

// Of a request that is repeated in the same hour.
func TestAKeyIsKnownAfterTheClockWasSet(t *testing.T) { both(t, testAKeyIsKnownAfterTheClockWasSet) }

func testAKeyIsKnownAfterTheClockWasSet(t *testing.T) {
	m := newMachineTime(t)
	start := func(key store.Key) string {
		t.Helper()
		run, err := m.s.StartRun(background, admin, key, hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Undemanding(""))
		check(t, err)
		return run.ID
	}
	first := start("one")
	m.set(25 * time.Hour)
	start("two") // which lets what is over go
	if start("one") != first {
		t.Error("with the clock set forward the same request made another run")
	}
	m.set(-25 * time.Hour)
	if start("one") != first {
		t.Error("with the clock set back again the same request made another run")
	}
	m.passes(25 * time.Hour)
	if start("one") == first {
		t.Error("a key is known for ever")
	}
}

func TestWhatWaitsForATimeFollowsAClockThatIsSet(t *testing.T) {
	both(t, testWhatWaitsForATimeFollowsAClockThatIsSet)
}

func testWhatWaitsForATimeFollowsAClockThatIsSet(t *testing.T) {
	for name, by := range map[string]time.Duration{"forward": 25 * time.Hour, "back": -25 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			m := newMachineTime(t)
			overridden(t, m.world)
			idle := m.runner(t, "key-one1")
			inContact := func(halfMinutes int) {
				for range halfMinutes {
					m.passes(time.Minute / 2)
					check(t, errOf(m.s.Heartbeat(background, idle)))
				}
			}
			inContact(28)
			m.set(by)
			check(t, m.s.Expire(background))
			if state, _ := m.state(t, idle.ID); state != hubv1.RunnerIdle {
				t.Errorf("after 14 minutes of 15 it is %s", state)
			}
			inContact(2)
			check(t, m.s.Expire(background))
			if state, _ := m.state(t, idle.ID); state != hubv1.RunnerRetiring {
				t.Errorf("after 15 minutes it is %s", state)
			}
			over := m.poolOf(t, "gpu").Override
			if over == nil || !over.Until.Equal(m.clock.Now().Add(45*time.Minute)) {
				t.Fatalf("of an hour 45 minutes are left: %+v", over)
			}
			m.passes(45 * time.Minute)
			check(t, m.s.Expire(background))
			asGit(t, m.poolOf(t, "gpu"))
		})
	}
}
