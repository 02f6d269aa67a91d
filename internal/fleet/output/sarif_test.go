package output_test

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/output"
	"cloop.dev/cloop/schemas"
)

var sarifSchema, codeQualitySchema = schemaOf("sarif-2.1.0-rtm.5.json"), schemaOf("codequality.json")

// schemaOf compiles a schema when it is first asked for.
func schemaOf(file string) func() (*jsonschema.Schema, error) {
	return sync.OnceValues(func() (*jsonschema.Schema, error) { return compile(file) })
}

func compile(file string) (*jsonschema.Schema, error) {
	text, err := os.ReadFile("testdata/schemas/" + file)
	if err != nil {
		return nil, err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("schema.json", document); err != nil {
		return nil, err
	}
	return compiler.Compile("schema.json")
}

// against validates a JSON text, formats such as uri included.
func against(t *testing.T, schemaOnce func() (*jsonschema.Schema, error), data []byte) {
	t.Helper()
	schema, err := schemaOnce()
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("the schema refuses it: %v\n%.10000s", err, data)
	}
}

// sarifLog is what code scanning reads of a log.
type sarifLog struct {
	Runs []struct {
		Tool struct {
			Driver struct {
				Rules []struct{ ID, HelpURI string }
			}
		}
		ColumnKind         string
		OriginalURIBaseIDs map[string]any
		Invocations        []struct {
			ToolExecutionNotifications []struct {
				Message struct{ Text string }
			}
		}
		Results []struct {
			RuleID    string
			RuleIndex int
			Level     string
			Message   struct{ Text string }
			Locations []struct {
				PhysicalLocation struct {
					ArtifactLocation struct{ URI, URIBaseID string }
					Region           struct{ StartLine, StartColumn int }
				}
			}
			PartialFingerprints map[string]string
			Suppressions        []struct{ Kind, Justification string }
			Properties          struct{ Pool string }
		}
	}
}

func readSARIF(t *testing.T, data []byte) sarifLog {
	t.Helper()
	var log sarifLog
	if err := json.Unmarshal(data, &log); err != nil {
		t.Fatal(err)
	}
	return log
}

// validSARIF holds a log to its schema, and to what code scanning wants beyond.
func validSARIF(t *testing.T, _ *output.Result, data []byte) {
	t.Helper()
	against(t, sarifSchema, data)
	log := readSARIF(t, data)
	if len(log.Runs) != 1 || log.Runs[0].ColumnKind != "unicodeCodePoints" || len(log.Runs[0].Results) > 5000 {
		t.Fatalf("sarif has %d runs, the first with %d results", len(log.Runs), len(log.Runs[0].Results))
	}
	run := log.Runs[0]
	prints := map[string]bool{}
	for _, result := range run.Results {
		if rule := run.Tool.Driver.Rules[result.RuleIndex]; rule.ID != result.RuleID || !strings.HasPrefix(rule.HelpURI, "https://") {
			t.Errorf("the result of rule %q has the rule %+v", result.RuleID, rule)
		}
		print := result.PartialFingerprints["cloopFleetCheck/v1"]
		if print == "" || prints[print] {
			t.Errorf("the fingerprint %q is not the result's own", print)
		}
		prints[print] = true
		if strings.Contains(result.Message.Text, "](") {
			t.Errorf("the message may have a link: %s", result.Message.Text)
		}
		for _, location := range result.Locations {
			at := location.PhysicalLocation.ArtifactLocation
			uri, err := url.Parse(at.URI)
			if err != nil || uri.IsAbs() || uri.Host != "" || uri.RawQuery != "" || uri.Fragment != "" || strings.HasPrefix(uri.Path, "/") {
				t.Errorf("%q is no path relative to the repository (%v)", at.URI, err)
			}
			if _, declared := run.OriginalURIBaseIDs[at.URIBaseID]; !declared {
				t.Errorf("the base %q is not declared", at.URIBaseID)
			}
		}
	}
}

func TestSARIFPathsAreURIs(t *testing.T) {
	for file, want := range map[string]string{
		"pools/base/gpu.yaml": "pools/base/gpu.yaml",
		"a b/100%#?.yaml":     "a%20b/100%25%23%3F.yaml",
		"c:/x.yaml":           "./c:/x.yaml",
		"pöl/\xff.yaml":       "p%C3%B6l/%FF.yaml",
	} {
		problem := wrong("a.yaml", 1)
		problem.File = file
		log := readSARIF(t, rendered(t, output.Judge(reportOf(problem)))[output.SARIF])
		if got := log.Runs[0].Results[0].Locations[0].PhysicalLocation.ArtifactLocation.URI; got != want {
			t.Errorf("%q is %q, want %q", file, got, want)
		}
	}
}

// A rule of a repository's own has a description too.
func TestSARIFDescribesUnknownRules(t *testing.T) {
	problem := wrong("a.yaml", 1)
	problem.Rule = "acme/gpu owner"
	rules := readSARIF(t, rendered(t, output.Judge(reportOf(problem)))[output.SARIF]).Runs[0].Tool.Driver.Rules
	if len(rules) != 1 || rules[0].ID != "acme/gpu owner" || !strings.HasSuffix(rules[0].HelpURI, "/rules.md#rules-of-the-repository") {
		t.Errorf("rules %+v", rules)
	}
}

// What the repository bears is counted by every output, and is no error of any.
func TestSuppressedFindings(t *testing.T) {
	report := &fleet.Report{Roots: []fleet.RootReport{{Path: "a", Documents: 1, Judged: 1, Pools: 1}}, Documents: 1, Judged: 1, Pools: 1,
		Rules: []fleet.Rule{{ID: "own", Severity: schemas.SeverityError, Meaning: "our words", Remedy: "our remedy"}}}
	for i, by := range []string{"comment", "config"} {
		problem := wrong("a/b.yaml", i+1)
		problem.Rule = []string{fleet.RuleDuplicatePool, "own"}[i]
		report.Suppressed = append(report.Suppressed, fleet.Suppressed{Problem: problem, Ignored: fleet.Ignored{By: by, Reason: "because", File: "a/b.yaml", Line: 7}})
	}
	result := output.Judge(report)
	if result.Verdict != output.Sound {
		t.Errorf("the verdict is %s", result.Verdict)
	}
	all := rendered(t, result)
	for format, want := range map[output.Format]string{
		output.Text: "; 2 ignored\n", output.GitHub: "; 2 ignored\n", output.JSON: `"by": "comment"`, output.YAML: "by: comment",
		output.GitLab: `2 findings ignored`, output.JUnit: `name="ignored" value="2"`, output.Markdown: "2 findings ignored",
	} {
		if !strings.Contains(string(all[format]), want) {
			t.Errorf("%s does not say %q:\n%s", format, want, all[format])
		}
	}
	log := readSARIF(t, all[output.SARIF]).Runs[0]
	if len(log.Results) != 2 || len(log.Tool.Driver.Rules) != 2 {
		t.Fatalf("sarif has %d results and %d rules", len(log.Results), len(log.Tool.Driver.Rules))
	}
	for i, kind := range []string{"inSource", "external"} {
		one := log.Results[i]
		if len(one.Suppressions) != 1 || one.Suppressions[0].Kind != kind || one.Suppressions[0].Justification != "because" || one.Level != "note" {
			t.Errorf("result %d is %+v", i, one)
		}
	}
}
