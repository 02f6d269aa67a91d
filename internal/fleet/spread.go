package fleet

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/types"
)

// A kustomization multiplies text: what it says once stands in every object, at every
// place of it that is meant. What that makes is bounded as a product, before it is
// made: bytes × places, and fields × objects for the time that it takes.
const (
	// maxName is how long the API server lets a name be. Names are written wherever an
	// object is referred to.
	maxName = 253
	// maxPairs bounds the entries of all that generators make.
	maxPairs = 30_000
	// createdField is about what a field that is added weighs, beside its value, as text.
	createdField = 64
	// specsOf a transformer of labels or images is how many places kustomize knows by
	// itself, at most.
	specsOf = 32
)

// weight is what a node weighs.
type weight struct {
	// bytes is about how long it is as text.
	bytes int64
	// entries of the lists in it, those of lists in lists included.
	entries int64
	// pairs of keys of its large mappings, which kustomize goes through from the
	// beginning for each key.
	pairs int64
}

// largeMapping is from how many keys on a mapping counts as large.
const largeMapping = 1000

func weigh(node *yaml.Node) weight {
	if node == nil {
		return weight{}
	}
	w := weight{bytes: int64(len(node.Value)) + 2}
	switch node.Kind {
	case yaml.AliasNode:
		// None stands for itself: see aliases.
		w.add(weigh(node.Alias))
	case yaml.SequenceNode:
		w.entries = int64(len(node.Content))
	case yaml.MappingNode:
		if keys := int64(len(node.Content) / 2); keys > largeMapping {
			w.pairs = keys * keys
		}
	}
	for _, child := range node.Content {
		w.add(weigh(child))
	}
	return w
}

func (w *weight) add(other weight) {
	w.bytes += other.bytes
	w.entries += other.entries
	w.pairs += other.pairs
}

// fieldSpecs are places that a configuration or a transformer names.
type fieldSpecs struct {
	count int64
	// levels of the fields that are to be created.
	levels int64
}

// fieldSpecsIn finds them in a node.
func fieldSpecsIn(node *yaml.Node) (found fieldSpecs) {
	if node.Kind == yaml.AliasNode {
		return fieldSpecsIn(node.Alias)
	}
	_, at := entryNamed(node, "path")
	_, create := entryNamed(node, "create")
	if _, field := entryNamed(node, "fieldPath"); field != nil {
		at, create = field, &yaml.Node{Value: "true"}
	}
	if at != nil && at.Kind == yaml.ScalarNode {
		found.count = 1
		if create != nil && create.Value != "false" {
			found.levels = 1 + int64(strings.Count(at.Value, "/")+strings.Count(at.Value, "."))
		}
	}
	for _, child := range node.Content {
		inner := fieldSpecsIn(child)
		found.count, found.levels = found.count+inner.count, found.levels+inner.levels
	}
	return found
}

// configuration looks at a file that says at which places transformers change objects.
func (s *scan) configuration(dir, file string, entry *yaml.Node) error {
	name := path.Join(dir, entry.Value)
	data, err := s.read(name)
	if err != nil {
		return s.unreadable(file, entry, err)
	}
	var document yaml.Node
	if yaml.Unmarshal(data, &document) != nil || len(document.Content) == 0 {
		return nil //nolint:nilerr // kustomize reports it
	}
	top := document.Content[0]
	for i := 0; i+1 < len(top.Content); i += 2 {
		found := fieldSpecsIn(top.Content[i+1])
		// Each is compared with all that there are.
		if found.count > maxWork {
			found.count = maxWork
		}
		s.growth.work += found.count * (found.count + s.growth.everywhere.count + s.growth.names) / 50
		if key := strings.ToLower(top.Content[i].Value); key == "namereference" || key == "varreference" {
			s.growth.names += found.count
			continue
		}
		s.growth.everywhere.count += found.count
		s.growth.everywhere.levels += found.levels
	}
	return s.growth.tooMuchWork(name, top)
}

// tooMuchWork is an error where kustomize, which cannot be interrupted, would look for
// fields for minutes.
func (g *growth) tooMuchWork(file string, node *yaml.Node) error {
	if g.work <= maxWork {
		return nil
	}
	return beyondAt(file, node, "so many fields are named that kustomize would look for them in all objects for minutes",
		"name fewer fields, or divide the objects among overlays")
}

