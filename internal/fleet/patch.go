package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"cloop.dev/cloop/schemas"
)

// target selects the objects that a patch applies to. Its fields are regular
// expressions over whole values; what is empty matches all.
type target struct {
	Group              string `yaml:"group"`
	Version            string `yaml:"version"`
	Kind               string `yaml:"kind"`
	Name               string `yaml:"name"`
	Namespace          string `yaml:"namespace"`
	LabelSelector      string `yaml:"labelSelector"`
	AnnotationSelector string `yaml:"annotationSelector"`

	// compiled: pattern → its expression, nil for one that kustomize refuses. A
	// target is asked about every object.
	compiled map[string]*regexp.Regexp
}

// selects says whether the target means an object that had one of the names.
func (t *target) selects(obj *unstructured.Unstructured, names ...string) bool {
	gvk := obj.GroupVersionKind()
	if !t.matches(t.Group, gvk.Group) || !t.matches(t.Version, gvk.Version) || !t.matches(t.Kind, gvk.Kind) {
		return false
	}
	if obj.GetNamespace() != "" && !t.matches(t.Namespace, obj.GetNamespace()) {
		return false
	}
	named := false
	for _, name := range names {
		named = named || t.matches(t.Name, name)
	}
	return named && selectorMatches(t.LabelSelector, obj.GetLabels()) && selectorMatches(t.AnnotationSelector, obj.GetAnnotations())
}

// matches errs on the side of a match: a pattern that kustomize refuses is
// reported by kustomize.
func (t *target) matches(pattern, value string) bool {
	if pattern == "" {
		return true
	}
	expression, known := t.compiled[pattern]
	if !known {
		expression, _ = regexp.Compile("^(?:" + pattern + ")$")
		if t.compiled == nil {
			t.compiled = map[string]*regexp.Regexp{}
		}
		t.compiled[pattern] = expression
	}
	return expression == nil || expression.MatchString(value)
}

func selectorMatches(text string, set map[string]string) bool {
	selector, err := labels.Parse(text)
	return err != nil || selector.Matches(labels.Set(set))
}

// operation is one operation of a JSON patch.
type operation struct {
	Op    string    `yaml:"op"`
	Path  string    `yaml:"path"`
	From  string    `yaml:"from"`
	Value yaml.Node `yaml:"value"`
	// path and from are the tokens of Path and From.
	path, from []string
	// line and column of the operation itself.
	line, column int
}

// strategicMerge scans one entry of patchesStrategicMerge: a file or its text.
func (s *scan) strategicMerge(dir, file string, entry *yaml.Node) error {
	name := path.Join(dir, entry.Value)
	if info, err := s.root.Stat(name); err == nil && info.Mode().IsRegular() {
		data, err := s.read(name)
		if err != nil {
			return s.unreadable(file, entry, err)
		}
		return s.patch(name, data, position{}, nil)
	}
	if !strings.Contains(entry.Value, ":") {
		s.missing(file, entry, errors.New("no such file or directory"))
		return nil
	}
	return s.patch(file, []byte(entry.Value), inside(entry), nil)
}

// patchEntry scans one entry of patches or patchesJson6902.
func (s *scan) patchEntry(dir, file string, entry *patchEntry) error {
	if entry.Path.Value == "" {
		return s.patch(file, []byte(entry.Patch.Value), inside(&entry.Patch), entry.Target)
	}
	name := path.Join(dir, entry.Path.Value)
	data, err := s.read(name)
	if err != nil {
		return s.unreadable(file, &entry.Path, err)
	}
	return s.patch(name, data, position{}, entry.Target)
}

// position is how far a text lies below and right of its file's beginning.
type position struct{ lines, columns int }

// inside is the position of a scalar's text. A block's Column is its
// indentation: see indentBlocks. In a folded block only the first line is exact.
func inside(node *yaml.Node) position {
	switch {
	case node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return position{lines: node.Line, columns: node.Column}
	case node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		return position{lines: node.Line - 1, columns: node.Column}
	default:
		return position{lines: node.Line - 1, columns: node.Column - 1}
	}
}

// indentBlocks puts the indentation of each block scalar's text, which the
// parser drops, into the scalar's Column: nobody asks where its indicator is.
func indentBlocks(node *yaml.Node, lines [][]byte) {
	if node.Kind == yaml.ScalarNode && node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		for _, line := range lines[min(node.Line, len(lines)):] {
			if text := bytes.TrimLeft(line, " "); len(bytes.TrimSpace(text)) > 0 {
				node.Column = len(line) - len(text)
				break
			}
		}
	}
	for _, child := range node.Content {
		indentBlocks(child, lines)
	}
}

func (p position) move(node *yaml.Node) {
	if node == nil || p == (position{}) {
		return
	}
	node.Line += p.lines
	node.Column += p.columns
	for _, child := range node.Content {
		p.move(child)
	}
}

// patch adds a patch's documents, or its operations, to the layers. What cannot
// be read is kustomize's to report: here it only sets nothing. The error is
// errBounds.
func (s *scan) patch(file string, data []byte, at position, selected *target) error {
	p := s.patchOf(file, data, at)
	if err := s.patched(p, len(data), selected); err != nil {
		return err
	}
	if p.copies != nil {
		s.growth.find(p.copies, 0)
	}
	if p.operations != nil {
		s.twice(file, p.list)
		for i := range p.operations {
			if op := &p.operations[i]; (op.Path == "/metadata/name" || op.Path == "/metadata/namespace") && len(op.Value.Value) > maxName {
				s.longName(file, op.line, op.column)
			}
		}
		s.add(layer{file: file, operations: p.operations, patch: true, target: selected})
		return nil
	}
	for _, problem := range p.problems {
		// A patch with a target need not say what it patches.
		if selected == nil || problem.Rule != schemas.RuleTypeMeta {
			s.report(problem)
		}
	}
	for i := range p.documents {
		if object := p.documents[i].Object; len(object.GetName()) > maxName || len(object.GetNamespace()) > maxName {
			s.longName(file, p.documents[i].Line, 1)
		}
		s.add(layer{file: file, document: &p.documents[i], patch: true, target: selected})
	}
	return nil
}

// longName refuses the root for a patch that makes a name of a long text: kustomize
// would write it wherever an object is referred to.
func (s *scan) longName(file string, line, column int) {
	s.refuse(file, &yaml.Node{Line: line, Column: column}, RuleTooLarge,
		fmt.Sprintf("the patch gives a name or namespace of more than the %d characters that one may have", maxName), "shorten it")
}

// decodeOperations reads a JSON patch, in YAML or JSON, and the list that it is;
// nil where the text is something else.
func decodeOperations(data []byte, at position) (operations []operation, list *yaml.Node) {
	var document yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&document); err != nil || len(document.Content) != 1 {
		return nil, nil
	}
	list = document.Content[0]
	if list.Kind != yaml.SequenceNode {
		return nil, nil
	}
	at.move(list)
	operations = make([]operation, 0, len(list.Content))
	for _, node := range list.Content {
		var op operation
		if err := node.Decode(&op); err != nil {
			continue
		}
		op.line, op.column = node.Line, node.Column
		op.path, op.from = tokens(op.Path), tokens(op.From)
		operations = append(operations, op)
	}
	return operations, list
}
