package retry_test

import (
	"math"
	"testing"
	"time"

	"cloop.dev/cloop/internal/retry"
)

func TestAfterDoublesUpToItsBound(t *testing.T) {
	for _, c := range []struct {
		failures    int
		first, last time.Duration
		want        time.Duration
	}{
		{0, time.Second, time.Minute, time.Second},
		{1, time.Second, time.Minute, 2 * time.Second},
		{5, time.Second, time.Minute, 32 * time.Second},
		{6, time.Second, time.Minute, time.Minute},
		{math.MaxInt, time.Second, time.Minute, time.Minute},
		{2, time.Second, 4 * time.Second, 4 * time.Second},
		{1, time.Second, 3 * time.Nanosecond, 3 * time.Nanosecond},
		{0, time.Second, time.Millisecond, time.Millisecond},
		{1, 3, 5, 5},
		{1, 2, 5, 4},
		{2, 2, 5, 5},
		{math.MaxInt, time.Second, math.MaxInt64, math.MaxInt64},
	} {
		if got := retry.After(c.failures, c.first, c.last); got != c.want {
			t.Errorf("after %d failures, from %s to %s: %s, want %s", c.failures, c.first, c.last, got, c.want)
		}
	}
}

func TestSpreadStaysBetweenHalfAndAll(t *testing.T) {
	for _, wait := range []time.Duration{0, 1, 2, 3, time.Minute} {
		for range 100 {
			if got := retry.Spread(wait); got < wait/2 || got > wait {
				t.Fatalf("%d spread to %d", wait, got)
			}
		}
	}
}
