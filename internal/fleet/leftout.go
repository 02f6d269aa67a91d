package fleet

import (
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/types"

	"cloop.dev/cloop/schemas"
)

// leftOut is what a root is rendered without, because kustomize refuses it: so that
// nobody is told of what is wrong for that reason alone.
type leftOut struct {
	scan *scan
	// count of what was left out.
	count int
	// resources are objects that are not there, and patches changes that were not
	// made, as far as they can be read.
	resources, patches []*layer
	// objects, fields, names: what was left out may have brought objects of which
	// nothing is known, set any field of any object, or changed what objects are
	// called.
	objects, fields, names bool
	// brought is what the patches would have.
	brought changes
	// strays: see lose.
	strays map[*layer]bool
}

// lost says whether objects may not be there.
func (o *leftOut) lost() bool { return o.objects || o.names || len(o.resources) > 0 }

// everyPart of an item.
const everyPart = -1

// leave leaves out a part of an item, or all of it. unknown says that what can be
// read of it is not all that it may have meant.
func (d *diagnosis) leave(it *item, part int, unknown bool) {
	if part != everyPart && len(it.left) == 1 {
		part = everyPart
	}
	fresh := false
	for i := range it.left {
		if (part == everyPart || i == part) && !it.left[i] {
			it.left[i], fresh = true, true
		}
	}
	if !fresh {
		return
	}
	d.out.count++
	d.scan.indexed = nil
	read := d.leaveLayers(it, part)
	known := read && !unknown
	_, knownField := jsonField(reflect.TypeFor[types.Kustomization](), it.field)
	switch it.field {
	case "resources", "bases":
		d.out.objects = d.out.objects || !known
	case "configMapGenerator", "secretGenerator":
		// What it would be called is all that anybody asks.
		d.out.objects = d.out.objects || !read
	case "generators":
		d.out.objects = true
	case "patches", "patchesJson6902":
		if !known {
			d.leaveUnknown(it)
		}
	case "patchesStrategicMerge", "replacements":
		d.out.fields = d.out.fields || !known
	case "namespace", "namePrefix", "nameSuffix":
		d.out.names = true
	case "validators":
	case "components":
		d.out.objects, d.out.fields = d.out.objects || !known, d.out.fields || !known
	default:
		d.out.fields, d.out.objects = true, d.out.objects || !knownField || strings.HasPrefix(it.field, "helm")
	}
}

// leaveUnknown leaves out a patch that cannot be read: what it selects may be as
// nobody knows.
func (d *diagnosis) leaveUnknown(it *item) {
	var e patchEntry
	if it.node.Decode(&e) != nil || e.Target == nil {
		d.out.fields = true
		return
	}
	l := &layer{file: it.file, patch: true, target: e.Target, unread: true}
	d.out.patches = append(d.out.patches, l)
	d.out.brought.add(l)
}

// leaveLayers marks the layers of what is left out, and says whether there is any.
func (d *diagnosis) leaveLayers(it *item, part int) (known bool) {
	numbers := slices.Clone(d.layers[it.entry()])
	if part == everyPart {
		for _, span := range d.scan.spans[it.entry()] {
			for i := span[0]; i < span[1]; i++ {
				numbers = append(numbers, i)
			}
		}
	}
	for _, i := range numbers {
		l := &d.scan.layers[i]
		switch {
		case l.resource():
			if part != everyPart && it.documents != nil && int32(l.document.Line) != it.parts[part].at.line {
				continue
			}
			l.left = true
			d.out.resources = append(d.out.resources, l)
		case part != everyPart && it.parts[part].operation != nil:
			gone := *l
			gone.operations = []operation{*it.parts[part].operation}
			d.out.patches = append(d.out.patches, &gone)
			d.out.brought.add(&gone)
		default:
			l.left = part == everyPart || !slices.Contains(it.left, false)
			d.out.patches = append(d.out.patches, l)
			d.out.brought.add(l)
			if d.scan.strays(l) {
				d.out.brought.addTo("", l)
			}
		}
		known = true
	}
	return known
}

// explains says whether kustomize may refuse a step only for what was left out.
func (o *leftOut) explains(f *failure) bool {
	switch n := &f.needs; {
	case n.own:
		return false
	case n.kind != "" || n.name != "":
		return o.objects || o.names || slices.ContainsFunc(o.resources, func(l *layer) bool {
			return (n.kind == "" || l.document.Object.GetKind() == n.kind) && (n.name == "" || slices.Contains(l.names, n.name))
		})
	case n.pointer != "":
		return o.fields || o.brought.bring(f.part.layer.plainTarget(), n.pointer)
	case f.rule == RuleDuplicateObject:
		return o.names
	}
	// In words that nobody here knows: it may speak of what is not there.
	return o.objects || o.fields || o.names || slices.ContainsFunc(o.resources, func(l *layer) bool {
		return l.named() != "" && strings.Contains(f.message, l.named())
	})
}

// plainTarget is the name of the one object that a patch is for; empty where it may
// be for several.
func (l *layer) plainTarget() string {
	switch {
	case l == nil:
		return ""
	case l.target != nil && plainName.MatchString(l.target.Name):
		return l.target.Name
	case l.target == nil && l.document != nil:
		return l.document.Object.GetName()
	}
	return ""
}

