// Command docgen writes the parts of docs/reference that come from Go code: the
// command line, the hub's HTTP API and the permissions that it asks for, the reasons and codes with what to do about
// each, the rules of fleet check, the classes of fleet diff, the findings of the hub's doctor, the keys of what commands
// write as JSON, and the metrics. It
// also notes which Kubernetes belongs to the code, for a program that is called outside the repository, and makes the
// PrometheusRule of the alert rules.
//
// In: the code it is compiled with, and the sources of apis/ and
// e2e/cluster/kubernetes below the repository's folder (-C, default "."). Out:
// classes.md, commands.md, findings.md, metrics.md, openapi.json, outputs.md, permissions.md, reasons.md, rules.md,
// e2e/cluster/kubernetes.version and kustomize/components/monitoring/prometheusrule.yaml,
// always the same for the same code.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"cloop.dev/cloop/e2e/cluster"
	"cloop.dev/cloop/internal/cli"
	"cloop.dev/cloop/internal/fleet/rulepage"
	"cloop.dev/cloop/internal/hub/api"
)

func main() {
	root := flag.String("C", ".", "the repository's `folder`")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintf(os.Stderr, "docgen: %v\n", err)
		os.Exit(1)
	}
}

func run(root string) error {
	var commands bytes.Buffer
	cli.WriteReference(&commands)
	reasons, err := reasonsPage(filepath.Join(root, "apis"))
	if err != nil {
		return err
	}
	description, err := openAPI()
	if err != nil {
		return err
	}
	permissions, err := accessPage(description)
	if err != nil {
		return err
	}
	kubernetes, err := cluster.SourceName(root)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "e2e", "cluster", "kubernetes.version"), []byte(kubernetes+"\n"), 0o644); err != nil {
		return err
	}
	outputs, err := outputsPage(root)
	if err != nil {
		return err
	}
	rules, err := rulepage.Page()
	if err != nil {
		return err
	}
	monitoring := filepath.Join(root, "kustomize", "components", "monitoring")
	if err := writePrometheusRule(monitoring); err != nil {
		return err
	}
	alerts, err := readRules(monitoring)
	if err != nil {
		return err
	}
	folder := filepath.Join(root, "docs", "reference")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"commands.md": commands.Bytes(), "openapi.json": description, "reasons.md": reasons, "rules.md": rules,
		"classes.md": classesPage(), "findings.md": findingsPage(), "metrics.md": metricsPage(alerts),
		"outputs.md":     outputs,
		"permissions.md": permissions,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// openAPI is the description that a hub serves. The handler needs no store as
// long as nobody calls an operation.
func openAPI() ([]byte, error) {
	answer := httptest.NewRecorder()
	api.New(api.Options{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	if answer.Code != http.StatusOK {
		return nil, fmt.Errorf("the hub's API answers %d for its description", answer.Code)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, answer.Body.Bytes(), "", "  "); err != nil {
		return nil, fmt.Errorf("read the hub's description of its API: %w", err)
	}
	pretty.WriteByte('\n')
	return pretty.Bytes(), nil
}
