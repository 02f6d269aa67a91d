package fleet

import (
	"errors"
	"path/filepath"
	"strings"
)

// errGitDirectory keeps what Git keeps for itself out of every build: it is in no
// commit, and forges have their jobs keep tokens there.
var errGitDirectory = errors.New("it is in Git's own directory, which no commit has")

// inGitDirectory says whether a file, also over symbolic links, lies in a directory
// .git below top, whatever the case of its name.
func inGitDirectory(top, name string) bool {
	for _, candidate := range []string{name, resolved(name)} {
		inner, err := filepath.Rel(top, candidate)
		if err != nil {
			continue
		}
		for part := range strings.SplitSeq(filepath.ToSlash(inner), "/") {
			if strings.EqualFold(part, ".git") {
				return true
			}
		}
	}
	return false
}

func resolved(name string) string {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		return real
	}
	return name
}
