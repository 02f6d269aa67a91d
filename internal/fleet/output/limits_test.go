package output_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/output"
	"cloop.dev/cloop/schemas"
)

// pools is a report with so many errors and warnings of each pool.
func pools(wrongs ...[2]int) *fleet.Report {
	report := &fleet.Report{Roots: []fleet.RootReport{{Path: "clusters/eu", Failed: true}}, Problems: []schemas.Problem{}}
	for n, of := range wrongs {
		name := fmt.Sprintf("pool%05d", n)
		subject := fleet.Subject{Root: "clusters/eu", Object: "ExecutorPool eu/" + name, Pool: name, File: "pools/" + name + ".yaml", Line: 1}
		for i := range of[0] + of[1] {
			problem := wrong(subject.File, i+1)
			problem.Object, problem.Message = subject.Object, fmt.Sprintf("value %s is no good", strings.Repeat("x", i%40+1))
			if i >= of[0] {
				problem.Severity = schemas.SeverityWarning
			}
			subject.Problems = append(subject.Problems, len(report.Problems))
			report.Problems = append(report.Problems, problem)
		}
		report.Subjects = append(report.Subjects, subject)
	}
	report.Documents, report.Judged, report.Pools = len(wrongs), len(wrongs), len(wrongs)
	report.Roots[0].Documents, report.Roots[0].Judged, report.Roots[0].Pools = len(wrongs), len(wrongs), len(wrongs)
	return report
}

func repeated(n int, of [2]int) [][2]int {
	all := make([][2]int, n)
	for i := range all {
		all[i] = of
	}
	return all
}

// shownBy counts the problems of each pool that an output shows, and says what
// it says of the others.
func shownBy(t *testing.T, format output.Format, data []byte) (shown map[string]int, note string) {
	t.Helper()
	shown = map[string]int{}
	switch format {
	case output.SARIF:
		run := readSARIF(t, data).Runs[0]
		for _, result := range run.Results {
			shown[result.Properties.Pool]++
		}
		for _, notification := range run.Invocations[0].ToolExecutionNotifications {
			note += notification.Message.Text
		}
	case output.GitLab:
		for _, v := range readGitLab(t, data) {
			if v.CheckName == "left-out" {
				note = v.Description
				continue
			}
			_, name, _ := strings.Cut(v.Description, "eu/")
			shown[name[:9]]++
		}
	case output.GitHub:
		for _, line := range strings.Split(string(data), "\n") {
			if strings.HasPrefix(line, "::notice ") {
				note = line
			} else if _, name, ok := strings.Cut(line, "file=pools/"); ok {
				shown[name[:9]]++
			}
		}
	case output.Markdown:
		for _, line := range strings.Split(string(data), "\n") {
			if strings.HasPrefix(line, "**left out") {
				note = line
			} else if _, name, ok := strings.Cut(line, " `pools/"); ok {
				shown[name[:9]]++
			}
		}
	}
	return shown, note
}

var limited = []output.Format{output.SARIF, output.GitLab, output.GitHub, output.Markdown}

// What does not fit is left out by whole pools, those without an error first,
// and counted to the last problem.
func TestOutputsAreCutByWholePools(t *testing.T) {
	for name, test := range map[string]struct {
		wrongs [][2]int
		notes  map[output.Format]string
	}{
		"all fit":           {repeated(3, [2]int{2, 1}), map[output.Format]string{}},
		"many pools":        {repeated(4000, [2]int{2, 1}), map[output.Format]string{output.GitHub: "7990 errors, 3995 warnings of 3995 pools", output.SARIF: "4668 errors, 2334 warnings of 2334 pools", output.GitLab: "1334 errors, 667 warnings of 667 pools"}},
		"the first is much": {[][2]int{{12_000, 3}, {1, 0}, {0, 1}}, map[output.Format]string{output.GitHub: "11991 errors, 3 warnings of 2 pools", output.Markdown: " errors, 4 warnings of 3 pools"}},
		"warnings wait":     {append(repeated(9, [2]int{0, 2}), [2]int{11, 0}), map[output.Format]string{output.GitHub: "1 error, 8 warnings of 5 pools"}},
	} {
		t.Run(name, func(t *testing.T) {
			report := pools(test.wrongs...)
			for _, format := range limited {
				if name != "many pools" && len(test.notes) > 0 && test.notes[format] == "" {
					// Thousands of results take a schema seconds.
					continue
				}
				shown, note := shownBy(t, format, render(t, format, output.Judge(report)))
				if want := test.notes[format]; want != "" && !strings.Contains(note, want) {
					t.Errorf("%s says %q, want %q", format, note, want)
				}
				wholePools(t, format, report, shown, note)
			}
		})
	}
}

