package schemas

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Document is one object of a stream with where it came from.
type Document struct {
	// Object as it is written: not defaulted, nothing removed.
	Object *unstructured.Unstructured
	// File as it was given to Decode.
	File string
	// Line on which the document's first token stands, counted from 1.
	Line int
	// Node is the document's mapping, for positions; nil when unknown.
	Node *yamlv3.Node
}

// Decode splits a YAML or JSON stream into its objects. What cannot be decoded
// is a Problem and the rest is returned all the same, except after a syntax
// error: where the next document begins is then unknown. Empty documents are
// skipped. A key that is written twice is a Problem; its last value counts, as
// in an API server that only warns.
func Decode(file string, data []byte) ([]Document, []Problem) {
	var documents []Document
	var problems []Problem
	parts, syntax := split(file, data)
	for _, part := range parts {
		document, found := part.decode(file)
		problems = append(problems, found...)
		if document != nil {
			documents = append(documents, *document)
		}
	}
	if syntax != nil {
		problems = append(problems, *syntax)
	}
	sortProblems(problems)
	return documents, problems
}

// part is one document of a stream: its nodes know positions, its text is what
// values are read from. Two parsers, because Kubernetes reads YAML 1.1 through
// sigs.k8s.io/yaml, where `yes` is a boolean, and only YAML 1.2's parser keeps
// positions.
type part struct {
	node *yamlv3.Node
	text []byte
	// line on which text begins, counted from 1.
	line int
}

func split(file string, data []byte) ([]part, *Problem) {
	decoder := yamlv3.NewDecoder(bytes.NewReader(data))
	var parts []part
	var syntax *Problem
	for {
		root := &yamlv3.Node{}
		err := decoder.Decode(root)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			line, message := yamlError(err, 0)
			syntax = &Problem{
				Rule: RuleSyntax, Severity: SeverityError, File: file, Line: brokenLine(data, line), Column: 1,
				Message: message, Hint: "documents after this line were not read",
			}
			break
		}
		parts = append(parts, part{node: root, line: max(root.Line, 1)})
	}
	// A document begins on a line of its own, so its text is the lines from
	// there to the next one's first.
	offsets := lineOffsets(data)
	for i := range parts {
		begin := offsets[min(parts[i].line-1, len(offsets)-1)]
		end := len(data)
		switch {
		case i+1 < len(parts):
			end = offsets[min(parts[i+1].line-1, len(offsets)-1)]
		case syntax != nil:
			// The text from the broken document on would fail again here, so
			// the last whole one is read up to its last node only.
			end = offsets[min(lastLine(parts[i].node), len(offsets)-1)]
		}
		parts[i].text = data[begin:max(begin, end)]
	}
	return parts, syntax
}

func (p part) decode(file string) (*Document, []Problem) {
	content := p.node
	if content.Kind == yamlv3.DocumentNode && len(content.Content) > 0 {
		content = content.Content[0]
	}
	if content.Kind == yamlv3.ScalarNode && content.Tag == "!!null" || content.Kind == 0 {
		return nil, nil
	}
	at := func(node *yamlv3.Node, rule, message, hint string) Problem {
		return Problem{Rule: rule, Severity: SeverityError, File: file,
			Line: max(node.Line, 1), Column: max(node.Column, 1), Message: message, Hint: hint}
	}
	if content.Kind != yamlv3.MappingNode {
		return nil, []Problem{at(content, RuleSyntax, "a document must be an object with apiVersion and kind", "")}
	}
	asJSON, err := yaml.YAMLToJSON(p.text)
	if err != nil {
		line, message := yamlError(err, p.line-1)
		broken := at(content, RuleSyntax, message, "")
		if line > broken.Line {
			broken.Line, broken.Column = line, 1
		}
		return nil, []Problem{broken}
	}
	fields := map[string]any{}
	if err := json.Unmarshal(asJSON, &fields); err != nil {
		return nil, []Problem{at(content, RuleSyntax, err.Error(), "")}
	}
	object := &unstructured.Unstructured{Object: fields}
	document := &Document{Object: object, File: file, Line: max(content.Line, 1), Node: content}
	problems := duplicateKeys(document)
	for _, name := range []string{"apiVersion", "kind"} {
		if text, ok := fields[name].(string); ok && text != "" {
			continue
		}
		missing := at(content, RuleTypeMeta, "Required value", fmt.Sprintf("a document begins with apiVersion and kind; this one has no %s that is a string", name))
		missing.Path = name
		problems = append(problems, missing)
		document = nil
	}
	return document, problems
}

