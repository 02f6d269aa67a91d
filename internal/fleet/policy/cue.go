package policy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"cuelang.org/go/cue/scanner"
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
)

const (
	// maxCUE bounds a file in bytes. CUE's scanner takes time that grows with the
	// square of some texts, such as one of signs for attributes alone.
	maxCUE = 32 << 10
	// maxValues bounds the values of a file; a rule has ten at the most.
	maxValues = 5000
	// maxDepth bounds how deep values are nested; a rule needs four.
	maxDepth = 32
)

// cueReader reads the part of CUE that is plain data: structs, lists and texts.
// What it takes means the same to CUE. The rest of the language is refused, not
// evaluated: an evaluator can be made to take all time and memory there is by a
// few lines, and knows no deadline. Nor is CUE's parser asked, which goes on
// after an error, and takes seconds over a small file that has nothing else.
// This text is anybody's who can open a pull request.
type cueReader struct {
	file    string
	lines   [][]byte
	scanner scanner.Scanner
	// pos, tok and literal are the token that is next.
	pos     token.Pos
	tok     token.Token
	literal string
	broken  error
	// values were read so far.
	values int
}

// unread is why a file is no data.
type unread struct {
	place
	path, message, hint string
}

func (u *unread) Error() string { return u.message }

// readCUE returns the file's value, or the first thing that makes it no data.
func readCUE(file string, data []byte) (*value, []schemas.Problem) {
	whole := place{file, 1, 1}
	switch {
	case len(data) > maxCUE:
		return nil, []schemas.Problem{whole.problem("", fmt.Sprintf("the file is larger than %d KiB", maxCUE>>10), "have fewer rules")}
	case !utf8.Valid(data):
		return nil, []schemas.Problem{whole.problem("", "the file is not UTF-8", "save it as UTF-8")}
	}
	r := &cueReader{file: file, lines: bytes.Split(data, []byte("\n"))}
	r.scanner.Init(token.NewFile(file, -1, len(data)), data, func(pos token.Pos, message string, args []any) {
		if r.broken == nil {
			r.broken = r.unread(pos, "", fmt.Sprintf(message, args...), "correct the CUE; no rule of the file counts until then")
		}
	}, 0)
	top := &value{place: whole, start: whole, kind: aStruct}
	err := r.next()
	if err == nil {
		err = r.document(top)
	}
	if reason := (*unread)(nil); errors.As(err, &reason) {
		return nil, []schemas.Problem{reason.problem(reason.path, reason.message, reason.hint)}
	}
	return top, nil
}

