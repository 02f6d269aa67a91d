package controllers

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
)

// fakeLock answers every change of the Lease with err.
type fakeLock struct {
	resourcelock.Interface
	err    error
	writes int
}

func (l *fakeLock) Identity() string { return "me" }

func (l *fakeLock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return l.err }

func (l *fakeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	l.writes++
	return l.err
}

// A leader looks as often as a standby, and writes no more for it. The Lease holds
// only as long as what was written says.
func TestALeaderWritesItsLeaseOnceASecond(t *testing.T) {
	began := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	c := clocktesting.NewFakePassiveClock(began)
	lock := &fakeLock{}
	f := &fence{Interface: lock, clock: c}
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	update := func(after time.Duration, want int, answer error) {
		t.Helper()
		c.SetTime(began.Add(after))
		lock.err = answer
		if err := f.Update(t.Context(), mine); !errors.Is(err, answer) || lock.writes != want {
			t.Errorf("after %s: %d writes, want %d; %v", after, lock.writes, want, err)
		}
	}
	down := errors.New("down")
	update(0, 1, nil)
	update(leaseRetry, 1, nil)
	update(2*leaseRetry-time.Millisecond, 2, nil)
	update(3*leaseRetry, 2, nil)
	update(4*leaseRetry, 3, down)
	update(5*leaseRetry, 4, down)
	written := 2*leaseRetry - time.Millisecond
	c.SetTime(began.Add(written + leaseRenew - time.Millisecond))
	if !f.holds() {
		t.Error("the Lease ends too early")
	}
	c.SetTime(began.Add(written + leaseRenew))
	if f.holds() {
		t.Error("what was not written holds the Lease")
	}
	update(written+leaseRenew, 5, nil)
	_ = f.Update(t.Context(), resourcelock.LeaderElectionRecord{}) // given back at once
	if lock.writes != 6 || f.holds() {
		t.Errorf("%d writes", lock.writes)
	}
	update(written+leaseRenew, 7, nil)
}

func TestTheFenceHoldsAsLongAsTheLease(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	lock := &fakeLock{}
	f := &fence{Interface: lock, clock: c}
	mine, nobodys := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, resourcelock.LeaderElectionRecord{}
	is := func(want bool, when string) {
		t.Helper()
		if f.holds() != want {
			t.Errorf("%s: %v", when, !want)
		}
	}
	is(false, "before it is had")
	if err := f.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	is(true, "once it is had")
	c.SetTime(c.Now().Add(leaseRenew - time.Second))
	is(true, "shortly before it must be renewed")
	lock.err = errors.New("down")
	_ = f.Update(t.Context(), mine)
	c.SetTime(c.Now().Add(time.Second))
	is(false, "when it could not be renewed")
	lock.err = nil
	_ = f.Update(t.Context(), mine)
	is(true, "renewed after all")
	lock.err = errors.New("no answer")
	_ = f.Update(t.Context(), nobodys)
	is(false, "given back, whatever the answer")
	if !(*fence)(nil).holds() {
		t.Error("holds without leader election: no")
	}
}

func TestBehindTheFenceNothingIsChanged(t *testing.T) {
	f := &fence{clock: clocktesting.NewFakePassiveClock(time.Now())}
	asked := 0
	transport := f.wrap(roundTrip(func(*http.Request) (*http.Response, error) {
		asked++
		return &http.Response{Body: http.NoBody}, nil
	}))
	for method, want := range map[string]error{
		http.MethodGet: nil, http.MethodHead: nil, http.MethodPost: errFenced, http.MethodPut: errFenced, http.MethodPatch: errFenced, http.MethodDelete: errFenced,
	} {
		request, err := http.NewRequestWithContext(t.Context(), method, "https://example.com", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := transport.RoundTrip(request)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", method, err)
		}
		if answer != nil {
			_ = answer.Body.Close()
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
