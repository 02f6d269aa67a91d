package closure

import (
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
)

// Definitions are the entries of a directory that a plain build looks at.
func Definitions(f Files, dir string) []string {
	return slices.DeleteFunc(f.List(dir), func(name string) bool {
		is := f.Lstat(path.Join(dir, name))
		return is == Directory && strings.HasPrefix(name, ".") || is != Directory && is != Module && !IsDefinition(name)
	})
}

// IsDefinition says whether a file may be a document or a kustomization.
func IsDefinition(name string) bool {
	extension := strings.ToLower(path.Ext(name))
	return extension == ".yaml" || extension == ".yml" || slices.Contains(konfig.RecognizedKustomizationFileNames(), path.Base(name))
}
