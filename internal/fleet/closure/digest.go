package closure

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
)

// beside are files and directories that every overlay of a repository depends on:
// what says how it is checked, and which directories are other repositories.
var beside = []string{".cloop", ".gitmodules"}

// Digest is equal for commits in which the overlay has the same text at every path
// that rendering and checking it may depend on, and so comes out the same. ok is
// false where those are not all known.
func (t *Commit) Digest(overlay string) (digest string, ok bool) {
	of := Of(t, overlay)
	for _, name := range beside {
		of.whole(name)
	}
	links := t.links()
	if t.refused || of.Unbounded || links.Unbounded || len(of.Modules) > 0 {
		return "", false
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(of.Names)) {
		e := t.entries[name]
		if e.Kind == Directory {
			// Its hash is of all that lies below, and that has names of its own.
			e.Hash = ""
		}
		_, _ = fmt.Fprintf(h, "%q %d %s\n", name, e.Kind, e.Hash)
	}
	for _, name := range slices.Sorted(maps.Keys(links.Names)) {
		_, _ = fmt.Fprintf(h, "%q %d\n", name, t.entries[name].Kind)
	}
	for _, dir := range of.Plain {
		_, _ = fmt.Fprintf(h, "%q %q\n", dir, of.Definitions(t, dir))
	}
	return hex.EncodeToString(h.Sum(nil)), true
}

// links are the paths on which the links of the whole tree lead: one that leaves it
// has the commit refused, wherever it is.
func (t *Commit) links() *Closure {
	of := &Closure{files: t, Names: map[string]bool{}}
	for name, e := range t.entries {
		if e.Kind != Link {
			continue
		}
		of.resolve(name)
		target, err := t.Target(name)
		if err != nil || path.IsAbs(target) {
			of.Unbounded = true
			continue
		}
		for at := path.Join(path.Dir(name), target); filepath.IsLocal(at) && at != "."; at = path.Dir(at) {
			of.note(at)
		}
	}
	return of
}

// whole notes a path and all that lies below it.
func (c *Closure) whole(name string) {
	resolved, is := c.resolve(name)
	if resolved != name || is == Module {
		// A link, which no policy needs.
		c.Unbounded = c.Unbounded || is != Nothing
		return
	}
	if is == Directory {
		for _, entry := range c.files.List(name) {
			c.whole(path.Join(name, entry))
		}
	}
}
