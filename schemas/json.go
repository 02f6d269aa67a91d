package schemas

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
)

// splitJSON takes the JSON objects off the front of a stream, as kubectl does
// with a stream that begins with a brace: JSON that no YAML parser reads, several
// objects without a separator. What does not read as JSON is left, for YAML.
func splitJSON(data []byte) (parts []part, rest int) {
	if trimmed := bytes.TrimSpace(data); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, 0
	}
	text := textOf(data)
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			if errors.Is(err, io.EOF) {
				rest = len(data)
			}
			return parts, rest
		}
		rest = int(decoder.InputOffset())
		begin := rest - len(raw)
		node := (&jsonNodes{decoder: json.NewDecoder(bytes.NewReader(raw)), raw: raw, begin: begin, text: text}).value()
		parts = append(parts, part{node: node, text: raw, line: node.Line, json: true})
	}
}

// jsonNodes makes the nodes of a value that is known to be JSON.
type jsonNodes struct {
	decoder *json.Decoder
	raw     []byte
	// begin is where raw begins in text.
	begin int
	text  *text
}

func (j *jsonNodes) value() *yamlv3.Node {
	// What stands between two tokens is of no token.
	begin := int(j.decoder.InputOffset())
	for begin < len(j.raw) && bytes.IndexByte([]byte(" \t\r\n,:"), j.raw[begin]) >= 0 {
		begin++
	}
	node := &yamlv3.Node{}
	node.Line, node.Column = j.text.position(j.begin + begin)
	token, err := j.decoder.Token()
	if err != nil {
		return node
	}
	switch token {
	case json.Delim('{'):
		node.Kind, node.Tag = yamlv3.MappingNode, "!!map"
	case json.Delim('['):
		node.Kind, node.Tag = yamlv3.SequenceNode, "!!seq"
	default:
		node.Kind = yamlv3.ScalarNode
		if word, ok := token.(string); ok {
			node.Value, node.Tag = word, "!!str"
		}
		return node
	}
	for j.decoder.More() {
		node.Content = append(node.Content, j.value())
	}
	_, _ = j.decoder.Token() // the closing bracket, which is known to be there
	return node
}

// text turns offsets into positions.
type text struct {
	data  []byte
	lines []int
}

func textOf(data []byte) *text { return &text{data: data, lines: lineOffsets(data)} }

// position counts lines and characters from 1.
func (t *text) position(offset int) (line, column int) {
	line, exact := slices.BinarySearch(t.lines, offset)
	if exact {
		line++
	}
	line = min(line, len(t.lines)-1)
	return line, utf8.RuneCount(t.data[t.lines[line-1]:offset]) + 1
}
