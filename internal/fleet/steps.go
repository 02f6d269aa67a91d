package fleet

import (
	"encoding/json"
	"path"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/yaml"

	"cloop.dev/cloop/schemas"
)

// steps are a root taken apart: the kustomizations that it refers to, entry by
// entry in the order in which kustomize takes them. So it can be rendered in part:
// as far as a step, and without some.
type steps struct {
	scan  *scan
	items []*item
	// of: file → its items, in order. fields: file → what it says.
	of     map[string][]*item
	fields map[string]map[string]any
	// layers: entry → what it brought, without what lies in other kustomizations.
	layers map[entry][]int
	// entries: entry of a list → its item.
	entries map[entry]*item
	count   int
	// hidden are kustomizations that kustomize must not see beside another one.
	hidden []string
	// names are where the fields of kustomizations are named. owners: see ownersOf.
	names  map[nodeAt]bool
	owners map[nodeAt][]*item
}

// item is a field of a kustomization, or an entry of a list in one.
type item struct {
	dir, file string
	field     string
	// list says that the field is one; index is the entry's place in it.
	list  bool
	index int
	// first is the number of its first step.
	first int
	// parts are its steps: an entry of several, such as a JSON patch, may be cut.
	// Those that are left out are marked.
	parts []part
	left  []bool
	// cut is what the list has of it with some of its parts; nil where it has one.
	cut func(kept []bool) []any
	// documents are those of a resource file with several, in JSON: its parts.
	// rewritten: the file has more, which cannot be read.
	documents [][]byte
	rewritten bool
	// value is what the item is, and node where; key is the field's name, and whole
	// all that the field is.
	value            any
	key, whole, node *yaml.Node
}

// part of an item: where it stands, and what it is.
type part struct {
	at placed
	// operation of a JSON patch; nil where it is none.
	operation *operation
	// layer of a patch.
	layer *layer
	// source and field of a replacement.
	replacement map[string]any
	node        *yaml.Node
	field       string
}

// kustomizeOrder is how kustomize goes through the fields of a kustomization;
// before them come those that configure it.
var kustomizeOrder = []string{
	"resources", "bases", "configMapGenerator", "secretGenerator", "generators", "components",
	"patchesStrategicMerge", "patches", "namespace", "namePrefix", "nameSuffix", "commonLabels", "labels", "commonAnnotations",
	"patchesJson6902", "replicas", "images", "imageTags", "replacements", "transformers", "validators", "vars",
}

// takeApart makes the steps of a root.
func (s *scan) takeApart(dir string) *steps {
	d := &steps{scan: s, of: map[string][]*item{}, fields: map[string]map[string]any{}, layers: map[entry][]int{}, entries: map[entry]*item{}, names: map[nodeAt]bool{}}
	for i := range s.layers {
		if l := &s.layers[i]; l.entry != (entry{}) {
			d.layers[l.entry] = append(d.layers[l.entry], i)
		}
	}
	d.directory(dir)
	return d
}

// step is the item and the part of it that a number means, from 1.
func (d *steps) step(number int) (*item, int) {
	i, found := slices.BinarySearchFunc(d.items, number-1, func(it *item, want int) int { return it.first - want })
	if !found {
		i--
	}
	return d.items[i], number - 1 - d.items[i].first
}