// scope is what a kustomization changes.
type scope struct {
	objects int64
	weight
	// places are where kustomize may write a text that it writes all over objects, and
	// references where it may write a name.
	places, references int64
}

// scopeFrom is the scope of a kustomization whose first layer it is.
func (s *scan) scopeFrom(first int) (in scope) {
	for i := first; i < len(s.layers); i++ {
		l := &s.layers[i]
		if l.document == nil || l.patch {
			continue
		}
		w := l.weighed()
		in.objects++
		in.add(w)
		s.growth.largest = max(s.growth.largest, w.bytes+l.brings)
		in.places++
		// In kinds of cloop.dev kustomize itself knows of no place but the labels and
		// annotations.
		if !strings.HasPrefix(l.document.Object.GetAPIVersion(), "cloop.dev/") {
			in.places += 3 + w.entries
			in.references += 10 + w.entries
		}
	}
	in.places += s.growth.everywhere.count * (in.objects + in.entries)
	if s.growth.names > 0 {
		in.references = 10*in.objects + in.entries
	}
	return in
}

// weighed is what a layer's document weighs.
func (l *layer) weighed() weight {
	if l.outlined != nil {
		return l.outlined.weights[l.place]
	}
	if l.weight == (weight{}) {
		l.weight = weigh(l.document.Node)
	}
	return l.weight
}

// spreading are the fields of a kustomization of which kustomize writes the values all
// over objects, with about how many places it looks at for each of their entries.
var spreading = map[string]int64{
	"namespace": 3, "namePrefix": 1, "nameSuffix": 1, "commonLabels": specsOf, "labels": specsOf, "commonAnnotations": 9,
	"images": 6, "imageTags": 6, "replicas": 4,
}

// naming are those that become part of names.
var naming = map[string]bool{"namespace": true, "namePrefix": true, "nameSuffix": true}

// grows takes a kustomization into account, once the objects that it changes were
// read, and before anybody changes them. first is the index of the first of them.
func (s *scan) grows(file string, document *yaml.Node, k *kustomizationFile, size, first int) error {
	top := document
	if len(document.Content) > 0 {
		top = document.Content[0]
	}
	in := s.scopeFrom(first)
	for i := range k.Patches {
		// They apply to what they select: see applied.
		size -= len(k.Patches[i].Patch.Value)
	}
	g := &s.growth
	g.added += max(int64(size), 0) * in.objects
	g.objects = max(g.objects, int(in.objects))
	g.variables = g.variables || len(k.Vars) > 0
	g.find(document, 0)
	at, most := top, int64(0)
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		looks, spreads := spreading[key.Value]
		w := weigh(value)
		if w.bytes > most {
			at, most = key, w.bytes
		}
		if !spreads {
			continue
		}
		if err := g.spread(file, key.Value, value, in); err != nil {
			return err
		}
		g.work += max(int64(1), int64(len(value.Content))) * (looks + g.everywhere.count) * (in.objects + in.entries/4) / 4
	}
	g.work += g.names * in.objects
	if _, metadata := entryNamed(document, "buildMetadata"); metadata != nil {
		changes := int64(len(k.Patches) + len(k.PatchesJSON6902) + len(k.Transformers) + len(k.Replacements) + len(k.PatchesStrategicMerge))
		g.added += 4 * createdField * changes * in.objects
		g.work += changes * changes * in.objects / 10
	}
	// Each compares everything before with everything afterwards.
	g.work += int64(len(k.Validators)) * in.bytes / 100
	if err := g.tooMuchWork(file, at); err != nil {
		return err
	}
	return g.tooLarge(file, at)
}

// spread takes a field into account of which kustomize writes the value all over a
// scope.
func (g *growth) spread(file, field string, value *yaml.Node, in scope) error {
	bytes := weigh(value).bytes
	if naming[field] {
		if len(value.Value) > maxName {
			return beyondAt(file, value, fmt.Sprintf("%s is longer than the %d characters that a name may have", field, maxName), "shorten it")
		}
		g.added += bytes * in.references
	}
	own := fieldSpecsIn(value)
	g.added += bytes*(in.places+own.count*(in.objects+in.entries)) + createdField*(own.levels+g.everywhere.levels)*(in.objects+in.entries)
	g.work += own.count * (in.objects + in.entries/4) / 4
	return nil
}

