package fleet

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/sourceignore/gitignore"
	"sigs.k8s.io/kustomize/api/konfig"
)

// errEmptyDirectory is of a directory that no commit has: Git keeps files alone.
var errEmptyDirectory = errors.New("there is no such directory in Git: it has no file that Git would keep")

var errHeld = errors.New("it holds a file")

// holds says whether a directory has a file, at any depth, that Git has or would have: an
// empty one is left in a work tree where the last file of it was removed. What is read as a
// document is one, whatever Git ignores.
func (g *gate) holds(dir string) bool {
	var ignored gitignore.Matcher
	err := fs.WalkDir(g.root.FS(), dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			// Whoever reads it says what is wrong.
			return errHeld
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case entry.IsDir():
			return nil
		case g.tracked != nil:
			if !g.tracked.has(name) {
				return nil
			}
		case isYAML(name), slices.Contains(konfig.RecognizedKustomizationFileNames(), entry.Name()):
		default:
			if ignored == nil {
				ignored = g.ignores(dir)
			}
			if ignored.Match(strings.Split(name, "/"), false) {
				return nil
			}
		}
		return errHeld
	})
	return errors.Is(err, errHeld)
}

// ignores are the patterns of Git for what lies in a directory.
func (g *gate) ignores(dir string) gitignore.Matcher {
	var patterns []gitignore.Pattern
	take := func(file string, domain []string) {
		data, err := readBounded(g.root, file)
		if err != nil {
			return
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimRight(line, " \t\r\n"); line != "" && !strings.HasPrefix(line, "#") {
				patterns = append(patterns, gitignore.ParsePattern(line, domain))
			}
		}
	}
	take(".git/info/exclude", nil)
	take(".gitignore", nil)
	parts := strings.Split(dir, "/")
	for i := range parts {
		take(path.Join(path.Join(parts[:i+1]...), ".gitignore"), parts[:i+1])
	}
	return gitignore.NewMatcher(patterns)
}
