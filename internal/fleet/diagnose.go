package fleet

import (
	"context"
	"encoding/json"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/yaml"

	"cloop.dev/cloop/schemas"
)

// kustomize says that it cannot render a root, in one long line, and rarely
// where. A diagnosis finds the place: it takes the kustomizations that the root
// refers to apart into steps, in the order in which kustomize takes them, renders
// the first half of the steps, then half of what remains, and so on until one
// step is left with which it fails and without which it does not.
type diagnosis struct {
	scan  *scan
	items []*item
	// of: file → its items, in order. fields: file → what it says.
	of     map[string][]*item
	fields map[string]map[string]any
	// patches: entry → its layers.
	patches map[entry][]*layer
	steps   int
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
	parts []part
	// cut is what the list or the field has of it, up to a part; at least one.
	cut func(parts int) []any
	// value is what the whole of it is.
	value any
	node  *yaml.Node
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

// Bounds on the search for what is wrong with a root: how often it is rendered,
// and for how long, for all roots of a check together.
const (
	maxTries     = 24
	maxDiagnosis = 10 * time.Second
	maxSteps     = 100_000
)

// diagnosed is a place that was found: an overlay that shows the same, and has
// the same file, need not be searched.
type diagnosed struct {
	said, file string
	problem    schemas.Problem
}

// kustomizeOrder is how kustomize goes through the fields of a kustomization;
// before them come those that configure it.
var kustomizeOrder = []string{
	"resources", "bases", "configMapGenerator", "secretGenerator", "generators", "components",
	"patchesStrategicMerge", "patches", "namespace", "namePrefix", "nameSuffix", "commonLabels", "labels", "commonAnnotations",
	"patchesJson6902", "replicas", "images", "imageTags", "replacements", "transformers", "validators", "vars",
}

// diagnose finds what kustomize refuses, and says it with its place. said is
// kustomize's error.
func (s *scan) diagnose(ctx context.Context, b *builder, dir, file, said string) schemas.Problem {
	said = innermost(said)
	for _, known := range b.diagnosed {
		if known.said == said && slices.Contains(s.kustomizations(), known.file) {
			return known.problem
		}
	}
	unknown := located(broken(RuleBuild, said), file)
	began := b.clock.Now()
	defer func() { b.diagnosing += b.clock.Since(began) }()
	d := s.takeApart(dir)
	if d.steps == 0 || d.steps > maxSteps {
		return unknown
	}
	// lo steps render, hi do not; why is what kustomize says of those.
	lo, hi, why := 0, d.steps, ""
	for tries := range maxTries {
		if ctx.Err() != nil || b.diagnosing+b.clock.Since(began) > maxDiagnosis {
			break
		}
		steps := lo + (hi-lo)/2
		switch tries {
		case 0:
			steps = hi
		case 1:
			steps = 0
		}
		message, failed := d.fails(b, dir, steps)
		switch {
		case tries == 0 && !failed, tries == 1 && failed:
			// It is not one of the steps.
			return unknown
		case failed:
			hi, why = steps, message
		default:
			lo = steps
		}
		if tries > 0 && hi-lo == 1 {
			break
		}
	}
	at, n := d.step(hi)
	if hi-lo > 1 {
		if first, _ := d.step(lo + 1); first.file == at.file {
			unknown.File = at.file
		}
		return unknown
	}
	problem := s.words(at, n, innermost(why))
	b.diagnosed = append(b.diagnosed, diagnosed{said, at.file, problem})
	return problem
}

// kustomizations are the files that were read.
func (s *scan) kustomizations() []string {
	var files []string
	for _, file := range s.directories {
		files = append(files, file)
	}
	return files
}

// step is the item and the part of it that a number means, from 1.
func (d *diagnosis) step(number int) (*item, int) {
	i, found := slices.BinarySearchFunc(d.items, number-1, func(it *item, want int) int { return it.first - want })
	if !found {
		i--
	}
	return d.items[i], number - 1 - d.items[i].first
}

// fails renders the root as far as the first steps, and gives kustomize's error.
func (d *diagnosis) fails(b *builder, dir string, steps int) (message string, failed bool) {
	replaced := map[string][]byte{}
	for file, items := range d.of {
		fields := map[string]any{"metadata": map[string]any{"name": "part"}}
		for _, name := range []string{"apiVersion", "kind", "metadata"} {
			if value := d.fields[file][name]; value != nil {
				fields[name] = value
			}
		}
		for _, it := range items {
			n := min(steps-it.first, len(it.parts))
			switch {
			case n <= 0:
			case it.list:
				list, _ := fields[it.field].([]any)
				fields[it.field] = append(list, it.cut(n)...)
			default:
				fields[it.field] = it.value
			}
		}
		data, err := json.Marshal(fields)
		if err != nil {
			return err.Error(), true
		}
		replaced[filepath.Join(b.dir, filepath.FromSlash(file))] = data
	}
	resources, err := b.run(dir, replaced)
	if err == nil {
		for _, resource := range resources.Resources() {
			if _, err = resource.MarshalJSON(); err != nil {
				break
			}
		}
	}
	if err != nil {
		return b.withoutDirectory(err), true
	}
	return "", false
}

// takeApart makes the steps of a root.
func (s *scan) takeApart(dir string) *diagnosis {
	d := &diagnosis{scan: s, of: map[string][]*item{}, fields: map[string]map[string]any{}, patches: map[entry][]*layer{}}
	for i := range s.layers {
		if l := &s.layers[i]; l.entry != (entry{}) {
			d.patches[l.entry] = append(d.patches[l.entry], l)
		}
	}
	d.directory(dir)
	return d
}

func (d *diagnosis) directory(dir string) {
	file, known := d.scan.directories[dir]
	if _, met := d.fields[file]; !known || met {
		return
	}
	d.fields[file], d.of[file] = map[string]any{}, nil
	data, err := readBounded(d.scan.root, file)
	var document yaml.Node
	var fields map[string]any
	if err != nil || kyaml.Unmarshal(data, &fields) != nil || yaml.Unmarshal(data, &document) != nil || len(document.Content) == 0 {
		return
	}
	top := document.Content[0]
	nodes := map[string]*yaml.Node{}
	for i := 0; top.Kind == yaml.MappingNode && i+1 < len(top.Content); i += 2 {
		nodes[canonicalField(top.Content[i].Value)] = top.Content[i]
		if name := canonicalField(top.Content[i].Value); name != "" && fields[top.Content[i].Value] != nil {
			d.fields[file][name] = fields[top.Content[i].Value]
			if _, list := d.fields[file][name].([]any); list {
				nodes[name] = top.Content[i+1]
			}
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
		d.field(dir, file, name, nodes[name])
	}
}

func (d *diagnosis) field(dir, file, name string, node *yaml.Node) {
	value := d.fields[file][name]
	list, isList := value.([]any)
	if !isList {
		if value != nil {
			d.add(&item{dir: dir, file: file, field: name, value: value, node: node})
		}
		return
	}
	for i, one := range list {
		it := &item{dir: dir, file: file, field: name, list: true, index: i, value: one, node: node}
		if node.Kind == yaml.SequenceNode && i < len(node.Content) {
			it.node = node.Content[i]
		}
		switch name {
		case "patches", "patchesJson6902", "patchesStrategicMerge":
			d.patch(it)
		case "replacements":
			d.replacement(it)
		}
		d.add(it)
		if text, ok := one.(string); ok {
			d.directory(path.Join(dir, text))
		}
	}
}

// add numbers an item's steps.
func (d *diagnosis) add(it *item) {
	if len(it.parts) == 0 {
		it.parts = []part{{at: placed{file: it.file, line: int32(it.node.Line), column: int32(it.node.Column)}, node: it.node}}
	}
	if it.cut == nil {
		it.cut = func(int) []any { return []any{it.value} }
	}
	it.first = d.steps
	d.steps += len(it.parts)
	d.items = append(d.items, it)
	d.of[it.file] = append(d.of[it.file], it)
}

// patch cuts a JSON patch into its operations.
func (d *diagnosis) patch(it *item) {
	layers := d.patches[entry{it.file, it.field, it.index}]
	if len(layers) == 0 {
		return
	}
	l := layers[0]
	here := placed{file: it.file, line: int32(it.node.Line), column: int32(it.node.Column)}
	it.parts = []part{{at: here, layer: l, node: it.node}}
	fields, _ := it.value.(map[string]any)
	text, inline := fields["patch"].(string)
	name, inFile := fields["path"].(string)
	if l.operations == nil || inline == inFile {
		return
	}
	if inFile {
		data, err := readBounded(d.scan.root, path.Join(it.dir, name))
		if err != nil {
			return
		}
		text = string(data)
	}
	var operations []any
	if kyaml.Unmarshal([]byte(text), &operations) != nil || len(operations) != len(l.operations) || len(operations) == 0 {
		return
	}
	it.parts = nil
	for i := range l.operations {
		op := &l.operations[i]
		it.parts = append(it.parts, part{at: placed{file: l.file, line: int32(op.line), column: int32(op.column)}, operation: op, layer: l, node: it.node})
	}
	it.cut = func(n int) []any {
		data, err := json.Marshal(operations[:n])
		if err != nil || n == len(operations) {
			return []any{it.value}
		}
		cut := map[string]any{}
		for key, value := range fields {
			if key != "path" {
				cut[key] = value
			}
		}
		cut["patch"] = string(data)
		return []any{cut}
	}
}

// replacement cuts an entry of replacements into the fields that it writes.
func (d *diagnosis) replacement(it *item) {
	entries, nodes, file := []any{it.value}, []*yaml.Node{it.node}, it.file
	if fields, _ := it.value.(map[string]any); fields["path"] != nil {
		name, _ := fields["path"].(string)
		file = path.Join(it.dir, name)
		data, err := readBounded(d.scan.root, file)
		var document yaml.Node
		var value any
		if err != nil || kyaml.Unmarshal(data, &value) != nil || yaml.Unmarshal(data, &document) != nil || len(document.Content) == 0 {
			return
		}
		entries, nodes = []any{value}, document.Content[:1]
		if list, ok := value.([]any); ok && nodes[0].Kind == yaml.SequenceNode && len(list) == len(nodes[0].Content) {
			entries, nodes = list, nodes[0].Content
		}
	}
	// cuts: part → the entry, cut, after those that come before it whole.
	type cut struct {
		before int
		entry  any
	}
	var cuts []cut
	for e := range entries {
		fields, _ := entries[e].(map[string]any)
		targets, _ := fields["targets"].([]any)
		_, list := entryNamed(nodes[e], "targets")
		for t := range targets {
			target, _ := targets[t].(map[string]any)
			paths, _ := target["fieldPaths"].([]any)
			for p := range paths {
				text, _ := paths[p].(string)
				node := nodes[e]
				if list != nil && list.Kind == yaml.SequenceNode && t < len(list.Content) {
					if _, named := entryNamed(list.Content[t], "fieldPaths"); named != nil && named.Kind == yaml.SequenceNode && p < len(named.Content) {
						node = named.Content[p]
					}
				}
				it.parts = append(it.parts, part{at: placed{file: file, line: int32(node.Line), column: int32(node.Column)}, replacement: fields, node: nodes[e], field: text})
				cuts = append(cuts, cut{e, with(fields, "targets", append(slices.Clone(targets[:t]), with(target, "fieldPaths", paths[:p+1])))})
			}
		}
	}
	it.cut = func(n int) []any {
		if n == 0 || n > len(cuts) || n == len(cuts) {
			return []any{it.value}
		}
		return append(slices.Clone(entries[:cuts[n-1].before]), cuts[n-1].entry)
	}
}

// with is a mapping with another value of a key.
func with(fields map[string]any, key string, value any) map[string]any {
	out := map[string]any{}
	for name := range fields {
		out[name] = fields[name]
	}
	out[key] = value
	return out
}

// withoutDirectory is an error's text with paths as the repository has them.
func (b *builder) withoutDirectory(err error) string {
	text := strings.ReplaceAll(err.Error(), b.dir+string(filepath.Separator), "")
	return strings.Join(strings.Fields(strings.ReplaceAll(text, b.dir, ".")), " ")
}

var (
	outerWords = regexp.MustCompile(`^(.*(recursed accumulation of path|couldn't make target for path) '[^']*': |accumulating (resources|components): |accumulation err='.*?': )`)
	quoted     = regexp.MustCompile(`accumulateDirectory: ("(?:[^"\\]|\\.)*")$`)
)

// innermost is what of kustomize's error is not about the way to where it met it.
func innermost(said string) string {
	for range maxNesting {
		before := said
		if match := quoted.FindStringSubmatch(said); match != nil {
			if text, err := strconv.Unquote(match[1]); err == nil {
				said = text
			}
		}
		said = strings.TrimPrefix(said, outerWords.FindString(said))
		if said == before {
			break
		}
	}
	return said
}
