package diff

import (
	"bytes"
	"path"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"
)

// Bounds on the search for what an overlay is made of. Beyond them it counts as
// changed and its base is extracted whole.
const (
	maxNames  = 100_000
	maxParsed = 64 << 20
	maxFile   = 4 << 20
	maxLinks  = 40
	maxScalar = 1024
	maxPlain  = 20_000
	// maxDirectories bounds the kustomizations of one overlay.
	maxDirectories = 500
)

// closure is every path that what an overlay renders may depend on, whether
// there is something or not. It errs on the side of too many: each text in a
// kustomization that could be a path is taken for one. Where two revisions agree
// on all of the paths that one of them leads to, a walk through the other leads
// to the same, so both render the same.
type closure struct {
	files files
	names map[string]bool
	// unbounded says that the paths are not all known.
	unbounded bool
	// modules are other repositories that a path leads into.
	modules []string
	// plain are directories whose entries count.
	plain   []string
	visited map[string]bool
	// most directories with a kustomization are followed.
	most   int
	parsed int64
}

// closureOf follows an overlay: a kustomization, a directory of files, a file.
func closureOf(f files, overlay string) *closure {
	c := &closure{files: f, names: map[string]bool{}, visited: map[string]bool{}, most: maxDirectories}
	name, is := c.resolve(overlay)
	if is == directory && !c.kustomization(name) {
		c.below(name)
	}
	return c
}

// closureOfAll follows every kustomization of a commit.
func closureOfAll(t *commitTree) *closure {
	c := &closure{files: t, names: map[string]bool{}, visited: map[string]bool{}, most: maxEntries}
	for dir := range t.children {
		if path.Base(dir) == "." || !strings.HasPrefix(path.Base(dir), ".") {
			c.kustomization(dir)
		}
	}
	return c
}

// any says whether there is any file.
func (c *closure) any() bool {
	for name := range c.names {
		if c.files.lstat(name) == regular {
			return true
		}
	}
	return c.unbounded
}

// note adds a path.
func (c *closure) note(name string) {
	if len(c.names) >= maxNames {
		c.unbounded = true
		return
	}
	c.names[name] = true
}

// resolve follows the links on a path, and notes them and where they lead.
func (c *closure) resolve(name string) (string, kind) {
	rest, at := strings.Split(path.Clean(name), "/"), "."
	is := c.files.lstat(".")
	for hops := 0; len(rest) > 0; {
		next := path.Join(at, rest[0])
		if !filepath.IsLocal(next) {
			return next, nothing
		}
		rest = rest[1:]
		if next == "." {
			continue
		}
		switch is = c.files.lstat(next); is {
		case link:
			c.note(next)
			target, err := c.files.target(next)
			if hops++; err != nil || hops > maxLinks || path.IsAbs(target) {
				return next, nothing
			}
			rest = append(strings.Split(path.Clean(target), "/"), rest...)
			at = path.Dir(next)
			for len(rest) > 0 && rest[0] == ".." {
				if at == "." {
					return next, nothing
				}
				at, rest = path.Dir(at), rest[1:]
			}
			is = c.files.lstat(at)
			continue
		case module:
			c.note(next)
			c.modules = append(c.modules, next)
			return next, module
		case directory:
		default:
			if len(rest) > 0 {
				is = nothing
			}
			c.note(path.Join(append([]string{next}, rest...)...))
			return next, is
		}
		at = next
	}
	c.note(at)
	return at, is
}

// kustomization follows a directory's kustomization and says whether it has one.
func (c *closure) kustomization(dir string) bool {
	if c.visited[dir] {
		return true
	}
	found := ""
	for _, candidate := range konfig.RecognizedKustomizationFileNames() {
		if name, is := c.resolve(path.Join(dir, candidate)); is == regular && found == "" {
			found = name
		}
	}
	if found == "" {
		return false
	}
	c.visited[dir] = true
	if len(c.visited) > c.most {
		c.unbounded = true
		return true
	}
	c.documents(found, false, dir)
	return true
}

// documents looks for paths in a file that kustomize is configured by.
func (c *closure) documents(name string, plugin bool, dirs ...string) {
	data, err := c.files.read(name, maxFile+1)
	if c.parsed += int64(len(data)); err != nil || len(data) > maxFile || c.parsed > maxParsed {
		c.unbounded = true
		return
	}
	c.text(data, dirs, plugin)
}

func (c *closure) text(data []byte, dirs []string, plugin bool) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		if decoder.Decode(&document) != nil {
			// The end, or what kustomize cannot read either.
			return
		}
		c.node(&document, dirs, plugin)
	}
}

// plugins are the fields whose entries configure something that may read files
// itself, in a file or as text.
var plugins = map[string]bool{"generators": true, "transformers": true, "validators": true}

func (c *closure) node(node *yaml.Node, dirs []string, plugin bool) {
	switch node.Kind {
	case yaml.ScalarNode:
		c.scalar(node.Value, dirs, plugin)
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			c.node(node.Content[i+1], dirs, plugin || plugins[node.Content[i].Value])
		}
	case yaml.DocumentNode, yaml.SequenceNode:
		for _, child := range node.Content {
			c.node(child, dirs, plugin)
		}
	case yaml.AliasNode:
		// Its anchor is looked at where it stands; as a plugin it may mean more.
		c.unbounded = c.unbounded || plugin
	}
}

func (c *closure) scalar(value string, dirs []string, plugin bool) {
	if strings.Contains(value, "\n") {
		if plugin {
			c.text([]byte(value), dirs, true)
		}
		return
	}
	candidates := []string{value}
	// A generator names a file as KEY=FILE.
	if _, after, ok := strings.Cut(value, "="); ok {
		candidates = append(candidates, after)
	}
	for _, candidate := range candidates {
		if candidate == "" || len(candidate) > maxScalar || strings.ContainsRune(candidate, 0) || path.IsAbs(candidate) {
			c.absolute(candidate)
			continue
		}
		for _, dir := range dirs {
			c.candidate(path.Join(dir, candidate), dirs, plugin)
		}
	}
}

// absolute paths are within the work tree for one machine only.
func (c *closure) absolute(candidate string) {
	if tree, ok := c.files.(*workTree); ok && strings.HasPrefix(candidate, tree.dir+"/") {
		c.unbounded = true
	}
}

func (c *closure) candidate(name string, dirs []string, plugin bool) {
	if !filepath.IsLocal(name) {
		return
	}
	resolved, is := c.resolve(name)
	switch {
	case is == directory:
		c.kustomization(resolved)
	case is == regular && plugin && !c.visited[resolved]:
		c.visited[resolved] = true
		c.documents(resolved, true, append([]string{path.Dir(resolved)}, dirs...)...)
	}
}

// below notes the YAML files below a directory, and follows the kustomizations
// among them.
func (c *closure) below(dir string) {
	c.plain = append(c.plain, dir)
	for _, name := range c.files.list(dir) {
		full := path.Join(dir, name)
		resolved, is := full, c.files.lstat(full)
		if is == link {
			resolved, is = c.resolve(full)
			if is == directory {
				// No walk follows a link to a directory.
				continue
			}
		}
		switch is {
		case directory:
			if !strings.HasPrefix(name, ".") && !c.kustomization(resolved) {
				c.below(full)
			}
		case module:
			// What it has is not this repository's.
			c.note(full)
		case regular, odd:
			if extension := strings.ToLower(path.Ext(name)); extension == ".yaml" || extension == ".yml" {
				c.note(resolved)
			}
		}
		if len(c.names) > maxPlain {
			c.unbounded = true
			return
		}
	}
}
