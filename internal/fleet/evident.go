package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/types"
)

// evident leaves out what kustomize is bound to refuse, whatever else there is: a
// mistake that stands there to be seen. Ten thousand of those cost no rendering.
// What they are is said in kustomize's words, and so explained as if it had.
func (d *diagnosis) evident(ctx context.Context) {
	e := &evidence{diagnosis: d, namespaces: map[string]bool{}}
	for i := range d.scan.layers {
		l := &d.scan.layers[i]
		switch {
		case l.resource():
			e.resources = append(e.resources, l)
		case l.fields != nil || l.copied != nil:
			e.made.add(l)
		}
		if l.patch && l.document == nil && renames(l) || l.patch && l.copied != nil && l.copied.touches(nil, "/metadata/name") {
			e.renamed = true
		}
	}
	for _, it := range d.items {
		fields, _ := it.value.(map[string]any)
		namespace, _ := it.value.(string)
		switch {
		case it.field == "generators":
			e.plugins = true
		case it.field == "transformers", fields["options"] != nil:
			e.renamed = true
		case it.field == "namespace":
			e.namespaces[namespace] = true
		}
	}
	for i, it := range d.items {
		if i%256 == 0 && ctx.Err() != nil {
			return
		}
		e.item(it)
	}
}

// evidence is gathered step by step, in kustomize's order.
type evidence struct {
	*diagnosis
	// renamed: an object may have another name than the scan knows. plugins: there
	// may be objects that it does not know at all.
	renamed, plugins bool
	// made are the changes so far, and those of transformers, which are taken as if
	// they came first.
	made      changes
	resources []*layer
	// namespaces are those that kustomizations give.
	namespaces map[string]bool
	// compared counts how often a target was held to a resource.
	compared int
}

// maxCompared bounds it: beyond, what has no path is left to the search.
const maxCompared = 2_000_000

func (e *evidence) item(it *item) {
	switch it.field {
	case "resources", "bases", "components":
		e.kind(it)
	case "configMapGenerator", "secretGenerator":
		for _, node := range entriesOf(it.node, "literals") {
			if key, _, ok := strings.Cut(node.Value, "="); !ok || key == "" {
				e.refuse(it, everyPart, fmt.Sprintf("invalid literal source %s, expected key=value", node.Value))
				return
			}
		}
	case "patches", "patchesJson6902", "patchesStrategicMerge":
		e.patch(it)
	case "replacements":
		e.replacement(it)
	}
}

// refuse leaves out what kustomize would refuse in these words.
func (e *evidence) refuse(it *item, part int, said string) {
	if it.left[max(part, 0)] {
		return
	}
	f := e.scan.words(it, max(part, 0), said)
	if !e.out.explains(f) {
		e.problems = append(e.problems, f.problem())
	}
	e.leave(it, part, false)
}

// kind is a Component that is listed as another kustomization, or the reverse.
func (e *evidence) kind(it *item) {
	of := e.kustomizationOf(it)
	if of == nil {
		return
	}
	kind, _ := of["kind"].(string)
	switch isComponent := kind == types.ComponentKind; {
	case isComponent && it.field != "components":
		e.refuse(it, everyPart, "expected kind != 'Component'")
	case !isComponent && it.field == "components":
		e.refuse(it, everyPart, "expected kind 'Component'")
	}
}

// kustomizationOf is what the directory's kustomization says that an entry names;
// nil where it names none.
func (e *evidence) kustomizationOf(it *item) map[string]any {
	name, ok := it.value.(string)
	if !ok {
		return nil
	}
	return e.fields[e.scan.directories[path.Join(it.dir, name)]]
}

func (e *evidence) patch(it *item) {
	fields, isEntry := it.value.(map[string]any)
	if isEntry {
		text, _ := fields["patch"].(string)
		name, _ := fields["path"].(string)
		text = strings.TrimSpace(text)
		switch {
		case text == "" && name == "":
			e.refuse(it, everyPart, "must specify one of patch and path")
			return
		case text != "" && name != "":
			e.refuse(it, everyPart, "patch and path can't be set at the same time")
			return
		}
	}
	numbers := e.layers[it.entry()]
	if len(numbers) == 0 || it.left[0] {
		return
	}
	l := &e.scan.layers[numbers[0]]
	switch said := badTarget(l.target); {
	case said != "":
		e.refuse(it, everyPart, said)
	case l.operations != nil && l.target == nil && it.field == "patches":
		e.refuse(it, everyPart, "must specify a target for JSON patch")
	case l.operations != nil && e.flow(it, fields):
		e.refuse(it, everyPart, "unable to parse SM or JSON patch")
	case l.operations != nil:
		e.operations(it, l)
		return
	default:
		e.merges(it, numbers)
	}
	for _, i := range numbers {
		e.made.add(&e.scan.layers[i])
	}
}

// flow says whether a patch begins as JSON and is none.
func (e *evidence) flow(it *item, fields map[string]any) bool {
	text, _ := fields["patch"].(string)
	text = strings.TrimSpace(text)
	if name, _ := fields["path"].(string); name != "" {
		data, err := e.scan.gate.read(path.Join(it.dir, name))
		if err != nil {
			return false
		}
		text = string(data)
	}
	return strings.HasPrefix(text, "[") && !json.Valid([]byte(text))
}