func (r *cueReader) unread(pos token.Pos, path, message, hint string) error {
	return &unread{r.at(pos), path, message, hint}
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

// next goes on to the next token.
func (r *cueReader) next() error {
	r.pos, r.tok, r.literal = r.scanner.Scan()
	return r.broken
}

const plainData = "write it out: rules are data here, so that reading them is safe wherever they come from"

// unexpected is the error about the token that is next.
func (r *cueReader) unexpected(path string) error {
	message := "only names, texts, lists and structs are taken here"
	switch r.tok {
	case token.EOF:
		return r.unread(r.pos, path, "the file ends in the middle of something", "close what is open")
	case token.INTERPOLATION:
		message = "interpolations are not taken here"
	case token.ATTRIBUTE:
		message = "attributes are not taken here"
	}
	return r.unread(r.pos, path, message, plainData)
}

// document reads a file's package clause and its fields.
func (r *cueReader) document(top *value) error {
	for r.tok == token.IDENT && (r.literal == "package" || r.literal == "import") {
		pos, clause := r.pos, r.literal
		if err := r.next(); err != nil {
			return err
		}
		switch {
		case r.tok == token.COLON:
			return r.fieldsFrom(top, token.EOF, 0, &label{clause, pos})
		case clause == "import":
			return r.unread(pos, "", "imports are not taken here", plainData)
		case r.tok != token.IDENT:
			return r.unexpected("")
		}
		if err := r.next(); err != nil {
			return err
		}
		if err := r.separator(top, token.EOF); err != nil {
			return err
		}
	}
	return r.fieldsFrom(top, token.EOF, 0, nil)
}

// label is a field's name that was read already.
type label struct {
	name string
	pos  token.Pos
}

// fieldsFrom reads the fields of a struct up to the token that ends it, which it
// leaves. first, if any, is the name of the first field.
func (r *cueReader) fieldsFrom(into *value, end token.Token, depth int, first *label) error {
	for first != nil || r.tok != end {
		name := first
		if first = nil; name == nil {
			var err error
			if name, err = r.label(into.path); err != nil {
				return err
			}
		}
		if err := r.field(into, *name, depth); err != nil {
			return err
		}
		if err := r.separator(into, end); err != nil {
			return err
		}
	}
	return nil
}

// label reads a name. Hidden ones and definitions are names that no field here
// has.
func (r *cueReader) label(path string) (*label, error) {
	l := &label{r.literal, r.pos}
	switch r.tok {
	case token.IDENT:
	case token.STRING:
		text, err := unquote(r.literal)
		if err != nil {
			return nil, r.unread(r.pos, path, err.Error(), "correct the text")
		}
		l.name = text
	default:
		return nil, r.unexpected(path)
	}
	return l, r.next()
}

// field reads what follows a name: a colon, and a value or another name with its
// value, which stands for a struct with that one field.
func (r *cueReader) field(into *value, l label, depth int) error {
	path := strings.TrimPrefix(into.path+"."+l.name, ".")
	if r.values++; r.values > maxValues {
		return r.unread(l.pos, path, fmt.Sprintf("the file has more than %d values", maxValues), "have fewer rules")
	}
	if depth == maxDepth {
		return r.unread(l.pos, path, fmt.Sprintf("this is nested more than %d deep", maxDepth), "write a rule as docs/rules.md shows")
	}
	if r.tok != token.COLON {
		if r.tok == token.EOF || r.tok == token.INTERPOLATION {
			return r.unexpected(path)
		}
		return r.unread(l.pos, path, "only plain names with a value are taken for a field", plainData)
	}
	if err := r.next(); err != nil {
		return err
	}
	v, err := r.fieldValue(path, depth)
	if err != nil {
		return err
	}
	if r.tok == token.ATTRIBUTE {
		return r.unexpected(path)
	}
	v.name, v.place = l.name, r.at(l.pos)
	return r.unify(into, v)
}

func (r *cueReader) fieldValue(path string, depth int) (*value, error) {
	if r.tok != token.IDENT && r.tok != token.STRING {
		return r.value(path, depth)
	}
	// A text is the value, unless a colon makes it a name.
	pos, tok, text := r.pos, r.tok, r.literal
	if err := r.next(); err != nil {
		return nil, err
	}
	if r.tok != token.COLON {
		if tok != token.STRING {
			return nil, r.unread(pos, path, "references are not taken here", plainData)
		}
		return r.text(pos, text, path)
	}
	l := label{text, pos}
	if tok == token.STRING {
		var err error
		if l.name, err = unquote(text); err != nil {
			return nil, r.unread(pos, path, err.Error(), "correct the text")
		}
	}
	at := r.at(pos)
	v := &value{place: at, start: at, path: path, kind: aStruct}
	return v, r.field(v, l, depth+1)
}

// text is the value of a literal that was read already.
func (r *cueReader) text(pos token.Pos, written, path string) (*value, error) {
	text, err := unquote(written)
	if err != nil {
		return nil, r.unread(pos, path, err.Error(), "correct the text")
	}
	at := r.at(pos)
	return &value{place: at, start: at, path: path, kind: aText, text: text, literal: written}, nil
}

// value reads a text, a list or a struct.
func (r *cueReader) value(path string, depth int) (*value, error) {
	at := r.at(r.pos)
	v := &value{place: at, start: at, path: path}
	if depth == maxDepth {
		return nil, r.unread(r.pos, path, fmt.Sprintf("this is nested more than %d deep", maxDepth), "write a rule as docs/rules.md shows")
	}
	var err error
	switch r.tok {
	case token.STRING:
		pos, written := r.pos, r.literal
		if err := r.next(); err != nil {
			return nil, err
		}
		return r.text(pos, written, path)
	case token.LBRACE:
		v.kind = aStruct
		if err = r.next(); err == nil {
			err = r.fieldsFrom(v, token.RBRACE, depth+1, nil)
		}
	case token.LBRACK:
		v.kind = aList
		if err = r.next(); err == nil {
			err = r.elements(v, depth+1)
		}
	default:
		return nil, r.unexpected(path)
	}
	if err != nil {
		return nil, err
	}
	return v, r.next()
}

func (r *cueReader) elements(into *value, depth int) error {
	for r.tok != token.RBRACK {
		if len(into.items) == maxMatches {
			return r.unread(r.pos, into.path, fmt.Sprintf("a list has at most %d elements", maxMatches), "use patterns such as gpu-*")
		}
		item, err := r.value(fmt.Sprintf("%s[%d]", into.path, len(into.items)), depth)
		if err != nil {
			return err
		}
		into.items = append(into.items, item)
		if err := r.separator(into, token.RBRACK); err != nil {
			return err
		}
	}
	return nil
}

// separator reads the comma, or the end of the line, between two fields or
// elements. Before the end there may be none.
func (r *cueReader) separator(within *value, end token.Token) error {
	if r.tok == end {
		return nil
	}
	if r.tok != token.COMMA {
		return r.unexpected(within.path)
	}
	return r.next()
}

// unify adds a field. CUE lets one be written in several places: structs are put
// together, and of other values each must say the same.
func (r *cueReader) unify(into, v *value) error {
	before := into.field(v.name)
	switch {
	case before == nil:
		into.fields = append(into.fields, v)
	case before.kind == aStruct && v.kind == aStruct:
		for _, field := range v.fields {
			if err := r.unify(before, field); err != nil {
				return err
			}
		}
	case !before.equal(v):
		return &unread{v.place, v.path, fmt.Sprintf("it has another value on line %d", before.line), "keep one of the two"}
	}
	return nil
}

func (v *value) equal(w *value) bool {
	if v.kind != w.kind || v.text != w.text || len(v.items) != len(w.items) || len(v.fields) != len(w.fields) {
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

// within is where a position in a text stands in the file; lines count from 1,
// columns from 0, in characters. It is where the text begins where escapes make
// the two differ.
func (v *value) within(line, column int) place {
	quotes := strings.TrimLeft(v.literal, "#")
	hashes := len(v.literal) - len(quotes)
	if strings.Contains(v.literal, `\`+v.literal[:hashes]) {
		return v.start
	}
	if !strings.HasPrefix(quotes, tripled) {
		return place{v.start.file, v.start.line, v.start.column + hashes + 1 + column}
	}
	last := v.literal[strings.LastIndexByte(v.literal, '\n')+1:]
	return place{v.start.file, v.start.line + line, strings.IndexByte(last, '"') + 1 + column}
}
