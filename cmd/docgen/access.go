package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
)

// accessPage lists every permission with what it allows, the hub's own roles,
// and what each operation of the API needs, as its description says.
func accessPage(description []byte) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("<!-- Written by cmd/docgen from internal/hub/access and internal/hub/api. Change it there. -->\n\n# Permissions\n\n" +
		"[access.md](../access.md) tells how they are given.\n\n| permission | allows to | roles of the hub that have it | for one project |\n| --- | --- | --- | --- |\n")
	for _, about := range access.Permissions() {
		project := ""
		if about.PerProject {
			project = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", about.Permission, about.Allows, strings.Join(access.RolesWith(about.Permission), ", "), project)
	}
	b.WriteString("\n## Roles of the hub\n\n| role | whoever has it |\n| --- | --- |\n")
	for _, role := range access.BuiltIn() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", role.Name, role.Description)
	}
	rows, err := needs(description)
	if err != nil {
		return nil, err
	}
	b.WriteString("\n## Operations\n\nWhat needs `self` every user may do: know the hub and itself, and look after its own tokens.\n\n| operation | needs |\n| --- | --- |\n")
	for _, row := range rows {
		b.WriteString(row)
	}
	return b.Bytes(), nil
}

// needs reads from the API's description what each operation of people needs.
func needs(description []byte) ([]string, error) {
	var api struct {
		Paths map[string]map[string]struct {
			Permission hubv1.Permission `json:"x-cloop-permission"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(description, &api); err != nil {
		return nil, fmt.Errorf("read the hub's description of its API: %w", err)
	}
	var rows []string
	for path, methods := range api.Paths {
		for method, operation := range methods {
			if operation.Permission != "" {
				rows = append(rows, fmt.Sprintf("| `%s %s` | `%s` |\n", strings.ToUpper(method), path, operation.Permission))
			}
		}
	}
	slices.SortFunc(rows, func(a, b string) int {
		return strings.Compare(strings.SplitN(a, " /", 2)[1]+a, strings.SplitN(b, " /", 2)[1]+b)
	})
	return rows, nil
}
