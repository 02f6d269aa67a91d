package printable

import (
	"bytes"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"
)

// YAML returns a JSON document as YAML that a terminal only shows. Where YAML's
// own spelling could not, because it has no escapes outside quotes, that is the
// JSON itself, indented, which is YAML too. Its error is of no JSON.
func YAML(document []byte) ([]byte, error) {
	encoded, err := yaml.JSONToYAML(readable(document))
	if err != nil {
		return nil, err
	}
	if Safe(encoded) {
		return encoded, nil
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, JSON(document), "", "  "); err != nil {
		return nil, err
	}
	indented.WriteByte('\n')
	return indented.Bytes(), nil
}

// readable escapes the characters that a YAML parser takes only so. It leaves
// those beyond 16 bits: it takes them, but not the two escapes that JSON has.
func readable(document []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(document) {
		if r <= 0xffff && r != '\n' && r != '\t' && obeyed(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}
