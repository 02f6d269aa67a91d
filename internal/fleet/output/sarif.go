package output

import (
	"net/url"
	"slices"
	"strings"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/schemas"
)

const (
	// maxResults is how many results of a run code scanning keeps.
	maxResults = 5000
	// sourceRoot is the name that SARIF readers know for the repository's root.
	sourceRoot = "%SRCROOT%"
	// fingerprintName carries a version: another way to compute it is another
	// name. It is not primaryLocationLineHash, which the upload action computes
	// from the source and compares.
	fingerprintName = "cloopFleetCheck/v1"
)

// The part of SARIF 2.1.0 that is written.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool              sarifTool                `json:"tool"`
		AutomationDetails sarifAutomation          `json:"automationDetails"`
		Invocations       []sarifInvocation        `json:"invocations"`
		BaseIDs           map[string]sarifArtifact `json:"originalUriBaseIds"`
		// ColumnKind: YAML positions count characters. The default of SARIF is
		// UTF-16 code units, which differ behind an emoji.
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		InformationURI string      `json:"informationUri"`
		Version        string      `json:"version,omitempty"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string             `json:"id"`
		ShortDescription sarifMessage       `json:"shortDescription"`
		FullDescription  sarifMessage       `json:"fullDescription"`
		Help             sarifMessage       `json:"help"`
		HelpURI          string             `json:"helpUri"`
		Configuration    sarifConfiguration `json:"defaultConfiguration"`
	}
	sarifConfiguration struct {
		Level string `json:"level"`
	}
	sarifAutomation struct {
		ID string `json:"id"`
	}
	sarifInvocation struct {
		Successful    bool                `json:"executionSuccessful"`
		ExitCode      int                 `json:"exitCode"`
		Notifications []sarifNotification `json:"toolExecutionNotifications,omitempty"`
	}
	sarifNotification struct {
		Level   string       `json:"level"`
		Message sarifMessage `json:"message"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID              string             `json:"ruleId"`
		RuleIndex           int                `json:"ruleIndex"`
		Level               string             `json:"level"`
		Message             sarifMessage       `json:"message"`
		Locations           []sarifLocation    `json:"locations,omitempty"`
		PartialFingerprints map[string]string  `json:"partialFingerprints"`
		Suppressions        []sarifSuppression `json:"suppressions,omitempty"`
		Properties          sarifProperties    `json:"properties"`
	}
	sarifSuppression struct {
		Kind          string         `json:"kind"`
		Status        string         `json:"status"`
		Justification string         `json:"justification"`
		Location      *sarifLocation `json:"location,omitempty"`
	}
	// sarifProperties are our own: what a script may want to filter by.
	sarifProperties struct {
		Pool   string   `json:"pool,omitempty"`
		Field  string   `json:"field,omitempty"`
		Remedy string   `json:"remedy,omitempty"`
		Roots  []string `json:"roots,omitempty"`
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI         string        `json:"uri,omitempty"`
		BaseID      string        `json:"uriBaseId,omitempty"`
		Description *sarifMessage `json:"description,omitempty"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
	sarifLogical struct {
		FullyQualifiedName string `json:"fullyQualifiedName"`
		Kind               string `json:"kind"`
	}
)

// sarif is a log with one run.
func sarif(result *Result, options Options) ([]byte, error) {
	shown := budget{
		room: []int{maxResults},
		cost: func(g group) []int { return []int{len(g.entries)} },
	}.take(groups(result.Report))
	rules := sarifRules{known: result.Report.Rules, indexes: map[string]int{}, list: []sarifRule{}}
	results := []sarifResult{}
	for _, g := range shown.groups {
		for _, e := range g.entries {
			results = append(results, sarifResultOf(g.owner, e, rules.index(e.Problem)))
		}
	}
	results = append(results, sarifSuppressed(result.Report, &rules, maxResults-len(results))...)
	return indented(sarifLog{
		Schema:  "https://json.schemastore.org/sarif-2.1.0.json",
		Version: "2.1.0",
		Runs: []sarifRun{{
			Tool:              sarifTool{sarifDriver{Name: "cloop fleet check", InformationURI: docsURL, Version: options.Version, Rules: rules.list}},
			AutomationDetails: sarifAutomation{"cloop-fleet-check/"},
			Invocations:       []sarifInvocation{sarifInvocationOf(result, shown)},
			BaseIDs:           map[string]sarifArtifact{sourceRoot: {Description: &sarifMessage{"The root of the repository."}}},
			ColumnKind:        "unicodeCodePoints",
			Results:           results,
		}},
	})
}

// sarifInvocationOf says how the check went beyond its results.
func sarifInvocationOf(result *Result, shown excerpt) sarifInvocation {
	invocation := sarifInvocation{Successful: result.Verdict != Unanswered, ExitCode: result.Verdict.ExitCode()}
	if reason := result.reason(); reason != "" {
		invocation.Notifications = append(invocation.Notifications, sarifNotification{"error", sarifText(reason)})
	}
	if note := result.sparse(); note != "" {
		invocation.Notifications = append(invocation.Notifications, sarifNotification{"note", sarifText(note)})
	}
	if note := shown.note(); note != "" {
		invocation.Notifications = append(invocation.Notifications, sarifNotification{"note", sarifText(note)})
	}
	return invocation
}

// sarifRules are the rules that problems name.
type sarifRules struct {
	// known are the repository's own.
	known []fleet.Rule
	list  []sarifRule
	// indexes: id → its index in list.
	indexes map[string]int
}

// index of the rule of a problem, which is listed from then on.
func (r *sarifRules) index(problem *schemas.Problem) int {
	index, listed := r.indexes[problem.Rule]
	if !listed {
		index = len(r.list)
		r.indexes[problem.Rule] = index
		r.list = append(r.list, sarifRuleOf(r.rule(problem)))
	}
	return index
}

func (r *sarifRules) rule(problem *schemas.Problem) fleet.Rule {
	if rule, ok := known()[problem.Rule]; ok {
		return rule
	}
	for _, rule := range r.known {
		if rule.ID == problem.Rule {
			rule.Meaning, rule.Remedy = printable.Abridge(visible(rule.Meaning), maxMessage), printable.Abridge(visible(rule.Remedy), maxMessage)
			return rule
		}
	}
	return fleet.Rule{ID: problem.Rule, Severity: problem.Severity, Meaning: "A rule of the repository is broken.", Remedy: "see the message"}
}

// sarifSuppressed are the findings that the repository bears, as many as there
// is room for. They are notes: a reader that knows nothing of suppressions must
// not take them for errors.
func sarifSuppressed(report *fleet.Report, rules *sarifRules, room int) []sarifResult {
	list := report.Suppressed[:min(len(report.Suppressed), max(room, 0))]
	if len(list) == 0 {
		return nil
	}
	// One may be like a finding that counts; each result has its own fingerprint.
	problems := slices.Clone(report.Problems)
	for i := range list {
		problems = append(problems, list[i].Problem)
	}
	prints := fingerprints(problems)[len(report.Problems):]
	problems = problems[len(report.Problems):]
	results := make([]sarifResult, 0, len(list))
	for i := range list {
		one := sarifResultOf(owner{}, entry{&problems[i], nil, prints[i]}, rules.index(&problems[i]))
		one.Level = "note"
		one.Suppressions = []sarifSuppression{suppressionOf(list[i].Ignored)}
		results = append(results, one)
	}
	return results
}

func suppressionOf(ignored fleet.Ignored) sarifSuppression {
	suppression := sarifSuppression{Kind: "external", Status: "accepted", Justification: printable.Abridge(visible(ignored.Reason), maxMessage)}
	if ignored.By == "comment" {
		suppression.Kind = "inSource"
	}
	if at := sarifLocations(&schemas.Problem{File: ignored.File, Line: ignored.Line, Column: 1}); len(at) > 0 {
		suppression.Location = &at[0]
	}
	return suppression
}

func sarifRuleOf(rule fleet.Rule) sarifRule {
	return sarifRule{
		ID: printable.Abridge(visible(rule.ID), maxName), ShortDescription: sarifText(firstSentence(rule.Meaning)), FullDescription: sarifText(rule.Meaning),
		Help: sarifText(rule.Meaning + " What to do: " + rule.Remedy + "."), HelpURI: helpURL(rule.ID),
		Configuration: sarifConfiguration{level(rule.Severity)},
	}
}

func firstSentence(text string) string {
	first, _, more := strings.Cut(text, ". ")
	if more {
		return first + "."
	}
	return text
}

func level(severity schemas.Severity) string {
	if severity == schemas.SeverityWarning {
		return "warning"
	}
	return "error"
}

// sarifText is a message that holds no link: SARIF reads one in [text](target).
func sarifText(text string) sarifMessage {
	return sarifMessage{strings.ReplaceAll(text, "](", "] (")}
}

func sarifResultOf(of owner, e entry, rule int) sarifResult {
	p := cleaned(*e.Problem)
	roots := make([]string, 0, len(e.roots))
	for _, root := range e.roots {
		roots = append(roots, visible(root))
	}
	return sarifResult{
		RuleID: p.Rule, RuleIndex: rule, Level: level(p.Severity), Message: sarifText(described(e)),
		Locations: sarifLocations(e.Problem), PartialFingerprints: map[string]string{fingerprintName: e.print},
		Properties: sarifProperties{Pool: printable.Abridge(visible(of.pool), maxName), Field: p.Path, Remedy: p.Hint, Roots: roots},
	}
}

func sarifLocations(problem *schemas.Problem) []sarifLocation {
	if problem.File == "" {
		return nil
	}
	// A URL may hold any byte, escaped; a colon in the first part of the path
	// would make a scheme of what is before it.
	artifact := sarifArtifact{URI: (&url.URL{Path: problem.File}).String(), BaseID: sourceRoot}
	location := sarifLocation{Physical: sarifPhysical{Artifact: artifact}}
	if problem.Line > 0 {
		location.Physical.Region = &sarifRegion{StartLine: problem.Line, StartColumn: problem.Column}
	}
	if problem.Object != "" {
		location.Logical = []sarifLogical{{FullyQualifiedName: printable.Abridge(visible(problem.Object), maxName), Kind: "object"}}
	}
	return []sarifLocation{location}
}
