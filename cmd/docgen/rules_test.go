package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/controllers"
	"cloop.dev/cloop/internal/hub"
)

const monitoring = "../../kustomize/components/monitoring"

// An alert on a metric that nobody exposes never fires, and nobody notices.
func TestAlertsAreOnMetricsThatThereAre(t *testing.T) {
	known := map[string]bool{}
	for _, d := range append(hub.Metrics(), controllers.Metrics()...) {
		known[d.Name] = true
	}
	rules, err := readRules(monitoring)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(filepath.Join(monitoring, "rules_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			names := regexp.MustCompile(`cloop_[a-z_]+`).FindAllString(rule.Expr, -1)
			if len(names) == 0 {
				t.Errorf("%s is on nothing", rule.Alert)
			}
			for _, name := range names {
				if !known[name] {
					t.Errorf("%s is on %s, which nobody exposes", rule.Alert, name)
				}
			}
			if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s does not say how bad it is, what it is and what to do", rule.Alert)
			}
			if !regexp.MustCompile(`alertname: `+rule.Alert+`\n\s+exp_alerts`).Match(tests) || !strings.Contains(string(tests), "alertname: "+rule.Alert+"}") {
				t.Errorf("no test shows when %s fires and when it does not", rule.Alert)
			}
		}
	}
}

// The object for the operator holds the same rules.
func TestThePrometheusRuleHoldsTheRules(t *testing.T) {
	folder := t.TempDir()
	text, err := os.ReadFile(filepath.Join(monitoring, rulesFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, rulesFile), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writePrometheusRule(folder); err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadFile(filepath.Join(folder, "prometheusrule.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Kind string
		Spec map[string]any
	}
	var file map[string]any
	if err := yaml.Unmarshal(made, &object); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	want, _ := yaml.Marshal(file)
	if got, _ := yaml.Marshal(object.Spec); object.Kind != "PrometheusRule" || string(got) != string(want) {
		t.Errorf("the %s holds\n%s\nwant\n%s", object.Kind, got, want)
	}
}
