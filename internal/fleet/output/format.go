package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/printable"
)

// Format names a way to show a result.
type Format string

// Formats.
const (
	// Text is for eyes, a line for each problem.
	Text Format = "text"
	// JSON is the whole report, for programs.
	JSON Format = "json"
	// YAML is JSON in YAML.
	YAML Format = "yaml"
	// SARIF is SARIF 2.1.0, for code scanning.
	SARIF Format = "sarif"
	// GitHub is workflow commands, which annotate a pull request.
	GitHub Format = "github"
	// GitLab is a Code Quality report.
	GitLab Format = "gitlab"
	// JUnit is a test report, a case for each object.
	JUnit Format = "junit"
	// Markdown is a comment on a pull request.
	Markdown Format = "markdown"
)

// renderers: format → how it is made.
var renderers = map[Format]func(*Result, Options) ([]byte, error){
	Text:     text,
	JSON:     jsonReport,
	YAML:     yamlReport,
	SARIF:    sarif,
	GitHub:   github,
	GitLab:   gitlab,
	JUnit:    junit,
	Markdown: markdown,
}

// Formats lists all formats, in the order in which help texts name them.
func Formats() []Format {
	return []Format{Text, JSON, YAML, SARIF, GitHub, GitLab, JUnit, Markdown}
}

// Options are what outputs need beside the result.
type Options struct {
	// Spell names a path of the repository as whoever reads the text format
	// sees it. All other formats, and nil, have it relative to the root.
	Spell func(string) string
	// Version of cloop; SARIF has it.
	Version string
	// At is when the check was made; JUnit has it.
	At time.Time
}

// Render shows the result in a format. Its error is of an unknown format.
func Render(format Format, result *Result, options Options) ([]byte, error) {
	render, ok := renderers[format]
	if !ok {
		return nil, fmt.Errorf("no such format: %s", format)
	}
	return render(result, options)
}

// Document is the report as programs read it. Keys are stable.
type Document struct {
	// OK is whether nothing is wrong.
	OK bool `json:"ok"`
	// Verdict is sound, unsound or unanswered.
	Verdict Verdict `json:"verdict"`
	// Summary is the answer on one line.
	Summary string `json:"summary"`
	// Reason is why something was not checked.
	Reason string `json:"reason,omitempty"`
	*fleet.Report
}

func (r *Result) report() Document {
	return Document{OK: r.Verdict == Sound, Verdict: r.Verdict, Summary: r.Summary(), Reason: r.reason(), Report: r.Report}
}

func jsonReport(result *Result, _ Options) ([]byte, error) { return indented(result.report()) }

func yamlReport(result *Result, _ Options) ([]byte, error) {
	data, err := json.Marshal(result.report())
	if err != nil {
		return nil, err
	}
	return printable.YAML(data)
}

// indented is JSON that people can read too, also on a terminal.
func indented(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return printable.JSON(b.Bytes()), nil
}
