package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// graft puts what a Kustomization says into a kustomization's nodes.
type graft struct {
	a    *alteration
	gate *gate
	top  *yaml.Node
	// from: node → where it comes from.
	from map[*yaml.Node]origin
	// wrong: a field of the kustomization that is to have more is no list.
	wrong bool
	// lines of the files with the Kustomization.
	lines map[string][][]byte
}

// origin is the place of a node. A text that is a block there begins a line below, and
// indent is how far right. exact says that it is written there as it is here.
type origin struct {
	placed
	indent       int32
	block, exact bool
}

var errNoKustomization = errors.New("it is no kustomization")

// read parses the kustomization, and notes its places.
func (g *graft) read(file string, data []byte) (document, top *yaml.Node, err error) {
	var read, indented yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&read); err != nil {
		return nil, nil, err
	}
	for {
		var more yaml.Node
		if err := decoder.Decode(&more); errors.Is(err, io.EOF) {
			break
		} else if err != nil || len(more.Content) > 0 && more.Content[0].Tag != "!!null" {
			return nil, nil, errNoKustomization
		}
	}
	if len(read.Content) == 0 || read.Content[0].Kind != yaml.MappingNode {
		return nil, nil, errNoKustomization
	}
	if err := yaml.Unmarshal(data, &indented); err != nil {
		return nil, nil, err
	}
	indentBlocks(&indented, bytes.Split(data, []byte("\n")))
	g.note(file, &read, &indented)
	return &read, indented.Content[0], nil
}

func (g *graft) note(file string, node, indented *yaml.Node) {
	at := origin{placed: placed{file: file, line: int32(node.Line), column: int32(node.Column)}, exact: true} //nolint:gosec // files are bounded
	if isBlock(node) {
		at.block, at.indent = true, int32(indented.Column) //nolint:gosec // files are bounded
	}
	g.from[node] = at
	node.HeadComment, node.LineComment, node.FootComment = "", "", ""
	for i := range node.Content {
		g.note(file, node.Content[i], indented.Content[i])
	}
}

func isBlock(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0
}

// blockText is a line of a file that a block of text, as it is, begins below.
var blockText = regexp.MustCompile(`(:|-)\s+\|[0-9+-]*\s*(#.*)?$`)

// scalar is a text of the Kustomization; long says that it may be a block there.
func (g *graft) scalar(text string, at placed, long bool) *yaml.Node {
	node, from := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}, origin{placed: at}
	if long {
		if strings.Contains(text, "\n") {
			node.Style = yaml.LiteralStyle
		}
		lines := g.linesOf(at.file)
		if n := int(at.line); n >= 1 && n < len(lines) && len(lines[n-1]) < maxBlockLine && blockText.Match(bytes.TrimRight(lines[n-1], "\r")) {
			block := &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.LiteralStyle, Line: n}
			indentBlocks(block, lines)
			from.block, from.indent = true, int32(block.Column) //nolint:gosec // files are bounded
		}
	}
	g.from[node] = from
	return node
}

// maxBlockLine bounds the line above a block of text, in bytes.
const maxBlockLine = 4096

func (g *graft) linesOf(file string) [][]byte {
	lines, known := g.lines[file]
	if !known {
		if data, err := g.gate.read(file); err == nil {
			lines = bytes.Split(data, []byte("\n"))
		}
		g.lines[file] = lines
	}
	return lines
}

// value is anything else of it.
func (g *graft) value(value any, at placed) *yaml.Node {
	node := &yaml.Node{}
	// What comes from JSON always encodes.
	_ = node.Encode(value)
	g.all(node, at)
	return node
}

func (g *graft) all(node *yaml.Node, at placed) {
	g.from[node] = origin{placed: at}
	for _, child := range node.Content {
		g.all(child, at)
	}
}

// field finds a field of the kustomization, however its name is spelt.
func (g *graft) field(name string) int {
	for i := 0; i+1 < len(g.top.Content); i += 2 {
		if canonicalField(g.top.Content[i].Value) == name {
			return i
		}
	}
	return -1
}

