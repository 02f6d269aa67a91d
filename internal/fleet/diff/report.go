package diff

import (
	"fmt"
	"slices"
	"strings"

	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/secret"
	"cloop.dev/cloop/schemas"
)

// Verdict is the answer of a comparison.
type Verdict string

// Verdicts. Scripts read them in the JSON format.
const (
	// Same says that the change does nothing.
	Same Verdict = "same"
	// Differs says that it does something.
	Differs Verdict = "differs"
	// Unanswered says that no difference was found and that not all could be
	// compared.
	Unanswered Verdict = "unanswered"
)

// FailOn says which differences make the answer a no.
type FailOn string

// What an answer may fail on.
const (
	// FailOnAny fails on every difference.
	FailOnAny FailOn = "any"
	// FailOnDestructive fails on what is Destructive only.
	FailOnDestructive FailOn = "destructive"
	// FailOnNone fails on no difference.
	FailOnNone FailOn = "none"
)

// FailOns lists what an answer may fail on.
func FailOns() []FailOn { return []FailOn{FailOnAny, FailOnDestructive, FailOnNone} }

// Report is what a change does. It is read by programs; keys are stable.
type Report struct {
	// Verdict is same, differs or unanswered.
	Verdict Verdict `json:"verdict"`
	// OK says that nothing was found to fail on and nothing is left unanswered.
	OK bool `json:"ok"`
	// FailOn is what the answer was to fail on.
	FailOn FailOn `json:"failOn"`
	// Summary is the answer on one line.
	Summary string `json:"summary"`
	// Reason is why there is no answer at all.
	Reason string `json:"reason,omitempty"`
	// Base is what the work tree is compared with.
	Base Revision `json:"base"`
	// Counts of roots, and of objects by change and by class.
	Counts Counts `json:"counts"`
	// Overlays of either revision, by path.
	Overlays []Overlay `json:"overlays"`
	// Notes say what could not be found out, and what to know.
	Notes []string `json:"notes,omitempty"`

	// clone is where it was made; nil: not known.
	clone *fleet.Clone
}

// Revision is what the work tree is compared with.
type Revision struct {
	// Name as it was asked for.
	Name string `json:"name"`
	// Commit that it is; empty where there is none.
	Commit string `json:"commit,omitempty"`
}

// Counts of a report.
type Counts struct {
	// Overlays are all roots; Differ counts those that differ, and Failed those that
	// could not be compared.
	Overlays int `json:"overlays"`
	Differ   int `json:"differ"`
	Failed   int `json:"failed"`
	// Objects that are Added, Removed, Renamed and Changed.
	Added   int `json:"added"`
	Removed int `json:"removed"`
	Renamed int `json:"renamed"`
	Changed int `json:"changed"`
	// Objects by the gravest class of what changes in each: Destructive, Lower, Raise
	// or Neutral.
	Destructive int `json:"destructive"`
	Lower       int `json:"lower"`
	Raise       int `json:"raise"`
	Neutral     int `json:"neutral"`
}

// Overlay is one path that is rendered by itself.
type Overlay struct {
	// Path of the root, relative to the repository.
	Path string `json:"path"`
	// From is the path that it had in the base, where what applies it has another
	// one now.
	From string `json:"from,omitempty"`
	// By names the object that applies the path in this way, where several do
	// with other values for variables.
	By string `json:"by,omitempty"`
	// In is the root or plain file that defines it, where objects of several clusters
	// have one name.
	In string `json:"in,omitempty"`
	// Unchanged says that both revisions have the same files, so that neither was
	// rendered, or that both render the same.
	Unchanged bool `json:"unchanged"`
	// Failures are the revisions that could not be rendered; nothing else is said
	// of the overlay then.
	Failures []Failure `json:"failures,omitempty"`
	// Objects that differ: hub pools first, then executor pools, syncs and others.
	Objects []Object `json:"objects,omitempty"`
	// Note says what the change of the overlay itself means.
	Note string `json:"note,omitempty"`

	// appliers names the objects of the repository that apply the path, in either
	// revision. left is what applied it in the base alone, and goesOn what applies it, or
	// another path in its place.
	appliers     []string
	left, goesOn site
}

// Revisions that may fail to render.
const (
	AtBase = "base"
	AtHead = "head"
)

// Failure is why a revision could not be rendered.
type Failure struct {
	// Revision is AtBase or AtHead.
	Revision string `json:"revision"`
	// Problems are the first ones; More counts those that are left out.
	Problems []schemas.Problem `json:"problems"`
	More     int               `json:"more,omitempty"`
}

// What happens to an object.
const (
	Added   = "added"
	Removed = "removed"
	Renamed = "renamed"
	Changed = "changed"
)

// Object is one object that differs.
type Object struct {
	// Kind, Namespace and Name of the object.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Pool is the hub pool that an ExecutorPool or HubPool speaks of.
	Pool string `json:"pool,omitempty"`
	// Change is Added, Removed, Renamed or Changed.
	Change string `json:"change"`
	// From is the object's earlier NAMESPACE/NAME, of a Renamed one.
	From string `json:"from,omitempty"`
	// Class is the gravest of the fields' and of the change itself.
	Class Class `json:"class"`
	// Meaning says what the change as a whole does.
	Meaning string `json:"meaning,omitempty"`
	// Fields that differ, by path; none of an object that is Added or Removed.
	Fields []Field `json:"fields,omitempty"`
	// Impact is what it means for what there is now, one entry for the hub or for
	// each cluster that was read.
	Impact []Impact `json:"impact,omitempty"`

	// before and after are the objects, nil where there is none.
	before, after *item
	// stays says that nothing happens to it though its overlay does not have it any more.
	stays bool
}

