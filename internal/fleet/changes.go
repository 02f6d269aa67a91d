package fleet

import "strings"

// changes are what patches, and whatever else changes objects, may have brought:
// by the name of the object, or empty for what may be of any.
type changes struct {
	of map[string]*brought
	// any are those of all names.
	any brought
	// transformers bring what they say of all objects.
	transformers []*layer
}

// brought are fields that an object may have for a change.
type brought struct {
	// paths: what is set, with all below it → whether the path itself is among it.
	paths map[string]bool
	// above are the paths to what is set.
	above map[string]bool
	// all: nobody knows what is set.
	all bool
}

// add adds what a layer may bring.
func (c *changes) add(l *layer) {
	if l.fields != nil || l.copied != nil {
		c.transformers = append(c.transformers, l)
		return
	}
	c.addTo(l.plainTarget(), l)
}

// addTo adds what a patch may bring to an object of a name.
func (c *changes) addTo(name string, l *layer) {
	for _, of := range c.named(name) {
		of.all = of.all || l.unread
		if l.document != nil {
			of.value("", l.document.Object.Object)
		}
		for i := range l.operations {
			of.operation(&l.operations[i])
		}
	}
}

// named are the two places in which the changes of a name are kept.
func (c *changes) named(name string) [2]*brought {
	if c.of == nil {
		c.of = map[string]*brought{}
	}
	if c.of[name] == nil {
		c.of[name] = &brought{}
	}
	return [2]*brought{c.of[name], &c.any}
}

// bring says whether one of the changes may be why an object has a field. Without
// a name: why any object has.
func (c *changes) bring(name, pointer string) bool {
	for _, l := range c.transformers {
		if l.touches(pointer) {
			return true
		}
	}
	if name == "" {
		return c.any.has(pointer)
	}
	return c.of[""].has(pointer) || c.of[name].has(pointer)
}

// value adds what a strategic merge patch sets.
func (b *brought) value(pointer string, value any) {
	object, ok := value.(map[string]any)
	if _, directive := object["$patch"]; !ok || directive {
		b.set(pointer, true)
		return
	}
	if b.above == nil {
		b.above = map[string]bool{}
	}
	b.above[pointer] = true
	for key, child := range object {
		b.value(pointer+"/"+escape(key), child)
	}
}

// operation adds what an operation of a JSON patch sets; one that replaces needs
// that its path is there.
func (b *brought) operation(op *operation) {
	switch op.Op {
	case "add", "copy", "move":
		b.set(op.Path, true)
	case "replace":
		b.set(op.Path, false)
	}
}

func (b *brought) set(pointer string, itself bool) {
	if b.paths == nil {
		b.paths = map[string]bool{}
	}
	b.paths[pointer] = b.paths[pointer] || itself
}

func (b *brought) has(pointer string) bool {
	if b == nil {
		return false
	}
	if b.all || b.above[pointer] {
		return true
	}
	for at := pointer; strings.HasPrefix(at, "/"); at = at[:strings.LastIndexByte(at, '/')] {
		if itself, ok := b.paths[at]; ok && (itself || at != pointer) {
			return true
		}
	}
	return false
}