// set gives the kustomization a field.
func (g *graft) set(name string, value *yaml.Node, at placed) {
	g.top.Style = 0
	key := g.scalar(name, at, false)
	if i := g.field(name); i >= 0 {
		g.top.Content[i], g.top.Content[i+1] = key, value
		return
	}
	g.top.Content = append(g.top.Content, key, value)
}

// list is a field of the kustomization that is one.
func (g *graft) list(name string, at placed) *yaml.Node {
	if i := g.field(name); i >= 0 {
		switch there := g.top.Content[i+1]; {
		case there.Kind == yaml.SequenceNode:
			g.top.Style, there.Style = 0, 0
			return there
		case there.Tag != "!!null":
			g.wrong = true
		}
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	g.from[list] = origin{placed: at}
	g.set(name, list, at)
	return list
}

// lists adds to those of the kustomization.
func (g *graft) lists(b *builder, dir string) {
	each := func(field string, add func(entry any, at placed, name string)) {
		entries, _ := g.a.spec[field].([]any)
		for i, entry := range entries {
			name := fmt.Sprintf("spec.%s[%d]", field, i)
			add(entry, g.a.place("%s", name), name)
		}
	}
	patches := func(field string) func(any, placed, string) {
		return func(entry any, at placed, name string) {
			fields, _ := entry.(map[string]any)
			node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			g.from[node] = origin{placed: at}
			text, isText := fields["patch"].(string)
			if file, _ := fields["path"].(string); file != "" && text == "" {
				// Argo CD's may be in a file beside the kustomization.
				inside := g.a.place("%s.path", name)
				node.Content = append(node.Content, g.scalar("path", inside, false), g.scalar(file, inside, false))
			} else if !isText {
				// Operations, as the old field has them.
				operations, _ := json.Marshal(fields["patch"])
				text = string(operations)
			}
			inside := g.a.place("%s.patch", name)
			if len(node.Content) == 0 {
				node.Content = append(node.Content, g.scalar("patch", inside, false), g.scalar(text, inside, true))
			}
			if target, ok := fields["target"]; ok {
				inside = g.a.place("%s.target", name)
				node.Content = append(node.Content, g.scalar("target", inside, false), g.value(target, inside))
			}
			list := g.list(field, at)
			list.Content = append(list.Content, node)
		}
	}
	each("patches", patches("patches"))
	each("patchesJson6902", patches("patchesJson6902"))
	each("patchesStrategicMerge", func(entry any, at placed, _ string) {
		text, _ := json.Marshal(entry)
		list := g.list("patchesStrategicMerge", at)
		list.Content = append(list.Content, g.scalar(string(text), at, false))
	})
	ignores, _ := g.a.spec["ignoreMissingComponents"].(bool)
	each("components", func(entry any, at placed, _ string) {
		name, _ := entry.(string)
		_, err := b.root.Stat(path.Join(dir, name))
		if left := b.gate.leftOut(path.Join(dir, name), true); ignores && (err != nil || left != nil) {
			return
		}
		list := g.list("components", at)
		list.Content = append(list.Content, g.scalar(name, at, false))
	})
	each("images", func(entry any, at placed, _ string) { g.image(entry, at) })
}

// image sets what a Kustomization says of an image. Tag and digest are one.
func (g *graft) image(entry any, at placed) {
	fields, _ := entry.(map[string]any)
	list := g.list("images", at)
	for _, node := range list.Content {
		if _, name := entryNamed(node, "name"); name == nil || name.Value != fields["name"] {
			continue
		}
		given := map[string]bool{"newName": fields["newName"] != nil, "newTag": fields["newTag"] != nil || fields["digest"] != nil}
		given["digest"] = given["newTag"]
		for i := 0; i+1 < len(node.Content); {
			if given[node.Content[i].Value] {
				node.Content = slices.Delete(node.Content, i, i+2)
				continue
			}
			i += 2
		}
		for _, field := range []string{"newName", "newTag", "digest"} {
			if text, _ := fields[field].(string); text != "" {
				node.Content = append(node.Content, g.scalar(field, at, false), g.scalar(text, at, false))
			}
		}
		node.Style = 0
		return
	}
	list.Content = append(list.Content, g.value(entry, at))
}
