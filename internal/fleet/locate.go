package fleet

import (
	"strconv"
	"strings"

	"cloop.dev/cloop/schemas"
)

// locate puts a problem with an object at the place in the repository that sets
// the field: the last document or patch that has it. A field that none has, one
// that is missing or that a transformer made, is put at its nearest ancestor in
// the object's own document, or at the entry of a list that it is missing from.
func (o *renderedObject) locate(problem schemas.Problem) schemas.Problem {
	pointer, _ := pointerOf(o.Object.Object, problem.Field())
	if at, ok := o.madeWhole(pointer); ok {
		problem.File, problem.Line, problem.Column = at.file, int(at.line), int(at.column)
		return problem
	}
	if len(o.layers) == 0 {
		problem.File = o.File
		problem.Line, problem.Column = o.Position(pointer)
		return problem
	}
	if o.setBy(&problem, pointer) {
		return problem
	}
	if entry := entryOf(o.Object.Object, pointer); entry != "" && o.setBy(&problem, entry) {
		return problem
	}
	problem.File, problem.Line, problem.Column = o.File, o.Line, 1
	if own := o.layers[0]; own.document != nil && !own.patch {
		problem.Line, problem.Column = own.document.Position(pointer)
	}
	return problem
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

// setBy puts a problem where the last layer that sets the field does.
func (o *renderedObject) setBy(problem *schemas.Problem, pointer string) bool {
	for i := len(o.layers) - 1; i >= 0 && pointer != ""; i-- {
		layer := &o.layers[i]
		// A patch repeats the identity of what it patches; only the object's own
		// document gives it.
		if layer.patch && identifies(pointer) {
			continue
		}
		own := pointer
		if layer.document != nil {
			own = inLayer(o.Object.Object, layer.document.Object.Object, pointer)
		}
		if line, column, ok := layer.sets(own); ok {
			problem.File, problem.Line, problem.Column = layer.file, line, column
			return true
		}
	}
	return false
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
		next, ok := lookup(value, "/"+escape(token))
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

// inLayer turns a pointer into the rendered object into one into a layer: where
// a patch was merged into a list by key, an entry has another place in each.
func inLayer(rendered, layer any, pointer string) string {
	var own strings.Builder
	for _, token := range tokens(pointer) {
		next, _ := lookup(rendered, "/"+escape(token))
		if list, ok := layer.([]any); ok {
			token = entryIn(list, next, token)
		}
		layer, _ = lookup(layer, "/"+escape(token))
		rendered = next
		own.WriteString("/" + escape(token))
	}
	return own.String()
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

func identifies(pointer string) bool {
	switch pointer {
	case "/apiVersion", "/kind", "/metadata", "/metadata/name", "/metadata/namespace":
		return true
	}
	return false
}

// sets says where the layer sets, or removes, a field or a part of it.
func (l *layer) sets(pointer string) (line, column int, ok bool) {
	if l.document != nil {
		if _, exists := lookup(l.document.Object.Object, pointer); !exists {
			return 0, 0, false
		}
		line, column = l.document.Position(pointer)
		return line, column, true
	}
	for i := len(l.operations) - 1; i >= 0; i-- {
		op := &l.operations[i]
		switch {
		case op.Path == pointer, strings.HasPrefix(op.Path, pointer+"/"):
			return op.line, op.column, true
		case strings.HasPrefix(pointer, op.Path+"/"):
			value := schemas.Document{Node: &op.Value, Line: op.line}
			line, column = value.Position(strings.TrimPrefix(pointer, op.Path))
			return line, column, true
		}
	}
	return 0, 0, false
}

// lookup finds the value that a JSON pointer leads to. A null counts as there.
func lookup(value any, pointer string) (any, bool) {
	for _, token := range tokens(pointer) {
		switch node := value.(type) {
		case map[string]any:
			next, ok := node[token]
			if !ok {
				return nil, false
			}
			value = next
		case []any:
			index, err := strconv.Atoi(token)
			if err != nil || index < 0 || index >= len(node) {
				return nil, false
			}
			value = node[index]
		default:
			return nil, false
		}
	}
	return value, true
}

// tokens splits a JSON pointer and unescapes its parts.
func tokens(pointer string) []string {
	if pointer == "" || pointer == "/" {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
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
		value, _ = lookup(value, "/"+escape(token))
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
