package fleet

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"cloop.dev/cloop/schemas"
)

// layer is one place in the repository that sets fields of objects. What it is
// says which of its fields are set.
type layer struct {
	file string
	// document is a resource, what a generator makes, or a strategic-merge patch.
	document *schemas.Document
	// operations of a JSON patch, in order.
	operations []operation
	// fields that a transformer sets: pointer → where it says so.
	fields map[string]position
	// copied is a replacement.
	copied *copied

	// outlined is the file of which document is an outline, at a place; nil: it is
	// all there. See whole.
	outlined *outlined
	place    int

	// patch: it changes objects of other layers. from is the first of those: what
	// comes before belongs to another base.
	patch bool
	from  int
	// number is its place among the layers, and read that of the file among those
	// that were read.
	number, read int
	// entry of a kustomization that a patch is.
	entry entry
	// target selects what a patch applies to; nil: what the document names, and
	// for a transformer all.
	target *target

	// names that a resource has had, the last one being its own, and its namespace.
	names     []string
	namespace string
	// generated: a hash may follow the name. merges: into one that is there.
	// given: pointer → what gives a field of it.
	generated, merges bool
	given             map[string]placed
	// weight: see weighed. brings is how much a generator takes in, in bytes.
	weight weight
	brings int64
	// left: it is left out; see leftOut. unread: what it changes is not known.
	left, unread bool
}

// entry is an entry of a list in a kustomization.
type entry struct {
	file, field string
	index       int
}

// named is the name that the resource of a layer has in the end.
func (l *layer) named() string { return l.names[len(l.names)-1] }

func (l *layer) resource() bool { return l.document != nil && !l.patch }

// add appends a layer that changes what the current kustomization has so far.
func (s *scan) add(l layer) {
	l.from, l.entry, l.number, l.read = s.from, s.entry, len(s.layers), s.reads
	if l.resource() {
		l.names, l.namespace = []string{l.document.Object.GetName()}, l.document.Object.GetNamespace()
	}
	s.layers = append(s.layers, l)
	if l.resource() {
		s.called(l.number)
	}
}

// entryNamed finds a field of a mapping.
func entryNamed(of *yaml.Node, name string) (key, value *yaml.Node) {
	if of.Kind == yaml.DocumentNode && len(of.Content) > 0 {
		of = of.Content[0]
	}
	for i := 0; of.Kind == yaml.MappingNode && i+1 < len(of.Content); i += 2 {
		if of.Content[i].Value == name {
			return of.Content[i], of.Content[i+1]
		}
	}
	return nil, nil
}

func whereIs(node *yaml.Node) position { return position{node.Line, node.Column} }

// transformers adds what a kustomization's own fields change about all of its
// objects, and follows their names.
func (s *scan) transformers(file string, document *yaml.Node) {
	fields := map[string]position{}
	for _, set := range [][2]string{{"namespace", "/metadata/namespace"}, {"namePrefix", "/metadata/name"}, {"nameSuffix", "/metadata/name"}} {
		if key, value := entryNamed(document, set[0]); key != nil && value.Value != "" {
			fields[set[1]] = whereIs(key)
			s.rename(set[0], value.Value)
		}
	}
	s.pairs(document, "commonLabels", "/metadata/labels/", fields)
	s.pairs(document, "commonAnnotations", "/metadata/annotations/", fields)
	if _, list := entryNamed(document, "labels"); list != nil {
		for _, entry := range list.Content {
			s.pairs(entry, "pairs", "/metadata/labels/", fields)
		}
	}
	if len(fields) > 0 {
		s.add(layer{file: file, patch: true, fields: fields})
	}
}

func (s *scan) pairs(of *yaml.Node, field, pointer string, fields map[string]position) {
	_, pairs := entryNamed(of, field)
	for i := 0; pairs != nil && pairs.Kind == yaml.MappingNode && i+1 < len(pairs.Content); i += 2 {
		fields[pointer+escape(pairs.Content[i].Value)] = whereIs(pairs.Content[i])
	}
}

// rename follows a transformer of names and namespaces.
func (s *scan) rename(field, value string) {
	for i := s.from; i < len(s.layers); i++ {
		l := &s.layers[i]
		if !l.resource() {
			continue
		}
		switch field {
		case "namespace":
			l.namespace = value
		case "namePrefix":
			l.names = append(l.names, value+l.named())
			s.called(i)
		case "nameSuffix":
			l.names = append(l.names, l.named()+value)
			s.called(i)
		}
	}
}

// images adds the entries that set the image of pools, for whoever brings the
// component that says where pools have one.
func (s *scan) images(file string, document *yaml.Node) {
	_, list := entryNamed(document, "images")
	if list == nil || list.Kind != yaml.SequenceNode {
		return
	}
	for _, entry := range list.Content {
		_, name := entryNamed(entry, "name")
		if _, to := entryNamed(entry, "newName"); to != nil {
			name = to
		}
		if name != nil {
			s.add(layer{file: file, patch: true, fields: map[string]position{imagePrefix + name.Value: whereIs(entry)}})
		}
	}
}

// imagePrefix marks a field of a layer that sets images which have a name.
const imagePrefix = "image:"

