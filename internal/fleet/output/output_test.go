package output_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/fleet/output"
	"cloop.dev/cloop/schemas"
)

var update = flag.Bool("update", false, "write what the outputs are into testdata/golden")

// options of all tests: always the same build and time.
var options = output.Options{Version: "1.2.3", At: time.Date(2026, 11, 29, 20, 36, 0, 0, time.UTC)}

// validators: format → what fails the test on bytes that its readers would not
// take, or would take for something else.
var validators = map[output.Format]func(*testing.T, *output.Result, []byte){
	output.Text:     validText,
	output.JSON:     validJSON,
	output.YAML:     func(*testing.T, *output.Result, []byte) {},
	output.SARIF:    validSARIF,
	output.GitHub:   validGitHub,
	output.GitLab:   validGitLab,
	output.JUnit:    validJUnit,
	output.Markdown: validMarkdown,
}

// rendered is the result in every format, each found valid.
func rendered(t *testing.T, result *output.Result) map[output.Format][]byte {
	t.Helper()
	all := map[output.Format][]byte{}
	for _, format := range output.Formats() {
		all[format] = render(t, format, result)
	}
	return all
}

// render is the result in one format, found valid.
func render(t *testing.T, format output.Format, result *output.Result) []byte {
	t.Helper()
	data, err := output.Render(format, result, options)
	if err != nil {
		t.Fatalf("%s: %v", format, err)
	}
	if !utf8.Valid(data) {
		t.Errorf("%s is not UTF-8", format)
	}
	validators[format](t, result, data)
	return data
}

func validText(t *testing.T, result *output.Result, data []byte) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	for _, line := range lines {
		if isCommand(line) {
			t.Errorf("text has a line that a runner takes for a command: %q", line)
		}
		noControls(t, "text", line)
	}
	if len(data) > 0 && len(lines) != len(result.Report.Problems)+1 {
		t.Errorf("text has %d lines for %d problems:\n%s", len(lines), len(result.Report.Problems), data)
	}
}

// noControls fails on what directs a terminal or the order of characters.
func noControls(t *testing.T, format output.Format, text string) {
	t.Helper()
	for _, r := range text {
		if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r == 0x200b || r == 0x200e || r == 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r == 0xfeff || r >= 0xfffe && r <= 0xffff || r == 0x3164 {
			t.Errorf("%s has the character %U: %q", format, r, text)
			return
		}
	}
}

func validJSON(t *testing.T, result *output.Result, data []byte) {
	t.Helper()
	var got struct {
		OK      bool
		Verdict output.Verdict
		fleet.Report
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Errorf("json: %v", err)
	}
	if got.Verdict != result.Verdict || got.OK != (result.Verdict == output.Sound) || len(got.Problems) != len(result.Report.Problems) {
		t.Errorf("json says %v, %s, %d problems", got.OK, got.Verdict, len(got.Problems))
	}
}

// readReport is a report of testdata/reports, in the JSON format.
func readReport(t *testing.T, name string) *fleet.Report {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "reports", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	report := &fleet.Report{}
	if err := json.Unmarshal(data, report); err != nil {
		t.Fatal(err)
	}
	return report
}

// golden: case → its result. Each has a folder in testdata/golden, with a file
// for each format.
func golden(t *testing.T) map[string]*output.Result {
	return map[string]*output.Result{
		"unsound":  output.Judge(readReport(t, "unsound")),
		"warnings": output.Judge(readReport(t, "warnings")),
		"sound":    output.Judge(readReport(t, "sound")),
		"nothing":  output.Judge(readReport(t, "nothing")),
		"failed":   output.Failure(errors.New("clusters/eu: the path is not in the repository: name one that is")),
	}
}

var extensions = map[output.Format]string{
	output.Text: "text.txt", output.JSON: "report.json", output.YAML: "report.yaml", output.SARIF: "fleet.sarif",
	output.GitHub: "github.txt", output.GitLab: "gitlab.json", output.JUnit: "junit.xml", output.Markdown: "comment.md",
}

