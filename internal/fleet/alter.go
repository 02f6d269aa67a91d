package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
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
	// What comes from JSON always encodes.
	text, _ := json.Marshal(said)
	return &alteration{by: o.unfolded(), spec: said, digest: string(text)}
}

// unfolded is the object with its documents parsed, for whoever asks for many places.
func (o *renderedObject) unfolded() *renderedObject {
	whole := *o
	whole.layers = slices.Clone(o.layers)
	for i, l := range whole.layers {
		if l.outlined != nil {
			parsed := *l
			parsed.document, parsed.outlined = l.whole(), nil
			whole.layers[i] = &parsed
		}
	}
	return &whole
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
	found, longest := path, -1
	for field, written := range a.written {
		if rest, ok := strings.CutPrefix(path, "spec."+field); ok && (rest == "" || strings.ContainsAny(rest[:1], ".[")) && len(field) > longest {
			found, longest = written+rest, len(field)
		}
	}
	return found
}

// place is where the Kustomization says something.
func (a *alteration) place(format string, args ...any) placed {
	at := a.by.locate(schemas.Problem{Path: a.field(fmt.Sprintf(format, args...))})
	return placed{file: at.File, line: int32(at.Line), column: int32(at.Column)} //nolint:gosec // files are bounded
}

// components are the directories, and files of patches, relative to the repository, that
// it adds to a path.
func (a *alteration) components(dir string) (all []string) {
	if a == nil {
		return nil
	}
	names, _, _ := unstructured.NestedStringSlice(a.spec, "components")
	for _, name := range names {
		all = append(all, path.Join(dir, name))
	}
	patches, _, _ := unstructured.NestedSlice(a.spec, "patches")
	for _, entry := range patches {
		fields, _ := entry.(map[string]any)
		if name, _ := fields["path"].(string); name != "" {
			all = append(all, path.Join(dir, name))
		}
	}
	return all
}

// as renders a root in one of the ways in which it is applied. Its error is the
// context's.
func (b *builder) as(ctx context.Context, at root, of *applier) (*rendering, error) {
	if view := b.under(at.leaves); view != b {
		out, err := view.as(ctx, at, of)
		b.diagnosing = view.diagnosing
		return out, err
	}
	dir, file, a := at.path, at.kustomization, of.alters()
	if a == nil {
		return b.itself(ctx, at)
	}
	if problem := a.tooLarge(); problem != nil {
		return &rendering{problems: []schemas.Problem{*problem}, lost: true}, nil
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

// maxEntries bounds the entries of a list of what one object changes: each is kept
// several times while it is put into the kustomization.
const maxEntries = 2_000

// tooLarge is the problem that a list of the Kustomization is; nil: none is.
func (a *alteration) tooLarge() *schemas.Problem {
	for _, name := range alterations {
		entries, _ := a.spec[name].([]any)
		if len(entries) <= maxEntries {
			continue
		}
		problem := a.by.locate(a.by.about(RuleTooLarge, a.field("spec."+name), fmt.Sprintf("%v: %d entries, and at most %d are put into the kustomization of the path", errBounds, len(entries), maxEntries)))
		problem.Hint = "write them into a kustomization or component of the repository, or put those of one object into one"
		return &problem
	}
	return nil
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
	g := &graft{a: a, gate: b.gate, from: map[*yaml.Node]origin{}, lines: map[string][][]byte{}}
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
