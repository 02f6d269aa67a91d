package main

import (
	"bytes"
	"fmt"

	"cloop.dev/cloop/internal/fleet/diff"
)

// classesPage lists every field of every kind with the classes that a change of
// it has.
func classesPage() []byte {
	var b bytes.Buffer
	b.WriteString("<!-- Written by cmd/docgen from internal/fleet/diff. Change it there. -->\n\n# Classes of changes\n\n" +
		"What `cloop fleet diff` says of a field that changes; [diff.md](../diff.md) tells what the classes mean. " +
		"`[]` stands for a list as a whole and its elements, `{}` for the entries of a map.\n")
	kind := ""
	for _, field := range diff.Fields() {
		if field.Kind != kind {
			kind = field.Kind
			fmt.Fprintf(&b, "\n## %s\n\n| field | class |\n| --- | --- |\n", kind)
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", field.Name, field.About)
	}
	return b.Bytes()
}
