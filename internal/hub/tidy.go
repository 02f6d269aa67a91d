package hub

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// tidyEvery is how often the number of open streams is looked at.
	tidyEvery = 10 * time.Second
	// tidyBeyond is how many streams more or fewer than before leave enough behind
	// to be worth a collection, which takes some 30 µs for each of them.
	tidyBeyond = 500
)

// tidy gives back to the system what streams left behind that were opened or ended
// in numbers: a hub whose streams only wait makes so little garbage that the
// runtime would keep it for minutes, as much again as the streams hold.
func tidy(ctx context.Context, c clock.WithTicker, open *atomic.Int64, free func()) {
	var t tidiness
	for sleep(ctx, c, tidyEvery, nil) {
		if t.due(open.Load()) {
			free()
		}
	}
}

// tidiness is how many streams were open when it was looked last, and when free
// was called last.
type tidiness struct{ last, freed int64 }

// due says whether to free now: many streams have come or gone, and no more do.
func (t *tidiness) due(open int64) bool {
	calm := apartBy(open, t.last) < tidyBeyond/10
	t.last = open
	if !calm || apartBy(open, t.freed) < tidyBeyond {
		return false
	}
	t.freed = open
	return true
}

func apartBy(a, b int64) int64 { return max(a-b, b-a) }
