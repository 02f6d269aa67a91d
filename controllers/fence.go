package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/secret"
)

// errFenced is what becomes of a change that a process wants to make after its
// Lease has run out.
var errFenced = errors.New("this replica's Lease has run out, so it changes nothing any more")

// fence keeps a process that leads no more from changing anything.
//
// Leader election tells a process that it has lost its Lease only when that
// process gets to run: one that was stopped, or whose machine was paused, goes on
// where it was, in the middle of starting a runner that its successor has started
// since. So every change asks the clock whether the Lease still holds. What is
// left is a request that was being sent at the very moment of the stop; names and
// mint keys that follow from the runner make that one harmless.
type fence struct {
	resourcelock.Interface
	clock clock.PassiveClock
	// until is when the Lease stops to hold, unless it is renewed; nil: it does
	// not hold.
	until atomic.Pointer[time.Time]
}

// newFence returns a fence around the Lease of the options' controller; nil where
// there is no leader election, which lets everything through.
func newFence(o Options) (*fence, error) {
	if !o.LeaderElect {
		return nil, nil
	}
	identity := o.Instance
	if identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("name this replica: %w: set POD_NAME", err)
		}
		identity = host
	}
	config := rest.AddUserAgent(restConfigOf(o), "leader-election")
	// One request that hangs must not cost the Lease.
	config.Timeout = leaseRenew / 2
	leases, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the Lease: %w", err)
	}
	return &fence{
		clock: clock.RealClock{},
		Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.account()},
			Client:    leases,
			// A process that was started again is another one.
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity + "_" + string(uuid.NewUUID())},
		},
	}, nil
}

// Create is the lock's, and notes that the Lease holds.
func (f *fence) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	sent := f.clock.Now()
	return f.note(sent, record, f.Interface.Create(ctx, record))
}

// Update is the lock's, and notes that the Lease holds, or is given back.
func (f *fence) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == f.Identity() && f.fresh() {
		return nil
	}
	if record.HolderIdentity != f.Identity() {
		// Whether the answer arrives or not, it may be somebody else's now.
		f.until.Store(nil)
	}
	sent := f.clock.Now()
	return f.note(sent, record, f.Interface.Update(ctx, record))
}

// note counts from when the request was sent: others count from when it arrived.
func (f *fence) note(sent time.Time, record resourcelock.LeaderElectionRecord, err error) error {
	if err == nil && record.HolderIdentity == f.Identity() {
		until := sent.Add(leaseRenew)
		f.until.Store(&until)
	}
	return err
}

// fresh says that the Lease was renewed just now, so that it need not be again. What
// the leader election then believes is up to leaseWrite better than what is: the
// fence goes by what was written.
func (f *fence) fresh() bool {
	until := f.until.Load()
	if until == nil {
		return false
	}
	// Half a look early, or every other write would come a look late.
	due, now := until.Add(leaseWrite-leaseRenew-leaseRetry/2), f.clock.Now()
	return now.Before(due) && now.Round(0).Before(due.Round(0))
}

// holds says whether the process may change anything.
func (f *fence) holds() bool {
	if f == nil {
		return true
	}
	until := f.until.Load()
	if until == nil {
		return false
	}
	now := f.clock.Now()
	// The clock that does not jump stands still while the machine is paused; the
	// other one does not.
	return now.Before(*until) && now.Round(0).Before(until.Round(0))
}

// wrap has a client of the API server change nothing unless the Lease holds.
func (f *fence) wrap(next http.RoundTripper) http.RoundTripper { return fencedTransport{f, next} }

type fencedTransport struct {
	fence *fence
	next  http.RoundTripper
}

// RoundTrip is http.RoundTripper's.
func (t fencedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead && !t.fence.holds() {
		return nil, errFenced
	}
	return t.next.RoundTrip(request)
}

// fencedHub is a hub of which nothing is asked unless the Lease holds.
type fencedHub struct {
	poolHub
	fence *fence
}

// MintRunner is poolHub's.
func (h fencedHub) MintRunner(ctx context.Context, key string) (hubv1.MintResponse, error) {
	if !h.fence.holds() {
		return hubv1.MintResponse{}, errFenced
	}
	return h.poolHub.MintRunner(ctx, key)
}

// RetireRunner is poolHub's.
func (h fencedHub) RetireRunner(ctx context.Context, runner string) (hubv1.RetireResponse, error) {
	if !h.fence.holds() {
		return hubv1.RetireResponse{}, errFenced
	}
	return h.poolHub.RetireRunner(ctx, runner)
}

// RunnerGone is poolHub's.
func (h fencedHub) RunnerGone(ctx context.Context, runner string, request hubv1.GoneRequest) (hubv1.RetireResponse, error) {
	if !h.fence.holds() {
		return hubv1.RetireResponse{}, errFenced
	}
	return h.poolHub.RunnerGone(ctx, runner, request)
}

// SetRefusal is poolHub's.
func (h fencedHub) SetRefusal(ctx context.Context, refusal hubv1.Refusal) error {
	if !h.fence.holds() {
		return errFenced
	}
	return h.poolHub.SetRefusal(ctx, refusal)
}

// Succeed is poolHub's.
func (h fencedHub) Succeed(ctx context.Context, earlier secret.String) error {
	if !h.fence.holds() {
		return errFenced
	}
	return h.poolHub.Succeed(ctx, earlier)
}
