// Package prunelimit decides how much one sync may take away without a person's word.
//
// In go a limit, and how much of how much a revision lacks; out come the verdict and
// the words for it. A PoolSync and a sync of the hub decide alike. It reads nothing
// and removes nothing.
package prunelimit

import (
	"fmt"
	"slices"
	"strings"

	"cloop.dev/cloop/internal/count"
)

// Limit bounds what one sync takes away. Beyond either bound it waits for somebody.
type Limit struct {
	// Count of what may go; 0: nothing.
	Count int
	// Percent of all there is, 0 to 100; 0: no such bound.
	Percent int
}

// Default is the limit where nobody has set one, also that of a PoolSync.
var Default = Limit{Count: 5, Percent: 20}

// Allows says whether so many of all may go.
func (l Limit) Allows(gone, all int) bool {
	return gone <= l.Count && (l.Percent == 0 || gone*100 <= l.Percent*all)
}

// String is the limit as a sentence goes on with it.
func (l Limit) String() string {
	if l.Percent == 0 {
		return fmt.Sprintf("at most %d", l.Count)
	}
	return fmt.Sprintf("at most %d and %d%%", l.Count, l.Percent)
}

// shown bounds how many names a refusal has.
const shown = 5

// Refusal says what waits: which of all the things of a kind a revision lacks.
func (l Limit) Refusal(revision string, gone []string, all int, kind string) string {
	names := slices.Sorted(slices.Values(gone))
	return fmt.Sprintf("%s lacks %d of %s, and one sync prunes %s: %s",
		revision, len(gone), count.Of(all, kind), l, strings.Join(count.First(names, shown), ", "))
}