// duplicateKeys walks nodes rather than values: by then all but one are gone.
// Aliases are not followed: what an alias names is walked where it is written.
func duplicateKeys(d *Document) []Problem {
	var problems []Problem
	var walk func(node *yamlv3.Node, path string)
	walk = func(node *yamlv3.Node, path string) {
		switch node.Kind {
		case yamlv3.MappingNode:
			first := make(map[string]int, len(node.Content)/2)
			for i := 0; i+1 < len(node.Content); i += 2 {
				key := node.Content[i]
				child := joinPath(path, key.Value)
				if line, ok := first[key.Value]; ok && key.Kind == yamlv3.ScalarNode && key.Tag != "!!merge" {
					problems = append(problems, Problem{
						Rule: RuleDuplicateKey, Severity: SeverityError, File: d.File, Line: key.Line, Column: key.Column,
						Object: describe(d.Object), Path: child, Message: fmt.Sprintf("duplicate field %q", child),
						Hint: fmt.Sprintf("it is already set on line %d; keep one of the two", line),
					})
				} else {
					first[key.Value] = key.Line
				}
				walk(node.Content[i+1], child)
			}
		case yamlv3.SequenceNode:
			for i, item := range node.Content {
				walk(item, path+"["+strconv.Itoa(i)+"]")
			}
		}
	}
	walk(d.Node, "")
	return problems
}

func joinPath(parent, child string) string {
	if parent == "" {
		return child
	}
	return parent + "." + child
}

var yamlErrorLine = regexp.MustCompile(`^line (\d+): `)

// yamlError takes the line out of a YAML parser's error; offset is how many
// lines came before the text that it was given.
func yamlError(err error, offset int) (line int, message string) {
	message = err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:\n  "} {
		message = strings.TrimPrefix(message, prefix)
	}
	if match := yamlErrorLine.FindStringSubmatch(message); match != nil {
		// A number that matches \d+ and does not fit an int is no line.
		if number, err := strconv.Atoi(match[1]); err == nil {
			return max(number+offset, 1), strings.TrimPrefix(message, match[0])
		}
	}
	return max(offset+1, 1), message
}

// brokenLine narrows a syntax error down. The parser names the line on which
// the broken mapping or list begins; the line after the longest text that
// parses is where a person has to look.
func brokenLine(data []byte, reported int) int {
	// Each attempt parses again, so that a long tail is not tried to its end.
	const attempts = 200
	offsets := lineOffsets(data)
	broken := reported
	for line := reported; line < min(reported+attempts, len(offsets)-1); line++ {
		if parses(data[:offsets[line]]) {
			broken = line + 1
		}
	}
	return broken
}

func parses(data []byte) bool {
	decoder := yamlv3.NewDecoder(bytes.NewReader(data))
	for {
		err := decoder.Decode(&yamlv3.Node{})
		if err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

func lineOffsets(data []byte) []int {
	offsets := []int{0}
	for i, b := range data {
		if b == '\n' || b == '\r' && (i+1 == len(data) || data[i+1] != '\n') {
			offsets = append(offsets, i+1)
		}
	}
	return append(offsets, len(data))
}

func lastLine(node *yamlv3.Node) int {
	line := node.Line + strings.Count(node.Value, "\n")
	for _, child := range node.Content {
		line = max(line, lastLine(child))
	}
	return line
}
