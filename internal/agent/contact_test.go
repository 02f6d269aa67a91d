package agent

import (
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"cloop.dev/cloop/internal/agent/supervisor"
)

func newLease(clk *testclock.FakeClock) *lease {
	return &lease{clock: clk, life: 45 * time.Second, margin: 5 * time.Second, last: momentOf(clk)}
}

// The hub counts from when it heard the heartbeat, which is later than when it
// was sent and earlier than when the answer came.
func TestALeaseCountsFromWhenTheHeartbeatWasSent(t *testing.T) {
	clk := testclock.NewFakeClock(time.Now())
	l := newLease(clk)
	clk.Step(20 * time.Second)
	sent := momentOf(clk)
	clk.Step(15 * time.Second) // the answer takes its time
	l.renew(sent)
	if left := l.untilFence(); left > 25*time.Second {
		t.Errorf("the run may live another %s", left)
	}
	if l.lostAt() != sent.boot.Add(45*time.Second) {
		t.Errorf("the supervisor ends the run %s after the heartbeat was sent", l.lostAt().Sub(sent.boot))
	}
	l.renew(moment{at: sent.at.Add(-time.Second), boot: sent.boot - 1}) // an older answer that comes late
	if l.contact() != sent {
		t.Errorf("an older answer moved the contact to %v", l.contact())
	}
}

func TestALeaseGoesOnWhileTheMachineSleeps(t *testing.T) {
	clk := testclock.NewFakeClock(time.Now())
	l := newLease(clk)
	// The clock of the language's runtime stood still; the one since boot did not.
	l.last.boot = supervisor.Now().Add(-41 * time.Second)
	if left := l.untilFence(); left > 0 {
		t.Errorf("the run may live another %s", left)
	}
	l.last.boot = supervisor.Now().Add(-51 * time.Second)
	if !l.over() {
		t.Error("the hub still waits, by the runner's reckoning")
	}
}
