package schemas

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
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

// maxDocument is the most that an API server takes in one request, in bytes.
const maxDocument = 3 << 20

// Decode splits a YAML or JSON stream into its objects, those of a list one by
// one. What cannot be decoded is a Problem and the rest is returned all the
// same, except after a syntax error: where the next document begins is then
// unknown. Empty documents are skipped. A key that is written twice is a
// Problem; its last value counts, as in an API server that only warns.
func Decode(file string, data []byte) ([]Document, []Problem) {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return nil, []Problem{syntaxAt(&yamlv3.Node{}, file, "the text is UTF-16", "save it as UTF-8")}
	}
	if bytes.HasPrefix(data, []byte(lfsPointer)) {
		return nil, []Problem{syntaxAt(&yamlv3.Node{}, file, "the file is a pointer of Git LFS, not the text", "commit the text itself (`git lfs untrack`): hub and clusters do not fetch from LFS")}
	}
	var documents []Document
	var problems []Problem
	parts, syntax := split(file, withoutMarks(data))
	for _, part := range parts {
		document, found := part.decode(file)
		problems = append(problems, found...)
		if document != nil {
			flat, found := flatten(*document, maxLists)
			documents, problems = append(documents, flat...), append(problems, found...)
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
	// json: text is JSON, and is read as that.
	json bool
}

func split(file string, data []byte) ([]part, *Problem) {
	parts, rest := splitJSON(data)
	if rest == len(data) {
		return parts, nil
	}
	// Blanks in place of what was read keep the lines.
	more, syntax := splitYAML(file, append(blank(data[:rest]), data[rest:]...))
	return append(parts, more...), syntax
}

// blank returns as many lines as the text has, and nothing on them.
func blank(text []byte) []byte {
	return bytes.Repeat([]byte("\n"), len(lineOffsets(text))-2)
}

// withoutMarks drops byte order marks from the beginnings of documents: files
// that were put after one another have several. A parser drops the first. What
// follows a separator on the first line is no second document: kubectl reads a
// mark there as part of a key.
func withoutMarks(data []byte) []byte {
	if !bytes.Contains(data, []byte(byteOrderMark)) {
		return data
	}
	first := bytes.IndexByte(data, '\n') + 1
	return slices.Concat(data[:first], separatedMark.ReplaceAll(data[first:], []byte("$1")))
}

const byteOrderMark = "\ufeff"

var separatedMark = regexp.MustCompile(`(?m)(^---[ \t]*(?:#[^\n]*)?\r?\n)\x{FEFF}`)

func splitYAML(file string, data []byte) ([]part, *Problem) {
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
			syntax = syntaxOf(file, data, err)
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
		if bytes.HasPrefix(data[begin:], []byte(byteOrderMark)) && parts[i].line > 1 {
			// Behind a blank line or a comment it belongs to the first key, and
			// would be dropped at the beginning of a text.
			parts[i].line--
			begin = offsets[parts[i].line-1]
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
	if content.Kind != yamlv3.MappingNode {
		return nil, []Problem{syntaxAt(content, file, "a document must be an object with apiVersion and kind", "")}
	}
	fields, broken := p.values(file, content)
	if broken != nil {
		return nil, []Problem{*broken}
	}
	document := &Document{Object: &unstructured.Unstructured{Object: fields}, File: file, Line: max(content.Line, 1), Node: content}
	problems := DuplicateKeys(document.Node, document.File, describe(document.Object))
	if missing := typeMeta(*document); len(missing) > 0 {
		return nil, append(problems, missing...)
	}
	return document, problems
}

// values reads what a part says, as Kubernetes does.
func (p part) values(file string, content *yamlv3.Node) (map[string]any, *Problem) {
	fail := func(node *yamlv3.Node, message, hint string) (map[string]any, *Problem) {
		broken := syntaxAt(node, file, message, hint)
		return nil, &broken
	}
	asJSON := p.text
	if !p.json {
		if separator := behindSeparator(p.text); separator != "" {
			return fail(&yamlv3.Node{Line: p.line}, "invalid Yaml document separator: "+separator, "put what follows --- on a line of its own; kubectl reads no other")
		}
		var err error
		if asJSON, err = yaml.YAMLToJSON(p.text); err != nil {
			line, message := yamlError(err, p.line-1)
			node, hint := unreadable(content, message)
			if line > node.Line {
				node = &yamlv3.Node{Line: line}
			}
			return fail(node, message, hint)
		}
	}
	if len(asJSON) > maxDocument {
		return fail(content, fmt.Sprintf("Request entity too large: limit is %d", maxDocument), "an API server takes no document of this size; split it")
	}
	fields := map[string]any{}
	if err := json.Unmarshal(asJSON, &fields); err != nil {
		return fail(content, err.Error(), "")
	}
	return fields, nil
}

// behindSeparator is what stands on a part's first line after ---, comments
// aside.
func behindSeparator(text []byte) string {
	line := text
	if end := bytes.IndexAny(text, "\r\n"); end >= 0 {
		line = text[:end]
	}
	after, ok := bytes.CutPrefix(line, []byte("---"))
	if after = bytes.TrimSpace(after); !ok || bytes.HasPrefix(after, []byte("#")) {
		return ""
	}
	return string(after)
}

// unreadable finds the node that has no value in JSON, and says what to do.
func unreadable(content *yamlv3.Node, message string) (*yamlv3.Node, string) {
	switch {
	case strings.Contains(message, "aliasing"), strings.Contains(message, "contains itself"):
		return content, "write out what the aliases stand for"
	case strings.Contains(message, "map key"):
		return first(content, func(node *yamlv3.Node, key bool) bool {
			return key && (node.Kind != yamlv3.ScalarNode && node.Kind != yamlv3.AliasNode || node.ShortTag() == "!!null")
		}), "a key is a text; put it in quotes"
	case strings.HasPrefix(message, "json: unsupported value"):
		return first(content, func(node *yamlv3.Node, key bool) bool {
			return !key && node.ShortTag() == "!!float" && strings.ContainsAny(node.Value, "iInN")
		}), "put the value in quotes if it is meant as a text; JSON has no such number"
	}
	return content, ""
}

// first is the first node below parent that fits, or parent. Aliases are not
// followed: what an alias names is met where it is written.
func first(parent *yamlv3.Node, fits func(node *yamlv3.Node, key bool) bool) *yamlv3.Node {
	for i, node := range parent.Content {
		if fits(node, parent.Kind == yamlv3.MappingNode && i%2 == 0) {
			return node
		}
		if found := first(node, fits); found != node {
			return found
		}
	}
	return parent
}

// typeMeta reports a document that does not say what it is.
func typeMeta(d Document) []Problem {
	var problems []Problem
	for _, name := range []string{"apiVersion", "kind"} {
		if text, ok := d.Object.Object[name].(string); ok && text != "" {
			continue
		}
		missing := syntaxAt(d.Node, d.File, "Required value", fmt.Sprintf("a document begins with apiVersion and kind; this one has no %s that is a string", name))
		missing.Rule, missing.Path = RuleTypeMeta, name
		problems = append(problems, missing)
	}
	return problems
}

// DuplicateKeys finds the keys that stand twice in one mapping, at the second. It
// walks nodes rather than values: by then all but one are gone. Aliases are not
// followed: what an alias names is walked where it is written. object is what the
// problems say that they are of.
func DuplicateKeys(node *yamlv3.Node, file, object string) []Problem {
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
						Rule: RuleDuplicateKey, Severity: SeverityError, File: file, Line: key.Line, Column: key.Column,
						Object: object, Path: child, Message: fmt.Sprintf("duplicate field %q", child),
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
		case yamlv3.DocumentNode:
			for _, content := range node.Content {
				walk(content, path)
			}
		}
	}
	walk(node, "")
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
	// Each attempt parses again, from the beginning: neither a long tail nor a
	// large text is tried to its end.
	const attempts, budget = 200, 8 << 20
	offsets := lineOffsets(data)
	broken, parsed := reported, 0
	for line := reported; line < min(reported+attempts, len(offsets)-1); line++ {
		if parsed += offsets[line]; parsed > budget {
			break
		}
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
