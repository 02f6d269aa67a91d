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
	// written: field of a Kustomization → where the object has it, for one of Argo CD.
	written map[string]string
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

// field is where the object has a field of a Kustomization.
func (a *alteration) field(path string) string {
	for field, written := range a.written {
		if rest, ok := strings.CutPrefix(path, "spec."+field); ok && (rest == "" || strings.ContainsAny(rest[:1], ".[")) {
			return written + rest
		}
	}
	return path
}

// place is where the Kustomization says something.
func (a *alteration) place(format string, args ...any) placed {
	at := a.by.locate(schemas.Problem{Path: a.field(fmt.Sprintf(format, args...))})
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
func (b *builder) as(ctx context.Context, at root, of *applier) (*rendering, error) {
	dir, file, a := at.path, at.kustomization, of.alters()
	if a == nil {
		return b.itself(ctx, at)
	}
	var text []byte
	var origins *origins
	if of.plain {
		// Flux writes a kustomization of all that lies there.
		dir, file = of.path, path.Join(of.path, "kustomization.yaml")
		listed, problems, err := b.listed(ctx, of.path, at)
		if err != nil || len(problems) > 0 {
			return &rendering{problems: problems, lost: true}, err
		}
		text, origins = a.write(b, dir, file, listed, true)
	} else if data, err := b.gate.read(file); err == nil {
		text, origins = a.write(b, dir, file, data, false)
	}
	if text == nil {
		// It cannot be read, which is told.
		return b.itself(ctx, at)
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

// itself renders a root as it is.
func (b *builder) itself(ctx context.Context, at root) (*rendering, error) {
	if at.kustomization == "" {
		return b.plainRoot(ctx, at)
	}
	return b.taken(ctx, at.path, at.kustomization)
}

// listed is the kustomization that Flux writes for a directory that has none, of as
// much of it as a root below has: files of YAML, and directories with a kustomization.
// Problems are those of what cannot be searched. Its error is the context's.
func (b *builder) listed(ctx context.Context, dir string, at root) (text []byte, problems []schemas.Problem, err error) {
	var names []string
	add := func(name string) { names = append(names, strings.TrimPrefix(name, dir+"/")) }
	if at.kustomization != "" {
		add(at.path)
	} else {
		at.applied = true
		err = b.walk(ctx, at, walker{
			file:      func(file string) error { add(file); return nil },
			directory: func(dir, _ string) error { add(dir); return nil },
			wrong:     func(problem schemas.Problem) { problems = append(problems, problem) },
		})
		out := &rendering{}
		if err = out.ended(ctx, at.path, err); err != nil {
			return nil, nil, err
		}
		problems = append(problems, out.problems...)
	}
	// What comes from texts always encodes.
	text, _ = yaml.Marshal(map[string]any{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": names})
	return text, problems, nil
}

// commonMetadata is what all objects of an alteration have in common.
type commonMetadata struct {
	// fields: "labels" and "annotations" → key → value.
	fields map[string]map[string]string
	set    layer
}

// common notes the metadata that all objects have in common.
func (a *alteration) common(objects []renderedObject) {
	c := &commonMetadata{fields: map[string]map[string]string{}, set: layer{patch: true, fields: map[string]position{}}}
	for _, field := range []string{"labels", "annotations"} {
		c.fields[field], _, _ = unstructured.NestedStringMap(a.spec, "commonMetadata", field)
		for key := range c.fields[field] {
			at := a.place("spec.commonMetadata.%s[%s]", field, key)
			c.set.file = at.file
			c.set.fields["/metadata/"+field+"/"+escape(key)] = position{int(at.line), int(at.column)}
		}
	}
	for i := range objects {
		if len(c.set.fields) > 0 {
			objects[i].common = c
		}
	}
}

// finish sets the metadata that the object has in common with others, which Flux does
// last: variables in it are none.
func (o *renderedObject) finish() {
	c := o.common
	if c == nil {
		return
	}
	o.Object, o.digest, o.common = o.Object.DeepCopy(), nil, nil
	for field, pairs := range c.fields {
		all, _, _ := unstructured.NestedStringMap(o.Object.Object, "metadata", field)
		if all == nil {
			all = map[string]string{}
		}
		if maps.Copy(all, pairs); len(pairs) > 0 {
			_ = unstructured.SetNestedStringMap(o.Object.Object, all, "metadata", field)
		}
	}
	o.layers = append(slices.Clone(o.layers), &c.set)
}

// write is the kustomization with the alteration in it, and where everything in that
// comes from; nil where the file is no kustomization. A new one is at the path of the
// Kustomization that it is written for.
func (a *alteration) write(b *builder, dir, file string, data []byte, isNew bool) ([]byte, *origins) {
	g := &graft{a: a, gate: b.gate, from: map[*yaml.Node]origin{}}
	document, plain, err := g.read(file, data)
	if err != nil {
		return nil, nil
	}
	if g.top = document.Content[0]; isNew {
		g.all(g.top, a.place("spec.path"))
	}
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
	if isNew {
		found.top = a.place("spec.path")
	}
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
