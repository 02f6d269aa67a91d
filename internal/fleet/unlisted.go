package fleet

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

// unlisted finds documents of cloop.dev in files that lie in or below a directory
// with a kustomization, where nobody looks for them, and that no kustomization
// speaks of. A kustomization that is broken is to be mended first: it may mean to
// list them. Its error is the context's.
func (s *survey) unlisted(ctx context.Context, broken map[string]bool) ([]schemas.Problem, error) {
	if len(s.covered) == 0 {
		return nil, nil
	}
	mentioned := s.mentions()
	var problems []schemas.Problem
	searched := int64(0)
	for _, file := range s.covered {
		if ctx.Err() != nil {
			return nil, buildError(".", ctx.Err())
		}
		if mentioned[file] || isKustomization(file) || searched > maxSearched || broken[s.kustomizations[s.covering(".", path.Dir(file))]] {
			continue
		}
		if s.b.setAside(file, s.kustomizations[s.covering(".", path.Dir(file))]) {
			continue
		}
		data, err := s.b.gate.read(file)
		searched += int64(len(data))
		if err != nil || !bytes.Contains(data, []byte("cloop.dev/")) {
			continue
		}
		s.b.comments.note(file, data)
		documents, _ := schemas.Decode(file, data)
		for i := range documents {
			if documents[i].Object.GroupVersionKind().Group != v1alpha1.Group {
				continue
			}
			problem := unread(file)
			problem.Object, problem.Line = describe(documents[i].Object), documents[i].Line
			problems = append(problems, problem)
			break
		}
	}
	return problems, nil
}

func unread(file string) schemas.Problem {
	return located(broken(RuleUnlisted, fmt.Sprintf("no kustomization lists %s, so nothing applies it", path.Base(file))), file)
}

func isKustomization(file string) bool {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if path.Base(file) == name {
			return true
		}
	}
	return false
}

// mentions are the files that kustomizations speak of in any way, and the files
// that configure them: each text that could be a path is taken for one.
func (s *survey) mentions() map[string]bool {
	m := &mentions{s: s, files: map[string]bool{}}
	for _, dir := range s.order {
		m.file(s.kustomizations[dir], dir, 0)
	}
	return m.files
}

type mentions struct {
	s     *survey
	files map[string]bool
}

// maxMentions bounds how deep files are followed that mention each other.
const maxMentions = 3

func (m *mentions) file(name, dir string, depth int) {
	if data, err := m.s.b.gate.read(name); err == nil {
		m.text(data, dir, depth)
	}
}

func (m *mentions) text(data []byte, dir string, depth int) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		if decoder.Decode(&document) != nil {
			// The end, or what kustomize cannot read either.
			return
		}
		m.node(&document, dir, depth)
	}
}

func (m *mentions) node(node *yaml.Node, dir string, depth int) {
	for _, child := range node.Content {
		m.node(child, dir, depth)
	}
	switch {
	case node.Kind != yaml.ScalarNode:
	case strings.Contains(node.Value, "\n"):
		if depth < maxMentions {
			m.text([]byte(node.Value), dir, depth+1)
		}
	default:
		m.mention(node.Value, dir, depth)
		// A generator names a file as KEY=FILE.
		if _, file, ok := strings.Cut(node.Value, "="); ok {
			m.mention(file, dir, depth)
		}
	}
}

func (m *mentions) mention(value, dir string, depth int) {
	name := path.Join(dir, value)
	if !isYAML(name) || !filepath.IsLocal(name) || m.files[name] {
		return
	}
	m.files[name] = true
	// A transformer's own file may name others, as from the kustomization.
	if depth < maxMentions && m.s.plugins[name] {
		m.file(name, dir, depth+1)
	}
}
