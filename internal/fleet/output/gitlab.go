package output

import (
	"cloop.dev/cloop/schemas"
)

// maxViolations bounds a Code Quality report. GitLab names no limit but that of
// an artifact; this many are 20 MB at the worst.
const maxViolations = 10_000

// violation is an entry of a Code Quality report.
type violation struct {
	Description string `json:"description"`
	CheckName   string `json:"check_name"`
	// Fingerprint has to be unique in the report: GitLab drops a second one.
	Fingerprint string            `json:"fingerprint"`
	Severity    string            `json:"severity"`
	Location    violationLocation `json:"location"`
}

type violationLocation struct {
	Path  string         `json:"path"`
	Lines violationLines `json:"lines"`
}

type violationLines struct {
	Begin int `json:"begin"`
}

// Severities of Code Quality. What stops the check is beyond an error.
const (
	gitlabBlocker = "blocker"
	gitlabError   = "critical"
	gitlabWarning = "minor"
	gitlabNote    = "info"
)

// gitlab is a Code Quality report.
func gitlab(result *Result, _ Options) ([]byte, error) {
	shown := budget{
		room: []int{maxViolations},
		cost: func(g group) []int { return []int{len(g.entries)} },
	}.take(groups(result.Report))
	violations := []violation{}
	for _, g := range shown.groups {
		for _, e := range g.entries {
			severity := gitlabError
			if e.Severity == schemas.SeverityWarning {
				severity = gitlabWarning
			}
			violations = append(violations, violation{
				Description: described(e), CheckName: visible(e.Rule), Fingerprint: e.print, Severity: severity,
				Location: violationAt(visible(e.File), e.Line),
			})
		}
	}
	if reason := result.reason(); reason != "" {
		violations = append(violations, remark("fleet-check", reason, gitlabBlocker))
	}
	if note := result.bears(); note != "" {
		violations = append(violations, remark("ignored", note, gitlabNote))
	}
	if note := result.sparse(); note != "" {
		violations = append(violations, remark("sparse", note, gitlabNote))
	}
	if note := shown.note(); note != "" {
		violations = append(violations, remark("left-out", note, gitlabNote))
	}
	return indented(violations)
}

// violationAt never has an empty path or no line: GitLab requires both.
func violationAt(file string, line int) violationLocation {
	if file == "" {
		file = "."
	}
	return violationLocation{Path: file, Lines: violationLines{Begin: max(line, 1)}}
}

// remark is an entry about the check itself.
func remark(name, description, severity string) violation {
	print := fingerprints([]schemas.Problem{{Rule: name}})[0]
	return violation{Description: description, CheckName: name, Fingerprint: print, Severity: severity, Location: violationAt("", 0)}
}
