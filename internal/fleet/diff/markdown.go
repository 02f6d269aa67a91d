package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/output"
)

const (
	// Marker is the first line of the Markdown format. By it a job finds the
	// comment that it made before, and edits that one.
	Marker = "<!-- cloop-fleet-diff -->"
	// maxHead is kept of a comment for what is not of a pool: title, notes, and
	// what is left out.
	maxHead = 17_000
	// maxListed bounds the notes and the overlays that could not be compared.
	maxListed = 10
)

// section is what a comment says of one pool, with both of its halves and all its
// clusters, or of one other object.
type section struct {
	pool    string
	title   string
	class   Class
	objects []placed
}

// placed is an object with the overlay it is in.
type placed struct {
	overlay string
	*Object
}

// sections are the objects by pool, the gravest first.
func (r *Report) sections() []section {
	var all []section
	index := map[string]int{}
	r.objects(func(overlay *Overlay, o *Object) {
		name, title := "pool "+o.Pool, "Pool "+output.Code(o.Pool)
		if o.Pool == "" {
			name = strings.Join([]string{o.Kind, o.Namespace, o.Name}, " ")
			title = output.Code(o.title())
		}
		at, known := index[name]
		if !known {
			at = len(all)
			index[name] = at
			all = append(all, section{pool: o.Pool, title: title, class: Neutral})
		}
		all[at].class = gravest(all[at].class, o.Class)
		all[at].objects = append(all[at].objects, placed{overlay.title(), o})
	})
	slices.SortStableFunc(all, func(a, b section) int {
		return cmp.Or(cmp.Compare(slices.Index(Classes(), a.class), slices.Index(Classes(), b.class)), cmp.Compare(a.title, b.title))
	})
	return all
}

// signs: class → what catches the eye.
var signs = map[Class]string{Destructive: "🛑", Lower: "🔽", Raise: "🔼", Neutral: "▫️"}

// markdown is a comment: the answer first, then what changes by pool. What does
// not fit is left out by whole pools, and counted; only the first, which would
// hide that there is any, is cut.
func (r *Report) markdown() []byte {
	var body strings.Builder
	left, cut := 0, false
	for i, s := range r.sections() {
		text := s.markdown()
		if room := output.MaxComment - maxHead - body.Len(); len(text) > room {
			if i > 0 {
				left++
				continue
			}
			text, cut = s.shortened(room), true
		}
		body.WriteString(text)
	}
	paragraphs := []string{Marker + "\n## " + r.markdownTitle()}
	if r.Reason != "" {
		paragraphs = append(paragraphs, "Nothing was compared: "+output.Prose(r.Reason))
	} else {
		paragraphs = append(paragraphs, output.Prose(r.Summary+".")+" Compared with "+output.Code(r.Base.Name)+" ("+output.Code(fleet.Short(r.Base.Commit))+").")
	}
	if impact := r.total(); impact != "" {
		paragraphs = append(paragraphs, "**Now:** "+impact+".")
	}
	if left > 0 || cut {
		what := count.Of(left, "pool")
		if cut {
			what += " and a part of the first one"
		}
		paragraphs = append(paragraphs, "**Left out here: "+what+"; "+output.Code("cloop fleet diff --base "+r.Base.Name)+" shows all.**")
	}
	paragraphs = append(paragraphs, r.markdownAsides()...)
	return []byte(strings.Join(paragraphs, "\n\n") + "\n" + body.String())
}

func (r *Report) markdownTitle() string {
	switch {
	case r.Verdict == Unanswered:
		return "❓ Fleet diff: no answer"
	case r.Verdict == Same:
		return "✅ Fleet diff: no difference"
	case r.Counts.Destructive > 0:
		return fmt.Sprintf("🛑 Fleet diff: %d destructive", r.Counts.Destructive)
	}
	return "🔄 Fleet diff: " + count.Of(r.Counts.Added+r.Counts.Removed+r.Counts.Renamed+r.Counts.Changed, "change")
}

// total adds up the impact on everything that was read; empty where nothing was.
func (r *Report) total() string {
	sum, read := Impact{}, false
	for _, s := range r.sections() {
		impact, ok := s.impact()
		read = read || ok
		sum.Retires, sum.Busy = sum.Retires+impact.Retires, sum.Busy+impact.Busy
		sum.Waiting, sum.Starts, sum.Cancels = sum.Waiting+impact.Waiting, sum.Starts+impact.Starts, sum.Cancels+impact.Cancels
		sum.Releases, sum.Deletes = sum.Releases+impact.Releases, sum.Deletes || impact.Deletes
		sum.Estimate = sum.Estimate || impact.Estimate
	}
	if !read {
		return ""
	}
	return sum.String()
}

