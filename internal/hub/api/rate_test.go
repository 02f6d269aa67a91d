package api

import (
	"strconv"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

func TestALimitersMemoryIsBounded(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	refused := 0
	l := newLimiter(LimitUsers, Rate{PerSecond: 1, Burst: 1}, Options{Clock: clock, Limited: func(limit Limit) {
		if limit == LimitUsers {
			refused++
		}
	}})
	for i := range 2 * maxCounted {
		if _, ok := l.take(strconv.Itoa(i)); !ok {
			t.Fatalf("client %d is refused at once", i)
		}
		if _, ok := l.take("the one that keeps on"); ok != (i == 0) {
			t.Fatalf("after %d others, who keeps on is served: %v", i, ok)
		}
	}
	if refused != 2*maxCounted-1 {
		t.Errorf("%d refusals are counted", refused)
	}
	if len(l.counted) != maxCounted || l.order.Len() != maxCounted {
		t.Errorf("%d clients are remembered, in an order of %d", len(l.counted), l.order.Len())
	}
	clock.Step(1500 * time.Millisecond)
	if _, ok := l.take("the one that keeps on"); !ok {
		t.Error("time gives nothing back")
	}
	if wait, ok := l.take("the one that keeps on"); ok || wait != time.Second {
		t.Errorf("the wait is %s", wait)
	}
}

func TestAddressesAreCountedByMachine(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:1234":             "192.0.2.7",
		"[::ffff:192.0.2.7]:1234":    "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6]:443": "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1]:443": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:443":         "fe80::/64",
		"pipe":                       "pipe",
	} {
		if got := addressOf(remote); got != want {
			t.Errorf("%s is counted as %s, want %s", remote, got, want)
		}
	}
}
