package fleet

import (
	"slices"
	"strconv"
	"strings"

	"cloop.dev/cloop/schemas"
)

// trail is the way of a field of a rendered object back through the layers that
// made it. An entry of a list is not where it was: each operation that adds, removes
// or moves one before it has moved it. So the trail goes from the last layer to the
// first, undoes what each did to the places of entries, and is asked at each where
// the field was then.
type trail struct {
	object map[string]any
	// final are the tokens of the field's pointer in the end, now those behind the
	// layers that were not undone yet.
	final, now []string
	// lists: depth → the list that a token is an index into.
	lists map[int]*entries
	// ended says that a layer replaced the list that the field is in, so that no
	// earlier one has written it.
	ended bool
}

// entries of a list, as they are in the end; gone for those that are not there then.
type entries struct {
	of []any
	// unsure says that a strategic merge has touched the list: what was in it before
	// is known by identity alone.
	unsure bool
}

type gone struct{}

func (o *renderedObject) trail(pointer string) *trail {
	t := &trail{object: o.Object.Object, final: tokens(pointer)}
	// Only a list has another place for the field than the end has.
	t.now = t.final
	var value any = t.object
	for i, token := range t.final {
		next, ok := child(value, token)
		if list, is := value.([]any); is && ok {
			if t.lists == nil {
				t.lists, t.now = map[int]*entries{}, slices.Clone(t.final)
			}
			t.lists[i] = &entries{of: slices.Clone(list)}
		}
		if !ok {
			break
		}
		value = next
	}
	return t
}

// sure says whether the places of the entries that the field is in are known.
func (t *trail) sure(depth int) bool { return t.lists[depth] != nil && !t.lists[depth].unsure }

// in turns the trail into a pointer into a layer's document. Where a patch was
// merged into a list by key, an entry has another place in each.
func (t *trail) in(l *layer) string {
	var own strings.Builder
	var rendered, layer any = t.object, l.whole().Object.Object
	for i, token := range t.now {
		next, _ := child(rendered, t.final[i])
		if list, ok := layer.([]any); ok && (l.patch || !t.sure(i)) {
			at := entryIn(list, next, token)
			if at != "-" || l.patch {
				token = at
			}
			// Otherwise the entry was called something else here.
		}
		layer, _ = child(layer, token)
		rendered = next
		own.WriteString("/" + escape(token))
	}
	return own.String()
}

// unmerge goes back over a strategic merge patch. Entries that it added are those
// that no earlier layer has. A list of entries without an identity is replaced.
func (t *trail) unmerge(l *layer, earlier []*layer) {
	var value, rendered any = l.whole().Object.Object, t.object
	for i, token := range t.now {
		rendered, _ = child(rendered, t.final[i])
		if list, ok := value.([]any); ok && t.lists[i] != nil {
			if t.unmergeList(i, list, earlier); t.ended {
				return
			}
			token = entryIn(list, rendered, token)
		}
		next, ok := child(value, token)
		if !ok {
			return
		}
		value = next
	}
}

func (t *trail) unmergeList(depth int, patch []any, earlier []*layer) {
	of := t.lists[depth]
	of.unsure = true
	added := map[string]bool{}
	for _, entry := range patch {
		id, ok := identityOf(entry)
		if !ok {
			t.ended = true
			return
		}
		added[id] = !slices.ContainsFunc(earlier, func(l *layer) bool { return l.hasEntry(t.now[:depth], id) })
	}
	for i := len(of.of) - 1; i >= 0; i-- {
		if id, ok := identityOf(of.of[i]); ok && added[id] {
			t.ended = t.ended || i == t.index(depth)
			t.takeOut(depth, i)
		}
	}
}

// hasEntry says whether a layer has an entry of a list that has an identity.
func (l *layer) hasEntry(list []string, id string) bool {
	same := func(entry any) bool {
		own, ok := identityOf(entry)
		return ok && own == id
	}
	if l.document != nil {
		var value any = l.whole().Object.Object
		for _, token := range list {
			value, _ = child(value, token)
		}
		of, _ := value.([]any)
		return slices.ContainsFunc(of, same)
	}
	return slices.ContainsFunc(l.operations, func(op operation) bool {
		path := op.path
		var value any
		if op.Op != "add" || op.Value.Decode(&value) != nil {
			return false
		}
		if of, ok := value.([]any); ok && slices.Equal(path, list) {
			return slices.ContainsFunc(of, same)
		}
		return len(path) == len(list)+1 && slices.Equal(path[:len(list)], list) && same(value)
	})
}

// takeOut takes an entry out of a list that the field is in.
func (t *trail) takeOut(depth, at int) {
	of := t.lists[depth]
	of.of = slices.Delete(of.of, at, at+1)
	if own := t.index(depth); own > at {
		t.now[depth] = strconv.Itoa(own - 1)
	}
}

// putIn puts an entry into a list that the field is in, at a place.
func (t *trail) putIn(depth, at int, entry any) {
	of := t.lists[depth]
	of.of = slices.Insert(of.of, at, entry)
	if own := t.index(depth); own >= at {
		t.now[depth] = strconv.Itoa(own + 1)
	}
}