func TestOutputsAreAsShown(t *testing.T) {
	for name, result := range golden(t) {
		t.Run(name, func(t *testing.T) {
			for format, data := range rendered(t, result) {
				file := filepath.Join("testdata", "golden", name, extensions[format])
				fleettest.Golden(t, file, data, *update)
			}
		})
	}
}

// What each format says of the verdict is what the process exits with.
func TestEveryOutputSaysTheVerdict(t *testing.T) {
	for name, want := range map[string]output.Verdict{
		"unsound": output.Unsound, "warnings": output.Sound, "sound": output.Sound, "nothing": output.Unanswered, "failed": output.Unanswered,
	} {
		t.Run(name, func(t *testing.T) {
			result := golden(t)[name]
			code := map[output.Verdict]int{output.Sound: 0, output.Unsound: 1, output.Unanswered: 2}[want]
			if result.Verdict != want || result.Verdict.ExitCode() != code {
				t.Fatalf("the verdict is %s, exit code %d", result.Verdict, result.Verdict.ExitCode())
			}
			all := rendered(t, result)
			for format, says := range map[output.Format][3]string{
				output.JSON:     {`"ok": true`, `"ok": false`, `"verdict": "unanswered"`},
				output.SARIF:    {`"exitCode": 0`, `"exitCode": 1`, `"executionSuccessful": false`},
				output.JUnit:    {`value="sound"`, `<failure`, `<error`},
				output.GitLab:   {``, `"critical"`, `"blocker"`},
				output.GitHub:   {``, `::error file=`, `::error title=Fleet check::`},
				output.Markdown: {"## ✅", "## ❌", "## ❓"},
			} {
				if !strings.Contains(string(all[format]), says[code]) {
					t.Errorf("%s does not say %s:\n%s", format, says[code], all[format])
				}
			}
		})
	}
}

// A path in which there was nothing does not hide what is wrong in another.
func TestAnErrorBeatsAPathWithNothing(t *testing.T) {
	report := readReport(t, "unsound")
	report.Roots = append(report.Roots, fleet.RootReport{Path: "docs"})
	result := output.Judge(report)
	if result.Verdict != output.Unsound || result.Err(nil) == nil {
		t.Errorf("the verdict is %s (%v)", result.Verdict, result.Err(nil))
	}
	for format, data := range rendered(t, result) {
		if format != output.Text && !strings.Contains(string(data), "nothing to check in") {
			t.Errorf("%s does not say that docs had nothing:\n%s", format, data)
		}
	}
}

func TestPathsAreSpeltForTextOnly(t *testing.T) {
	result := output.Judge(readReport(t, "unsound"))
	here := options
	here.Spell = func(path string) string { return "../" + path }
	for _, format := range output.Formats() {
		data, err := output.Render(format, result, here)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(data), "../pools/base/gpu.yaml"); got != (format == output.Text) {
			t.Errorf("%s spells paths: %t", format, got)
		}
	}
}

func TestRenderRefusesAFormatThatThereIsNot(t *testing.T) {
	if _, err := output.Render("html", output.Judge(readReport(t, "sound")), options); err == nil {
		t.Error("there is no error")
	}
}

// Every rule that a problem may name has a page to link to.
func TestEveryRuleIsDescribed(t *testing.T) {
	known := map[string]bool{}
	for _, rule := range fleet.Rules() {
		if rule.Meaning == "" || rule.Remedy == "" || rule.Severity == "" || known[rule.ID] {
			t.Errorf("rule %+v is not described, or twice", rule)
		}
		known[rule.ID] = true
	}
	for _, id := range []string{
		schemas.RuleSyntax, schemas.RuleDuplicateKey, schemas.RuleTypeMeta, schemas.RuleUnknownKind,
		schemas.RuleUnknownField, schemas.RuleMetadata, schemas.RuleSchema, schemas.RuleCEL,
	} {
		if !known[id] {
			t.Errorf("rule %s is not described", id)
		}
	}
}
