package fleet

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"

	"cloop.dev/cloop/schemas"
)

var errorLine = regexp.MustCompile(`line (\d+): `)

// syntax reports a kustomization that does not parse, where a document that does
// not is reported.
func (s *scan) syntax(file string, data []byte, err error) {
	_, found := schemas.Decode(file, data)
	if found = slices.DeleteFunc(found, func(p schemas.Problem) bool { return p.Rule != schemas.RuleSyntax }); len(found) > 0 {
		s.report(found...)
		return
	}
	problem := located(broken(schemas.RuleSyntax, strings.TrimPrefix(err.Error(), "yaml: ")), file)
	if match := errorLine.FindStringSubmatch(err.Error()); match != nil {
		_, _ = fmt.Sscan(match[1], &problem.Line)
	}
	s.report(problem)
}

// emptyFile is a kustomization that kustomize takes for none.
func emptyFile(file string) schemas.Problem {
	problem := located(broken(RuleBuild, "the kustomization is empty, which kustomize refuses"), file)
	problem.Hint = "write what it is to do, or remove it and what refers to it"
	return problem
}

// malformed are problems with the kustomization of a directory itself: others
// beside it, fields that kustomize does not know or take, and that it has none.
func (s *scan) malformed(dir, file string) (others, wrong, empty []schemas.Problem) {
	for _, candidate := range konfig.RecognizedKustomizationFileNames() {
		other := path.Join(dir, candidate)
		if info, err := s.root.Stat(other); err == nil && info.Mode().IsRegular() && other != file && s.gate.leftOut(other, false) == nil {
			problem := located(broken(RuleBuild, "the directory has another kustomization, "+path.Base(file)), other)
			problem.Hint = "remove one of the two"
			others = append(others, problem)
		}
	}
	data, err := s.gate.read(file)
	var document yaml.Node
	if err != nil || yaml.Unmarshal(data, &document) != nil || len(document.Content) == 0 {
		return others, nil, nil
	}
	wrong = wrongFields(file, &document)
	if fields := document.Content[0]; fields.Kind == yaml.MappingNode && !says(fields) {
		empty = append(empty, emptyFile(file))
	}
	return others, wrong, empty
}

// nothing is a kustomization that renders nothing.
func (b *builder) nothing(file string) schemas.Problem {
	problem := located(broken(RuleEmptyRoot, "it has nothing to apply"), file)
	var k kustomizationFile
	if data, err := b.gate.read(file); err == nil && yaml.Unmarshal(data, &k) == nil && k.Kind == types.ComponentKind {
		problem.Message = "it is a Component, which by itself has nothing to apply"
		problem.Hint = "check the overlay that lists it in components"
	}
	return problem
}

// says says whether a kustomization has a field beside those that name its kind.
func says(fields *yaml.Node) bool {
	for i := 0; i+1 < len(fields.Content); i += 2 {
		name, value := canonicalField(fields.Content[i].Value), fields.Content[i+1]
		if name != "apiVersion" && name != "kind" && value.ShortTag() != "!!null" {
			return true
		}
	}
	return false
}
