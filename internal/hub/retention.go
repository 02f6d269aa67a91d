package hub

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cloop.dev/cloop/internal/hub/store"
)

// minRetention keeps what requests may still refer to: a repeated
// Idempotency-Key, a runner that does not know yet that it is retired.
const minRetention = 24 * time.Hour

// retentionEntry is store.Retention as it is written.
type retentionEntry struct {
	Logs           string `yaml:"logs"`
	Runs           string `yaml:"runs"`
	RunsPerProject *int   `yaml:"runsPerProject"`
	Runners        string `yaml:"runners"`
	Tokens         string `yaml:"tokens"`
	Audit          string `yaml:"audit"`
}

// retention reads the entry and names every problem in it.
func (e retentionEntry) retention() (store.Retention, error) {
	var out store.Retention
	var problems []error
	for _, setting := range []struct {
		name, text string
		value      *time.Duration
	}{{"logs", e.Logs, &out.Logs}, {"runs", e.Runs, &out.Runs}, {"runners", e.Runners, &out.Runners}, {"tokens", e.Tokens, &out.Tokens}, {"audit", e.Audit, &out.Audit}} {
		age, err := parseAge(setting.text)
		if err != nil {
			problems = append(problems, fmt.Errorf("retention.%s: %w", setting.name, err))
		}
		*setting.value = age
	}
	if e.RunsPerProject != nil {
		out.RunsPerProject = *e.RunsPerProject
		switch {
		case out.RunsPerProject < 0:
			problems = append(problems, errors.New("retention.runsPerProject must not be negative"))
		case out.RunsPerProject == 0:
			out.RunsPerProject = -1 // none; 0 stands for the default
		}
	}
	return out, errors.Join(problems...)
}

// parseAge reads "30d", "36h" or "forever"; 0 stands for the default.
func parseAge(text string) (time.Duration, error) {
	const forever = "forever"
	switch text {
	case "":
		return 0, nil
	case forever:
		return -1, nil
	}
	age, err := time.ParseDuration(text)
	if days, whole := strings.CutSuffix(text, "d"); whole {
		var n uint64
		// More than this many days is no duration.
		if n, err = strconv.ParseUint(days, 10, 16); err == nil {
			age = time.Duration(n) * 24 * time.Hour //nolint:gosec // 16 bits
		}
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no time: write 30d, 36h or %s", text, forever)
	case age < minRetention:
		return 0, fmt.Errorf("%s is less than %s", text, minRetention)
	}
	return age, nil
}
