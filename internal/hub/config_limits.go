package hub

import (
	"errors"
	"fmt"

	"cloop.dev/cloop/internal/hub/api"
	"cloop.dev/cloop/internal/hub/store"
)

// limitsEntry is api.Rates and store.Waiting as they are written.
type limitsEntry struct {
	Users    rateEntry `yaml:"users"`
	Machines rateEntry `yaml:"machines"`
	Failures rateEntry `yaml:"failures"`
	Watches  int       `yaml:"watches"`
	Answers  struct {
		PerUser int `yaml:"perUser"`
		All     int `yaml:"all"`
	} `yaml:"answers"`
	Waiting struct {
		PerUser    int `yaml:"perUser"`
		PerProject int `yaml:"perProject"`
		PerPool    int `yaml:"perPool"`
	} `yaml:"waiting"`
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
	for _, part := range []struct {
		name  string
		value int
	}{{"perUser", e.Answers.PerUser}, {"all", e.Answers.All}} {
		if part.value < 0 || part.value > maxRate {
			problems = append(problems, fmt.Errorf("limits.answers.%s must be between 0, which stands for the default, and %d", part.name, maxRate))
		}
	}
	return api.Rates{
		Users: api.Rate(e.Users), Machines: api.Rate(e.Machines), Failures: api.Rate(e.Failures), Watches: e.Watches, Answers: api.Answers(e.Answers),
	}, errors.Join(problems...)
}

// waiting reads how many runs may wait and names every problem in it.
func (e limitsEntry) waiting() (store.Waiting, error) {
	var problems []error
	for _, part := range []struct {
		name  string
		value int
	}{{"perUser", e.Waiting.PerUser}, {"perProject", e.Waiting.PerProject}, {"perPool", e.Waiting.PerPool}} {
		if part.value < 0 || part.value > maxRate {
			problems = append(problems, fmt.Errorf("limits.waiting.%s must be between 0, which stands for the default, and %d", part.name, maxRate))
		}
	}
	return store.Waiting(e.Waiting), errors.Join(problems...)
}
