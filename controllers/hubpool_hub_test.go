package controllers

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
)

// answering is a hub that answers whatever is asked but watches.
type answering struct{ managementHub }

func (answering) GetPool(context.Context, string) (hubv1.Pool, error) { return hubv1.Pool{}, nil }

// A watch that is one too many costs the news of its own pool, and no other pool of
// the token anything.
func TestAWatchTooManyHoldsUpNoOtherPool(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	hubs := newManagementHubs("test", nil, fake)
	hubs.dial = func(hubTarget) (managementHub, func(), error) { return answering{}, func() {}, nil }
	hub := func(name string) *managedHub {
		t.Helper()
		h, err := hubs.of(types.NamespacedName{Name: name}, hubTarget{url: "https://hub"})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	asked := func(name string) error {
		_, err := hub(name).GetPool(t.Context(), name)
		return err
	}
	refused := func(code hubv1.Code) error {
		return fmt.Errorf("%w: %w", hubclient.ErrUnavailable, &hubv1.Problem{Status: http.StatusTooManyRequests, Code: code, RetryAfterSeconds: 10})
	}
	const pools = 100
	for i := range pools {
		wait := hub(fmt.Sprint(i)).afterWatch(t.Context(), refused(hubv1.CodeTooManyWatches), time.Millisecond)
		if all := time.Duration(i+1) * 10 * time.Second; wait < all/2 || wait > all {
			t.Errorf("with %d that have none, the next tries again in %s", i, wait)
		}
	}
	if err := asked("0"); err != nil {
		t.Errorf("one without a watch: %v", err)
	}
	if err := asked("other"); err != nil {
		t.Errorf("another: %v", err)
	}
	// Once they have one they count no more.
	for i := range pools {
		hub(fmt.Sprint(i)).received(t.Context(), hubv1.Pool{})
	}
	if wait := hub("0").afterWatch(t.Context(), refused(hubv1.CodeTooManyWatches), time.Millisecond); wait > 10*time.Second {
		t.Errorf("alone it tries again in %s", wait)
	}
	// A hub that is asked too often is left alone by all.
	hub("1").afterWatch(t.Context(), refused(hubv1.CodeRateLimited), time.Millisecond)
	if err := asked("2"); err == nil {
		t.Error("asked too often, the hub is asked again")
	}
}