// changes says where a transformer sets a field.
func (l *layer) changes(o *renderedObject, t *trail) (placed, bool) {
	pointer := t.pointer()
	for field, at := range l.fields {
		image, isImage := strings.CutPrefix(field, imagePrefix)
		switch {
		case field == pointer:
		case isImage && pointer == "/spec/template/image":
			text, _ := lookup(o.Object.Object, pointer)
			if name, ok := text.(string); !ok || name != image && !strings.HasPrefix(name, image+":") && !strings.HasPrefix(name, image+"@") {
				continue
			}
		default:
			continue
		}
		if pointer == "/metadata/name" && !o.nameWasSound() {
			continue
		}
		return placed{file: l.file, line: int32(at.lines), column: int32(at.columns)}, true
	}
	return placed{}, false
}

// nameWasSound says that the object's own document names it well, so that what
// is wrong with its name is of a prefix or suffix. Otherwise it is the document's.
func (o *renderedObject) nameWasSound() bool {
	own := o.own()
	return own != nil && own.document.Object.GetName() != o.Object.GetName() &&
		len(validation.IsDNS1123Label(own.document.Object.GetName())) == 0 && len(validation.IsDNS1123Label(o.Object.GetName())) > 0
}

// own is the layer of the object's own document; nil where none is known.
func (o *renderedObject) own() *layer {
	if len(o.layers) > 0 && o.layers[0].resource() {
		return o.layers[0]
	}
	return nil
}

// index finds the layers of an object without asking each of thousands.
type index struct {
	// resources: kind and name in the end → layers. patches: name → patches of
	// objects of that name. open are the other layers that change objects.
	resources, patches map[string][]int
	// open too are generators that merge into what others make.
	open []int
}

// plainName is a pattern that only means itself.
var plainName = regexp.MustCompile(`^[a-zA-Z0-9-]+$`)

func (s *scan) index() *index {
	if s.indexed != nil {
		return s.indexed
	}
	x := &index{resources: map[string][]int{}, patches: map[string][]int{}}
	for i := range s.layers {
		l := &s.layers[i]
		switch {
		case l.left:
		case l.merges:
			x.open = append(x.open, i)
		case l.resource():
			key := l.document.Object.GetKind() + " " + l.named()
			x.resources[key] = append(x.resources[key], i)
		case l.target != nil && plainName.MatchString(l.target.Name):
			x.patches[l.target.Name] = append(x.patches[l.target.Name], i)
		case l.target == nil && l.document != nil:
			name := l.document.Object.GetName()
			x.patches[name] = append(x.patches[name], i)
		default:
			x.open = append(x.open, i)
		}
	}
	s.indexed = x
	return x
}

// object finds the layers that made an object: its own document, and what
// changed it, in order. file is the root's kustomization.
func (s *scan) object(obj *unstructured.Unstructured, file string) renderedObject {
	own := s.sourceOf(obj)
	names := []string{obj.GetName()}
	out := renderedObject{Rendered: Rendered{SourcePath: file}}
	out.Document = schemas.Document{Object: obj, File: file, Line: 1}
	if own >= 0 {
		l := &s.layers[own]
		out.SourcePath, out.File, out.Line = l.file, l.file, l.document.Line
		names = append(names, l.names...)
		out.layers = append(out.layers, l)
	}
	x := s.index()
	changing := slices.Clone(x.open)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		changing = append(changing, x.patches[name]...)
	}
	slices.Sort(changing)
	for _, i := range changing {
		l := &s.layers[i]
		if own >= 0 && (own < l.from || own > i) {
			continue
		}
		if l.applies(obj, names) {
			out.layers = append(out.layers, l)
		}
	}
	return out
}

// sourceOf finds the document that became the object; -1 where there is none.
// Where the name that follows from prefixes and suffixes is not the object's,
// because a patch or a replacement has changed it, the document of the kind with
// the most alike name counts.
func (s *scan) sourceOf(obj *unstructured.Unstructured) int {
	best := -1
	for _, i := range s.index().resources[obj.GetKind()+" "+obj.GetName()] {
		l := &s.layers[i]
		if l.document.Object.GroupVersionKind().Group != obj.GroupVersionKind().Group {
			continue
		}
		if best < 0 || l.namespace == obj.GetNamespace() && s.layers[best].namespace != obj.GetNamespace() {
			best = i
		}
	}
	if best >= 0 {
		return best
	}
	score := 0
	for i := range s.layers {
		l := &s.layers[i]
		if !l.resource() || l.merges || l.left || l.document.Object.GroupVersionKind() != obj.GroupVersionKind() {
			continue
		}
		likeness := 1
		if l.generated && strings.HasPrefix(obj.GetName(), l.named()+"-") {
			likeness += 10_000 + len(l.named())
		}
		for _, name := range l.names {
			if name != "" && strings.Contains(obj.GetName(), name) {
				likeness = max(likeness, 1+len(name))
			}
		}
		if l.namespace == obj.GetNamespace() {
			likeness++
		}
		if likeness > score {
			best, score = i, likeness
		}
	}
	return best
}

// applies says whether a layer changes an object that had one of the names.
func (l *layer) applies(obj *unstructured.Unstructured, names []string) bool {
	switch {
	case l.target != nil:
		return l.target.selects(obj, names...)
	case l.fields != nil, l.copied != nil:
		return true
	case l.document == nil:
		return false
	}
	gvk := l.document.Object.GroupVersionKind()
	return gvk.Kind == obj.GetKind() && gvk.Group == obj.GroupVersionKind().Group && slices.Contains(names, l.document.Object.GetName())
}
