package fleet

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"cloop.dev/cloop/schemas"
)

// locate puts a problem with an object at the place in the repository that
// wrote the field last: a document, a patch, a transformer, the source of a
// replacement, or a variable's value. A field that none has is put at the
// innermost part that is there, in the object's own document or where else that
// is written.
func (o *renderedObject) locate(problem schemas.Problem) schemas.Problem {
	pointer, _ := pointerOf(o.Object.Object, problem.Field())
	pointer = o.writtenLast(pointer, problem.Fields)
	if problem.Rule == schemas.RuleMetadata {
		pointer = o.entryQuoted(pointer, problem.Message)
	}
	at := o.origins.of(o.at(pointer, 0))
	problem.File, problem.Line, problem.Column = at.file, int(at.line), int(at.column)
	return problem
}

// writtenLast is, of the fields that a rule looks at, the one whose value comes
// from what is nearest to the root: that broke the rule, with what was there
// before. Where none comes after the field that the rule names, it stays that.
func (o *renderedObject) writtenLast(pointer string, fields []string) string {
	if len(fields) < 2 {
		return pointer
	}
	best, last := pointer, o.writer(pointer)
	for _, field := range fields {
		other, _ := pointerOf(o.Object.Object, field)
		if at := o.writer(other); at > last {
			best, last = other, at
		}
	}
	return best
}

// writer is the place, among the layers, of the one that wrote a field last; a
// variable's value comes after all of them. It is -1 where none has.
func (o *renderedObject) writer(pointer string) int {
	if _, ok := o.madeWhole(pointer); ok {
		return len(o.layers)
	}
	i, _ := o.last(pointer, 0)
	return i
}

// at is the place that wrote a field last.
func (o *renderedObject) at(pointer string, depth int) placed {
	if given, ok := o.madeWhole(pointer); ok {
		return given
	}
	if len(o.layers) == 0 {
		line, column := o.Position(pointer)
		return placed{file: o.File, line: int32(line), column: int32(column)}
	}
	if found, ok := o.setBy(pointer, depth); ok {
		return found
	}
	if entry := entryOf(o.Object.Object, pointer); entry != "" {
		if found, ok := o.setBy(entry, depth); ok {
			return found
		}
	}
	own := o.own()
	if held := heldOf(o.Object.Object, pointer); held != "" && (own == nil || !own.has(held)) {
		if found, ok := o.setBy(held, depth); ok {
			return found
		}
	}
	if own == nil {
		return placed{file: o.File, line: int32(o.Line), column: 1}
	}
	if given, ok := own.given[pointer]; ok {
		return given
	}
	line, column := own.whole().Position(o.first(pointer))
	return placed{file: own.file, line: int32(line), column: int32(column)}
}

// entryQuoted goes from labels or annotations to the one that a message quotes:
// an API server names only the whole map.
func (o *renderedObject) entryQuoted(pointer, message string) string {
	if pointer != "/metadata/labels" && pointer != "/metadata/annotations" {
		return pointer
	}
	entries, _ := lookup(o.Object.Object, pointer)
	of, _ := entries.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(of)) {
		value, _ := of[key].(string)
		if len(validation.IsQualifiedName(key)) > 0 && strings.Contains(message, strconv.Quote(key)) ||
			len(validation.IsValidLabelValue(value)) > 0 && strings.Contains(message, strconv.Quote(value)) {
			return pointer + "/" + escape(key)
		}
	}
	return pointer
}

// has says whether a layer's document has a field.
func (l *layer) has(pointer string) bool {
	_, ok := lookup(l.whole().Object.Object, pointer)
	return ok
}

// madeWhole is where the value of a variable is given that alone made a field,
// or what the field is in.
func (o *renderedObject) madeWhole(pointer string) (placed, bool) {
	for at := pointer; at != "" && len(o.variables) > 0; at = at[:strings.LastIndexByte(at, '/')] {
		if given, ok := o.variables[at]; ok {
			return given, true
		}
	}
	return placed{}, false
}

// setBy is where the last layer that sets the field does.
func (o *renderedObject) setBy(pointer string, depth int) (placed, bool) {
	i, at := o.last(pointer, depth)
	return at, i >= 0
}

// last is the last layer that sets a field, and where it does; -1 where none does.
func (o *renderedObject) last(pointer string, depth int) (number int, at placed) {
	if pointer == "" {
		return -1, placed{}
	}
	t := o.trail(pointer)
	for i := len(o.layers) - 1; i >= 0 && !t.ended; i-- {
		if found, ok := o.wrote(i, t, depth); ok {
			return i, found
		}
	}
	return -1, placed{}
}

// first is a field's pointer in the object's own document.
func (o *renderedObject) first(pointer string) string {
	t := o.trail(pointer)
	for i := len(o.layers) - 1; i > 0 && !t.ended; i-- {
		_, _ = o.wrote(i, t, maxCopies+1)
	}
	return t.in(o.layers[0])
}

// wrote is where a layer sets a field, if it does. The trail is then before it.
func (o *renderedObject) wrote(number int, t *trail, depth int) (placed, bool) {
	l := o.layers[number]
	switch {
	case l.fields != nil:
		return l.changes(o, t)
	case l.copied != nil:
		return l.copies(o, t, depth)
	case l.generated:
		found, ok := l.given[t.pointer()]
		return found, ok
	case l.patch && l.document != nil:
		// It repeats the identity of what it patches.
		found, ok := l.writes(t.in(l))
		if ok = ok && !identifies(t.now); !ok {
			t.unmerge(l, o.layers[:number])
		}
		return found, ok
	case l.document != nil:
		return l.writes(t.in(l))
	}
	return l.operates(t)
}

