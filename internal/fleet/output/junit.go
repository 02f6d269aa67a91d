package output

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/schemas"
)

const (
	// maxCases and maxReport bound a JUnit report: GitLab reads no file of more
	// than 30 MB, and of one with many elements nothing.
	maxCases  = 25_000
	maxReport = 25 << 20
	// maxFailure bounds the text of one case in bytes.
	maxFailure = 8 << 10
)

// A report as Ant and Jenkins define it: what one requires and the other allows.
type (
	junitReport struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name      string `xml:"name,attr"`
		Package   string `xml:"package,attr"`
		ID        int    `xml:"id,attr"`
		Timestamp string `xml:"timestamp,attr"`
		Hostname  string `xml:"hostname,attr"`
		Tests     int    `xml:"tests,attr"`
		Failures  int    `xml:"failures,attr"`
		Errors    int    `xml:"errors,attr"`
		// Time is not measured by root.
		Time       string          `xml:"time,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
		Out        string          `xml:"system-out"`
		Err        string          `xml:"system-err"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Name      string        `xml:"name,attr"`
		Classname string        `xml:"classname,attr"`
		Time      string        `xml:"time,attr"`
		Skipped   string        `xml:"skipped,omitempty"`
		Error     *junitFailure `xml:"error"`
		Failure   *junitFailure `xml:"failure"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",cdata"`
	}
)

