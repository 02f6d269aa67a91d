package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"unicode/utf8"
)

// Outcome is how a runner ended, for the one-line report that Kubernetes shows.
type Outcome string

// Outcomes of a runner. The first three are no failures of the runner.
const (
	// OutcomeReported is a run whose result the hub confirmed, whatever it was.
	OutcomeReported Outcome = "reported"
	// OutcomeRetired is a runner that the hub needs no more; it had no run.
	OutcomeRetired Outcome = "retired"
	// OutcomeStopped is a runner without a run that was told to end.
	OutcomeStopped Outcome = "stopped"
	// OutcomeRefused is a token that the hub did not take.
	OutcomeRefused Outcome = "refused"
	// OutcomeUnreachable is a hub that did not answer before the token expired, or
	// before the lease of a runner without a run was over.
	OutcomeUnreachable Outcome = "unreachable"
	// OutcomeInterrupted is a runner that was told to end while it had a run.
	OutcomeInterrupted Outcome = "interrupted"
	// OutcomeFenced is a run that was killed because contact with the hub was
	// lost, or whose result could not be delivered for that reason.
	OutcomeFenced Outcome = "fenced"
	// OutcomeRevoked is a run that was killed because the hub took it away or
	// ended the runner's session.
	OutcomeRevoked Outcome = "revoked"
	// OutcomeFailed is a runner that could not do its work, such as for want of
	// a place to write.
	OutcomeFailed Outcome = "failed"
)

// failure says whether the process should end with a failure.
func (o Outcome) failure() bool {
	switch o {
	case OutcomeReported, OutcomeRetired, OutcomeStopped:
		return false
	}
	return true
}

// report is the line. It never holds a credential.
type report struct {
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
	Run     string  `json:"run,omitempty"`
	// ExitCode of the run's command, where it has one.
	ExitCode *int32 `json:"exitCode,omitempty"`
}

// err is what Run returns for the report.
func (r report) err() error {
	if !r.Outcome.failure() {
		return nil
	}
	if r.Run != "" {
		return fmt.Errorf("runner %s with run %s: %s", r.Outcome, r.Run, r.Reason)
	}
	return fmt.Errorf("runner %s: %s", r.Outcome, r.Reason)
}

// maxReason keeps the line below the 4,096 bytes that Kubernetes keeps of a
// termination message, escaped as JSON may escape it.
const maxReason = 512

// write puts the line where Kubernetes reads it; no path means nobody does.
func (r report) write(path string) error {
	if path == "" {
		return nil
	}
	r.Reason = truncate(r.Reason, maxReason)
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the termination report: %w", err)
	}
	// Readable by all: Kubernetes reads it as another user.
	if err := os.WriteFile(path, append(line, '\n'), 0o644); err != nil { //nolint:gosec // not secret, see above
		return fmt.Errorf("write the termination report: %w", err)
	}
	return nil
}

// truncate cuts text to at most limit bytes, never within a character.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const ellipsis = "…"
	cut := limit - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + ellipsis
}
