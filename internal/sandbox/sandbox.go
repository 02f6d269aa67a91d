package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/printable"
)

// Path of the file in a project's repository.
const Path = ".cloop/sandbox.yaml"

// Bounds on the file: MaxBytes on its length, the others on what is in it.
const (
	MaxBytes    = 64 << 10
	maxEntries  = 64
	maxKey      = 253
	maxValue    = 253
	maxMistakes = 20
	// maxQuoted bounds how much of the file one mistake quotes, in bytes.
	maxQuoted = 64
)

// Mistake is one thing that is wrong with the file.
type Mistake struct {
	// Line counts from 1; 0 where the whole file is meant.
	Line    int
	Message string
}

// String is the mistake as one line, with its place.
func (m Mistake) String() string {
	if m.Line == 0 {
		return Path + ": " + m.Message
	}
	return fmt.Sprintf("%s:%d: %s", Path, m.Line, m.Message)
}

// Invalid says what is wrong with the file, in the order of its lines.
type Invalid struct{ Mistakes []Mistake }

// Error is every mistake.
func (e *Invalid) Error() string {
	lines := make([]string, 0, len(e.Mistakes))
	for _, m := range e.Mistakes {
		lines = append(lines, m.String())
	}
	return strings.Join(lines, "; ")
}

// Parse reads the file. An error is *Invalid.
func Parse(data []byte) (hubv1.Requirements, error) {
	p := &parser{}
	if len(data) > MaxBytes {
		p.wrong(0, "is longer than %d bytes", MaxBytes)
		return hubv1.Requirements{}, p.verdict()
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, more yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return hubv1.Requirements{}, nil // empty, or comments
	case err != nil:
		p.unreadable(err)
	default:
		p.root(document.Content[0])
		if err := decoder.Decode(&more); err == nil {
			p.wrong(more.Line, "has a second document: keep one")
		} else if !errors.Is(err, io.EOF) {
			p.unreadable(err)
		}
	}
	if err := p.verdict(); err != nil {
		return hubv1.Requirements{}, err
	}
	return p.out, nil
}

type parser struct {
	out      hubv1.Requirements
	mistakes []Mistake
}

func (p *parser) wrong(line int, format string, args ...any) {
	if len(p.mistakes) < maxMistakes {
		p.mistakes = append(p.mistakes, Mistake{Line: line, Message: fmt.Sprintf(format, args...)})
	}
}

func (p *parser) verdict() error {
	if len(p.mistakes) == 0 {
		return nil
	}
	slices.SortStableFunc(p.mistakes, func(a, b Mistake) int { return a.Line - b.Line })
	return &Invalid{p.mistakes}
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// unreadable is what the YAML decoder says, with its line in our place.
func (p *parser) unreadable(err error) {
	text, line := err.Error(), 0
	if place := yamlLine.FindStringSubmatch(text); place != nil {
		text = text[len(place[0]):]
		line, _ = strconv.Atoi(place[1])
	}
	p.wrong(line, "is no YAML: %s", quoted(text))
}

func quoted(text string) string { return printable.Line(printable.Clip(text, maxQuoted)) }

func (p *parser) root(node *yaml.Node) {
	p.entries(node, "the file", func(key string, at, value *yaml.Node) {
		switch key {
		case "capabilities":
			p.out.Capabilities = map[string]bool{}
			p.entries(value, key, p.capability)
		case "labels":
			p.out.Labels = map[string]string{}
			p.entries(value, key, p.label)
		default:
			p.wrong(at.Line, "unknown key %q: a pool can be asked for capabilities and labels only", quoted(key))
		}
	})
	if len(p.out.Capabilities) == 0 {
		p.out.Capabilities = nil
	}
	if len(p.out.Labels) == 0 {
		p.out.Labels = nil
	}
}

// entries walks through a mapping; nothing at all stands for an empty one.
func (p *parser) entries(node *yaml.Node, what string, each func(key string, at, value *yaml.Node)) {
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" {
		return
	}
	if node.Kind != yaml.MappingNode {
		p.wrong(node.Line, "%s must be a mapping", what)
		return
	}
	if len(node.Content)/2 > maxEntries {
		p.wrong(node.Line, "%s has more than %d entries", what, maxEntries)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		at, value := node.Content[i], node.Content[i+1]
		switch {
		case at.Kind != yaml.ScalarNode || at.ShortTag() != "!!str":
			// A merge key is one of these too.
			p.wrong(at.Line, "a key of %s must be plain text", what)
		case seen[at.Value]:
			p.wrong(at.Line, "%q is there twice", quoted(at.Value))
		case value.Kind == yaml.AliasNode:
			p.wrong(value.Line, "aliases are not taken: write the value out")
		default:
			seen[at.Value] = true
			each(at.Value, at, value)
		}
	}
}

var capabilityName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9]*$`)

func (p *parser) capability(name string, at, value *yaml.Node) {
	var want bool
	switch {
	case len(name) > maxKey || !capabilityName.MatchString(name):
		p.wrong(at.Line, "%q is no capability: write letters and digits, as in kernelIsolated", quoted(name))
	case value.Kind != yaml.ScalarNode || value.ShortTag() != "!!bool" || value.Decode(&want) != nil:
		p.wrong(value.Line, "capability %s must be true or false", quoted(name))
	default:
		p.out.Capabilities[name] = want
	}
}

func (p *parser) label(name string, at, value *yaml.Node) {
	switch {
	case name == "" || len(name) > maxKey || printable.Line(name) != name:
		p.wrong(at.Line, "%q is no label", quoted(name))
	case value.Kind != yaml.ScalarNode || value.ShortTag() != "!!str":
		p.wrong(value.Line, "label %s must be text: write it in quotes", quoted(name))
	case len(value.Value) > maxValue || printable.Line(value.Value) != value.Value:
		p.wrong(value.Line, "label %s must be one line of at most %d bytes", quoted(name), maxValue)
	default:
		p.out.Labels[name] = value.Value
	}
}