// junit has a suite for each root and in it a case for each object, and for
// each file that has a problem of its own.
func junit(result *Result, options Options) ([]byte, error) {
	kept, note := junitKept(result.Report)
	report := junitReport{}
	for _, root := range result.Report.Roots {
		report.add(result, options, junitRoot(result.Report, root.Path, kept))
	}
	own := junitRest(result.Report, kept)
	if reason := result.reason(); reason != "" {
		own.Cases = append(own.Cases, junitCase{Name: "everything was checked", Error: &junitFailure{Message: reason, Type: string(Unanswered), Text: reason}})
	}
	if note := result.sparse(); note != "" {
		own.Cases = append(own.Cases, junitCase{Name: "everything is checked out", Skipped: note})
	}
	if note != "" {
		own.Cases = append(own.Cases, junitCase{Name: "everything is shown", Skipped: note})
	}
	if len(own.Cases) > 0 {
		report.add(result, options, own)
	}
	b := bytes.NewBufferString(xml.Header)
	encoder := xml.NewEncoder(b)
	encoder.Indent("", "  ")
	if err := encoder.Encode(report); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// add completes a suite with what all have.
func (r *junitReport) add(result *Result, options Options, suite junitSuite) {
	suite.ID, suite.Package = len(r.Suites), "cloop"
	suite.Timestamp, suite.Hostname, suite.Time = options.At.UTC().Format("2006-01-02T15:04:05"), "localhost", "0"
	suite.Properties = []junitProperty{{"verdict", string(result.Verdict)}}
	if n := len(result.Report.Suppressed); n > 0 {
		suite.Properties = append(suite.Properties, junitProperty{"ignored", strconv.Itoa(n)})
	}
	suite.Tests = len(suite.Cases)
	names := map[string]int{}
	for i := range suite.Cases {
		c := &suite.Cases[i]
		c.Classname, c.Time = suite.Name, "0"
		// GitLab ignores all but the first case of a name.
		if names[c.Name]++; names[c.Name] > 1 {
			c.Name = fmt.Sprintf("%s #%d", c.Name, names[c.Name])
		}
		if c.Failure != nil {
			suite.Failures++
		}
		if c.Error != nil {
			suite.Errors++
		}
	}
	r.Suites = append(r.Suites, suite)
}

// junitRoot is the suite of a root, with those of its cases that are kept.
func junitRoot(report *fleet.Report, root string, kept map[int]bool) junitSuite {
	return junitSuiteOf(report, visible(root), kept, func(of string) bool { return of == root })
}

// junitRest is the suite of what belongs to no root, such as a configuration.
func junitRest(report *fleet.Report, kept map[int]bool) junitSuite {
	roots := map[string]bool{}
	for i := range report.Roots {
		roots[report.Roots[i].Path] = true
	}
	return junitSuiteOf(report, "cloop fleet check", kept, func(of string) bool { return !roots[of] })
}

func junitSuiteOf(report *fleet.Report, name string, kept map[int]bool, has func(root string) bool) junitSuite {
	suite := junitSuite{Name: name}
	var warnings []string
	for i := range report.Subjects {
		subject := &report.Subjects[i]
		if !has(subject.Root) || !kept[i] {
			continue
		}
		for _, index := range subject.Problems {
			if problem := report.Problems[index]; problem.Severity == schemas.SeverityWarning {
				warnings = append(warnings, junitLine(problem))
			}
		}
		suite.Cases = append(suite.Cases, junitCaseOf(subject, failuresOf(report, subject)))
	}
	suite.Out = printable.Abridge(strings.Join(warnings, "\n"), maxFailure)
	return suite
}

func junitCaseOf(subject *fleet.Subject, failures []schemas.Problem) junitCase {
	c := junitCase{Name: printable.Abridge(visible(subject.Object), maxName)}
	if c.Name == "" {
		c.Name = visible(subject.File)
	}
	if len(failures) == 0 {
		return c
	}
	var lines []string
	size := 0
	for _, problem := range failures {
		// What is beyond the bound need not be written first.
		if size < maxFailure {
			lines = append(lines, junitLine(problem))
			size += len(lines[len(lines)-1])
		}
	}
	message := cleaned(failures[0]).Message
	if more := len(failures) - 1; more > 0 {
		message += fmt.Sprintf(" (and %s more)", count(more, "error"))
	}
	c.Failure = &junitFailure{Message: message, Type: cleaned(failures[0]).Rule, Text: printable.Abridge(strings.Join(lines, "\n"), maxFailure)}
	return c
}

func junitLine(problem schemas.Problem) string {
	p := cleaned(problem)
	line := p.String() + " [" + p.Rule + "]"
	if p.Severity == schemas.SeverityWarning {
		line = "warning: " + line
	}
	return line
}

// junitKept are the indexes of the subjects that there is room for: all, or
// those of whole pools, the ones with problems first; and what is said of the
// others. Only the first pool is cut to what fits, as budget.take does.
func junitKept(report *fleet.Report) (map[int]bool, string) {
	order, owned := junitOwners(report)
	kept := map[int]bool{}
	cases, size, pools, objects := 0, 0, 0, 0
	for rank, o := range order {
		fits, cost := 0, 0
		for _, i := range owned[o] {
			cost += junitSize(report, &report.Subjects[i])
			if cases+fits+1 > maxCases || size+cost > maxReport {
				break
			}
			fits++
		}
		if fits < len(owned[o]) {
			if pools++; rank > 0 {
				fits = 0
			}
			objects += len(owned[o]) - fits
		}
		for _, i := range owned[o][:fits] {
			kept[i] = true
			cases, size = cases+1, size+junitSize(report, &report.Subjects[i])
		}
	}
	if pools == 0 {
		return kept, ""
	}
	return kept, fmt.Sprintf("left out here: %s of %s; cloop fleet check shows all problems", count(objects, "object"), count(pools, "pool"))
}

// junitOwners are the owners of the subjects, those with problems first, and
// owner → its subjects, those with problems first.
func junitOwners(report *fleet.Report) (order []owner, owned map[owner][]int) {
	owned = map[owner][]int{}
	for _, wrong := range []bool{true, false} {
		for i := range report.Subjects {
			subject := &report.Subjects[i]
			if (len(subject.Problems) > 0) != wrong {
				continue
			}
			o := ownerOf(subject)
			if owned[o] == nil {
				order = append(order, o)
			}
			owned[o] = append(owned[o], i)
		}
	}
	return order, owned
}

// junitSize is how many bytes a case has, and no less.
func junitSize(report *fleet.Report, subject *fleet.Subject) int {
	c := junitCaseOf(subject, failuresOf(report, subject))
	size := 150 + escapedSize(c.Name) + escapedSize(visible(subject.Root))
	if c.Failure != nil {
		size += 100 + escapedSize(c.Failure.Message) + escapedSize(c.Failure.Type) + escapedSize(c.Failure.Text)
	}
	return size
}

// escapedSize bounds the size of text in XML: an escaped character takes five
// bytes, and a ]]> that would end a section fifteen.
func escapedSize(text string) int {
	size := len(text)
	for i := range len(text) {
		switch text[i] {
		case '<', '&', '"', '\'', '\n':
			size += 4
		case '>':
			size += 12
		}
	}
	return size
}

func failuresOf(report *fleet.Report, subject *fleet.Subject) []schemas.Problem {
	var failures []schemas.Problem
	for _, index := range subject.Problems {
		if problem := report.Problems[index]; problem.Severity == schemas.SeverityError {
			failures = append(failures, problem)
		}
	}
	return failures
}
