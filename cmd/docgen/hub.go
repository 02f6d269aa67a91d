package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/controllers"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hub/doctor"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/metric"
)

// findingsPage lists what the doctor can find.
func findingsPage() []byte {
	var b bytes.Buffer
	b.WriteString("<!-- Written by cmd/docgen from internal/hub/doctor. Change it there. -->\n\n# Findings\n\n" +
		"What `cloop hub doctor` says, and `cloop executor pool list` and `show` say of pools; " +
		"[operate.md](../operate.md#doctor) tells how to use it. In commands `ABOUT` stands for what the finding is about.\n\n" +
		"| finding | severity | what it means | what to do | command |\n| --- | --- | --- | --- | --- |\n")
	for _, kind := range doctor.Kinds() {
		severities := make([]string, 0, len(kind.Severities))
		for _, severity := range kind.Severities {
			severities = append(severities, string(severity))
		}
		remedy, command := kind.Remedy, ""
		if remedy == "" {
			remedy = "nothing"
		}
		if kind.Command != "" {
			command = "`" + kind.Command + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", kind.ID, strings.Join(severities, ", "), inCell(kind.Meaning), inCell(remedy), inCell(command))
	}
	return b.Bytes()
}

// alertRules are the file of rules that Prometheus reads.
type alertRules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

const rulesFile = "rules.yaml"

func readRules(folder string) (rules alertRules, err error) {
	text, err := os.ReadFile(filepath.Join(folder, rulesFile))
	if err != nil {
		return rules, fmt.Errorf("read the alert rules: %w", err)
	}
	if err := yaml.UnmarshalStrict(text, &rules); err != nil {
		return rules, fmt.Errorf("read the alert rules: %w", err)
	}
	return rules, nil
}

// metricsPage lists the metrics of all parts, and the alerts on them.
func metricsPage(rules alertRules) []byte {
	var b bytes.Buffer
	b.WriteString("<!-- Written by cmd/docgen from internal/hub, controllers and kustomize/components/monitoring/rules.yaml. Change it there. -->\n\n# Metrics\n\n" +
		"Labels are bounded: pools, syncs, routes and words from the code; never a run, a runner, a project or a person. " +
		"[operate.md](../operate.md#metrics-and-alerts) has the alerts. Both parts also have the metrics of the Go runtime and the process.\n")
	for _, part := range []struct {
		title   string
		metrics []metric.Definition
	}{
		{"Hub", hub.Metrics()}, {"Controllers", controllers.Metrics()},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | kind | labels | what it says |\n| --- | --- | --- | --- |\n", part.title)
		for _, d := range part.metrics {
			labels := "-"
			if len(d.Labels) > 0 {
				labels = "`" + strings.Join(d.Labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Kind, labels, inCell(d.Help))
		}
	}
	b.WriteString("\n## Alerts\n\n| alert | severity | after | what it says | what to do |\n| --- | --- | --- | --- | --- |\n")
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", rule.Alert, rule.Labels["severity"], rule.For,
				inCell(plain(rule.Annotations["summary"])), inCell(plain(rule.Annotations["description"])))
		}
	}
	return b.Bytes()
}

// codeRow is a line about a code of the hub's problem documents.
func codeRow(code string) string {
	p := problem.New(hubv1.Code(code), "")
	return fmt.Sprintf("| `%s` | %d | %s | %s |\n", code, p.Status, inCell(p.Title), inCell(p.Remedy))
}

// template is what Prometheus fills in.
var template = regexp.MustCompile(`\{\{ \$(?:labels\.)?(\w+)[^}]*\}\}`)

// plain names what Prometheus fills in.
func plain(text string) string {
	return template.ReplaceAllStringFunc(text, func(found string) string {
		return strings.ToUpper(template.FindStringSubmatch(found)[1])
	})
}

func inCell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

// writePrometheusRule makes the object of the alert rules, for the Prometheus
// operator, out of the file that Prometheus itself reads.
func writePrometheusRule(folder string) error {
	rules, err := os.ReadFile(filepath.Join(folder, rulesFile))
	if err != nil {
		return fmt.Errorf("read the alert rules: %w", err)
	}
	var b bytes.Buffer
	b.WriteString("# Written by cmd/docgen from rules.yaml. Change it there.\n" +
		"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: cloop\n  namespace: cloop-fleet\n  labels:\n    app.kubernetes.io/name: cloop\nspec:\n")
	for line := range strings.Lines(string(rules)) {
		switch {
		case strings.HasPrefix(line, "#"):
			continue
		case strings.TrimSpace(line) != "":
			b.WriteString("  ")
		}
		b.WriteString(line)
	}
	return os.WriteFile(filepath.Join(folder, "prometheusrule.yaml"), b.Bytes(), 0o644)
}
