package fleet

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/schemas"
)

// outline is what a scan has to know of a file's documents where nobody asks for
// their fields, or for where those stand. Reading YAML with positions is most of
// what a scan takes, and its nodes are twenty times the text.
type outline struct {
	// documents have apiVersion, kind and metadata, and no nodes.
	documents []schemas.Document
	// weights are what each weighs.
	weights []weight
}

func outlineOf(documents []schemas.Document) *outline {
	o := &outline{documents: make([]schemas.Document, len(documents)), weights: make([]weight, len(documents))}
	for i := range documents {
		d := documents[i]
		o.weights[i] = weigh(d.Node)
		object := map[string]any{}
		for _, field := range []string{"apiVersion", "kind", "metadata"} {
			if value, ok := d.Object.Object[field]; ok {
				object[field] = value
			}
		}
		d.Object, d.Node = &unstructured.Unstructured{Object: object}, nil
		o.documents[i] = d
	}
	return o
}

// outlined is a file of which only the outline was read so far.
type outlined struct {
	*outline
	file string
	data []byte

	once      sync.Once
	documents []schemas.Document
}

// whole is one of the file's documents, read at last.
func (o *outlined) whole(i int) *schemas.Document {
	o.once.Do(func() { o.documents, _ = schemas.Decode(o.file, o.data) })
	return &o.documents[i]
}

// resources adds the documents of a file. Where builds are remembered, no more than
// its outline is kept, and a file that one of them has read is not read again, before
// somebody asks for more than that.
func (s *scan) resources(name string, data []byte) {
	key := answerOf(name, string(data))
	known := s.memo.outlineOf(key)
	if known == nil {
		documents, problems := schemas.Decode(name, data)
		s.report(problems...)
		if s.memo == nil || len(problems) > 0 {
			for i := range documents {
				s.add(layer{file: name, document: &documents[i]})
			}
			return
		}
		known = s.memo.noteOutline(key, documents)
	}
	file := &outlined{outline: known, file: name, data: data}
	for i := range known.documents {
		s.add(layer{file: name, document: &known.documents[i], outlined: file, place: i})
	}
}

// whole is a layer's document with all of its fields and their places. It is safe
// for concurrent use.
func (l *layer) whole() *schemas.Document {
	if l.outlined == nil {
		return l.document
	}
	return l.outlined.whole(l.place)
}

// unfold reads what only the outline is known of, for whoever says what is wrong
// with a root.
func (s *scan) unfold() {
	for i := range s.layers {
		if l := &s.layers[i]; l.outlined != nil {
			l.document, l.outlined = l.whole(), nil
		}
	}
}
