package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"go.yaml.in/yaml/v3"

	"cloop.dev/cloop/schemas"
)

// scan reads the files that a root is rendered from, in the order in which
// kustomize applies them, and finds what must not be rendered at all.
type scan struct {
	root *os.Root
	// gate says which files are read.
	gate   *gate
	visits int
	reads  int
	bytes  int64
	// values of what was read for a kustomization.
	values  int
	layered bool
	// filled are the entries of what generators make, and generated what is made by
	// those that have a file of their own.
	filled, generated int
	// configuring are the files that configure kustomize which were looked at.
	configuring map[string]bool
	// aliased counts what the scan reads; kustomize's own reads count apart.
	aliased aliases
	growth  growth
	layers  []layer
	// memo of earlier builds; nil: there is none.
	memo *memo
	// comments that turn rules off; nil where nobody asks.
	comments *comments
	// from is the first layer that the kustomization which is read may change.
	from int
	// indexed: see index; nil until somebody asks.
	indexed *index
	// named: see historic.
	named map[string][]int
	// problems that have a position of their own, better than what kustomize says;
	// of is the entry of each.
	problems []schemas.Problem
	of       []entry
	// replaced: file → its content for this scan.
	replaced map[string][]byte
	// spans: entry that names a directory → the layers that it brought, each time.
	spans map[entry][][2]int
	// refused says that kustomize must not be let near the root: it would reach
	// the network, or read without bounds.
	refused bool
	// directories: directory → its kustomization's file, of those that were read.
	directories map[string]string
	// entry is the entry of a kustomization that is being read.
	entry entry
	// modules: directory → it is the top of another repository.
	modules map[string]bool
	// within are the directories whose kustomizations are being read, outermost
	// first.
	within []string
	// ownKinds says that a kustomization brings an OpenAPI document of its own.
	ownKinds bool
	// patches: file → the patch that it is, read once. byName: name → the resources
	// that have had it.
	patches map[string]*patchText
	byName  map[string][]int
	// knows: see knowledge; nil until somebody asks.
	knows *knowledge
	// blank says that the root's kustomization has no text.
	blank bool
	// twins: see there; nil unless they are looked for.
	twins *twins
}

// visit scans a directory with a kustomization. An error ends the scan; what is
// merely wrong becomes a problem.
//
// from is the first layer that the kustomization may change: for a component, the
// first of the kustomization that it is a part of.
func (s *scan) visit(ctx context.Context, dir, file string, depth, from int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.visits++; s.visits > maxVisits || depth > maxNesting {
		return fmt.Errorf("%w: %s is read more than %d times over, or nested more than %d deep", errBounds, dir, maxVisits, maxNesting)
	}
	s.layered = true
	data, err := s.read(file)
	if err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		s.syntax(file, data, err)
		return nil
	}
	if document.Kind == 0 {
		if s.blank = depth == 0; !s.blank {
			s.report(emptyFile(file))
		}
		return nil
	}
	s.refuseRemote(file, &document, false)
	if s.twice(file, &document) {
		withoutTwice(&document)
	}
	if plainly(&document) && s.twice(file, &document) {
		withoutTwice(&document)
	}
	indentBlocks(&document, bytes.Split(data, []byte("\n")))
	var kustomization kustomizationFile
	if err := document.Decode(&kustomization); err != nil {
		if s.report(wrongFields(file, &document)...); len(s.problems) == 0 {
			s.syntax(file, data, err)
		}
	}
	defer func(outer int) { s.from, s.within = outer, s.within[:len(s.within)-1] }(s.from)
	s.from, s.within = from, append(s.within, dir)
	if s.directories == nil {
		s.directories = map[string]string{}
	}
	s.directories[dir] = file
	s.ownKinds = s.ownKinds || kustomization.OpenAPI.Kind != 0
	if err := s.follow(ctx, dir, file, &document, &kustomization, depth, len(data)); err != nil {
		return err
	}
	return s.growth.tooLarge(file, &yaml.Node{Line: 1, Column: 1})
}

// twice reports keys that stand twice in one mapping. Kustomize takes the last
// and says nothing: a second list of patches takes the place of the first.
func (s *scan) twice(file string, node *yaml.Node) bool {
	found := schemas.DuplicateKeys(node, file, "")
	s.report(found...)
	return len(found) > 0
}

// withoutTwice takes the keys that stand twice out of a kustomization: which of
// their values was meant is not known.
func withoutTwice(node *yaml.Node) {
	if node.Kind == yaml.MappingNode {
		times := map[string]int{}
		for i := 0; i < len(node.Content); i += 2 {
			times[node.Content[i].Value]++
		}
		var kept []*yaml.Node
		for i := 0; i+1 < len(node.Content); i += 2 {
			if times[node.Content[i].Value] == 1 {
				kept = append(kept, node.Content[i], node.Content[i+1])
			}
		}
		node.Content = kept
	}
	for _, child := range node.Content {
		withoutTwice(child)
	}
}

// report adds problems with what is being read.
func (s *scan) report(problems ...schemas.Problem) {
	for _, problem := range problems {
		s.problems, s.of = append(s.problems, problem), append(s.of, s.entry)
	}
}

// reading has what is read meanwhile belong to an entry.
func (s *scan) reading(e entry, read func() error) error {
	outer := s.entry
	s.entry = e
	defer func() { s.entry = outer }()
	return read()
}

// lost are the problems with values that kustomize would drop without a word.
func (s *scan) lost() []schemas.Problem {
	return slices.DeleteFunc(slices.Clone(s.problems), func(p schemas.Problem) bool { return p.Rule != schemas.RuleDuplicateKey })
}

