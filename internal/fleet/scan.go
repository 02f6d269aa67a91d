package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"

	"cloop.dev/cloop/schemas"
)

// Bounds on what one root may read. kustomize reads a base once for every time
// it is referred to, so a chain of directories that each name the next one twice
// doubles with every link; the bounds hold for that as well.
const (
	maxVisits     = 500
	maxNesting    = 32
	maxFile       = 4 << 20
	maxRootBytes  = 32 << 20
	maxPlainFiles = 20_000
)

// scan reads the files that a root is rendered from, in the order in which
// kustomize applies them, and finds what must not be rendered at all.
type scan struct {
	root *os.Root
	// tracked: see Checking.
	tracked *Tracked
	visits  int
	bytes   int64
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
	// problems that have a position of their own, better than what kustomize says.
	problems []schemas.Problem
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
	// blank says that the root's kustomization has no text.
	blank bool
	// twins: see there; nil unless they are looked for.
	twins *twins
}

// kustomizationFile is what the scan needs of one; nodes keep their positions.
type kustomizationFile struct {
	Kind                  string       `yaml:"kind"`
	Resources             []yaml.Node  `yaml:"resources"`
	Bases                 []yaml.Node  `yaml:"bases"`
	Components            []yaml.Node  `yaml:"components"`
	PatchesStrategicMerge []yaml.Node  `yaml:"patchesStrategicMerge"`
	Patches               []patchEntry `yaml:"patches"`
	PatchesJSON6902       []patchEntry `yaml:"patchesJson6902"`
	Generators            []yaml.Node  `yaml:"generators"`
	Transformers          []yaml.Node  `yaml:"transformers"`
	Validators            []yaml.Node  `yaml:"validators"`
	Vars                  []yaml.Node  `yaml:"vars"`
	ConfigMapGenerator    []generator  `yaml:"configMapGenerator"`
	SecretGenerator       []generator  `yaml:"secretGenerator"`
	Replacements          []fileEntry  `yaml:"replacements"`
}

// generator is what a ConfigMap or Secret is made from.
type generator struct {
	Files []string `yaml:"files"`
	Envs  []string `yaml:"envs"`
	Env   string   `yaml:"env"`
}

// fileEntry is an entry that may stand in a file of its own.
type fileEntry struct {
	Path yaml.Node `yaml:"path"`
}

type patchEntry struct {
	Path   yaml.Node `yaml:"path"`
	Patch  yaml.Node `yaml:"patch"`
	Target *target   `yaml:"target"`
}

// directories lists the entries that may name other kustomizations.
func (k *kustomizationFile) directories() []yaml.Node {
	var all []yaml.Node
	for _, list := range [][]yaml.Node{k.Resources, k.Bases, k.Components} {
		all = append(all, list...)
	}
	return all
}

// remote is what kustomize takes for a URL or a Git repository and would fetch.
var remote = regexp.MustCompile(`(?i)^(git::)?((https?|ssh|file|git)://|github\.com[/:]|[a-z][a-z0-9-]*@[^/]*[:/])`)

// free are fields of a kustomization whose text is the author's own and never a
// reference.
var free = map[string]bool{
	"commonAnnotations": true, "commonLabels": true, "labels": true, "metadata": true, "generatorOptions": true,
	"images": true, "imageTags": true, "vars": true, "replicas": true, "buildMetadata": true, "literals": true, "sourceValue": true,
}

var (
	errBounds = errors.New("beyond the bounds")
	// errFile is one file beyond them, which says nothing of the others.
	errFile = fmt.Errorf("a file %w", errBounds)
	// errNoFile is a directory, a FIFO, a device or a socket.
	errNoFile = errors.New("it is no regular file")
)

// kustomizationIn finds a directory's kustomization; "" where there is none.
func kustomizationIn(root *os.Root, dir string) (name string, err error) {
	for _, candidate := range konfig.RecognizedKustomizationFileNames() {
		info, err := root.Stat(path.Join(dir, candidate))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", err
		case info.Mode().IsRegular():
			return path.Join(dir, candidate), nil
		}
	}
	return "", nil
}

// readBounded reads a file that is not too large. It waits for nobody: what is
// no file, such as a FIFO, is an error.
func readBounded(root *os.Root, name string) ([]byte, error) {
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, errNoFile
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%w: %s is larger than %d MiB", errFile, name, maxFile>>20)
	}
	// It may grow meanwhile.
	return io.ReadAll(io.LimitReader(file, maxFile))
}

