package hub

import (
	"errors"
	"fmt"

	"cloop.dev/cloop/internal/hub/api"
)

// limitsEntry is api.Rates as it is written.
type limitsEntry struct {
	Users    rateEntry `yaml:"users"`
	Machines rateEntry `yaml:"machines"`
	Failures rateEntry `yaml:"failures"`
	Watches  int       `yaml:"watches"`
}

type rateEntry struct {
	PerSecond float64 `yaml:"perSecond"`
	Burst     int     `yaml:"burst"`
}

// maxRate is far above what a hub serves; beyond it a bound is none.
const maxRate = 1_000_000

// rates reads the entry and names every problem in it.
func (e limitsEntry) rates() (api.Rates, error) {
	var problems []error
	for _, part := range []struct {
		name string
		rate rateEntry
	}{{"users", e.Users}, {"machines", e.Machines}, {"failures", e.Failures}} {
		if !(part.rate.PerSecond >= 0 && part.rate.PerSecond <= maxRate) { // not a number is neither
			problems = append(problems, fmt.Errorf("limits.%s.perSecond must be between 0, which stands for the default, and %d", part.name, maxRate))
		}
		if part.rate.Burst < 0 || part.rate.Burst > maxRate {
			problems = append(problems, fmt.Errorf("limits.%s.burst must be between 0, which stands for the default, and %d", part.name, maxRate))
		}
	}
	if e.Watches < 0 || e.Watches > maxRate {
		problems = append(problems, fmt.Errorf("limits.watches must be between 0, which stands for the default, and %d", maxRate))
	}
	return api.Rates{Users: api.Rate(e.Users), Machines: api.Rate(e.Machines), Failures: api.Rate(e.Failures), Watches: e.Watches}, errors.Join(problems...)
}
