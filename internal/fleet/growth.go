package fleet

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"cloop.dev/cloop/internal/count"
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
	// everywhere are the places that configurations name for values, and names how
	// many they name for names of other objects.
	everywhere fieldSpecs
	names      int64
	// work is about how many fields of objects are looked at.
	work int64
	// patches are the bytes of patches, each as often as it is named; touched those
	// of the objects that they change, and merged the pairs of keys that they
	// compare: see patched.
	patches, touched, merged int64
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

// tooLarge is an error where the bound would be passed, at a node of a file.
func (g *growth) tooLarge(file string, at *yaml.Node) error {
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
		return beyondAt(file, at, fmt.Sprintf("patches, annotations, names and copies could add more than %d MiB to the %s of the root", maxGrown>>20, count.Of(g.objects, "object")),
			"write shorter values, or divide the objects among roots")
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