// Field is one field that differs.
type Field struct {
	// Path is a JSON pointer.
	Path string `json:"path"`
	// From and To are the values, null where absent; "[not shown]" stands for
	// those of a field that may hold a secret, or that the kind does not have.
	From any `json:"from"`
	To   any `json:"to"`
	// Class of the change.
	Class Class `json:"class"`
}

// title names an object for people.
func (o *Object) title() string {
	return strings.TrimSpace(o.Kind + " " + qualified(o.Namespace, o.Name))
}

func qualified(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// happening says what happens to an object, in words.
func (o *Object) happening() string {
	if o.Change == Renamed {
		return "renamed from " + o.From
	}
	return o.Change
}

// Failed is the report of a comparison that could not be made.
func Failed(base string, err error) *Report {
	r := &Report{Base: Revision{Name: secret.Redact(base)}, Overlays: []Overlay{}, FailOn: FailOnAny, Verdict: Unanswered}
	r.Reason = bounded(secret.Redact(err.Error()))
	r.Summary = "nothing was compared"
	return r
}

// Judge counts, and gives the verdict and whether that is a failure.
func (r *Report) Judge(on FailOn) {
	if r.Reason != "" {
		r.FailOn = on
		return
	}
	r.count()
	c := &r.Counts
	r.FailOn = on
	switch {
	case c.Differ > 0:
		r.Verdict = Differs
	case c.Failed > 0:
		r.Verdict = Unanswered
	default:
		r.Verdict = Same
	}
	r.OK = r.ExitCode() == 0
	r.Summary = r.summary()
}

func (r *Report) count() {
	r.Counts = Counts{Overlays: len(r.Overlays)}
	c := &r.Counts
	changes := map[string]*int{Added: &c.Added, Removed: &c.Removed, Renamed: &c.Renamed, Changed: &c.Changed}
	classes := map[Class]*int{Destructive: &c.Destructive, Lower: &c.Lower, Raise: &c.Raise, Neutral: &c.Neutral}
	for i := range r.Overlays {
		overlay := &r.Overlays[i]
		switch {
		case len(overlay.Failures) > 0:
			c.Failed++
		case len(overlay.Objects) > 0:
			c.Differ++
		}
		for j := range overlay.Objects {
			*changes[overlay.Objects[j].Change]++
			*classes[overlay.Objects[j].Class]++
		}
	}
}

// ExitCode is what the process exits with: 1 where there is a difference to fail
// on, or else 2 where something could not be compared, or else 0.
func (r *Report) ExitCode() int {
	if r.fails() {
		return 1
	}
	if r.Verdict == Unanswered || r.Counts.Failed > 0 && r.FailOn != FailOnNone {
		return 2
	}
	return 0
}

func (r *Report) fails() bool {
	switch r.FailOn {
	case FailOnDestructive:
		return r.Counts.Destructive > 0
	case FailOnNone:
		return false
	}
	return r.Verdict == Differs
}

// summary is the answer on one line.
func (r *Report) summary() string {
	c := &r.Counts
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{{c.Added, Added}, {c.Removed, Removed}, {c.Renamed, Renamed}, {c.Changed, Changed}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	failed := ""
	if c.Failed > 0 {
		failed = fmt.Sprintf("; %s not compared", count.Of(c.Failed, "root"))
	}
	switch compared := c.Overlays - c.Failed; {
	case len(parts) == 0 && c.Failed == 0:
		return count.Of(c.Overlays, "root") + ": no difference"
	case len(parts) == 0 && compared == 0:
		return count.Of(c.Overlays, "root") + ": none compared"
	case len(parts) == 0:
		return fmt.Sprintf("%s: no difference in %d, %d not compared", count.Of(c.Overlays, "root"), compared, c.Failed)
	}
	var classes []string
	for _, class := range []struct {
		n    int
		what Class
	}{{c.Destructive, Destructive}, {c.Raise, Raise}, {c.Lower, Lower}, {c.Neutral, Neutral}} {
		if class.n > 0 {
			classes = append(classes, fmt.Sprintf("%d %s", class.n, class.what))
		}
	}
	return fmt.Sprintf("%d of %s: %s (%s)%s", c.Differ, rootsDiffer(c.Overlays), strings.Join(parts, ", "), strings.Join(classes, ", "), failed)
}

func rootsDiffer(n int) string {
	if n == 1 {
		return "1 root differs"
	}
	return fmt.Sprintf("%d roots differ", n)
}

// objects calls a function for each object that differs.
func (r *Report) objects(visit func(*Overlay, *Object)) {
	for i := range r.Overlays {
		for j := range r.Overlays[i].Objects {
			visit(&r.Overlays[i], &r.Overlays[i].Objects[j])
		}
	}
}

// note adds a note once.
func (r *Report) note(format string, args ...any) {
	note := bounded(secret.Redact(fmt.Sprintf(format, args...)))
	if !slices.Contains(r.Notes, note) {
		r.Notes = append(r.Notes, note)
	}
}
