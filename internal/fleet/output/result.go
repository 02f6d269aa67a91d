package output

import (
	"errors"
	"fmt"
	"strings"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/schemas"
)

// Verdict is the answer of a check.
type Verdict string

// Verdicts. Scripts read them in the JSON format.
const (
	// Sound says that nothing is wrong; there may be warnings.
	Sound Verdict = "sound"
	// Unsound says that there is at least one error.
	Unsound Verdict = "unsound"
	// Unanswered says that the check could not be made, or not in full.
	Unanswered Verdict = "unanswered"
)

// ExitCode is what a process that only tells the verdict exits with: 0, 1 or 2.
func (v Verdict) ExitCode() int {
	switch v {
	case Sound:
		return 0
	case Unsound:
		return 1
	}
	return 2
}

// Result is the answer of a check, and all that its outputs are made of.
type Result struct {
	Verdict Verdict
	// Report is empty where nothing could be read.
	Report *fleet.Report
	// failure is why there is no report.
	failure error
	// unfound are paths in which there was nothing to check.
	unfound []string
	// unjudged are the paths of a check that found no document to judge.
	unjudged []string
}

// Judge gives the verdict on a report. A check that had nothing to look at is
// Unanswered, so that a misspelt path in a pipeline does not pass for a sound
// repository.
func Judge(report *fleet.Report) *Result {
	result := &Result{Verdict: Sound, Report: report, unfound: report.Unfound()}
	if len(result.unfound) == 0 && report.Judged == 0 {
		for _, root := range report.Roots {
			// What could not be read or rendered has its error, and may well be of
			// cloop.dev.
			if !root.Failed {
				result.unjudged = append(result.unjudged, root.Path)
			}
		}
	}
	switch {
	case report.Failed():
		result.Verdict = Unsound
	case len(result.unfound) > 0 || report.Judged == 0 || report.Unresolved() > 0:
		result.Verdict = Unanswered
	}
	return result
}

// Failure is the result of a check that could not be made.
func Failure(err error) *Result {
	empty := &fleet.Report{Roots: []fleet.RootReport{}, Problems: []schemas.Problem{}, Subjects: []fleet.Subject{}}
	return &Result{Verdict: Unanswered, Report: empty, failure: err}
}

// Err says what could not be answered and what to do about it, and is nil where
// everything was. An Unsound result may have one too. Paths are spelt by spell,
// which may be nil for the repository's own terms.
func (r *Result) Err(spell func(string) string) error {
	switch {
	case r.failure != nil:
		return r.failure
	case len(r.unfound) > 0:
		return fmt.Errorf("nothing to check in %s: there is no kustomization and no YAML document; name a directory or file that has some",
			listed(r.unfound, spell))
	case len(r.unjudged) > 0:
		return fmt.Errorf("nothing was checked: no document in %s is of %s; name the directory that has the pools",
			listed(r.unjudged, spell), v1alpha1.Group)
	case r.Report.Unresolved() > 0:
		return fmt.Errorf("not everything was checked: %s without a value; set what is missing in the PoolSync, or give --substitute FILE",
			count(r.Report.Unresolved(), "variable"))
	case r.Verdict == Unanswered:
		return errors.New("nothing was checked: there is no kustomization and no YAML document; name the directory that has the pools")
	}
	return nil
}

// reason is Err in the repository's terms, on one line; empty where there is none.
func (r *Result) reason() string {
	if err := r.Err(nil); err != nil {
		return printable.Abridge(visible(err.Error()), maxMessage)
	}
	return ""
}

// listed joins paths, the first few where there are many.
func listed(paths []string, spell func(string) string) string {
	const most = 5
	var shown []string
	for _, path := range paths[:min(len(paths), most)] {
		if spell != nil {
			path = spell(path)
		}
		shown = append(shown, visible(path))
	}
	if more := len(paths) - most; more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(shown, ", ")
}

// tally counts problems by severity.
type tally struct{ errors, warnings int }

func tallied(problems []schemas.Problem) tally {
	var t tally
	for i := range problems {
		t.add(&problems[i])
	}
	return t
}

func (t *tally) add(problem *schemas.Problem) {
	if problem.Severity == schemas.SeverityError {
		t.errors++
	} else {
		t.warnings++
	}
}

func (t tally) total() int { return t.errors + t.warnings }

// String names both, or the one that is not zero.
func (t tally) String() string {
	switch {
	case t.warnings == 0:
		return count(t.errors, "error")
	case t.errors == 0:
		return count(t.warnings, "warning")
	}
	return count(t.errors, "error") + ", " + count(t.warnings, "warning")
}

// looked says how much was looked at.
func (r *Result) looked() string {
	if r.failure != nil {
		return "nothing was checked"
	}
	return fmt.Sprintf("%s, %s, %s", count(len(r.Report.Roots), "root"), count(r.Report.Documents, "document"), count(r.Report.Pools, "pool"))
}

// Summary is the answer on one line, without the reason of Err.
func (r *Result) Summary() string {
	if n := len(r.Report.Suppressed); n > 0 {
		return fmt.Sprintf("%s; %d ignored", r.answer(), n)
	}
	return r.answer()
}

// bears says how many findings the repository bears; empty where none.
func (r *Result) bears() string {
	if len(r.Report.Suppressed) == 0 {
		return ""
	}
	return fmt.Sprintf("%s ignored, for reasons that the repository gives; cloop fleet check -o json lists them", count(len(r.Report.Suppressed), "finding"))
}

// sparse says that not all that is committed was there to be checked; empty where
// it was.
func (r *Result) sparse() string {
	if !r.Report.Sparse {
		return ""
	}
	return "the checkout is sparse, and what is not checked out was not checked: for the whole answer run `git sparse-checkout disable`, or `git sparse-checkout add DIR` for what is to be checked too"
}

// well is the answer where nothing is wrong.
func (r *Result) well() string {
	if r.Report.Sparse {
		return "all is well that is checked out"
	}
	return "all is well"
}

func (r *Result) answer() string {
	switch {
	case len(r.Report.Problems) > 0:
		t := tallied(r.Report.Problems)
		return fmt.Sprintf("%s: %s, %s", r.looked(), count(t.errors, "error"), count(t.warnings, "warning"))
	case r.Verdict == Unanswered:
		return r.looked()
	case r.Report.Pools == 0:
		return r.looked() + ": " + r.well() + ", but none of them is a pool"
	}
	return r.looked() + ": " + r.well()
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