// touches says whether a change is of a field, of a part of it or of what it is in.
func (l *layer) touches(pointer string) bool {
	switch {
	case l.fields != nil:
		for field := range l.fields {
			if related(field, pointer) || strings.HasPrefix(field, imagePrefix) && related("/spec/template/image", pointer) {
				return true
			}
		}
		return false
	case l.copied != nil:
		return l.copied.touches(nil, pointer)
	case l.document != nil:
		return !identifies(tokens(pointer)) && sets(l.document.Object.Object, pointer)
	}
	return slices.ContainsFunc(l.operations, func(op operation) bool {
		return op.Op != "test" && related(op.Path, pointer) || op.Op == "move" && related(op.From, pointer)
	})
}

// sets says whether a strategic merge patch sets a field, or what it is in.
func sets(value any, pointer string) bool {
	for _, token := range tokens(pointer) {
		object, ok := value.(map[string]any)
		if !ok {
			return true
		}
		if _, directive := object["$patch"]; directive {
			return true
		}
		if value, ok = object[token]; !ok {
			return false
		}
	}
	return true
}

// touches says whether a replacement is of a field, a part of it or what it is in:
// of an object, or, where that is nil, of any.
func (c *copied) touches(o *renderedObject, pointer string) bool {
	have := tokens(pointer)
	for _, to := range c.targets {
		if o != nil && !to.selects.matches(o) {
			continue
		}
		for _, field := range to.fields {
			parts := splitField(field)
			n := min(len(parts), len(have))
			if slices.EqualFunc(parts[:n], have[:n], func(part, token string) bool {
				return part == token || part == "*" || strings.HasPrefix(part, "[")
			}) {
				return true
			}
		}
	}
	return false
}

// related says whether one pointer leads to, or into, what the other does.
func related(a, b string) bool { return beginsWith(a, b) || beginsWith(b, a) }

// beginsWith says whether a pointer leads to or into what another leads to.
func beginsWith(pointer, of string) bool {
	of = strings.TrimSuffix(of, "/")
	return pointer == of || strings.HasPrefix(pointer, of+"/")
}

// mayFollow says whether a problem with an object may be there only for what was
// left out.
func (o *renderedObject) mayFollow(problem schemas.Problem) bool {
	out := o.without
	if out == nil {
		return false
	}
	pointer, whole := pointerOf(o.Object.Object, problem.Field())
	switch {
	case (!whole || problem.Rule == schemas.RuleCEL) && o.unread(), out.names && related(pointer, "/metadata/name"), out.names && related(pointer, "/metadata/namespace"):
		return true
	case o.unchanged(pointer):
		return true
	}
	return slices.ContainsFunc(problem.Fields, func(field string) bool {
		pointer, _ := pointerOf(o.Object.Object, field)
		return o.unchanged(pointer)
	})
}

// unread says whether what was left out may be any change of the object.
func (o *renderedObject) unread() bool {
	return o.without.fields || slices.ContainsFunc(o.without.patches, func(l *layer) bool { return l.unread && l.applies(o.Object, o.called()) })
}

// called are the names that an object has had.
func (o *renderedObject) called() []string {
	names := []string{o.Object.GetName()}
	if own := o.own(); own != nil {
		names = append(names, own.names...)
	}
	return names
}

// unchanged says whether a change of a field may have been left out. Of no field:
// whether any change of the object may.
func (o *renderedObject) unchanged(pointer string) bool {
	if o.without == nil {
		return false
	}
	names := o.called()
	return slices.ContainsFunc(o.without.patches, func(l *layer) bool {
		if l.copied != nil {
			return pointer == "" || l.copied.touches(o, pointer)
		}
		return (pointer == "" || l.touches(pointer)) && (l.applies(o.Object, names) || o.without.strayed(l, o.Object.GetKind()))
	})
}

// strayed says whether a patch that was left out names no object that there is, so
// that nobody knows which of a kind was meant.
func (o *leftOut) strayed(l *layer, kind string) bool {
	return o.strays[l] && (l.document == nil || l.document.Object.GetKind() == kind)
}

// lose finds the strays, once all is left out.
func (o *leftOut) lose() {
	o.strays = map[*layer]bool{}
	kinds := map[string]bool{}
	for i := range o.scan.layers {
		if l := &o.scan.layers[i]; l.resource() {
			kinds[l.document.Object.GetKind()] = true
		}
	}
	for _, l := range o.patches {
		o.strays[l] = o.scan.strays(l)
		// Of another kind than there is, it may be of any.
		o.fields = o.fields || o.strays[l] && l.document != nil && !kinds[l.document.Object.GetKind()]
	}
}

// strays says whether a patch names no object that there is, or none at all.
func (s *scan) strays(l *layer) bool {
	switch {
	case l.target != nil || l.fields != nil || l.copied != nil:
		return false
	case l.document == nil:
		return true
	}
	return !slices.ContainsFunc(s.historic(l.document.Object.GetName()), func(i int) bool {
		return s.layers[i].document.Object.GetKind() == l.document.Object.GetKind()
	})
}

// comparable says whether what rules between objects compare of an object is as
// it is to be.
func (o *renderedObject) comparable() bool {
	if o.without == nil {
		return true
	}
	// More patches than that are not gone through for every object.
	const most = 500
	if len(o.without.patches) > most || o.unread() {
		return false
	}
	return !slices.ContainsFunc([]string{"/spec/maxRunners", "/spec/hubURL", "/spec/hubPool", "/spec/hub", "/spec/labels", "/spec/runnerLabels", "/metadata/name"}, o.unchanged)
}
