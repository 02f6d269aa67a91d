package policy

import (
	"bytes"
	"path"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// breaks are the ends of lines as YAML knows them, longest first.
var breaks = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

// linesOf are the lines of a file, numbered as YAML numbers them.
func linesOf(data []byte) []string {
	return strings.Split(breaks.Replace(strings.TrimPrefix(string(data), "\ufeff")), "\n")
}

// hideTexts replaces what stands in strings of YAML, but for the indentation, so
// that no line of them looks like a comment. Of the texts of a kustomization's
// inline patches it hides only the strings within them. It keeps the length of
// every line; what cannot be read as YAML stays as it is.
func hideTexts(file string, lines []string) []string {
	h := &hider{lines: append([]string(nil), lines...)}
	decoder := yaml.NewDecoder(bytes.NewReader([]byte(strings.Join(lines, "\n"))))
	for {
		var document yaml.Node
		if decoder.Decode(&document) != nil {
			return h.lines
		}
		h.patches = map[*yaml.Node]bool{}
		if len(document.Content) > 0 {
			h.findAll(file, document.Content[0])
		}
		h.hide(&document)
	}
}

func isKustomization(file string) bool {
	switch path.Base(file) {
	case "kustomization.yaml", "kustomization.yml", "Kustomization":
		return true
	}
	return false
}

type hider struct {
	lines []string
	// patches are the inline patches of a kustomization, or of what applies one.
	patches map[*yaml.Node]bool
}

// findAll finds the inline patches of a document: those of a kustomization, and those
// that a Kustomization of Flux or an Application of Argo CD adds to one.
func (h *hider) findAll(file string, document *yaml.Node) {
	if isKustomization(file) {
		h.findPatches(document)
		return
	}
	group := valueOf(document, "apiVersion")
	if group == nil {
		return
	}
	spec := valueOf(document, "spec")
	if template := valueOf(spec, "template"); template != nil {
		spec = valueOf(template, "spec")
	}
	switch group, _, _ := strings.Cut(group.Value, "/"); group {
	case "kustomize.toolkit.fluxcd.io":
		h.findPatches(spec)
	case "argoproj.io":
		h.findPatches(valueOf(valueOf(spec, "source"), "kustomize"))
		if sources := valueOf(spec, "sources"); sources != nil {
			for _, source := range sources.Content {
				h.findPatches(valueOf(source, "kustomize"))
			}
		}
	}
}

func (h *hider) findPatches(root *yaml.Node) {
	for _, name := range []string{"patches", "patchesJson6902", "patchesStrategicMerge"} {
		list := valueOf(root, name)
		if list == nil || list.Kind != yaml.SequenceNode {
			continue
		}
		for _, item := range list.Content {
			if item.Kind == yaml.MappingNode {
				item = valueOf(item, "patch")
			}
			if item != nil {
				h.patches[item] = true
			}
		}
	}
}

// valueOf is the value of a key; nil where there is none, and of what is no mapping.
func valueOf(mapping *yaml.Node, name string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func (h *hider) hide(node *yaml.Node) {
	for _, child := range node.Content {
		h.hide(child)
	}
	if node.Kind != yaml.ScalarNode || node.Line < 1 || node.Line > len(h.lines) {
		return
	}
	switch {
	case node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		h.block(node)
	case h.patches[node]:
	case node.Style&yaml.DoubleQuotedStyle != 0:
		h.quoted(node, '"')
	case node.Style&yaml.SingleQuotedStyle != 0:
		h.quoted(node, '\'')
	}
}

// block hides the lines of a block scalar. Behind its indicator a comment may stand.
func (h *hider) block(node *yaml.Node) {
	header, at := h.begin(node)
	if header < 0 {
		return
	}
	least, _ := indentation(h.lines[header])
	least++
	if at >= 0 && strings.TrimSpace(h.lines[header][:at]) == "" || strings.HasPrefix(h.lines[header], "---") {
		// The indicator stands by itself: the text may begin at the margin.
		least = 0
	}
	explicit := strings.ContainsAny(strings.TrimLeft(firstWord(h.lines[header][at:]), "|>"), "123456789")
	first, end := header+1, header+1
	for i := first; i < len(h.lines); i++ {
		if strings.Trim(h.lines[i], " ") == "" {
			continue
		}
		own, _ := indentation(h.lines[i])
		if end == first && !explicit {
			least = max(least, own)
		}
		if own < least || own == 0 && separator(h.lines[i]) {
			break
		}
		end = i + 1
	}
	if !h.patches[node] {
		for i := first; i < end; i++ {
			own, _ := indentation(h.lines[i])
			h.cover(i, own, len(h.lines[i]))
		}
		return
	}
	inner := make([]string, 0, end-first)
	for _, line := range h.lines[first:end] {
		inner = append(inner, line[min(least, len(line)):])
	}
	for i, line := range hideTexts("", inner) {
		h.lines[first+i] = h.lines[first+i][:min(least, len(h.lines[first+i]))] + line
	}
}

func firstWord(text string) string {
	word, _, _ := strings.Cut(text, " ")
	return word
}

// quoted hides a text up to its closing quote.
func (h *hider) quoted(node *yaml.Node, quote byte) {
	line, at := h.begin(node)
	if line < 0 || at >= len(h.lines[line]) || h.lines[line][at] != quote {
		return
	}
	for from := at + 1; line < len(h.lines); line, from = line+1, 0 {
		text := h.lines[line]
		end := closing(text[from:], quote)
		if end >= 0 {
			h.cover(line, from, from+end)
			return
		}
		if from == 0 {
			from, _ = indentation(text)
		}
		h.cover(line, from, len(text))
	}
}

// closing is where a quote ends a text, -1 where it goes on.
func closing(text string, quote byte) int {
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote == '"':
			i++
		case text[i] == quote && quote == '\'' && i+1 < len(text) && text[i+1] == quote:
			i++
		case text[i] == quote:
			return i
		}
	}
	return -1
}

// begin is where a scalar itself begins, behind its anchor and tag; -1: nowhere.
func (h *hider) begin(node *yaml.Node) (line, at int) {
	line = node.Line - 1
	for range node.Column - 1 {
		_, size := utf8.DecodeRuneInString(h.lines[line][at:])
		at += size
	}
	for line < len(h.lines) {
		rest := strings.TrimLeft(h.lines[line][at:], " \t")
		at = len(h.lines[line]) - len(rest)
		switch {
		case rest == "" || rest[0] == '#':
			line, at = line+1, 0
		case rest[0] == '&' || rest[0] == '!':
			at += len(firstWord(rest))
		default:
			return line, at
		}
	}
	return -1, 0
}

// cover puts letters in the place of a part of a line.
func (h *hider) cover(line, from, to int) {
	if from < to {
		h.lines[line] = h.lines[line][:from] + strings.Repeat("x", to-from) + h.lines[line][to:]
	}
}