// The reason why something was not checked is an annotation too.
func TestGitHubHasRoomForTheReason(t *testing.T) {
	report := pools([2]int{12, 0})
	report.Roots = append(report.Roots, fleet.RootReport{Path: "docs"})
	shown, note := shownBy(t, output.GitHub, render(t, output.GitHub, output.Judge(report)))
	if shown["pool00000"] != 9 || !strings.Contains(note, "3 errors of 1 pool") {
		t.Errorf("%v shown, and %q", shown, note)
	}
}

// wholePools holds an output to show a pool in full or not at all, but for the
// first with an error, and to count what it leaves out.
func wholePools(t testing.TB, format output.Format, report *fleet.Report, shown map[string]int, note string) {
	t.Helper()
	total, wanted, cut := 0, 0, 0
	for _, subject := range report.Subjects {
		n := shown[subject.Pool]
		total, wanted = total+n, wanted+len(subject.Problems)
		if n > 0 && n < len(subject.Problems) {
			cut++
		}
	}
	if cut > 1 {
		t.Errorf("%s takes %d pools apart", format, cut)
	}
	if report.Failed() && total == 0 {
		t.Errorf("%s shows no problem", format)
	}
	if (total < wanted) != (note != "") {
		t.Errorf("%s shows %d of %d problems and says %q", format, total, wanted, note)
	}
	if note == "" {
		return
	}
	var errors, warnings int
	_, counts, _ := strings.Cut(note, "left out here: ")
	for _, part := range strings.SplitN(counts, ",", 2) {
		var n int
		var noun string
		if _, err := fmt.Sscan(strings.TrimSpace(part), &n, &noun); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(noun, "error") {
			errors = n
		} else {
			warnings = n
		}
	}
	if errors+warnings != wanted-total {
		t.Errorf("%s leaves out %d problems and says %q", format, wanted-total, note)
	}
}

// Any mix of pools fits, with what is left out counted.
func TestOutputsFitWhateverThereIs(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		wrongs := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) [2]int {
			return [2]int{rapid.IntRange(0, 20).Draw(r, "errors"), rapid.IntRange(0, 20).Draw(r, "warnings")}
		}), 1, 30).Draw(r, "pools")
		report := pools(wrongs...)
		result := output.Judge(report)
		for _, format := range []output.Format{output.GitHub, output.Markdown} {
			shown, note := shownBy(t, format, render(t, format, result))
			wholePools(t, format, report, shown, note)
		}
		if t.Failed() {
			r.Fatal("with these pools")
		}
	})
}

// A pool in more clusters than a test report has room for shows those that fail.
func TestJUnitKeepsWhatFails(t *testing.T) {
	report := pools(repeated(30_000, [2]int{0, 0})...)
	report.Problems = []schemas.Problem{wrong("pools/pool29999.yaml", 1)}
	report.Subjects[29_999].Problems = []int{0}
	data := string(render(t, output.JUnit, output.Judge(report)))
	for _, want := range []string{`<failure `, `name="ExecutorPool eu/pool29999"`, `<skipped>left out here: 5000 objects of 5000 pools; cloop fleet check shows all problems</skipped>`} {
		if !strings.Contains(data, want) {
			t.Errorf("the report lacks %s", want)
		}
	}

	one := pools(repeated(2_500, [2]int{1, 0})...)
	for i := range one.Subjects {
		one.Subjects[i].Pool = "gpu"
		one.Problems[i].Message = strings.Repeat("]]>", 600)
	}
	data = string(render(t, output.JUnit, output.Judge(one)))
	if len(data) > 30_000_000 || !strings.Contains(data, " objects of 1 pool; ") || !strings.Contains(data, "<failure ") {
		t.Errorf("the report has %d bytes: %.2000s", len(data), data)
	}
}