// follow goes through what a kustomization refers to, in the order in which
// kustomize applies it.
func (s *scan) follow(ctx context.Context, dir, file string, document *yaml.Node, k *kustomizationFile, depth, size int) error {
	met := seen{}
	s.meet(met, s.from, file, nil)
	resources := func(field string, list []yaml.Node) error {
		for i := range list {
			before := len(s.layers)
			if err := s.reading(entry{file, field, i}, func() error { return s.resource(ctx, dir, file, &list[i], depth, field == "components") }); err != nil {
				return err
			}
			if field != "components" {
				s.meet(met, before, file, &list[i])
			}
		}
		return nil
	}
	if err := errors.Join(resources("resources", k.Resources), resources("bases", k.Bases)); err != nil {
		return err
	}
	before := len(s.layers)
	if err := s.generators(dir, file, document); err != nil {
		return err
	}
	s.meet(met, before, file, nil)
	if err := resources("components", k.Components); err != nil {
		return err
	}
	if err := s.configured(dir, file, document); err != nil {
		return err
	}
	if err := s.plugins(ctx, dir, file, "generators", k.Generators, depth); err != nil {
		return err
	}
	if err := s.grows(file, document, k, size, s.from); err != nil {
		return err
	}
	if err := s.transform(dir, file, document, k); err != nil {
		return err
	}
	// Names may have become the same.
	s.meet(seen{}, s.from, file, nil)
	// Transformers of the author's own come after all that has a field.
	if err := s.plugins(ctx, dir, file, "transformers", k.Transformers, depth); err != nil {
		return err
	}
	return s.plugins(ctx, dir, file, "validators", k.Validators, depth)
}

// transform goes through what a kustomization changes, in kustomize's order.
func (s *scan) transform(dir, file string, document *yaml.Node, k *kustomizationFile) error {
	for i := range k.PatchesStrategicMerge {
		if err := s.reading(entry{file, "patchesStrategicMerge", i}, func() error { return s.strategicMerge(dir, file, &k.PatchesStrategicMerge[i]) }); err != nil {
			return err
		}
		if err := s.growth.tooLarge(file, &k.PatchesStrategicMerge[i]); err != nil {
			return err
		}
	}
	patches := func(field string, list []patchEntry) error {
		for i := range list {
			if err := s.reading(entry{file, field, i}, func() error { return s.patchEntry(dir, file, &list[i]) }); err != nil {
				return err
			}
			at := &list[i].Patch
			if list[i].Path.Value != "" {
				at = &list[i].Path
			}
			if err := s.growth.tooLarge(file, at); err != nil {
				return err
			}
		}
		return nil
	}
	if err := patches("patches", k.Patches); err != nil {
		return err
	}
	s.transformers(file, document)
	if err := patches("patchesJson6902", k.PatchesJSON6902); err != nil {
		return err
	}
	s.images(file, document)
	_, list := entryNamed(document, "replacements")
	for i := range k.Replacements {
		if err := s.reading(entry{file, "replacements", i}, func() error {
			if list != nil && list.Kind == yaml.SequenceNode && i < len(list.Content) {
				s.replacements(file, list.Content[i])
			}
			return s.replacementFile(dir, file, &k.Replacements[i].Path)
		}); err != nil {
			return err
		}
	}
	return nil
}

// resource scans one entry of resources, bases or components.
func (s *scan) resource(ctx context.Context, dir, file string, entry *yaml.Node, depth int, component bool) error {
	name := path.Join(dir, entry.Value)
	info, err := s.root.Stat(name)
	if err != nil {
		s.missing(file, entry, err)
		return nil
	}
	at := name
	if !info.IsDir() {
		at = path.Dir(name)
	}
	if other := s.elsewhere(at); other != "" {
		s.refuse(file, entry, RuleRemoteReference, fmt.Sprintf("%s: it is in another repository at %s, such as a submodule", entry.Value, other),
			"commit what it refers to here: hub and clusters fetch no other repository")
		return nil
	}
	if slices.Contains(s.within, name) {
		s.refuse(file, entry, RuleBuild, fmt.Sprintf("%s: it refers back to %s, in a circle", entry.Value, name),
			"remove one of the references of the circle")
		return nil
	}
	if info.IsDir() {
		inner, err := s.gate.kustomizationIn(name)
		if err == nil && inner == "" {
			if err = s.gate.leftOutIn(name); err == nil {
				err = errors.New("the directory has no kustomization.yaml")
			}
		}
		if err != nil {
			s.missing(file, entry, err)
			return nil
		}
		before := len(s.layers)
		from := before
		if component {
			from = s.from
		}
		defer s.brought(s.entry, before)
		return s.visit(ctx, name, inner, depth+1, from)
	}
	data, err := s.read(name)
	if err != nil {
		return s.unreadable(file, entry, err)
	}
	s.resources(name, data)
	return nil
}

// brought notes the layers that an entry has brought, from one on.
func (s *scan) brought(by entry, from int) {
	if s.spans == nil {
		s.spans = map[entry][][2]int{}
	}
	s.spans[by] = append(s.spans[by], [2]int{from, len(s.layers)})
}

// replacementFile reads replacements that stand in a file.
func (s *scan) replacementFile(dir, file string, entry *yaml.Node) error {
	if entry.Value == "" {
		return nil
	}
	data, err := s.read(path.Join(dir, entry.Value))
	if err != nil {
		return s.unreadable(file, entry, err)
	}
	var document yaml.Node
	if yaml.Unmarshal(data, &document) == nil {
		s.twice(path.Join(dir, entry.Value), &document)
		s.growth.find(&document, 0)
		s.replacements(path.Join(dir, entry.Value), &document)
	}
	return nil
}

// objects counts those that were read so far.
func (s *scan) objects() (count int) {
	for i := range s.layers {
		if s.layers[i].document != nil && !s.layers[i].patch {
			count++
		}
	}
	return count + s.generated
}
