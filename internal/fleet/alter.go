package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/schemas"
)

// alteration is what a Kustomization of Flux changes, by fields of its own, about what
// its path renders. Flux writes them into the path's kustomization before it builds
// that (github.com/fluxcd/pkg/kustomize, Generator), and so it is done here; every part
// has the place at which the Kustomization says it.
type alteration struct {
	by   *renderedObject
	spec map[string]any
	// digest is equal for those that say the same.
	digest string
}

// alterationOf is that of a Kustomization; nil where it has none of the fields.
func (o *renderedObject) alterationOf() *alteration {
	names := alteredBy(o.Object)
	if len(names) == 0 {
		return nil
	}
	said := map[string]any{}
	for _, name := range append(names, "ignoreMissingComponents") {
		said[name], _, _ = unstructured.NestedFieldNoCopy(o.Object.Object, "spec", name)
	}
	by := *o
	// What comes from JSON always encodes.
	text, _ := json.Marshal(said)
	return &alteration{by: &by, spec: said, digest: string(text)}
}

// alteredBy are the fields by which a Kustomization changes what its path renders.
func alteredBy(obj *unstructured.Unstructured) (set []string) {
	for _, name := range alterations {
		if value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", name); !isEmpty(value) {
			set = append(set, name)
		}
	}
	return set
}

func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}

// place is where the Kustomization says something.
func (a *alteration) place(format string, args ...any) placed {
	at := a.by.locate(schemas.Problem{Path: fmt.Sprintf(format, args...)})
	return placed{file: at.File, line: int32(at.Line), column: int32(at.Column)} //nolint:gosec // files are bounded
}

// components are the directories, relative to the repository, that it adds to a path.
func (a *alteration) components(dir string) (all []string) {
	if a == nil {
		return nil
	}
	names, _, _ := unstructured.NestedStringSlice(a.spec, "components")
	for _, name := range names {
		all = append(all, path.Join(dir, name))
	}
	return all
}

// as renders a root in one of the ways in which it is applied. Its error is the
// context's.
func (b *builder) as(ctx context.Context, dir, file string, of *applier) (*rendering, error) {
	a := of.alters()
	if a == nil {
		return b.taken(ctx, dir, file)
	}
	data, err := b.gate.read(file)
	if err != nil {
		return b.taken(ctx, dir, file)
	}
	text, origins := a.write(b, dir, file, data)
	if text == nil {
		// It cannot be read, which is told.
		return b.taken(ctx, dir, file)
	}
	other := &builder{dir: b.dir, root: b.root, gate: b.gate.with(file, text), clock: b.clock, comments: b.comments, diagnosing: b.diagnosing}
	out, err := other.kustomize(ctx, dir, file)
	b.diagnosing = other.diagnosing
	if err != nil {
		return nil, err
	}
	for i := range out.problems {
		p := &out.problems[i]
		at := origins.of(placed{file: p.File, line: int32(p.Line), column: int32(p.Column)}) //nolint:gosec // files are bounded
		p.File, p.Line, p.Column = at.file, int(at.line), int(at.column)
	}
	for i := range out.objects {
		o := &out.objects[i]
		o.origins = origins
		if at := origins.of(placed{file: o.File, line: int32(o.Line), column: 1}); o.File == file { //nolint:gosec // files are bounded
			o.File, o.Line = at.file, int(at.line)
		}
	}
	a.common(out.objects)
	return out, nil
}

// common sets the metadata that all objects have in common, which Flux does last.
func (a *alteration) common(objects []renderedObject) {
	set := layer{patch: true, fields: map[string]position{}}
	for _, field := range []string{"labels", "annotations"} {
		pairs, _, _ := unstructured.NestedStringMap(a.spec, "commonMetadata", field)
		for key := range pairs {
			at := a.place("spec.commonMetadata.%s[%s]", field, key)
			set.file = at.file
			set.fields["/metadata/"+field+"/"+escape(key)] = position{int(at.line), int(at.column)}
		}
		for i := range objects {
			o := &objects[i]
			if len(pairs) == 0 {
				continue
			}
			o.Object, o.digest = o.Object.DeepCopy(), nil
			all, _, _ := unstructured.NestedStringMap(o.Object.Object, "metadata", field)
			if all == nil {
				all = map[string]string{}
			}
			maps.Copy(all, pairs)
			_ = unstructured.SetNestedStringMap(o.Object.Object, all, "metadata", field)
		}
	}
	if len(set.fields) == 0 {
		return
	}
	for i := range objects {
		objects[i].layers = append(slices.Clone(objects[i].layers), &set)
	}
}

// write is the kustomization with the alteration in it, and where everything in that
// comes from; nil where the file is no kustomization.
func (a *alteration) write(b *builder, dir, file string, data []byte) ([]byte, *origins) {
	g := &graft{a: a, gate: b.gate, from: map[*yaml.Node]origin{}}
	document, plain, err := g.read(file, data)
	if err != nil {
		return nil, nil
	}
	g.top = document.Content[0]
	for _, set := range [][2]string{{"targetNamespace", "namespace"}, {"namePrefix", "namePrefix"}, {"nameSuffix", "nameSuffix"}} {
		if text, _ := a.spec[set[0]].(string); text != "" {
			at := a.place("spec.%s", set[0])
			g.set(set[1], g.scalar(text, at, false), at)
		}
	}
	if g.lists(b, dir); g.wrong {
		return nil, nil
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if encoder.Encode(document) != nil || encoder.Close() != nil {
		return nil, nil
	}
	var written yaml.Node
	if yaml.Unmarshal(out.Bytes(), &written) != nil {
		return nil, nil
	}
	found := &origins{file: file, top: placed{file: file, line: int32(plain.Line), column: int32(plain.Column)}} //nolint:gosec // files are bounded
	blocks := bytes.Split(out.Bytes(), []byte("\n"))
	if !found.walk(document, &written, g.from, blocks) {
		return nil, nil
	}
	return out.Bytes(), found
}

// graft puts what a Kustomization says into a kustomization's nodes.
type graft struct {
	a    *alteration
	gate *gate
	top  *yaml.Node
	// from: node → where it comes from.
	from map[*yaml.Node]origin
	// wrong: a field of the kustomization that is to have more is no list.
	wrong bool
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
	if !errors.Is(decoder.Decode(&indented), io.EOF) || len(read.Content) == 0 || read.Content[0].Kind != yaml.MappingNode {
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
		if data, err := g.gate.read(at.file); err == nil {
			lines := bytes.Split(data, []byte("\n"))
			if n := int(at.line); n >= 1 && n < len(lines) && blockText.Match(bytes.TrimRight(lines[n-1], "\r")) {
				block := &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.LiteralStyle, Line: n}
				indentBlocks(block, lines)
				from.block, from.indent = true, int32(block.Column) //nolint:gosec // files are bounded
			}
		}
	}
	g.from[node] = from
	return node
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
			if !isText {
				// Operations, as the old field has them.
				operations, _ := json.Marshal(fields["patch"])
				text = string(operations)
			}
			inside := g.a.place("%s.patch", name)
			node.Content = append(node.Content, g.scalar("patch", inside, false), g.scalar(text, inside, true))
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
		if _, err := b.root.Stat(path.Join(dir, name)); err != nil && ignores {
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
