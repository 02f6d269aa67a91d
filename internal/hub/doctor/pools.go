package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
)

const (
	// patience is how long a run may wait, and how long a controller may be
	// away, before it is worth a word.
	patience = 10 * time.Minute
	// remembered is how long a controller that stays away counts for its
	// protocol.
	remembered = 24 * time.Hour
)

// Pool is what is to be known of a pool.
type Pool struct {
	hubv1.Pool
	// OldestQueued is since when the run that waits longest waits; zero where
	// none does.
	OldestQueued time.Time
	// Credentials is how many of the pool's credentials are live.
	Credentials int
	// Trouble is what controllers say keeps their runners from starting.
	Trouble []string
	// Features are those that a controller of the hub's build speaks.
	Features []string
}

// Examine says what is wrong with a pool, or that nothing is. A revoked pool has
// nothing that could be wrong.
func Examine(now time.Time, p Pool) []hubv1.Finding {
	if p.State == hubv1.PoolRevoked {
		return nil
	}
	var wrong []hubv1.Finding
	say := func(id hubv1.FindingID, severity hubv1.Severity, found string) {
		if found != "" {
			wrong = append(wrong, finding(id, severity, p.Name, found))
		}
	}
	contact := noContact(now, p)
	say(hubv1.FindingPoolsContact, hubv1.SeverityFail, contact)
	say(hubv1.FindingPoolsCapacity, hubv1.SeverityWarn, waitsTooLong(now, p, contact == ""))
	for _, trouble := range p.Trouble {
		say(hubv1.FindingPoolsStorage, hubv1.SeverityWarn, "the controller says: "+trouble)
	}
	if over := p.Override; over != nil {
		say(hubv1.FindingPoolsOverride, hubv1.SeverityWarn, fmt.Sprintf("%s has set aside what Git says of it, for another %s, until %s: %s",
			over.By, whole(max(over.Until.Sub(now), 0)), over.Until.UTC().Format(time.RFC3339), over.Reason))
	}
	for _, c := range p.Controllers {
		if c.Rival != "" {
			say(hubv1.FindingPoolsDuplicate, hubv1.SeverityWarn, fmt.Sprintf("%s serves with a credential that %s serves with already, and so starts nothing", orNone(c.ExecutorPool), c.Rival))
		}
		say(hubv1.FindingPoolsProtocol, hubv1.SeverityWarn, behind(now, p, c))
	}
	return orPass(wrong, hubv1.FindingPools, p.Name, fares(p))
}

// Wrong leaves what passes out.
func Wrong(found []hubv1.Finding) []hubv1.Finding {
	return slices.DeleteFunc(found, func(f hubv1.Finding) bool { return f.Severity == hubv1.SeverityPass })
}

// noContact says that runs wait and nobody can start runners for them.
func noContact(now time.Time, p Pool) string {
	if p.Queued == 0 {
		return ""
	}
	waits := count.Of(p.Queued, "run") + " " + waitVerb(p.Queued)
	switch {
	case p.Credentials == 0:
		return waits + ", and the pool has no live credential"
	case len(p.Controllers) == 0:
		return waits + ", and no controller that serves the pool has been in contact, or none for a day"
	}
	last := p.Controllers[0]
	if away := now.Sub(last.LastContact); !last.Connected && away >= patience {
		return fmt.Sprintf("%s, and no controller has been in contact for %s, since %s", waits, whole(away), last.LastContact.UTC().Format(time.RFC3339))
	}
	return ""
}

// waitsTooLong says why runs wait although a controller is in contact.
func waitsTooLong(now time.Time, p Pool, inContact bool) string {
	if p.Queued == 0 {
		return ""
	}
	waits := count.Of(p.Queued, "run") + " " + waitVerb(p.Queued)
	if p.Cordon != nil {
		return fmt.Sprintf("%s, and the pool is cordoned by %s: %s", waits, p.Cordon.By, p.Cordon.Reason)
	}
	waited := now.Sub(p.OldestQueued)
	if p.OldestQueued.IsZero() || waited < patience || !inContact {
		return ""
	}
	live := p.Runners.Starting + p.Runners.Idle + p.Runners.Busy + p.Runners.Retiring
	held := fmt.Sprintf("%s of at most %d (%s)", count.Of(live, "runner"), p.MaxRunners, states(p.Runners))
	if live >= p.MaxRunners {
		return fmt.Sprintf("%s, the oldest for %s, and the pool has every runner that it may: %s", waits, whole(waited), held)
	}
	return fmt.Sprintf("%s, the oldest for %s, and the controller does not use the room that the pool has: %s", waits, whole(waited), held)
}

// behind says what a controller that was in contact lately lacks.
func behind(now time.Time, p Pool, c hubv1.ControllerContact) string {
	if now.Sub(c.LastContact) > remembered {
		return ""
	}
	var lacks []string
	for _, feature := range p.Features {
		if !slices.Contains(c.Features, feature) {
			lacks = append(lacks, feature)
		}
	}
	if len(lacks) == 0 {
		return ""
	}
	return fmt.Sprintf("controller %s, build %s, does not speak %s", orNone(c.Instance), orNone(c.Build), strings.Join(lacks, ", "))
}

// fares is how a pool does with which nothing is wrong.
func fares(p Pool) string {
	text := fmt.Sprintf("%s of at most %d (%s), %s queued", count.Of(p.Runners.Starting+p.Runners.Idle+p.Runners.Busy+p.Runners.Retiring, "runner"),
		p.MaxRunners, states(p.Runners), count.Of(p.Queued, "run"))
	if len(p.Controllers) == 0 {
		return text + "; no controller seen yet"
	}
	c := p.Controllers[0]
	if c.Connected {
		return fmt.Sprintf("%s; build %s is in contact", text, orNone(c.Build))
	}
	return fmt.Sprintf("%s; build %s was in contact last, at %s", text, orNone(c.Build), c.LastContact.UTC().Format(time.RFC3339))
}

func states(r hubv1.RunnerCounts) string {
	text := fmt.Sprintf("%d starting, %d idle, %d busy", r.Starting, r.Idle, r.Busy)
	if r.Retiring > 0 {
		text += fmt.Sprintf(", %d retiring", r.Retiring)
	}
	return text
}

func waitVerb(n int32) string {
	if n == 1 {
		return "waits"
	}
	return "wait"
}

func orNone(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}

// whole is a duration as a person says it: minutes below two hours.
func whole(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
