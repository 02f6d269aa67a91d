package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hub/problem"
)

// constant is one constant of the apis, with what its source says of it.
type constant struct {
	value string
	// group is the comment above the block that it stands in.
	group string
	// note is the comment on its own line.
	note string
}

// reasonsPage lists every reason of conditions and Events with its remedy, the
// causes of drift, and the codes of the hub's problem documents.
func reasonsPage(apis string) ([]byte, error) {
	reasons, err := constants(filepath.Join(apis, "v1alpha1", "conditions.go"))
	if err != nil {
		return nil, err
	}
	codes, err := constants(filepath.Join(apis, "hubv1", "problem.go"))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("<!-- Written by cmd/docgen from apis/. Change it there. -->\n\n# Reasons and codes\n\n" +
		"What conditions, Events, drift entries and the hub's errors are called, and what to do about each.\n")
	group := ""
	for _, c := range reasons {
		if c.group != group {
			group = c.group
			heading, rest, _ := strings.Cut(group, ".")
			fmt.Fprintf(&b, "\n## %s\n", heading)
			if rest = strings.TrimSpace(rest); rest != "" {
				fmt.Fprintf(&b, "\n%s\n", rest)
			}
			b.WriteString("\n| name | what it means, or what to do |\n| --- | --- |\n")
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", c.value, cell(c))
	}
	b.WriteString("\n## Codes of the hub's problem documents\n\n| code | HTTP status | what it means | what to do |\n| --- | --- | --- | --- |\n")
	for _, c := range codes {
		if !problem.Known(hubv1.Code(c.value)) {
			return nil, fmt.Errorf("code %s has no status, title and remedy: give it some in internal/hub/problem", c.value)
		}
		b.WriteString(codeRow(c.value))
	}
	return b.Bytes(), nil
}

// cell is a reason's own comment, and its remedy where there is one.
func cell(c constant) string {
	var parts []string
	// "ConditionReady is True when …" reads better without the Go name.
	if _, said, ok := strings.Cut(c.note, " "); ok {
		parts = append(parts, said)
	}
	remedy := v1alpha1.Reason(c.value).Remedy()
	if remedy == "" {
		remedy = fleet.CauseRemedy(c.value)
	}
	if remedy != "" {
		parts = append(parts, remedy)
	}
	if len(parts) == 0 {
		return "nothing to do"
	}
	return inCell(strings.Join(parts, "; "))
}

// constants reads the string constants of a Go file, in order.
func constants(name string) ([]constant, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []constant
	for _, declaration := range file.Decls {
		block, ok := declaration.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		for _, spec := range block.Specs {
			value := spec.(*ast.ValueSpec)
			for _, expression := range value.Values {
				literal, ok := expression.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					continue
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				found = append(found, constant{value: text, group: line(block.Doc), note: line(value.Doc) + line(value.Comment)})
			}
		}
	}
	return found, nil
}

func line(comment *ast.CommentGroup) string { return strings.Join(strings.Fields(comment.Text()), " ") }