// badTarget is what kustomize says of a target that cannot be read; empty where it
// can.
func badTarget(t *target) string {
	if t == nil {
		return ""
	}
	for _, pattern := range []string{t.Group, t.Version, t.Kind, t.Name, t.Namespace} {
		if _, err := regexp.Compile("^(?:" + pattern + ")$"); pattern != "" && err != nil {
			return err.Error()
		}
	}
	for _, selector := range []string{t.LabelSelector, t.AnnotationSelector} {
		if _, err := labels.Parse(selector); err != nil {
			return err.Error()
		}
	}
	return ""
}

// merges are strategic merge patches that name an object which is not there.
func (e *evidence) merges(it *item, numbers []int) {
	if e.renamed || e.plugins {
		return
	}
	for _, number := range numbers {
		l := &e.scan.layers[number]
		if l.target != nil || l.document == nil {
			continue
		}
		object := l.document.Object
		gvk, there := object.GroupVersionKind(), false
		for _, i := range e.scan.historic(object.GetName()) {
			r := &e.scan.layers[i]
			there = there || i >= l.from && i < number && r.document.Object.GetKind() == gvk.Kind && e.mayBeIn(r, object.GetNamespace())
		}
		if !there {
			e.refuse(it, everyPart, fmt.Sprintf("no resource matches strategic merge patch %q", identityWords(gvk.Kind, gvk.Version, gvk.Group, object.GetName(), object.GetNamespace())))
			return
		}
	}
}

// mayBeIn says whether a resource may have, or have had, a namespace.
func (e *evidence) mayBeIn(r *layer, namespace string) bool {
	own := r.document.Object.GetNamespace()
	return namespace == own || e.namespaces[namespace] || namespace == "" && own == "default" || namespace == "default" && own == ""
}

// identityWords is an identity as kustomize prints it.
func identityWords(kind, version, group, name, namespace string) string {
	or := func(text, none string) string {
		if text == "" {
			return none
		}
		return text
	}
	return or(kind, "[noKind]") + "." + or(version, "[noVer]") + "." + or(group, "[noGrp]") + "/" + or(name, "[noName]") + "." + or(namespace, "[noNs]")
}

// operations are those of a JSON patch that name nothing that can be done, or a
// path that no object of the target can have.
func (e *evidence) operations(it *item, l *layer) {
	subjects := e.subjects(l)
	made := e.made.named(l.plainTarget())
	for n := range it.parts {
		op := it.parts[n].operation
		if op == nil {
			return
		}
		switch {
		case len(subjects) == 0:
		case !operationKinds[op.Op]:
			e.refuse(it, n, "Unexpected kind: "+op.Op)
		case !e.renamed && e.lacks(subjects, op):
			e.refuse(it, n, "missing path")
		}
		made[0].operation(op)
		made[1].operation(op)
	}
}

var operationKinds = map[string]bool{"add": true, "remove": true, "replace": true, "move": true, "copy": true, "test": true}

// subjects are the objects that a patch certainly applies to. Of labels the scan
// does not know enough.
func (e *evidence) subjects(l *layer) (subjects []*layer) {
	if l.target == nil || l.target.LabelSelector != "" || l.target.AnnotationSelector != "" || l.target.Namespace != "" {
		return nil
	}
	among := e.resources
	if plainName.MatchString(l.target.Name) {
		among = nil
		for _, i := range e.scan.historic(l.target.Name) {
			among = append(among, &e.scan.layers[i])
		}
	}
	// One that lacks the path is enough; the first few stand for all.
	const few = 50
	if e.compared += len(among); e.compared > maxCompared {
		return nil
	}
	for _, r := range among {
		if r.number >= l.from && r.number < l.number && !r.generated && !r.left && len(subjects) < few && l.target.selects(r.document.Object, r.names[0]) {
			subjects = append(subjects, r)
		}
	}
	return subjects
}

// lacks says whether one of the objects can have no such path: neither its document
// nor a patch before has brought it.
func (e *evidence) lacks(subjects []*layer, op *operation) bool {
	pointer := op.lacked()
	// kustomize keeps notes of its own in annotations. What a test wants is another
	// question.
	if !strings.HasPrefix(pointer, "/") || len(tokens(pointer)) == 0 || op.Op == "test" || related(pointer, "/metadata/annotations") {
		return false
	}
	for _, r := range subjects {
		_, there := lookup(r.document.Object.Object, pointer)
		if !there && !slices.ContainsFunc(r.names, func(name string) bool { return e.made.bring(name, pointer) }) {
			return true
		}
	}
	return false
}

// replacement is one whose source is not there, or has no such field.
func (e *evidence) replacement(it *item) {
	if e.renamed || e.plugins {
		return
	}
	numbers := e.layers[it.entry()]
	if len(numbers) != 1 || it.left[0] {
		return
	}
	l := &e.scan.layers[numbers[0]]
	if l.copied == nil || l.copied.given != nil {
		return
	}
	of := l.copied.source
	for i := l.from; i < l.number; i++ {
		r := &e.scan.layers[i]
		if r.resource() && (of.Kind == "" || r.document.Object.GetKind() == of.Kind) && of.named(r) {
			return
		}
	}
	e.refuse(it, everyPart, "nothing selected by "+identityWords(of.Kind, of.Version, of.Group, of.Name, of.Namespace)+":"+l.copied.field)
}

// named says whether a resource had the name that a selector has.
func (s selector) named(r *layer) bool {
	if s.Name == "" || r.generated {
		return s.Name == "" || strings.HasPrefix(s.Name, r.named()) || r.names[0] == s.Name
	}
	for _, name := range r.names {
		if name == s.Name {
			return true
		}
	}
	return false
}