// impact is of a pool as a whole. Its halves and the hub speak of the same
// runners: the clusters' numbers are added up where there are any, and of the
// runs that wait, which they do at the hub for all clusters, the most counts.
func (s *section) impact() (sum Impact, read bool) {
	places := map[string]Impact{}
	for _, o := range s.objects {
		for _, impact := range o.Impact {
			places[impact.Where] = worse(places[impact.Where], impact)
		}
	}
	hub, asked := places[atHub]
	if asked && len(places) == 1 {
		return hub, true
	}
	for where, impact := range places {
		if where != atHub {
			sum.Retires, sum.Busy, sum.Releases = sum.Retires+impact.Retires, sum.Busy+impact.Busy, sum.Releases+impact.Releases
			sum.Starts += impact.Starts
		}
		sum.Waiting, sum.Cancels = max(sum.Waiting, impact.Waiting), max(sum.Cancels, impact.Cancels)
		sum.Deletes, sum.Estimate = sum.Deletes || impact.Deletes, sum.Estimate || impact.Estimate
	}
	sum.Starts = max(sum.Starts, hub.Starts)
	return sum, len(places) > 0
}

// worse takes the larger of each number.
func worse(a, b Impact) Impact {
	return Impact{
		Where: b.Where, Retires: max(a.Retires, b.Retires), Busy: max(a.Busy, b.Busy),
		Waiting: max(a.Waiting, b.Waiting), Starts: max(a.Starts, b.Starts), Cancels: max(a.Cancels, b.Cancels),
		Releases: max(a.Releases, b.Releases), Deletes: a.Deletes || b.Deletes, Estimate: a.Estimate || b.Estimate,
	}
}

// markdownAsides are the notes, and the overlays that could not be compared.
func (r *Report) markdownAsides() []string {
	var asides []string
	failed := 0
	for i := range r.Overlays {
		for j := range r.Overlays[i].Failures {
			if failed++; failed > maxListed {
				continue
			}
			failure := &r.Overlays[i].Failures[j]
			why := ""
			if len(failure.Problems) > 0 {
				why = ": " + output.Prose(bounded(failure.Problems[0].String()))
			}
			asides = append(asides, "- ❓ "+output.Code(r.Overlays[i].title())+" "+output.Prose(failure.says())+why)
		}
	}
	if failed > maxListed {
		asides = append(asides, fmt.Sprintf("- and %d more", failed-maxListed))
	}
	notes := r.markdownNotes()
	asides = append(asides, notes[:min(len(notes), maxListed)]...)
	if more := len(notes) - maxListed; more > 0 {
		asides = append(asides, "- and "+count.Of(more, "note")+" more")
	}
	if len(asides) == 0 {
		return nil
	}
	return []string{strings.Join(asides, "\n")}
}

// markdownNotes are those of the overlays, which say what their pools cannot, and
// those of the report.
func (r *Report) markdownNotes() []string {
	var notes []string
	for i := range r.Overlays {
		if overlay := &r.Overlays[i]; overlay.Note != "" {
			notes = append(notes, "- ℹ️ "+output.Code(overlay.title())+": "+output.Prose(bounded(overlay.Note)))
		}
	}
	for _, note := range r.Notes {
		notes = append(notes, "- ℹ️ "+output.Prose(bounded(note)))
	}
	return notes
}

func (s *section) heading() string {
	return fmt.Sprintf("\n### %s %s: %s\n\n", signs[s.class], s.title, s.class)
}

func (s *section) markdown() string {
	var b strings.Builder
	b.WriteString(s.heading())
	for _, o := range s.objects {
		b.WriteString(strings.Join(o.markdown(), ""))
	}
	return b.String()
}

// shortened is as much of a section as there is room for.
func (s *section) shortened(room int) string {
	var b strings.Builder
	b.WriteString(s.heading())
	for _, o := range s.objects {
		for _, line := range o.markdown() {
			if b.Len()+len(line) > room {
				return b.String()
			}
			b.WriteString(line)
		}
	}
	return b.String()
}

// markdown is an item of a list, and items for its fields below it.
func (o placed) markdown() []string {
	first := "- " + output.Code(o.overlay) + ": " + output.Code(o.title()) + " " + output.Prose(o.happening())
	if o.Meaning != "" {
		first += ": " + output.Prose(o.Meaning)
	}
	lines := []string{first + "\n"}
	for _, field := range o.Fields {
		lines = append(lines, fmt.Sprintf("  - %s %s %s → %s (%s)\n", signs[field.Class], output.Code(field.Path), output.Code(cell(field.From)), output.Code(cell(field.To)), field.Class))
	}
	for _, impact := range o.Impact {
		place := impact.place()
		lines = append(lines, "  - **Now** "+output.Prose(place)+": "+impact.String()+"\n")
	}
	return lines
}