// plugged takes a transformer that has a file or a text of its own into account.
func (s *scan) plugged(dir, file string, document *yaml.Node) error {
	_, kind := entryNamed(document, "kind")
	if kind == nil || len(document.Content) == 0 {
		return nil
	}
	switch kind.Value {
	case "ConfigMapGenerator", "SecretGenerator":
		s.generated++
		plainNode(document.Content[0], reflect.TypeFor[types.SecretArgs](), 0)
		_, err := s.taken(dir, file, document.Content[0])
		return err
	case "PatchTransformer", "PatchJson6902Transformer", "PatchStrategicMergeTransformer", "ReplacementTransformer":
		return nil
	}
	specs, in := fieldSpecsIn(document), s.scopeFrom(s.from)
	if _, targets := entryNamed(document, "targetFilePath"); targets != nil {
		if data, err := s.read(path.Join(dir, targets.Value)); err == nil {
			var more yaml.Node
			if yaml.Unmarshal(data, &more) == nil {
				found := fieldSpecsIn(&more)
				specs.count, specs.levels = specs.count+found.count, specs.levels+found.levels
			}
		}
	}
	var bytes int64
	top := document.Content[0]
	for i := 0; top.Kind == yaml.MappingNode && i+1 < len(top.Content); i += 2 {
		switch top.Content[i].Value {
		case "apiVersion", "kind", "metadata", "fieldSpecs", "targets":
		default:
			bytes += weigh(top.Content[i+1]).bytes
		}
	}
	s.growth.added += (bytes*specs.count + createdField*specs.levels) * (in.objects + in.entries)
	s.growth.work += specs.count * (in.objects + in.entries/4)
	if err := s.growth.tooMuchWork(file, top); err != nil {
		return err
	}
	return s.growth.tooLarge(file, top)
}

// taken counts what a generator takes in: every entry has it anew.
func (s *scan) taken(dir, file string, generator *yaml.Node) (bytes int64, err error) {
	pairs := 0
	add := func(node *yaml.Node, size int64, entries int) error {
		bytes += size
		pairs += entries
		s.filled += entries
		if s.bytes += size; s.bytes > maxRootBytes {
			return beyondAt(file, node, fmt.Sprintf("with this entry, what is read for this root is together larger than %d MiB", maxRootBytes>>20), "take less in, or split the root")
		}
		if s.filled > maxPairs {
			return beyondAt(file, node, fmt.Sprintf("the generators of this root make more than %d entries", maxPairs), "put several values into one file, or split the root")
		}
		return nil
	}
	for _, node := range entriesOf(generator, "literals") {
		// The text was read with the kustomization.
		if err := add(node, 0, 1); err != nil {
			return 0, err
		}
		bytes += int64(len(node.Value))
	}
	for _, node := range entriesOf(generator, "files") {
		_, name, named := strings.Cut(node.Value, "=")
		if !named {
			name = node.Value
		}
		if info, err := s.root.Stat(path.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			if info.Size() > maxFile {
				return 0, beyondAt(file, node, fmt.Sprintf("%s is larger than %d MiB", name, maxFile>>20), "take less in")
			}
			if err := add(node, info.Size(), 1); err != nil {
				return 0, err
			}
		}
	}
	for _, node := range append(entriesOf(generator, "envs"), entriesOf(generator, "env")...) {
		data, err := readBounded(s.root, path.Join(dir, node.Value))
		if errors.Is(err, errFile) {
			return 0, beyondAt(file, node, fmt.Sprintf("%s is larger than %d MiB", node.Value, maxFile>>20), "take less in")
		}
		if err != nil {
			continue
		}
		if err := add(node, int64(len(data)), 1+strings.Count(string(data), "\n")); err != nil {
			return 0, err
		}
	}
	s.growth.largest = max(s.growth.largest, bytes)
	return bytes, nil
}
