package closure

import (
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
)

// Definitions are the entries of a directory of some files that a plain build looks at.
func (c *Closure) Definitions(f Files, dir string) []string {
	return slices.DeleteFunc(f.List(dir), func(name string) bool {
		is := f.Lstat(path.Join(dir, name))
		return is == Directory && strings.HasPrefix(name, ".") || is != Directory && is != Module && !c.counts(name)
	})
}

func (c *Closure) counts(name string) bool {
	return IsDefinition(name) || c.json && strings.EqualFold(path.Ext(name), ".json")
}

// IsDefinition says whether a file may be a document or a kustomization.
func IsDefinition(name string) bool {
	extension := strings.ToLower(path.Ext(name))
	return extension == ".yaml" || extension == ".yml" || slices.Contains(konfig.RecognizedKustomizationFileNames(), path.Base(name))
}
