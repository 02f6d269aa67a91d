package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// module is cut from package names, to leave room for what differs.
const module = "cloop.dev/cloop/"

// shownSlowest is how many packages and tests are listed as slow.
const shownSlowest = 8

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Time       time.Time
	Action     string
	Package    string
	ImportPath string
	Test       string
	Elapsed    float64
	Output     string
}

// timed is a name and how long it took.
type timed struct {
	name string
	took time.Duration
}

// skip is a test that did not run, and why.
type skip struct{ name, reason string }

// report gathers what tests did. Its zero value is not ready: newReport.
type report struct {
	out io.Writer
	// output: package, or package and test → what it printed so far.
	output map[string][]string
	// races: package → what the race detector says, which counts for a test that happens
	// to run then and may be printed in the middle of another; racing: it is saying it.
	races  map[string][]string
	racing map[string]bool
	// started: package → when its tests began.
	started  map[string]time.Time
	running  []interval
	phases   []timed
	packages []timed
	tests    []timed
	failures []string
	skips    []skip
	passing  int
}

type interval struct{ from, to time.Time }

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[string][]string{}, races: map[string][]string{}, racing: map[string]bool{}, started: map[string]time.Time{}}
}

func (r *report) phase(name string, took time.Duration) {
	r.phases = append(r.phases, timed{name, took})
}

// unable records something that this machine cannot do: it counts as a skip.
func (r *report) unable(what, why string) {
	r.skips = append(r.skips, skip{what, why})
}

// read takes all of `go test -json`'s output.
func (r *report) read(source io.Reader) error {
	lines := bufio.NewReader(source)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.take(e)
			} else {
				fmt.Fprint(r.out, string(line))
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "start":
		r.started[e.Package] = e.Time
	case "output":
		r.output[key] = append(r.output[key], e.Output)
		r.race(e)
	case "build-output":
		// A package that does not compile: the compiler's words, at once.
		fmt.Fprint(r.out, e.Output)
	case "build-fail":
		r.failures = append(r.failures, short(e.ImportPath)+" does not compile")
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.packageDone(e)
		} else {
			r.testDone(e, key)
		}
	}
}

// race keeps what the race detector prints, from its first line to the rule below it.
func (r *report) race(e event) {
	const rule = "=================="
	if strings.Contains(e.Output, "WARNING: DATA RACE") {
		r.racing[e.Package] = true
	}
	if !r.racing[e.Package] || e.Test == "" {
		return // what no test owns is shown anyway
	}
	r.races[e.Package] = append(r.races[e.Package], e.Output)
	if strings.HasPrefix(e.Output, rule) {
		r.racing[e.Package] = false
	}
}

func (r *report) testDone(e event, key string) {
	name := short(e.Package) + " " + e.Test
	r.tests = append(r.tests, timed{name, seconds(e.Elapsed)})
	switch e.Action {
	case "pass":
		r.passing++
	case "skip":
		r.skips = append(r.skips, skip{name, reason(r.output[key])})
	case "fail":
		r.failures = append(r.failures, name)
		fmt.Fprintf(r.out, "\n--- FAIL %s\n%s", name, strings.Join(r.output[key], ""))
	}
	delete(r.output, key)
}

func (r *report) packageDone(e event) {
	name := short(e.Package)
	verdict := map[string]string{"pass": "ok", "fail": "FAIL", "skip": "-"}[e.Action]
	if e.Action == "skip" {
		// A package without tests.
		return
	}
	fmt.Fprintf(r.out, "%-4s  %-44s %7.1f s\n", verdict, name, e.Elapsed)
	if e.Action == "fail" {
		r.failures = append(r.failures, name)
		fmt.Fprint(r.out, strings.Join(r.races[e.Package], ""))
		// What no test owns: a panic, a race, a timeout.
		own := e.Package + " "
		for _, key := range slices.Sorted(maps.Keys(r.output)) {
			if strings.HasPrefix(key, own) {
				fmt.Fprint(r.out, strings.Join(r.output[key], ""))
			}
		}
	}
	for key := range r.output {
		if strings.HasPrefix(key, e.Package+" ") {
			delete(r.output, key)
		}
	}
	r.packages = append(r.packages, timed{name, seconds(e.Elapsed)})
	if from, ok := r.started[e.Package]; ok {
		r.running = append(r.running, interval{from, e.Time})
	}
}

// finish prints the summary of a `go test` that took so long by the clock.
func (r *report) finish(wall time.Duration) {
	testing := min(covered(r.running), wall)
	r.phase("compile and link", wall-testing)
	r.phase("tests", testing)
	fmt.Fprintf(r.out, "\nwhere the time went\n")
	var total time.Duration
	for _, p := range r.phases {
		fmt.Fprintf(r.out, "  %-50s %7.1f s\n", p.name, p.took.Seconds())
		total += p.took
	}
	fmt.Fprintf(r.out, "  %-50s %7.1f s\n", "in all", total.Seconds())
	r.slowest("packages", r.packages)
	r.slowest("tests", r.tests)
	if len(r.skips) > 0 {
		fmt.Fprintf(r.out, "\nnot run on this machine: %d\n", len(r.skips))
		for _, s := range r.skips {
			fmt.Fprintf(r.out, "  %s: %s\n", s.name, s.reason)
		}
	}
	if len(r.failures) > 0 {
		fmt.Fprintf(r.out, "\nfailed: %d\n", len(r.failures))
		for _, name := range r.failures {
			fmt.Fprintf(r.out, "  %s\n", name)
		}
	}
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d not run\n", r.passing, len(r.failures), len(r.skips))
}

func (r *report) slowest(what string, of []timed) {
	sorted := slices.SortedFunc(slices.Values(of), func(a, b timed) int { return cmp.Compare(b.took, a.took) })
	fmt.Fprintf(r.out, "\nslowest %s\n", what)
	for _, t := range sorted[:min(shownSlowest, len(sorted))] {
		fmt.Fprintf(r.out, "  %-50s %7.1f s\n", t.name, t.took.Seconds())
	}
}

// passed is the verdict; strict makes a skip a failure.
func (r *report) passed(strict bool) bool {
	if strict && len(r.skips) > 0 {
		fmt.Fprintln(r.out, "CI=true: a test that does not run is a failure")
		return false
	}
	return len(r.failures) == 0
}

// covered is how much time lies in at least one interval.
func covered(intervals []interval) time.Duration {
	sorted := slices.SortedFunc(slices.Values(intervals), func(a, b interval) int { return a.from.Compare(b.from) })
	var total time.Duration
	var end time.Time
	for _, i := range sorted {
		if i.from.Before(end) {
			i.from = end
		}
		if i.to.After(i.from) {
			total += i.to.Sub(i.from)
			end = i.to
		}
	}
	return total
}

// reason is what a skipped test gave as its reason: its last line of output
// before the verdict.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			return line
		}
	}
	return "no reason given"
}

func short(name string) string { return strings.TrimPrefix(name, module) }

func seconds(elapsed float64) time.Duration { return time.Duration(elapsed * float64(time.Second)) }
