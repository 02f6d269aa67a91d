package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"

	"go.yaml.in/yaml/v3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/kustomize/kyaml/openapi/kustomizationapi"
	kyaml "sigs.k8s.io/yaml"
)

// kustomize follows the references of the OpenAPI documents that a kustomization
// brings, one after the other until there is none, and those of descriptions of
// custom resources as deep as they go: a reference to itself keeps it for ever, or
// ends the process for want of a stack. So what it would follow is followed here
// first, in the same way.
const (
	// maxReferences bounds how many references lead from one to the next.
	maxReferences = 32
	// maxSchemaReferences bounds the different ones of a document.
	maxSchemaReferences = 20_000
	// maxDescribed bounds the fields that a description of custom resources stands
	// for, with what it refers to in place of each reference.
	maxDescribed = 10_000
)

const flatSchemas = "write out what the references lead to, or generate the document anew"

// openAPI looks at the OpenAPI document that a kustomization brings.
func (s *scan) openAPI(dir, file string, entry *yaml.Node) error {
	name := path.Join(dir, entry.Value)
	data, err := s.read(name)
	if err != nil {
		return s.unreadable(file, entry, err)
	}
	root := &spec.Schema{}
	root.Definitions = maps.Clone(appliedMergeKeys())
	var swagger spec.Swagger
	for _, text := range [][]byte{data, kustomizationapi.MustAsset("kustomizationapi/swagger.json")} {
		// What kustomize cannot read it reports.
		if text, err = kyaml.YAMLToJSON(text); err != nil || swagger.UnmarshalJSON(text) != nil {
			return nil //nolint:nilerr // see above
		}
		maps.Copy(root.Definitions, swagger.Definitions)
	}
	w := &schemaWalk{root: root, met: map[string]int{}}
	for _, name := range slices.Sorted(maps.Keys(root.Definitions)) {
		definition := root.Definitions[name]
		w.schema(&definition)
	}
	if w.wrong == "" {
		return nil
	}
	at := nodeOfReference(data, w.at)
	return beyondAt(name, at, w.wrong, flatSchemas)
}

// nodeOfReference is where a document has a reference.
func nodeOfReference(data []byte, reference string) *yaml.Node {
	var document yaml.Node
	if yaml.Unmarshal(data, &document) == nil {
		if found := referenceIn(&document, reference); found != nil {
			return found
		}
	}
	return &yaml.Node{Line: 1, Column: 1}
}

func referenceIn(node *yaml.Node, reference string) *yaml.Node {
	if _, value := entryNamed(node, "$ref"); value != nil && value.Value == reference {
		return value
	}
	for _, child := range node.Content {
		if found := referenceIn(child, reference); found != nil {
			return found
		}
	}
	return nil
}

// schemaWalk goes where kustomize may go in schemas, each reference once.
type schemaWalk struct {
	root *spec.Schema
	// met: reference → how many references lead from there to a schema.
	met map[string]int
	// wrong is the first thing that must not be followed, and at the reference.
	wrong, at string
}

func (w *schemaWalk) schema(s *spec.Schema) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		w.reached(&property)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		w.reached(s.AdditionalProperties.Schema)
	}
	if s.Items != nil && s.Items.Schema != nil {
		w.reached(s.Items.Schema)
	}
}

// reached follows the references of a schema.
func (w *schemaWalk) reached(s *spec.Schema) {
	var chain []string
	for s != nil && s.Ref.String() != "" && w.wrong == "" {
		reference := s.Ref.String()
		beyond, met := w.met[reference]
		if !met {
			if slices.Contains(chain, reference) {
				beyond = maxReferences
			}
			chain = append(chain, reference)
		}
		if len(chain)+beyond > maxReferences {
			w.wrong, w.at = fmt.Sprintf("the reference %s leads back to itself, or over more than %d others", chain[0], maxReferences), chain[0]
			return
		}
		if met {
			w.reach(chain, beyond)
			return
		}
		s = w.follow(s.Ref)
	}
	w.reach(chain, 0)
	if s != nil && w.wrong == "" {
		w.schema(s)
	}
}

// reach notes that a chain of references leads over others to a schema.
func (w *schemaWalk) reach(chain []string, others int) {
	for i, reference := range chain {
		w.met[reference] = len(chain) - i + others
	}
	if len(w.met) > maxSchemaReferences && w.wrong == "" {
		w.wrong, w.at = fmt.Sprintf("the document has more than %d different references", maxSchemaReferences), chain[0]
	}
}

// follow is what a reference leads to; nil: nothing.
func (w *schemaWalk) follow(reference spec.Ref) *spec.Schema {
	found, _, err := reference.GetPointer().Get(w.root)
	if err != nil {
		return nil
	}
	switch found := found.(type) {
	case spec.Schema:
		return &found
	case *spec.Schema:
		return found
	case map[string]any:
		// It would be read anew for each field of each object.
		w.wrong, w.at = fmt.Sprintf("the reference %s leads to what is no definition", reference.String()), reference.String()
	}
	return nil
}

// described looks at a description of custom resources that a kustomization brings.
func (s *scan) described(dir, file string, entry *yaml.Node) error {
	name := path.Join(dir, entry.Value)
	data, err := s.read(name)
	if err != nil {
		return s.unreadable(file, entry, err)
	}
	var kinds map[string]struct{ Schema spec.Schema }
	// What kustomize cannot read it reports.
	if text, err := kyaml.YAMLToJSON(data); err != nil || json.Unmarshal(text, &kinds) != nil {
		return nil //nolint:nilerr // see above
	}
	d := &descriptions{kinds: kinds, known: map[string]description{}}
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		properties := kinds[kind].Schema.Properties
		if slices.ContainsFunc([]string{"kind", "apiVersion", "metadata"}, func(field string) bool { _, has := properties[field]; return !has }) {
			// kustomize does not take it for a kind.
			continue
		}
		of := d.count(kind)
		if total += of.fields; total > maxDescribed || of.deep > maxReferences || of.bytes > maxFile {
			at := nodeOfKey(data, kind)
			return beyondAt(name, at, fmt.Sprintf("%s refers to itself, or the kinds have, with all that they refer to, more fields than %d", kind, maxDescribed), flatSchemas)
		}
	}
	return nil
}

// descriptions counts what descriptions of custom resources stand for.
type descriptions struct {
	kinds map[string]struct{ Schema spec.Schema }
	known map[string]description
}

// description is what one kind stands for: its fields, how deep they are nested, and
// the text of their paths.
type description struct {
	fields, deep int
	bytes        int64
}

func (d *descriptions) count(kind string) description {
	if known, met := d.known[kind]; met {
		return known
	}
	// What refers to itself is too large.
	endless := description{maxDescribed + 1, maxReferences + 1, maxFile + 1}
	d.known[kind] = endless
	var total description
	for name, property := range d.kinds[kind].Schema.Properties {
		total.fields++
		total.bytes += int64(len(name))
		if property.Ref.GetURL() != nil {
			of := d.count(property.Ref.String())
			total.fields += of.fields
			total.deep = max(total.deep, of.deep+1)
			total.bytes += of.bytes + int64(len(name)*of.fields)
		}
		if total.fields > maxDescribed || total.deep > maxReferences || total.bytes > maxFile {
			total = endless
			break
		}
	}
	d.known[kind] = total
	return total
}

func nodeOfKey(data []byte, key string) *yaml.Node {
	var document yaml.Node
	if yaml.Unmarshal(data, &document) == nil {
		if node, _ := entryNamed(&document, key); node != nil {
			return node
		}
	}
	return &yaml.Node{Line: 1, Column: 1}
}
