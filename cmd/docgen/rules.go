package main

import (
	"bytes"
	"fmt"
	"strings"

	"cloop.dev/cloop/internal/fleet"
)

// rulesPage has a paragraph for each rule of `fleet check`, under the rule's id:
// what the outputs link to.
func rulesPage() []byte {
	var b bytes.Buffer
	b.WriteString("<!-- Written by cmd/docgen from internal/fleet. Change it there. -->\n\n# Rules of fleet check\n\n" +
		"What `cloop fleet check` reports, by the id that every output names. An error makes the answer no; a\n" +
		"warning does not. [check.md](../check.md) tells how to run it.\n")
	for _, rule := range fleet.Rules() {
		remedy := strings.ToUpper(rule.Remedy[:1]) + strings.TrimSuffix(rule.Remedy[1:], ".") + "."
		fmt.Fprintf(&b, "\n## %s\n\n*%s.* %s\n\n%s\n", rule.ID, rule.Severity, rule.Meaning, remedy)
	}
	return b.Bytes()
}
