package fleet

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds on what a little text may grow to. kustomize works in memory, copies
// freely and cannot be interrupted, so what would become too large is found
// before it begins.
const (
	// maxValues bounds the values of one file: each costs a parser some hundred
	// bytes, however short it is.
	maxValues = 250_000
	// maxGrown bounds, in bytes, what patches, annotations and copies add to a
	// root's objects. The objects cost some ten times as much in memory.
	maxGrown = 64 << 20
)

// valuesIn is at least how many values a YAML or JSON text has, give or take
// punctuation within texts: each begins behind one of these.
func valuesIn(data []byte) (count int) {
	for i, b := range data {
		switch b {
		case '\n', ',', '[', '{':
			count++
		case '-':
			if i+1 < len(data) && data[i+1] == ' ' {
				count++
			}
		}
	}
	return count
}

// growth estimates, from above, what a root's texts make of its objects.
type growth struct {
	// added is in bytes, what each text adds to the objects that it applies to.
	added int64
	// objects of the root, and the size of its largest, in bytes.
	objects int
	largest int64
	copies  []copying
	// variables says that $(NAME) stands for a value; references counts them.
	variables  bool
	references int64
}

// copying is a value that a JSON patch or a replacement copies to another place
// of each object.
type copying struct {
	from, to []string
	// joined: the value is put into a text, beside what is there.
	joined bool
}

// doubles says whether the copy may make what copies copy larger: it copies into
// what one of them copies. Thirty of those make a gigabyte of a byte.
func (c copying) doubles(copies []copying) bool {
	return c.joined || slices.ContainsFunc(copies, func(other copying) bool {
		return len(other.from) < len(c.to) && slices.Equal(other.from, c.to[:len(other.from)])
	})
}

// tooLarge is an error where the bound would be passed.
func (g *growth) tooLarge() error {
	one := g.largest
	for _, c := range g.copies {
		if one += g.largest; c.doubles(g.copies) {
			one *= 2
		}
		// Before it overflows.
		one = min(one, maxGrown+1)
	}
	total := g.added + (one-g.largest)*int64(g.objects)
	if g.variables {
		total += g.largest * g.references
	}
	if total > maxGrown {
		return fmt.Errorf("%w: patches, annotations and copies could add more than %d MiB to its objects", errBounds, maxGrown>>20)
	}
	return nil
}

// replacement is one of kustomize's replacements, as far as it grows objects.
type replacement struct {
	Source struct {
		FieldPath string `yaml:"fieldPath"`
	} `yaml:"source"`
	Targets []struct {
		FieldPaths []string `yaml:"fieldPaths"`
		Options    struct {
			Delimiter string `yaml:"delimiter"`
		} `yaml:"options"`
	} `yaml:"targets"`
}

// find looks for what copies values in a kustomization, a patch or the
// configuration of a plugin, also in texts within them.
func (g *growth) find(node *yaml.Node, depth int) {
	if depth > maxNesting {
		return
	}
	switch node.Kind {
	case yaml.MappingNode:
		g.mapping(node)
	case yaml.ScalarNode:
		if strings.Contains(node.Value, "copy") || strings.Contains(node.Value, "targets") {
			var inner yaml.Node
			if yaml.Unmarshal([]byte(node.Value), &inner) == nil && len(inner.Content) > 0 && inner.Content[0].Kind != yaml.ScalarNode {
				g.find(inner.Content[0], depth+1)
			}
		}
	case yaml.AliasNode:
		g.find(node.Alias, depth+1)
	}
	for _, child := range node.Content {
		g.find(child, depth+1)
	}
}

func (g *growth) mapping(node *yaml.Node) {
	fields := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		fields[node.Content[i].Value] = node.Content[i+1]
	}
	if op := fields["op"]; op != nil && op.Value == "copy" {
		var copied struct{ From, Path string }
		if node.Decode(&copied) == nil {
			g.copies = append(g.copies, copying{from: tokens(copied.From), to: tokens(copied.Path)})
		}
		return
	}
	if fields["source"] == nil || fields["targets"] == nil {
		return
	}
	var one replacement
	if node.Decode(&one) != nil {
		return
	}
	for _, to := range one.Targets {
		for _, field := range append(to.FieldPaths, "") {
			g.copies = append(g.copies, copying{from: fieldTokens(one.Source.FieldPath), to: fieldTokens(field), joined: to.Options.Delimiter != ""})
		}
	}
}

// fieldTokens splits kustomize's spelling of a field; none is the name.
func fieldTokens(field string) []string {
	if field == "" {
		field = "metadata.name"
	}
	return strings.Split(field, ".")
}

// sizeOf is about how long a node is as text, in bytes.
func sizeOf(node *yaml.Node) int64 {
	size := int64(len(node.Value)) + 2
	for _, child := range node.Content {
		size += sizeOf(child)
	}
	return size
}

// grows takes a kustomization into account, once what it refers to was read.
// first is the index of the first layer that it changes.
func (s *scan) grows(dir string, document *yaml.Node, k *kustomizationFile, size, first int) {
	objects := 0
	for i := first; i < len(s.layers); i++ {
		if l := &s.layers[i]; l.document != nil && !l.patch {
			objects++
			s.growth.largest = max(s.growth.largest, l.size())
		}
	}
	for i := range k.Patches {
		// They apply to what they select: see applied.
		size -= len(k.Patches[i].Patch.Value)
	}
	s.growth.added += max(int64(size), 0) * int64(objects)
	s.growth.objects = max(s.growth.objects, objects)
	s.growth.variables = s.growth.variables || len(k.Vars) > 0
	s.growth.find(document, 0)
	for _, generator := range slices.Concat(k.ConfigMapGenerator, k.SecretGenerator) {
		for _, entry := range append(slices.Concat(generator.Files, generator.Envs), generator.Env) {
			if _, file, named := strings.Cut(entry, "="); named {
				entry = file
			}
			if info, err := s.root.Stat(path.Join(dir, entry)); err == nil && info.Mode().IsRegular() {
				s.growth.largest = max(s.growth.largest, info.Size())
			}
		}
	}
}

// applied adds what a patch adds: its text, for every object that it means.
func (s *scan) applied(size int, selected *target) {
	times := 1
	if selected != nil {
		times = 0
		for i := range s.layers {
			if document := s.layers[i].document; document != nil && !s.layers[i].patch && selected.selects(document.Object, document.Object.GetName()) {
				times++
			}
		}
	}
	s.growth.added += int64(size) * int64(times)
}
