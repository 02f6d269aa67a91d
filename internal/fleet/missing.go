package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// elsewhere is the directory of another repository that a path lies in; empty
// where it lies in this one.
func (s *scan) elsewhere(name string) string {
	if s.modules == nil {
		s.modules = map[string]bool{}
		if data, err := readBounded(s.root, ".gitmodules"); err == nil {
			for _, match := range submodule.FindAllStringSubmatch(string(data), -1) {
				s.modules[path.Clean(match[1])] = true
			}
		}
	}
	for dir := name; dir != "." && dir != "/"; dir = path.Dir(dir) {
		other, known := s.modules[dir]
		if !known {
			other = isRepository(s.root, dir)
			s.modules[dir] = other
		}
		if other {
			return dir
		}
	}
	return ""
}

// submodule is a line of .gitmodules that says where one is.
var submodule = regexp.MustCompile(`(?m)^\s*path\s*=\s*"?([^"\r\n]+?)"?\s*$`)

// missing refuses the root: what kustomize does not find in the repository it
// takes for an address, and fetches.
func (s *scan) missing(file string, entry *yaml.Node, err error) {
	s.refused = true
	if remote.MatchString(entry.Value) {
		return
	}
	reason := "no such file or directory"
	if !errors.Is(err, fs.ErrNotExist) {
		reason = pathReason(err).Error()
	}
	problem := broken(RuleMissingReference, fmt.Sprintf("%s: %s", entry.Value, reason))
	problem.File, problem.Line, problem.Column = file, entry.Line, entry.Column
	switch {
	case strings.Contains(entry.Value, `\`):
		problem.Hint = "write the path with /, relative to the kustomization: " + strings.ReplaceAll(entry.Value, `\`, "/")
	case path.IsAbs(entry.Value):
		problem.Hint = "write the path relative to the kustomization"
	case errors.Is(err, errUntracked):
		problem.Hint = "git add it, or leave it out"
	case errors.Is(err, errGitDirectory):
		problem.Hint = "leave it out"
	case reason == outOfRepository:
		problem.Hint = "copy what it refers to into the repository, and refer to the copy"
	}
	s.problems = append(s.problems, problem)
}

// unreadable is missing, but passes on an error that ends the scan.
func (s *scan) unreadable(file string, entry *yaml.Node, err error) error {
	if errors.Is(err, errBounds) {
		return err
	}
	s.missing(file, entry, err)
	return nil
}
