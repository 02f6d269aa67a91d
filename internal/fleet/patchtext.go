package fleet

import (
	"bytes"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"cloop.dev/cloop/schemas"
)

// patchText is a patch as it was read: operations, or documents.
type patchText struct {
	operations []operation
	// list of the operations.
	list      *yaml.Node
	documents []schemas.Document
	problems  []schemas.Problem
	// copies is the text, if its operations may copy; nil where they do not.
	copies *yaml.Node
}

// patchOf reads a patch, that of a file once: it may be named thousands of times.
// at is zero for a file.
func (s *scan) patchOf(file string, data []byte, at position) *patchText {
	if known := s.patches[file]; known != nil && at == (position{}) {
		return known
	}
	p := &patchText{}
	var document yaml.Node
	if bytes.Contains(data, []byte("copy")) && yaml.Unmarshal(data, &document) == nil {
		p.copies = &document
	}
	if p.operations, p.list = decodeOperations(data, at); p.operations == nil {
		p.documents, p.problems = schemas.Decode(file, data)
		for i := range p.problems {
			p.problems[i].Line += at.lines
			p.problems[i].Column += at.columns
		}
		for i := range p.documents {
			p.documents[i].Line += at.lines
			at.move(p.documents[i].Node)
		}
	}
	if at == (position{}) {
		if s.patches == nil {
			s.patches = map[string]*patchText{}
		}
		s.patches[file] = p
	}
	return p
}

// Bounds on the patches of a root, each counted as often as it is named: kustomize
// reads, keeps and applies it each time.
const (
	// maxPatches bounds their texts, in bytes. In kustomize each costs some sixty
	// times as much memory, and a microsecond.
	maxPatches = 4 << 20
	// maxTouched bounds the objects that they apply to, in bytes: each patch has its
	// object written and read again.
	maxTouched = 256 << 20
	// maxMerged bounds the pairs of keys that strategic merges compare, which find
	// each key of a map by going through all: sixteen nanoseconds a pair.
	maxMerged = 250_000_000
)

// patched takes a patch into account. Its error is errBounds.
func (s *scan) patched(p *patchText, size int, selected *target) error {
	g := &s.growth
	if g.patches += int64(size); g.patches > maxPatches {
		return fmt.Errorf("%w: its patches are together larger than %d MiB, each counted as often as it is named; %s", errBounds, maxPatches>>20, fewerPatches)
	}
	times, largest := 0, int64(0)
	for _, i := range s.meantBy(p, selected) {
		of := s.layers[i].weighed().bytes
		g.touched += of
		times, largest = times+1, max(largest, of)
	}
	if selected == nil {
		times = max(times, 1)
	}
	g.added += int64(size) * int64(times)
	if g.touched > maxTouched {
		return fmt.Errorf("%w: the objects that its patches change are together larger than %d MiB, each counted for every patch; %s", errBounds, maxTouched>>20, fewerPatches)
	}
	for i := range p.documents {
		g.merged += merging(p.documents[i].Node, largest) * int64(times)
	}
	if g.merged > maxMerged {
		return fmt.Errorf("%w: its strategic merge patches have maps of so many keys that kustomize would take minutes; %s", errBounds, fewerPatches)
	}
	return nil
}

const fewerPatches = "put the patches of one object into one, write what they set into the object itself, or divide the objects among overlays"

// meantBy are the resources that a patch may change, as far as they are known yet.
func (s *scan) meantBy(p *patchText, selected *target) (layers []int) {
	if selected == nil {
		for i := range p.documents {
			layers = append(layers, s.byName[p.documents[i].Object.GetName()]...)
		}
		return layers
	}
	if plainName.MatchString(selected.Name) {
		layers = s.byName[selected.Name]
	} else {
		for i := range s.layers {
			layers = append(layers, i)
		}
	}
	return slices.DeleteFunc(slices.Clone(layers), func(i int) bool {
		l := &s.layers[i]
		return !l.resource() || !selected.selects(l.document.Object, l.names...)
	})
}

// called notes a name that a resource has had.
func (s *scan) called(number int) {
	if s.byName == nil {
		s.byName = map[string][]int{}
	}
	name := s.layers[number].named()
	s.byName[name] = append(s.byName[name], number)
}

// wide is from how many keys on a map counts.
const wide = 16

// merging is about how many pairs of keys are compared where a document is merged
// into an object of so many bytes.
func merging(node *yaml.Node, into int64) (pairs int64) {
	if node == nil {
		return 0
	}
	if keys := int64(len(node.Content) / 2); node.Kind == yaml.MappingNode && keys >= wide {
		// A key with its value has six bytes at least, as weigh counts.
		pairs = keys * (keys + into/6)
	}
	for _, child := range node.Content {
		pairs += merging(child, into)
	}
	return pairs
}
