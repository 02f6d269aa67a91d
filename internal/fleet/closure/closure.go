package closure

import (
	"bytes"
	"path"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"
)

// MaxFile bounds what is read of one file, in bytes.
const MaxFile = 4 << 20

// Bounds on the search for what an overlay is made of. Beyond them it counts as
// changed and its base is extracted whole.
const (
	maxNames  = 100_000
	maxParsed = 64 << 20
	maxLinks  = 40
	maxScalar = 1024
	maxPlain  = 20_000
	// maxDirectories bounds the kustomizations of one overlay.
	maxDirectories = 500
)

// Closure is every path that what an overlay renders may depend on, whether
// there is something or not. It errs on the side of too many: each text in a
// kustomization that could be a path is taken for one. Where two revisions agree
// on all of the paths that one of them leads to, a walk through the other leads
// to the same, so both render the same.
type Closure struct {
	files Files
	// Names are the paths.
	Names map[string]bool
	// Unbounded says that the paths are not all known.
	Unbounded bool
	// Modules are other repositories that a path leads into.
	Modules []string
	// Plain are directories whose entries count, those with JSON too where json is set.
	Plain   []string
	json    bool
	visited map[string]bool
	// most directories with a kustomization are followed.
	most   int
	parsed int64
}

// Of follows an overlay: a kustomization, a directory of files, a file. More are
// directories that are built together with it.
func Of(f Files, overlay string, more ...string) *Closure {
	return follow(&Closure{files: f}, overlay, more)
}

// OfJSON is Of for what is read as Argo CD reads a directory: files of JSON too.
func OfJSON(f Files, overlay string, more ...string) *Closure {
	return follow(&Closure{files: f, json: true}, overlay, more)
}

func follow(c *Closure, overlay string, more []string) *Closure {
	c.Names, c.visited, c.most = map[string]bool{}, map[string]bool{}, maxDirectories
	for _, dir := range append([]string{overlay}, more...) {
		name, is := c.resolve(dir)
		if is == Directory && !c.kustomization(name) {
			c.below(name)
		}
	}
	return c
}

// OfAll follows every kustomization of a commit.
func OfAll(t *Commit) *Closure {
	c := &Closure{files: t, Names: map[string]bool{}, visited: map[string]bool{}, most: maxEntries}
	for dir := range t.children {
		if path.Base(dir) == "." || !strings.HasPrefix(path.Base(dir), ".") {
			c.kustomization(dir)
		}
	}
	return c
}

// Any says whether there is any file.
func (c *Closure) Any() bool {
	for name := range c.Names {
		if c.files.Lstat(name) == Regular {
			return true
		}
	}
	return c.Unbounded
}

// note adds a path.
func (c *Closure) note(name string) {
	if len(c.Names) >= maxNames {
		c.Unbounded = true
		return
	}
	c.Names[name] = true
}

// resolve follows the links on a path, and notes them and where they lead.
func (c *Closure) resolve(name string) (string, Kind) {
	rest, at := strings.Split(path.Clean(name), "/"), "."
	is := c.files.Lstat(".")
	for hops := 0; len(rest) > 0; {
		next := path.Join(at, rest[0])
		if !filepath.IsLocal(next) {
			return next, Nothing
		}
		rest = rest[1:]
		if next == "." {
			continue
		}
		switch is = c.files.Lstat(next); is {
		case Link:
			c.note(next)
			target, err := c.files.Target(next)
			if hops++; err != nil || hops > maxLinks || path.IsAbs(target) {
				return next, Nothing
			}
			rest = append(strings.Split(path.Clean(target), "/"), rest...)
			at = path.Dir(next)
			for len(rest) > 0 && rest[0] == ".." {
				if at == "." {
					return next, Nothing
				}
				at, rest = path.Dir(at), rest[1:]
			}
			is = c.files.Lstat(at)
			continue
		case Module:
			c.note(next)
			c.Modules = append(c.Modules, next)
			return next, Module
		case Directory:
		default:
			if len(rest) > 0 {
				is = Nothing
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
func (c *Closure) kustomization(dir string) bool {
	if c.visited[dir] {
		return true
	}
	found := ""
	for _, candidate := range konfig.RecognizedKustomizationFileNames() {
		if name, is := c.resolve(path.Join(dir, candidate)); is == Regular && found == "" {
			found = name
		}
	}
	if found == "" {
		return false
	}
	c.visited[dir] = true
	if len(c.visited) > c.most {
		c.Unbounded = true
		return true
	}
	c.documents(found, false, dir)
	return true
}

// documents looks for paths in a file that kustomize is configured by.
func (c *Closure) documents(name string, plugin bool, dirs ...string) {
	data, err := c.files.Read(name, MaxFile+1)
	if c.parsed += int64(len(data)); err != nil || len(data) > MaxFile || c.parsed > maxParsed {
		c.Unbounded = true
		return
	}
	c.text(data, dirs, plugin)
}

func (c *Closure) text(data []byte, dirs []string, plugin bool) {
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

func (c *Closure) node(node *yaml.Node, dirs []string, plugin bool) {
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
		c.Unbounded = c.Unbounded || plugin
	}
}

func (c *Closure) scalar(value string, dirs []string, plugin bool) {
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
func (c *Closure) absolute(candidate string) {
	if tree, ok := c.files.(interface{ Dir() string }); ok && strings.HasPrefix(candidate, tree.Dir()+"/") {
		c.Unbounded = true
	}
}

func (c *Closure) candidate(name string, dirs []string, plugin bool) {
	if !filepath.IsLocal(name) {
		return
	}
	resolved, is := c.resolve(name)
	switch {
	case is == Directory:
		c.kustomization(resolved)
	case is == Regular && plugin && !c.visited[resolved]:
		c.visited[resolved] = true
		c.documents(resolved, true, append([]string{path.Dir(resolved)}, dirs...)...)
	}
}

// below notes the files of documents below a directory, and follows the kustomizations
// among them.
func (c *Closure) below(dir string) {
	c.Plain = append(c.Plain, dir)
	for _, name := range c.files.List(dir) {
		full := path.Join(dir, name)
		resolved, is := full, c.files.Lstat(full)
		if is == Link {
			resolved, is = c.resolve(full)
			if is == Directory {
				// No walk follows a link to a directory.
				continue
			}
		}
		switch is {
		case Directory:
			if !strings.HasPrefix(name, ".") && !c.kustomization(resolved) {
				c.below(full)
			}
		case Module:
			// What it has is not this repository's.
			c.note(full)
		case Regular, Odd:
			if c.counts(name) {
				c.note(resolved)
			}
		}
		if len(c.Names) > maxPlain {
			c.Unbounded = true
			return
		}
	}
}
