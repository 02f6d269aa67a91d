package schemastest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// slot is a place in a document that can be edited: the entry of an object, or
// the element of a list. place is nil where the definition knows nothing.
type slot struct {
	object map[string]any
	list   []any
	key    string
	index  int
	place  *place
}

func (s *slot) get() any {
	if s.object != nil {
		return s.object[s.key]
	}
	return s.list[s.index]
}

func (s *slot) set(value any) {
	if s.object != nil {
		s.object[s.key] = value
		return
	}
	s.list[s.index] = value
}

// slots lists what can be edited below a value, in an order that does not depend
// on the order of a map.
func slots(value any, p *place) []slot {
	var all []slot
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			child := p.at(name)
			all = append(all, slot{object: value, key: name, place: child})
			all = append(all, slots(value[name], child)...)
		}
	case []any:
		for i := range value {
			child := p.element()
			all = append(all, slot{list: value, index: i, place: child})
			all = append(all, slots(value[i], child)...)
		}
	}
	return all
}

func (p *place) at(name string) *place {
	if p == nil {
		return nil
	}
	if field, ok := p.fields[name]; ok {
		return field
	}
	return p.values
}

func (p *place) element() *place {
	if p == nil {
		return nil
	}
	return p.elements
}

// edit changes a document in some places: most in its spec, some around it.
func (m *maker) edit(object map[string]any, spec *place, times int) {
	for range times {
		fields, ok := object["spec"].(map[string]any)
		switch {
		case !ok || m.IntN(40) == 0:
			m.editRoot(object)
		case m.IntN(10) == 0:
			m.editMetadata(object["metadata"])
		default:
			m.editSlot(fields, spec)
		}
	}
}

func (m *maker) editRoot(object map[string]any) {
	switch m.IntN(4) {
	case 0:
		object["spec"] = m.oddity()
	case 1:
		delete(object, "spec")
	case 2:
		// Not apiVersion, which is a word too: it would be another kind.
		object["the"+m.word()] = m.oddity()
	default:
		object["status"] = m.oddity()
	}
}

func (m *maker) editMetadata(value any) {
	metadata, ok := value.(map[string]any)
	if !ok {
		return
	}
	switch m.IntN(10) {
	case 0:
		metadata["name"] = m.text(nil)
	case 1:
		delete(metadata, "name")
		metadata["generateName"] = m.text(nil)
	case 2, 3:
		metadata["labels"] = map[string]any{m.text(nil): m.text(nil), "team": "a"}
	case 4:
		metadata["annotations"] = map[string]any{m.text(nil): m.text(nil)}
	case 5:
		metadata["finalizers"] = []any{m.text(nil)}
	case 6:
		// Good, because servers of other minors find other words for bad ones.
		metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "a"}}
	case 7:
		metadata[m.word()] = m.text(nil)
	case 8:
		metadata["labels"] = m.oddity()
	default:
		metadata["annotations"] = m.oddity()
	}
}

// editSlot changes one thing below an object, or adds one to it.
func (m *maker) editSlot(object map[string]any, p *place) {
	all := slots(object, p)
	if len(all) == 0 || m.IntN(12) == 0 {
		m.add(object, p)
		return
	}
	at := all[m.IntN(len(all))]
	switch m.IntN(9) {
	case 0:
		at.set(m.oddity())
	case 1:
		if at.object != nil {
			delete(at.object, at.key)
		}
	case 2:
		at.set(nil)
	case 3:
		if inner, ok := at.get().(map[string]any); ok {
			m.add(inner, at.place)
		} else {
			m.add(object, p)
		}
	case 4:
		if list, ok := at.get().([]any); ok && len(list) > 0 {
			at.set(append(slices.Clone(list), list[m.IntN(len(list))]))
		}
	case 5, 6:
		at.set(m.edge(at.place, at.get()))
	case 7:
		at.set(m.text(nil))
	default:
		if at.place != nil {
			at.set(m.good(at.place))
		}
	}
}

// add sets a field that there was not: one of the definition's, or one of nobody.
func (m *maker) add(object map[string]any, p *place) {
	switch {
	case p != nil && p.fields != nil && m.IntN(4) > 0:
		names := slices.Sorted(maps.Keys(p.fields))
		name := names[m.IntN(len(names))]
		object[name] = m.good(p.fields[name])
	case p != nil && p.values != nil:
		object[m.text(nil)] = m.good(p.values)
	default:
		object[m.word()] = m.oddity()
	}
}

// edge is a value at a bound of the place, or just beyond it.
func (m *maker) edge(p *place, now any) any {
	if p == nil {
		return m.oddity()
	}
	schema := p.schema
	beyond := m.IntN(2)
	var values []any
	if schema.Minimum != nil {
		values = append(values, int64(*schema.Minimum)-int64(beyond))
	}
	if schema.Maximum != nil {
		values = append(values, int64(*schema.Maximum)+int64(beyond))
	}
	if most := schema.MaxLength; most != nil {
		values = append(values, strings.Repeat("a", int(*most)+beyond))
	}
	if least := schema.MinLength; least != nil {
		values = append(values, strings.Repeat("a", max(0, int(*least)-beyond)))
	}
	if most := schema.MaxItems; most != nil && *most <= 300 {
		values = append(values, m.longList(p, int(*most)+beyond))
	}
	if most := schema.MaxProperties; most != nil {
		values = append(values, m.wideObject(p, int(*most)+beyond))
	}
	if len(values) == 0 {
		return now
	}
	return values[m.IntN(len(values))]
}

func (m *maker) longList(p *place, length int) any {
	list := make([]any, length)
	for i := range list {
		list[i] = m.good(p.elements)
		for _, key := range p.schema.XListMapKeys {
			if object, ok := list[i].(map[string]any); ok {
				object[key] = "N" + strconv.Itoa(i)
			}
		}
	}
	return list
}

func (m *maker) wideObject(p *place, size int) any {
	object := make(map[string]any, size)
	for i := range size {
		object["k"+strconv.Itoa(i)] = m.good(p.values)
	}
	return object
}

func (m *maker) oddity() any { return copied(oddities[m.IntN(len(oddities))]) }

// word is the name of a field of nobody: what a path prints without quotes.
func (m *maker) word() string {
	words := []string{"unheard", "maxRuners", "HubURL", "Spec", "template", "x-y", "a.b", "name", "labels", "apiVersion"}
	return words[m.IntN(len(words))]
}

// copied keeps an edit of one document out of the next.
func copied(value any) any {
	switch value := value.(type) {
	case map[string]any:
		object := make(map[string]any, len(value))
		for name, child := range value {
			object[name] = copied(child)
		}
		return object
	case []any:
		list := make([]any, len(value))
		for i := range value {
			list[i] = copied(value[i])
		}
		return list
	}
	return value
}