// index of the entry that the field is in.
func (t *trail) index(depth int) int {
	at, _ := strconv.Atoi(t.now[depth])
	return at
}

// operates says where a JSON patch sets, or removes, a field or a part of it, and
// goes back over the patch where it does not.
func (l *layer) operates(t *trail) (placed, bool) {
	for i := len(l.operations) - 1; i >= 0; i-- {
		op := &l.operations[i]
		rest, ok := t.undo(op)
		if !ok {
			continue
		}
		line, column := op.line, op.column
		if rest != "" && op.Value.Kind != 0 {
			value := schemas.Document{Node: &op.Value, Line: op.line}
			line, column = value.Position(rest)
		}
		return placed{file: l.file, line: int32(line), column: int32(column)}, true
	}
	return placed{}, false
}

// undo goes back over an operation. wrote: it has written the field, a part of it,
// or what it is in; rest is what then remains of the field's pointer below what was
// written. An entry that only has another place since was not written: the operation
// that adds, removes or moves a neighbour says nothing of it.
func (t *trail) undo(op *operation) (rest string, wrote bool) {
	path := op.path
	switch op.Op {
	case "test":
		return "", false
	case "remove":
		if t.beside(path) {
			t.undoRemove(path, gone{})
			return "", false
		}
	case "move":
		from := op.from
		if t.beside(path) && t.beside(from) {
			t.undoMove(path, from)
			return "", false
		}
		if rest, wrote = t.undoAdd(op, path); wrote {
			return rest, true
		}
		if t.beside(from) {
			t.undoRemove(from, gone{})
			return "", false
		}
		return t.reached(from)
	case "add", "copy":
		return t.undoAdd(op, path)
	}
	return t.reached(path)
}

// beside says whether a path is that of an entry of a list that the field is in an
// entry of.
func (t *trail) beside(path []string) bool {
	depth := len(path) - 1
	return depth >= 0 && depth < len(t.now) && t.lists[depth] != nil && t.leads(path[:depth])
}

// leads says whether the field is below a path. An index may count from the end.
func (t *trail) leads(path []string) bool {
	for i, token := range path {
		if i == len(t.now) {
			return false
		}
		if of := t.lists[i]; of != nil && strings.HasPrefix(token, "-") {
			token = strconv.Itoa(of.place(token, 0))
		}
		if token != t.now[i] {
			return false
		}
	}
	return true
}

// place is the index that a token means: "-" is the last entry of those that are
// there, and of one more where it is about to be put back; -1 where it is none.
func (e *entries) place(token string, more int) int {
	count := len(e.of) + more
	at, err := strconv.Atoi(token)
	switch {
	case token == "-":
		at = count - 1
	case err != nil:
		return -1
	case at < 0:
		// As the library that applies them counts.
		at += count
	}
	if at < 0 || at >= count {
		return -1
	}
	return at
}

// reached says whether what is at a path is the field, a part of it, or what it
// is in.
func (t *trail) reached(path []string) (rest string, ok bool) {
	if len(path) > len(t.now) {
		return "", slices.Equal(path[:len(t.now)], t.now)
	}
	if !t.leads(path) {
		return "", false
	}
	for _, token := range t.now[len(path):] {
		rest += "/" + escape(token)
	}
	return rest, true
}

func (t *trail) undoAdd(op *operation, path []string) (rest string, wrote bool) {
	depth := len(path) - 1
	if !t.beside(path) {
		return t.reached(path)
	}
	of := t.lists[depth]
	at := of.place(path[depth], 0)
	own := at == t.index(depth)
	if i := t.index(depth); of.unsure && op.Value.Kind != 0 && i < len(of.of) {
		own = op.added(of.of[i])
	}
	switch {
	case own:
		return t.reached(append(slices.Clone(path[:depth]), t.now[depth]))
	case at >= 0 && at != t.index(depth):
		t.takeOut(depth, at)
	}
	return "", false
}

func (t *trail) undoRemove(path []string, entry any) {
	depth := len(path) - 1
	if at := t.lists[depth].place(path[depth], 1); at >= 0 {
		t.putIn(depth, at, entry)
	}
}

// undoMove takes an entry back to where it was in its list.
func (t *trail) undoMove(path, from []string) {
	depth := len(path) - 1
	of := t.lists[depth]
	at := of.place(path[depth], 0)
	if at < 0 {
		return
	}
	entry, own := of.of[at], at == t.index(depth)
	t.takeOut(depth, at)
	to := of.place(from[depth], 1)
	t.undoRemove(from, entry)
	if own && to >= 0 {
		t.now[depth] = strconv.Itoa(to)
	}
}

// added says whether an entry of a list is what the operation adds.
func (op *operation) added(entry any) bool {
	var value any
	if op.Value.Decode(&value) != nil {
		return false
	}
	if own, ok := identityOf(value); ok {
		other, _ := identityOf(entry)
		return own == other
	}
	return canonical(value) == canonical(entry)
}

// pointer is where the field is now.
func (t *trail) pointer() string {
	var b strings.Builder
	for _, token := range t.now {
		b.WriteString("/" + escape(token))
	}
	return b.String()
}
