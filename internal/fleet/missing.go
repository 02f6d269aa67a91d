package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// remote is what kustomize takes for a URL or a Git repository and would fetch.
var remote = regexp.MustCompile(`(?i)^(git::)?((https?|ssh|file|git)://|github\.com[/:]|[a-z][a-z0-9-]*@[^/]*[:/])`)

// free are fields of a kustomization whose text is the author's own and never a
// reference.
var free = map[string]bool{
	"commonAnnotations": true, "commonLabels": true, "labels": true, "metadata": true, "generatorOptions": true,
	"images": true, "imageTags": true, "vars": true, "replicas": true, "buildMetadata": true, "literals": true, "sourceValue": true,
}

// refuse refuses the root, for what is wrong with an entry.
func (s *scan) refuse(file string, entry *yaml.Node, rule, message, remedy string) {
	s.refused = true
	problem := broken(rule, message)
	problem.File, problem.Line, problem.Column, problem.Hint = file, entry.Line, entry.Column, remedy
	s.report(problem)
}

// refuseRemote refuses every reference to something outside the repository.
// kustomize would fetch it over the network, with git or http, from within the
// hub or the controller. With all, the author's own text is checked too.
func (s *scan) refuseRemote(file string, node *yaml.Node, all bool) {
	switch node.Kind {
	case yaml.ScalarNode:
		if !remote.MatchString(node.Value) || strings.Contains(node.Value, "\n") {
			return
		}
		s.refused = true
		problem := broken(RuleRemoteReference, fmt.Sprintf("%q is not in the repository", node.Value))
		problem.File, problem.Line, problem.Column = file, node.Line, node.Column
		s.report(problem)
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if all || !free[node.Content[i].Value] {
				s.refuseRemote(file, node.Content[i+1], all)
			}
		}
	case yaml.AliasNode:
		// What it names may stand where the text is the author's own.
		s.refuseRemote(file, node.Alias, all)
	default:
		for _, child := range node.Content {
			s.refuseRemote(file, child, all)
		}
	}
}

// elsewhere is the directory of another repository that a path lies in; empty
// where it lies in this one.
func (s *scan) elsewhere(name string) string {
	if s.modules == nil {
		s.modules = map[string]bool{}
		if data, err := s.gate.under(nil).read(".gitmodules"); err == nil {
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
	if left := (*leftOutError)(nil); errors.As(err, &left) {
		problem := broken(RuleMissingReference, fmt.Sprintf("%s: %v", entry.Value, left))
		problem.File, problem.Line, problem.Column, problem.Hint = file, entry.Line, entry.Column, left.remedy()
		s.report(problem)
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
	case errors.Is(err, fs.ErrPermission):
		problem.Hint = "make it readable for whoever runs this"
	case errors.Is(err, syscall.ELOOP):
		problem.Hint = "have the symbolic links end at a file, or remove the entry"
	case errors.Is(err, errNoFile):
		problem.Hint = "replace it by a file, or remove the entry"
	case reason == outOfRepository:
		problem.Hint = "copy what it refers to into the repository, and refer to the copy"
	}
	s.report(problem)
}

// unreadable is missing, but passes on an error that ends the scan.
func (s *scan) unreadable(file string, entry *yaml.Node, err error) error {
	if errors.Is(err, errBounds) {
		return err
	}
	s.missing(file, entry, err)
	return nil
}