// Fingerprints stay when lines move, and numbers in messages; they differ
// between problems.
func TestFingerprintsAreStableAndUnique(t *testing.T) {
	prints := func(problems ...schemas.Problem) []string {
		t.Helper()
		var all []string
		for _, v := range readGitLab(t, rendered(t, output.Judge(reportOf(problems...)))[output.GitLab]) {
			all = append(all, v.Fingerprint)
		}
		return all
	}
	a := wrong("a.yaml", 10)
	first := prints(a)[0]
	same := map[string]func(*schemas.Problem){
		"the line":               func(p *schemas.Problem) { p.Line, p.Column = 99, 1 },
		"a place in the message": func(p *schemas.Problem) { p.Message = "also defined at b.yaml:7" },
		"the overlay":            func(p *schemas.Problem) { p.Object = "ExecutorPool us/gpu" },
		"the hint":               func(p *schemas.Problem) { p.Hint = "do that" },
	}
	for name, change := range same {
		base, moved := a, a
		if name == "a place in the message" {
			base.Message = "also defined at b.yaml:123"
		}
		change(&moved)
		if prints(moved)[0] != prints(base)[0] {
			t.Errorf("%s changes the fingerprint", name)
		}
	}
	for name, change := range map[string]func(*schemas.Problem){
		"the file":   func(p *schemas.Problem) { p.File = "b.yaml" },
		"the rule":   func(p *schemas.Problem) { p.Rule = schemas.RuleSchema },
		"the object": func(p *schemas.Problem) { p.Object = "ExecutorPool team/cpu" },
		"the field":  func(p *schemas.Problem) { p.Path = "spec.image" },
		"the value":  func(p *schemas.Problem) { p.Message = "must not be an https URL" },
	} {
		other := a
		change(&other)
		if prints(other)[0] == first {
			t.Errorf("%s does not change the fingerprint", name)
		}
	}
	if twice := prints(a, a, a); twice[0] != first || twice[0] == twice[1] || twice[1] == twice[2] {
		t.Errorf("three equal problems have %v", twice)
	}
}

// The columns of YAML and of the outputs are characters, which SARIF says.
func TestColumnsAreCharacters(t *testing.T) {
	const line = `spec: {hubURL: "https://cloop.example.com", poolCredentialSecretRef: {name: c}, maxRunners: 1, "😀é": 1, `
	dir := t.TempDir()
	write(t, dir, "pool.yaml", "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: gpu}\n"+line+"foo: 1}\n")
	want := len([]rune(line)) + 1
	report := checked(t, dir)
	if len(report.Problems) != 2 || report.Problems[1].Path != "spec.foo" || report.Problems[1].Column != want {
		t.Fatalf("problems %+v, want spec.foo in column %d", report.Problems, want)
	}
	log := readSARIF(t, rendered(t, output.Judge(report))[output.SARIF])
	if got := log.Runs[0].Results[1].Locations[0].PhysicalLocation.Region.StartColumn; got != want {
		t.Errorf("column %d, want %d", got, want)
	}
}

// JSON is what a program reads back in full.
func TestJSONHoldsTheReport(t *testing.T) {
	report := readReport(t, "unsound")
	var got fleet.Report
	if err := json.Unmarshal(rendered(t, output.Judge(report))[output.JSON], &got); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", *report) {
		t.Errorf("read back as\n%+v\nwant\n%+v", got, *report)
	}
}
