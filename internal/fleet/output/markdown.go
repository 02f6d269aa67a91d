package output

import (
	"fmt"
	"strings"

	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/schemas"
)

const (
	// Marker is the first line of the Markdown format. By it a job finds the
	// comment that it made before, and edits that one.
	Marker = "<!-- cloop-fleet-check -->"
	// maxComment bounds the Markdown in bytes. GitHub takes 65,536 characters of
	// a comment; the rest is room for a job's own words.
	maxComment = 60_000
	// maxSummary is kept of it for what is not of a pool.
	maxSummary = 4_000
)

// markdown is a comment: the answer first, then what is wrong by pool.
func markdown(result *Result, _ Options) ([]byte, error) {
	all := groups(result.Report)
	shown := budget{
		room: []int{maxComment - maxSummary},
		cost: func(g group) []int { return []int{markdownSize(g)} },
	}.take(all)
	paragraphs := []string{Marker + "\n## " + markdownTitle(result)}
	if result.failure == nil {
		paragraphs = append(paragraphs, result.looked()+" checked.")
	}
	if reason := result.reason(); reason != "" {
		paragraphs = append(paragraphs, "Not all could be checked: "+prose(printable.Abridge(reason, maxMessage/2)))
	}
	if note := result.bears(); note != "" {
		paragraphs = append(paragraphs, prose(note))
	}
	if note := result.sparse(); note != "" {
		paragraphs = append(paragraphs, prose(note))
	}
	if note := shown.note(); note != "" {
		paragraphs = append(paragraphs, "**"+prose(note)+"**")
	}
	var b strings.Builder
	b.WriteString(strings.Join(paragraphs, "\n\n") + "\n")
	for _, g := range shown.groups {
		b.WriteString(markdownGroup(g))
	}
	return []byte(b.String()), nil
}

func markdownTitle(result *Result) string {
	t := tallied(result.Report.Problems)
	switch {
	case result.Verdict == Unanswered:
		return "❓ Fleet check: no answer"
	case result.Verdict == Unsound:
		return "❌ Fleet check: " + t.String()
	case t.total() > 0:
		return "✅ Fleet check: " + result.well() + ", with " + t.String()
	case result.Report.Pools == 0:
		return "✅ Fleet check: " + result.well() + ", but there is no pool"
	}
	return "✅ Fleet check: " + result.well()
}

// markdownSize is the size of a group, or of so much of it that it is too much.
func markdownSize(g group) int {
	size := len(markdownHeading(g))
	for _, e := range g.entries {
		if size > maxComment {
			break
		}
		size += len(markdownEntry(e))
	}
	return size
}

func markdownHeading(g group) string {
	return fmt.Sprintf("\n### %s: %s\n\n", g.owner.markdown(), g.whole)
}

func markdownGroup(g group) string {
	var b strings.Builder
	b.WriteString(markdownHeading(g))
	for _, e := range g.entries {
		b.WriteString(markdownEntry(e))
	}
	return b.String()
}

func (o owner) markdown() string {
	switch {
	case o.pool != "":
		return "Pool " + code(printable.Abridge(visible(o.pool), maxName))
	case o.object != "":
		return code(printable.Abridge(visible(o.object), maxName))
	}
	return "File " + code(printable.Abridge(visible(o.file), maxName))
}

// markdownEntry is an item of a list: sign, place, field, message and rule; then
// what to do, and the overlays that show what is wrong elsewhere.
func markdownEntry(e entry) string {
	p := cleaned(*e.Problem)
	sign := "❌"
	if p.Severity == schemas.SeverityWarning {
		sign = "⚠️"
	}
	place := p
	place.Object, place.Path, place.Message, place.Hint = "", "", "", ""
	parts := []string{"- " + sign}
	if at := strings.TrimSuffix(place.String(), ": "); at != "" {
		parts = append(parts, code(printable.Abridge(at, maxMessage)))
	}
	if p.Path != "" {
		parts = append(parts, code(p.Path))
	}
	parts = append(parts, prose(printable.Abridge(p.Message, maxMessage/2)), fmt.Sprintf("([%s](%s))", code(p.Rule), helpURL(e.Rule)))
	lines := []string{strings.Join(parts, " ")}
	if p.Hint != "" {
		lines = append(lines, "**What to do:** "+prose(printable.Abridge(p.Hint, maxMessage/2)))
	}
	if names, more := elsewhere(e.Problem, e.roots, 5, code); len(names) > 0 {
		if more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		lines = append(lines, "Shows in "+strings.Join(names, ", "))
	}
	// GitLab takes only a line break behind a backslash for one.
	return strings.Join(lines, "\\\n  ") + "\n"
}
