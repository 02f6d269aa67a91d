package fleet

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/printable"
)

// causeRemedies: cause → what to do about it.
var causeRemedies = map[string]string{
	v1alpha1.DriftCommitNotApplied: "see why the sync does not apply the commit: `cloop fleet status`",
	v1alpha1.DriftClusterEdited:    "commit the change, or let what applies the pool restore Git's value",
	v1alpha1.DriftHubEdited:        "commit the change, or let the hub's sync restore Git's value",
	v1alpha1.DriftBothEdited:       "decide which value is to stay, and commit it in both halves: what is put back on one side does not change the other",
	v1alpha1.DriftConverging:       v1alpha1.ReasonConverging.Remedy(),
	hubv1.CauseBreakGlass:          "put what is to stay into Git; `cloop executor pool end-override` has the pool as Git says again before its time",
	CauseBeingDeleted:              "wait: it goes when its runners have finished, and is made again where Git still wants it",
	CauseNotPushed:                 "commit it if it is not, and push it: hub and clusters follow the remote, which does not have it",
	CauseCloneBehind:               "run `git pull` and compare again",
	CauseUnserved:                  "start the fleet controller, or see why it does not run: the notes say what is known",
	v1alpha1.DriftRuleBroken:       v1alpha1.ReasonRuleBroken.Remedy(),
}

// CauseRemedy says what to do about a cause of drift.
func CauseRemedy(cause string) string { return causeRemedies[cause] }

// maxCell bounds a value in a table, in characters: a whole object would break it.
const maxCell = 48

// Text renders the report for people: a table of each pool that drifts, what to
// do, and what was not compared. It ends with a newline, and has nothing in it
// that a terminal would obey.
func (r *DriftReport) Text() string {
	var b strings.Builder
	causes := []string{}
	seen := map[string]bool{}
	for i := range r.Pools {
		pool := &r.Pools[i]
		if len(pool.Fields) == 0 {
			continue
		}
		pool.table(&b)
		for _, field := range pool.Fields {
			if !seen[field.Cause] {
				seen[field.Cause] = true
				causes = append(causes, field.Cause)
			}
		}
	}
	// A pool has an entry for the hub and one for each cluster.
	named := map[string]bool{}
	for i := range r.Pools {
		named[r.Pools[i].Pool] = true
	}
	if !r.Any() {
		fmt.Fprintf(&b, "No drift: %s compared.\n", count.Of(len(named), "pool"))
	}
	for _, cause := range causes {
		fmt.Fprintf(&b, "%s: %s\n", cause, CauseRemedy(cause))
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", printable.Line(note))
	}
	return b.String()
}

func (p *PoolDrift) table(b *strings.Builder) {
	where := "hub"
	if p.Cluster != "" {
		where = "cluster " + p.Cluster
	}
	if p.AppliedBy != "" {
		where += ", " + p.AppliedBy + " at " + orDash(p.Revision)
	}
	fmt.Fprintf(b, "%s (%s)\n", printable.Line(p.Pool), printable.Line(where))
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	row(w, "  FIELD", "GIT", "HUB", "CLUSTER", "CAUSE", "OUTCOME", "BY", "SINCE")
	for _, field := range p.Fields {
		since := "-"
		if field.Since != nil {
			since = field.Since.UTC().Format(time.RFC3339)
		}
		path := field.Path
		if path == "" {
			path = "(whole object)"
		}
		row(w, "  "+path, cell(field.Git), cell(field.Hub), cell(field.Cluster), field.Cause, field.Outcome, orDash(field.Manager), since)
	}
	// A strings.Builder does not fail.
	_ = w.Flush()
	p.messages(b)
	b.WriteByte('\n')
}

// messages says what becomes of fields where more is known than their cause says.
func (p *PoolDrift) messages(b *strings.Builder) {
	said := map[string]bool{}
	for _, field := range p.Fields {
		text := fmt.Sprintf("  %s: %s", field.Outcome, printable.Line(field.Message))
		if field.Message == causeOutcomes[field.Cause][1] || said[text] {
			continue
		}
		said[text] = true
		fmt.Fprintln(b, text)
	}
}

func row(w *tabwriter.Writer, cells ...string) {
	for i, cell := range cells {
		cells[i] = printable.Line(cell)
	}
	_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func cell(value any) string {
	if value == nil {
		return "-"
	}
	text, ok := value.(string)
	if !ok || strings.ContainsAny(text, "\t\n") || text == "" {
		text = canonical(value)
	}
	if runes := []rune(text); len(runes) > maxCell {
		text = string(runes[:maxCell-1]) + "…"
	}
	return text
}
