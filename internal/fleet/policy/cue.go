package policy

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"cloop.dev/cloop/schemas"
)

// value is what a CUE file says at a place: a text, a list or fields.
type value struct {
	place
	// start is where the value itself begins, behind the name of a field.
	start  place
	path   string
	kind   valueKind
	text   string
	items  []*value
	fields []*value
	// name is the field's, where the value is one's.
	name string
	// literal is the text as it is written.
	literal string
}

type valueKind string

const (
	aText   valueKind = "a text"
	aList   valueKind = "a list"
	aStruct valueKind = "a struct"
	other   valueKind = "something else"
)

// cueReader reads the part of CUE that is plain data: structs, lists and texts.
// What it takes means the same to CUE. The rest of the language is refused, not
// evaluated: an evaluator can be made to take all time and memory there is by a
// few lines, knows no deadline, and this text is anybody's who can open a pull
// request.
type cueReader struct {
	file     string
	lines    [][]byte
	problems []schemas.Problem
}

// readCUE returns the file's value, nil where it is no data.
func readCUE(file string, data []byte) (*value, []schemas.Problem) {
	r := &cueReader{file: file, lines: bytes.Split(data, []byte("\n"))}
	if len(data) > maxFile {
		r.fail(token.NoPos, "", fmt.Sprintf("the file is larger than %d KiB", maxFile>>10), "have fewer rules")
		return nil, r.problems
	}
	if !utf8.Valid(data) {
		r.fail(token.NoPos, "", "the file is not UTF-8", "save it as UTF-8")
		return nil, r.problems
	}
	parsed, err := parser.ParseFile(file, data)
	if err != nil {
		const most = 5
		for i, one := range errors.Errors(err) {
			if i < most {
				format, args := one.Msg()
				r.fail(one.Position(), "", fmt.Sprintf(format, args...), "correct the CUE; no rule of the file counts until then")
			}
		}
		return nil, r.problems
	}
	top := &value{place: place{file, 1, 1}, kind: aStruct}
	r.declarations(top, parsed.Decls)
	return top, r.problems
}

func (r *cueReader) fail(pos token.Pos, path, message, hint string) {
	r.problems = append(r.problems, r.at(pos).problem(path, message, hint))
}

// at counts columns in characters, as problems do; CUE counts bytes.
func (r *cueReader) at(pos token.Pos) place {
	at := place{r.file, pos.Line(), pos.Column()}
	if n := at.line - 1; n >= 0 && n < len(r.lines) && at.column > 0 {
		line := r.lines[n]
		at.column = utf8.RuneCount(line[:min(at.column-1, len(line))]) + 1
	}
	return at
}

const plainData = "write it out: rules are data here, so that reading them is safe wherever they come from"

func (r *cueReader) declarations(into *value, declarations []ast.Decl) {
	for _, declaration := range declarations {
		switch d := declaration.(type) {
		case *ast.Package, *ast.CommentGroup:
		case *ast.Field:
			r.field(into, d)
		case *ast.ImportDecl:
			r.fail(d.Pos(), into.path, "imports are not taken here", plainData)
		case *ast.Attribute:
			r.fail(d.Pos(), into.path, "attributes are not taken here", "remove it")
		default:
			r.fail(declaration.Pos(), into.path, "only fields with values are taken here", plainData)
		}
	}
}

func (r *cueReader) field(into *value, f *ast.Field) {
	name, ok := label(f.Label)
	switch path := strings.TrimPrefix(into.path+"."+name, "."); {
	case !ok:
		r.fail(f.Pos(), into.path, "only plain names and quoted ones are taken for a field", plainData)
	case f.Constraint != token.ILLEGAL || f.Alias != nil || len(f.Attrs) > 0:
		r.fail(f.Pos(), path, "markers, aliases and attributes of a field are not taken here", plainData)
	default:
		v := r.value(f.Value, path)
		v.name, v.place = name, r.at(f.Label.Pos())
		r.unify(into, v)
	}
}

// label is a field's name. Hidden ones and definitions are names that no field
// here has.
func label(l ast.Label) (string, bool) {
	switch l := l.(type) {
	case *ast.Ident:
		return l.Name, true
	case *ast.BasicLit:
		if l.Kind == token.STRING {
			text, err := literal.Unquote(l.Value)
			return text, err == nil
		}
	}
	return "", false
}

// unify adds a field. CUE lets one be written in several places: structs are put
// together, and of other values each must say the same.
func (r *cueReader) unify(into, v *value) {
	for _, before := range into.fields {
		if before.name != v.name {
			continue
		}
		if before.kind == aStruct && v.kind == aStruct {
			for _, field := range v.fields {
				r.unify(before, field)
			}
			return
		}
		if !before.equal(v) {
			r.problems = append(r.problems, v.problem(v.path, fmt.Sprintf("it has another value on line %d", before.line), "keep one of the two"))
		}
		return
	}
	into.fields = append(into.fields, v)
}

func (v *value) equal(w *value) bool {
	if v.kind != w.kind || v.kind == other || v.text != w.text || len(v.items) != len(w.items) || len(v.fields) != len(w.fields) {
		return false
	}
	for i := range v.items {
		if !v.items[i].equal(w.items[i]) {
			return false
		}
	}
	// Structs of lists may have their fields in any order.
	for _, field := range v.fields {
		same := w.field(field.name)
		if same == nil || !field.equal(same) {
			return false
		}
	}
	return true
}

func (v *value) field(name string) *value {
	for _, field := range v.fields {
		if field.name == name {
			return field
		}
	}
	return nil
}

func (r *cueReader) value(expression ast.Expr, path string) *value {
	at := r.at(expression.Pos())
	v := &value{place: at, start: at, path: path, kind: other}
	switch e := expression.(type) {
	case *ast.StructLit:
		v.kind = aStruct
		r.declarations(v, e.Elts)
		return v
	case *ast.ListLit:
		v.kind = aList
		for i, item := range e.Elts {
			v.items = append(v.items, r.value(item, fmt.Sprintf("%s[%d]", path, i)))
		}
		return v
	case *ast.BasicLit:
		if e.Kind == token.STRING && !strings.HasPrefix(strings.TrimLeft(e.Value, "#"), "'") {
			text, err := literal.Unquote(e.Value)
			if err != nil {
				r.fail(e.Pos(), path, err.Error(), "correct the text")
				return v
			}
			v.kind, v.text, v.literal = aText, text, e.Value
			return v
		}
	case *ast.Interpolation:
		r.fail(e.Pos(), path, "interpolations are not taken here", plainData)
		return v
	}
	r.fail(expression.Pos(), path, "only texts, lists and structs are taken here", plainData)
	return v
}

// within is where a position in a text stands in the file; lines count from 1,
// columns from 0, in characters. It is where the text begins where escapes make
// the two differ.
func (v *value) within(line, column int) place {
	quotes := strings.TrimLeft(v.literal, "#")
	hashes := len(v.literal) - len(quotes)
	if strings.Contains(v.literal, `\`+v.literal[:hashes]) {
		return v.start
	}
	if !strings.HasPrefix(quotes, `"""`) {
		return place{v.start.file, v.start.line, v.start.column + hashes + 1 + column}
	}
	last := v.literal[strings.LastIndexByte(v.literal, '\n')+1:]
	return place{v.start.file, v.start.line + line, strings.IndexByte(last, '"') + 1 + column}
}