func (d *steps) directory(dir string) {
	file, known := d.scan.directories[dir]
	if _, met := d.fields[file]; !known || met {
		return
	}
	d.fields[file], d.of[file] = map[string]any{}, nil
	data, err := d.scan.gate.read(file)
	var document yaml.Node
	var fields map[string]any
	if err != nil || kyaml.Unmarshal(data, &fields) != nil || yaml.Unmarshal(data, &document) != nil || len(document.Content) == 0 {
		return
	}
	top := document.Content[0]
	keys, nodes := map[string]*yaml.Node{}, map[string]*yaml.Node{}
	for i := 0; top.Kind == yaml.MappingNode && i+1 < len(top.Content); i += 2 {
		key := top.Content[i]
		d.names[nodeAt{file, key.Line, key.Column}] = true
		if name := canonicalField(key.Value); name != "" && fields[key.Value] != nil {
			d.fields[file][name], keys[name], nodes[name] = fields[key.Value], key, top.Content[i+1]
		}
	}
	var others []string
	for name := range d.fields[file] {
		if !slices.Contains(kustomizeOrder, name) && name != "apiVersion" && name != "kind" && name != "metadata" {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for _, name := range append(others, kustomizeOrder...) {
		if d.fields[file][name] != nil {
			d.field(dir, file, name, keys[name], nodes[name])
		}
	}
}

func (d *steps) field(dir, file, name string, key, node *yaml.Node) {
	value := d.fields[file][name]
	list, isList := value.([]any)
	if !isList {
		d.add(&item{dir: dir, file: file, field: name, value: value, key: key, whole: node, node: node})
		return
	}
	for i, one := range list {
		it := &item{dir: dir, file: file, field: name, list: true, index: i, value: one, key: key, whole: node, node: node}
		if node.Kind == yaml.SequenceNode && i < len(node.Content) {
			it.node = node.Content[i]
		}
		switch name {
		case "patches", "patchesJson6902", "patchesStrategicMerge":
			d.patch(it)
		case "replacements":
			d.replacement(it)
		case "resources":
			d.resource(it)
		}
		d.add(it)
		if text, ok := one.(string); ok {
			d.directory(path.Join(dir, text))
		}
	}
}

func (it *item) entry() entry { return entry{it.file, it.field, it.index} }

// add numbers an item's steps.
func (d *steps) add(it *item) {
	if len(it.parts) == 0 {
		at := it.node
		if !it.list {
			at = it.key
		}
		it.parts = []part{{at: placed{file: it.file, line: int32(at.Line), column: int32(at.Column)}, node: it.node}}
	}
	it.left = make([]bool, len(it.parts))
	it.first = d.count
	d.count += len(it.parts)
	d.items = append(d.items, it)
	if it.list {
		d.entries[it.entry()] = it
	}
	d.of[it.file] = append(d.of[it.file], it)
}

// files are the kustomizations, and what they list, as far as the first steps and
// without what is left out: file → its content; nil for one that is not there.
func (d *steps) files(count int) (map[string][]byte, error) {
	replaced := map[string][]byte{}
	documents := map[string]*keptDocuments{}
	for file, items := range d.of {
		fields := map[string]any{"metadata": map[string]any{"name": "part"}}
		for _, name := range []string{"apiVersion", "kind", "metadata"} {
			if value := d.fields[file][name]; value != nil {
				fields[name] = value
			}
		}
		for _, it := range items {
			kept := it.kept(count)
			if !slices.Contains(kept, true) {
				continue
			}
			if it.documents != nil {
				it.note(documents, kept)
			}
			if !it.list {
				fields[it.field] = it.value
				continue
			}
			values := []any{it.value}
			if it.cut != nil && slices.Contains(kept, false) {
				values = it.cut(kept)
			}
			name, values := d.modern(it, values)
			list, _ := fields[name].([]any)
			fields[name] = append(list, values...)
		}
		commonLabels(fields)
		data, err := json.Marshal(fields)
		if err != nil {
			return nil, err
		}
		replaced[file] = data
	}
	for file, of := range documents {
		if data, cut := of.text(); cut {
			replaced[file] = data
		}
	}
	for _, file := range d.hidden {
		replaced[file] = nil
	}
	return replaced, nil
}

// kept are the parts among the first steps that are not left out.
func (it *item) kept(count int) []bool {
	kept := make([]bool, len(it.parts))
	for i := range kept {
		kept[i] = it.first+i < count && !it.left[i]
	}
	return kept
}

// keptDocuments are those of a file, which several kustomizations may list.
type keptDocuments struct {
	documents [][]byte
	kept      []bool
	rewritten bool
}

func (it *item) note(all map[string]*keptDocuments, kept []bool) {
	name, _ := it.value.(string)
	name = path.Join(it.dir, name)
	of := all[name]
	if of == nil {
		of = &keptDocuments{documents: it.documents, kept: make([]bool, len(it.documents))}
		all[name] = of
	}
	of.rewritten = of.rewritten || it.rewritten
	for i := range kept {
		of.kept[i] = of.kept[i] || kept[i]
	}
}

// text is what the file has, and whether that is less than it had.
func (k *keptDocuments) text() (data []byte, cut bool) {
	cut = k.rewritten
	for i, document := range k.documents {
		if !k.kept[i] {
			cut = true
			continue
		}
		data = append(append(append(data, "---\n"...), document...), '\n')
	}
	return data, cut
}

// modern is where the values of an entry stand in kustomize's newer spelling, of
// which it does not warn on the process's standard error.
func (d *steps) modern(it *item, values []any) (field string, now []any) {
	switch it.field {
	case "bases":
		return "resources", values
	case "imageTags":
		return "images", values
	case "patchesStrategicMerge":
		text, isText := it.value.(string)
		l := it.parts[0].layer
		if !isText || l == nil || l.document == nil || renames(l) {
			return it.field, values
		}
		if l.file != it.file {
			return "patches", []any{map[string]any{"path": text}}
		}
		return "patches", []any{map[string]any{"patch": text}}
	}
	return it.field, values
}

// absolute are files by their names in the file system.
func (b *builder) absolute(files map[string][]byte) map[string][]byte {
	all := make(map[string][]byte, len(files))
	for file, data := range files {
		all[filepath.Join(b.dir, filepath.FromSlash(file))] = data
	}
	return all
}

// nodeAt is a place in a file.
type nodeAt struct {
	file         string
	line, column int
}

// ownersOf are the items that a place in a kustomization belongs to: all those of
// a list for the name of its field.
func (d *steps) ownersOf(problem *schemas.Problem) []*item {
	if d.owners == nil {
		d.owners = map[nodeAt][]*item{}
		for _, it := range d.items {
			d.own(it, it.key)
			d.own(it, it.node)
			d.owns(it, it.whole)
		}
	}
	return d.owners[nodeAt{problem.File, problem.Line, problem.Column}]
}

func (d *steps) owns(it *item, node *yaml.Node) {
	at := nodeAt{it.file, node.Line, node.Column}
	if of := d.owners[at]; len(of) == 0 || of[len(of)-1] != it {
		d.owners[at] = append(of, it)
	}
}

func (d *steps) own(it *item, node *yaml.Node) {
	d.owns(it, node)
	for _, child := range node.Content {
		d.own(it, child)
	}
}
