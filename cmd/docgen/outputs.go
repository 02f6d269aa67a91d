package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"cloop.dev/cloop/internal/cli"
)

const module = "cloop.dev/cloop/"

// outputsPage lists the keys of what commands write as JSON. What a key is, its
// field's doc tag says, or the comment above it.
func outputsPage(root string) ([]byte, error) {
	page := outputs{root: root, described: map[string]map[string]string{}, names: map[reflect.Type]string{}}
	var b bytes.Buffer
	b.WriteString("<!-- Written by cmd/docgen from internal/cli. Change it there. -->\n\n# JSON and YAML\n\n" +
		"What commands write with `-o json` and `-o yaml`. Keys stay as they are; new ones may come. Times are as in RFC 3339. A\n" +
		"key with a `?` is left out where it has nothing to say. Causes, outcomes and reasons are in [reasons.md](reasons.md),\n" +
		"rules in [rules.md](rules.md), findings of the doctor in [findings.md](findings.md).\n\n" +
		"| command | writes |\n| --- | --- |\n")
	for _, o := range cli.Outputs() {
		command := "`" + o.Command + "`"
		if o.With != "" {
			command += " with `" + o.With + "`"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", command, page.typeOf(o.Type))
	}
	var missing []error
	for len(page.queue) > 0 {
		next := page.queue[0]
		page.queue = page.queue[1:]
		missing = append(missing, page.write(&b, next))
	}
	return b.Bytes(), errors.Join(missing...)
}

// outputs are the types that are described, each once, in the order in which they
// are met.
type outputs struct {
	root string
	// described: package → "Type" or "Type.Field" → what its source says of it.
	described map[string]map[string]string
	names     map[reflect.Type]string
	queue     []reflect.Type
}

// heading is the name of a type on the page, which has no other of that name.
func (p *outputs) heading(t reflect.Type) string {
	if name, known := p.names[t]; known {
		return name
	}
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	for _, taken := range p.names {
		if taken == name {
			of := path.Base(t.PkgPath())
			name = strings.ToUpper(of[:1]) + of[1:] + name
			break
		}
	}
	p.names[t] = name
	p.queue = append(p.queue, t)
	return name
}

var (
	marshalsText = reflect.TypeFor[encoding.TextMarshaler]()
	marshalsJSON = reflect.TypeFor[json.Marshaler]()
)

// typeOf names a type as JSON has it.
func (p *outputs) typeOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time"
	case t.Kind() == reflect.Pointer:
		return p.typeOf(t.Elem())
	case t.Implements(marshalsText):
		return "string"
	case t.Implements(marshalsJSON), t.Kind() == reflect.Interface:
		return "any value"
	}
	switch t.Kind() {
	case reflect.Struct:
		name := p.heading(t)
		return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
	case reflect.Slice, reflect.Array:
		return "list of " + p.typeOf(t.Elem())
	case reflect.Map:
		return "map of " + p.typeOf(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "string"
	}
	return "number"
}

// write describes a struct.
func (p *outputs) write(b *bytes.Buffer, t reflect.Type) error {
	fmt.Fprintf(b, "\n## %s\n", p.names[t])
	said, err := p.said(t, "")
	if err != nil {
		return err
	}
	if said != "" {
		fmt.Fprintf(b, "\n%s\n", said)
	}
	b.WriteString("\n| key | type | what it is |\n| --- | --- | --- |\n")
	return p.keys(b, t)
}

// keys are the rows of a struct's fields, those of embedded ones too. Its error names
// every field of which nothing says what it is.
func (p *outputs) keys(b *bytes.Buffer, t reflect.Type) error {
	var missing []error
	for i := range t.NumField() {
		field := t.Field(i)
		name, rest, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "":
			embedded := field.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			missing = append(missing, p.keys(b, embedded))
			continue
		case !field.IsExported() || name == "-":
			continue
		case name == "":
			missing = append(missing, fmt.Errorf("%s.%s has no JSON key: give it one, or \"-\"", t, field.Name))
			continue
		}
		what := field.Tag.Get("doc")
		if name == "items" {
			what = "What is listed."
		}
		if what == "" {
			var err error
			if what, err = p.said(t, field.Name); err != nil {
				return err
			}
		}
		if what == "" {
			missing = append(missing, fmt.Errorf("nothing says what %s.%s is: write a comment above it", t, field.Name))
			continue
		}
		if strings.Contains(rest, "omitempty") || strings.Contains(rest, "omitzero") {
			name += "?"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, p.typeOf(field.Type), strings.ReplaceAll(what, "|", `\|`))
	}
	return errors.Join(missing...)
}

// said is what the source says of a type, or of a field of it.
func (p *outputs) said(t reflect.Type, field string) (string, error) {
	of := t.PkgPath()
	if !strings.HasPrefix(of, module) {
		return "", fmt.Errorf("%s is of another module: what it is stands nowhere here", t)
	}
	if p.described[of] == nil {
		found, err := comments(filepath.Join(p.root, strings.TrimPrefix(of, module)))
		if err != nil {
			return "", err
		}
		p.described[of] = found
	}
	name := t.Name()
	text := p.described[of][name]
	if field != "" {
		name = field
		text = p.described[of][t.Name()+"."+field]
	}
	// "Drift is how many …" reads better without the Go name.
	if rest, ok := strings.CutPrefix(text, name+" "); ok {
		verb, more, _ := strings.Cut(rest, " ")
		if slices.Contains([]string{"is", "are", "says", "holds"}, verb) {
			text = strings.ToUpper(more[:1]) + more[1:]
		}
	}
	return text, nil
}

// comments are what the Go files of a folder say of their types and fields.
func comments(folder string) (map[string]string, error) {
	found := map[string]string{}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err == nil && len(files) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("read the sources in %s: %w", folder, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declaration := range file.Decls {
			types, ok := declaration.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			for _, spec := range types.Specs {
				if one, ok := spec.(*ast.TypeSpec); ok {
					describe(found, one, types.Doc)
				}
			}
		}
	}
	return found, nil
}

func notInName(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// describe adds what is said of a type and of its fields. A comment is for all the
// fields below it that it names, as in "Path and Revision are …".
func describe(found map[string]string, spec *ast.TypeSpec, above *ast.CommentGroup) {
	doc := spec.Doc
	if doc == nil {
		doc = above
	}
	found[spec.Name.Name] = oneLine(doc)
	fields, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	group := ""
	for _, field := range fields.Fields.List {
		said := oneLine(field.Doc)
		if said != "" {
			group = said
		}
		for _, name := range field.Names {
			if said == "" && slices.Contains(strings.FieldsFunc(group, notInName), name.Name) {
				found[spec.Name.Name+"."+name.Name] = group
				continue
			}
			found[spec.Name.Name+"."+name.Name] = said
		}
	}
}

func oneLine(doc *ast.CommentGroup) string {
	return strings.Join(strings.Fields(doc.Text()), " ")
}