// read reads a file within the bounds.
func (s *scan) read(name string) ([]byte, error) {
	if err := s.tracked.refuse(s.root.Name(), filepath.Join(s.root.Name(), filepath.FromSlash(name))); err != nil {
		return nil, err
	}
	data, err := readBounded(s.root, name)
	if err != nil {
		return nil, err
	}
	if s.bytes += int64(len(data)); s.bytes > maxRootBytes {
		return nil, fmt.Errorf("%w: what is read for this root is together larger than %d MiB", errBounds, maxRootBytes>>20)
	}
	if valuesIn(data) > maxValues {
		return nil, fmt.Errorf("%w: %s has more than %d values", errFile, name, maxValues)
	}
	s.growth.references += int64(bytes.Count(data, []byte("$(")))
	s.comments.note(name, data)
	return data, s.aliased.add(name, data)
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
			s.problems = append(s.problems, emptyFile(file))
		}
		return nil
	}
	s.refuseRemote(file, &document, false)
	if s.twice(file, &document) {
		return nil
	}
	indentBlocks(&document, bytes.Split(data, []byte("\n")))
	var kustomization kustomizationFile
	if err := document.Decode(&kustomization); err != nil {
		if s.problems = append(s.problems, wrongFields(file, &document)...); len(s.problems) == 0 {
			s.syntax(file, data, err)
		}
	}
	defer func(outer int) { s.from, s.within = outer, s.within[:len(s.within)-1] }(s.from)
	s.from, s.within = from, append(s.within, dir)
	if s.directories == nil {
		s.directories = map[string]string{}
	}
	s.directories[dir] = file
	if err := s.follow(ctx, dir, file, &document, &kustomization, depth); err != nil {
		return err
	}
	s.grows(dir, &document, &kustomization, len(data), from)
	return s.growth.tooLarge()
}

// twice reports keys that stand twice in one mapping. Kustomize takes the last
// and says nothing: a second list of patches takes the place of the first.
func (s *scan) twice(file string, node *yaml.Node) bool {
	found := schemas.DuplicateKeys(node, file, "")
	s.problems = append(s.problems, found...)
	return len(found) > 0
}

// lost are the problems with values that kustomize would drop without a word.
func (s *scan) lost() []schemas.Problem {
	return slices.DeleteFunc(slices.Clone(s.problems), func(p schemas.Problem) bool { return p.Rule != schemas.RuleDuplicateKey })
}

// follow goes through what a kustomization refers to, in the order in which
// kustomize applies it.
func (s *scan) follow(ctx context.Context, dir, file string, document *yaml.Node, k *kustomizationFile, depth int) error {
	met := seen{}
	s.meet(met, s.from, file, nil)
	for _, list := range [][]yaml.Node{k.Resources, k.Bases} {
		for i := range list {
			before := len(s.layers)
			if err := s.resource(ctx, dir, file, &list[i], depth, false); err != nil {
				return err
			}
			s.meet(met, before, file, &list[i])
		}
	}
	before := len(s.layers)
	s.generators(dir, file, document)
	s.meet(met, before, file, nil)
	for i := range k.Components {
		if err := s.resource(ctx, dir, file, &k.Components[i], depth, true); err != nil {
			return err
		}
	}
	s.configured(dir, file, document)
	if err := s.plugins(ctx, dir, file, k.Generators, depth); err != nil {
		return err
	}
	if err := s.transform(dir, file, document, k); err != nil {
		return err
	}
	// Names may have become the same.
	s.meet(seen{}, s.from, file, nil)
	// Transformers of the author's own come after all that has a field.
	return s.plugins(ctx, dir, file, slices.Concat(k.Transformers, k.Validators), depth)
}

func (s *scan) plugins(ctx context.Context, dir, file string, list []yaml.Node, depth int) error {
	for i := range list {
		if err := s.plugin(ctx, dir, file, &list[i], depth); err != nil {
			return err
		}
	}
	return nil
}

