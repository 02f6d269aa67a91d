package output

import (
	"fmt"
	"strings"

	"cloop.dev/cloop/schemas"
)

// maxAnnotations is how many annotations of a kind GitHub shows of one step.
const maxAnnotations = 10

var (
	// commandData escapes what follows the second :: of a workflow command.
	commandData = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	// commandProperty escapes a value before it.
	commandProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// github is workflow commands, which the runner makes annotations of, and the
// summary for the log.
func github(result *Result, _ Options) ([]byte, error) {
	reason, errors := result.reason(), maxAnnotations
	if reason != "" {
		errors--
	}
	shown := budget{
		room: []int{errors, maxAnnotations},
		cost: func(g group) []int { t := g.tally(); return []int{t.errors, t.warnings} },
	}.take(groups(result.Report))
	var b strings.Builder
	for _, g := range shown.groups {
		for _, e := range g.entries {
			b.WriteString(annotation(e))
		}
	}
	if reason != "" {
		b.WriteString(command("error", "Fleet check", reason))
	}
	if note := result.sparse(); note != "" {
		b.WriteString(command("notice", "Fleet check", note))
	}
	if note := shown.note(); note != "" {
		b.WriteString(command("notice", "Fleet check", note))
	}
	b.WriteString(result.Summary() + "\n")
	return []byte(b.String()), nil
}

func annotation(e entry) string {
	p := cleaned(*e.Problem)
	kind := "error"
	if p.Severity == schemas.SeverityWarning {
		kind = "warning"
	}
	var place string
	if p.File != "" {
		place = "file=" + commandProperty.Replace(p.File) + ","
	}
	if p.Line > 0 {
		place += fmt.Sprintf("line=%d,col=%d,", p.Line, p.Column)
	}
	return fmt.Sprintf("::%s %stitle=%s::%s\n", kind, place, commandProperty.Replace("Fleet check: "+p.Rule), commandData.Replace(described(e)))
}

func command(kind, title, message string) string {
	return fmt.Sprintf("::%s title=%s::%s\n", kind, commandProperty.Replace(title), commandData.Replace(message))
}