// heldOf cuts a pointer down to what the object has of it; empty where that is
// all of it or nothing.
func heldOf(object map[string]any, pointer string) string {
	var value any = object
	var held strings.Builder
	for _, token := range tokens(pointer) {
		next, ok := child(value, token)
		if !ok {
			return held.String()
		}
		held.WriteString("/" + escape(token))
		value = next
	}
	return ""
}

// entryOf cuts a pointer to a field that the object lacks down to what it has,
// if that is in a list: whoever wrote the entry left the field out. It is empty
// otherwise.
func entryOf(object map[string]any, pointer string) string {
	var value any = object
	var held strings.Builder
	inList := false
	for _, token := range tokens(pointer) {
		_, list := value.([]any)
		next, ok := child(value, token)
		if !ok {
			break
		}
		inList = inList || list
		held.WriteString("/" + escape(token))
		value = next
	}
	if !inList {
		return ""
	}
	return held.String()
}

// entryIn finds a rendered entry in a layer's list. "-" is no entry.
func entryIn(list []any, entry any, token string) string {
	identity, ok := identityOf(entry)
	if !ok {
		return token
	}
	if at, err := strconv.Atoi(token); err == nil && at < len(list) {
		if same, _ := identityOf(list[at]); same == identity {
			return token
		}
	}
	for i := range list {
		if same, ok := identityOf(list[i]); ok && same == identity {
			return strconv.Itoa(i)
		}
	}
	return "-"
}

// identityOf is what tells an entry of a list from the others, as far as a
// merge goes: its name, or a toleration's key.
func identityOf(entry any) (string, bool) {
	object, _ := entry.(map[string]any)
	for _, field := range []string{"name", "key"} {
		if text, ok := object[field].(string); ok {
			return field + "=" + text, true
		}
	}
	return "", false
}

func identifies(field []string) bool {
	switch "/" + strings.Join(field, "/") {
	case "/apiVersion", "/kind", "/metadata", "/metadata/name", "/metadata/namespace":
		return true
	}
	return false
}

// writes says where a document sets a field, or removes it with a null.
func (l *layer) writes(pointer string) (placed, bool) {
	if !l.has(pointer) {
		return placed{}, false
	}
	line, column := l.whole().Position(pointer)
	return placed{file: l.file, line: int32(line), column: int32(column)}, true
}

// lookup finds the value that a JSON pointer leads to. A null counts as there.
func lookup(value any, pointer string) (any, bool) {
	for _, token := range tokens(pointer) {
		next, ok := child(value, token)
		if !ok {
			return nil, false
		}
		value = next
	}
	return value, true
}

// child finds the value of a key, or of an index.
func child(value any, token string) (any, bool) {
	switch node := value.(type) {
	case map[string]any:
		next, ok := node[token]
		return next, ok
	case []any:
		index, err := strconv.Atoi(token)
		if err != nil || index < 0 || index >= len(node) {
			return nil, false
		}
		return node[index], true
	}
	return nil, false
}

// tokens splits a JSON pointer and unescapes its parts.
func tokens(pointer string) []string {
	if pointer == "" || pointer == "/" {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	if !strings.Contains(pointer, "~") {
		return parts
	}
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
	}
	return parts
}

// escape makes a key a part of a JSON pointer.
func escape(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// printPath is the inverse of pointerOf.
func printPath(value any, pointer string) string {
	var b strings.Builder
	for _, token := range tokens(pointer) {
		if _, list := value.([]any); list {
			b.WriteString("[" + token + "]")
		} else {
			b.WriteString("." + token)
		}
		value, _ = child(value, token)
	}
	return strings.TrimPrefix(b.String(), ".")
}

// pointerOf turns a path as the API server prints it into a JSON pointer. Such
// a path is ambiguous, because keys have dots and are printed after a dot by one
// check and in brackets by another: the object decides, the longest key first.
// whole is false where the object ends before the path; the rest of it is then
// taken literally.
func pointerOf(value any, printed string) (pointer string, whole bool) {
	var b strings.Builder
	for printed != "" {
		key, next, rest, ok := stepInto(value, printed)
		if !ok {
			appendLiteral(&b, printed)
			return b.String(), false
		}
		b.WriteString("/" + escape(key))
		value, printed = next, rest
	}
	return b.String(), true
}

func stepInto(value any, printed string) (key string, next any, rest string, ok bool) {
	inner, bracket := strings.CutPrefix(strings.TrimPrefix(printed, "."), "[")
	switch node := value.(type) {
	case []any:
		text, after, closed := strings.Cut(inner, "]")
		index, err := strconv.Atoi(text)
		if !bracket || !closed || err != nil || index < 0 || index >= len(node) {
			return "", nil, "", false
		}
		return text, node[index], after, true
	case map[string]any:
		best := -1
		for candidate, child := range node {
			after, found := strings.CutPrefix(inner, candidate)
			if bracket && found {
				after, found = strings.CutPrefix(after, "]")
			}
			ends := after == "" || strings.ContainsAny(after[:1], ".[")
			if found && ends && len(candidate) > best {
				best, key, next, rest = len(candidate), candidate, child, after
			}
		}
		return key, next, rest, best >= 0
	}
	return "", nil, "", false
}

func appendLiteral(b *strings.Builder, printed string) {
	for _, part := range strings.FieldsFunc(printed, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		b.WriteString("/" + escape(part))
	}
}