// transform goes through what a kustomization changes, in kustomize's order.
func (s *scan) transform(dir, file string, document *yaml.Node, k *kustomizationFile) error {
	defer func() { s.entry = entry{} }()
	for i := range k.PatchesStrategicMerge {
		s.entry = entry{file, "patchesStrategicMerge", i}
		if err := s.strategicMerge(dir, file, &k.PatchesStrategicMerge[i]); err != nil {
			return err
		}
	}
	for i := range k.Patches {
		s.entry = entry{file, "patches", i}
		if err := s.patchEntry(dir, file, &k.Patches[i]); err != nil {
			return err
		}
	}
	s.transformers(file, document)
	for i := range k.PatchesJSON6902 {
		s.entry = entry{file, "patchesJson6902", i}
		if err := s.patchEntry(dir, file, &k.PatchesJSON6902[i]); err != nil {
			return err
		}
	}
	s.images(file, document)
	_, list := entryNamed(document, "replacements")
	for i := range k.Replacements {
		if list != nil && list.Kind == yaml.SequenceNode && i < len(list.Content) {
			s.replacements(file, list.Content[i])
		}
		if err := s.replacementFile(dir, file, &k.Replacements[i].Path); err != nil {
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
		inner, err := kustomizationIn(s.root, name)
		if err == nil && inner == "" {
			err = errors.New("the directory has no kustomization.yaml")
		}
		if err != nil {
			s.missing(file, entry, err)
			return nil
		}
		from := len(s.layers)
		if component {
			from = s.from
		}
		return s.visit(ctx, name, inner, depth+1, from)
	}
	data, err := s.read(name)
	if err != nil {
		return s.unreadable(file, entry, err)
	}
	s.resources(name, data)
	return nil
}

// refuse refuses the root, for what is wrong with an entry.
func (s *scan) refuse(file string, entry *yaml.Node, rule, message, remedy string) {
	s.refused = true
	problem := broken(rule, message)
	problem.File, problem.Line, problem.Column, problem.Hint = file, entry.Line, entry.Column, remedy
	s.problems = append(s.problems, problem)
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

// plugin scans one generator, transformer or validator: a file, a directory or
// its text. A plugin's configuration may have kustomize load any text in it.
func (s *scan) plugin(ctx context.Context, dir, file string, entry *yaml.Node, depth int) error {
	name := path.Join(dir, entry.Value)
	info, err := s.root.Stat(name)
	if err == nil && info.IsDir() {
		before := len(s.layers)
		err := s.resource(ctx, dir, file, entry, depth, false)
		added := slices.Clone(s.layers[before:])
		s.layers = s.layers[:before]
		for i := 0; i < len(added) && err == nil; i++ {
			if of := added[i].whole(); of != nil && of.Node != nil {
				s.refuseRemote(added[i].file, of.Node, true)
				err = s.transformer(dir, added[i].file, of.Node)
			}
		}
		return err
	}
	text, at := []byte(entry.Value), inside(entry)
	if err == nil {
		at = position{}
		if text, err = s.read(name); err != nil {
			return s.unreadable(file, entry, err)
		}
		file = name
	}
	lines := bytes.Split(text, []byte("\n"))
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		if decoder.Decode(&document) != nil {
			// The end, or text that kustomize cannot read either.
			return nil //nolint:nilerr // an entry that names no file is the plugin's text itself
		}
		if len(document.Content) == 1 && document.Content[0].Kind != yaml.MappingNode {
			// Neither a file nor the plugin's text: kustomize would look elsewhere.
			s.missing(file, entry, fs.ErrNotExist)
			return nil
		}
		indentBlocks(&document, lines)
		at.move(&document)
		s.twice(file, &document)
		s.refuseRemote(file, &document, true)
		s.growth.find(&document, 0)
		s.growth.added += int64(len(text)) * int64(s.objects())
		if err := s.transformer(dir, file, &document); err != nil {
			return err
		}
	}
}

// refuseRemote refuses every reference to something outside the repository.
// kustomize would fetch it over the network, with git or http, from within the
// hub or the controller. With all, the author's own text is checked too.
func (s *scan) refuseRemote(file string, node *yaml.Node, all bool) {
	switch node.Kind {
	case yaml.ScalarNode:
		if !remote.MatchString(node.Value) || strings.Contains(node.Value, "\n") {
			return
		}
		s.refused = true
		problem := broken(RuleRemoteReference, fmt.Sprintf("%q is not in the repository", node.Value))
		problem.File, problem.Line, problem.Column = file, node.Line, node.Column
		s.problems = append(s.problems, problem)
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if all || !free[node.Content[i].Value] {
				s.refuseRemote(file, node.Content[i+1], all)
			}
		}
	case yaml.AliasNode:
		// What it names may stand where the text is the author's own.
		s.refuseRemote(file, node.Alias, all)
	default:
		for _, child := range node.Content {
			s.refuseRemote(file, child, all)
		}
	}
}

// objects counts those that were read so far.
func (s *scan) objects() (count int) {
	for i := range s.layers {
		if s.layers[i].document != nil && !s.layers[i].patch {
			count++
		}
	}
	return count
}
