package fleet

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// copied is a replacement: a value that is taken from a field of one object and
// put into fields of others.
type copied struct {
	// at is where the entry stands.
	at position
	// given is where the value itself stands, of a replacement without a source.
	given   *position
	source  selector
	field   string
	partial bool
	targets []copiedTo
}

// selector names objects exactly; what is empty matches all.
type selector struct {
	Group     string `yaml:"group"`
	Version   string `yaml:"version"`
	Kind      string `yaml:"kind"`
	Name      string `yaml:"name"`
	Namespace string `yaml:"namespace"`
}

type copiedTo struct {
	selects selector
	rejects []selector
	fields  []string
	// partial: it becomes a part of what is there.
	partial bool
}

func (s selector) matches(o *renderedObject) bool {
	gvk := o.Object.GroupVersionKind()
	names := []string{o.Object.GetName()}
	namespaces := []string{o.Object.GetNamespace()}
	if own := o.own(); own != nil {
		names = append(names, own.names...)
		namespaces = append(namespaces, own.document.Object.GetNamespace())
	}
	return (s.Group == "" || s.Group == gvk.Group) && (s.Version == "" || s.Version == gvk.Version) && (s.Kind == "" || s.Kind == gvk.Kind) &&
		(s.Name == "" || slices.Contains(names, s.Name)) && (s.Namespace == "" || slices.Contains(namespaces, s.Namespace))
}

// replacements adds the entries of a list of replacements, or the one that a
// file is.
func (s *scan) replacements(file string, of *yaml.Node) {
	if of.Kind == yaml.DocumentNode && len(of.Content) > 0 {
		of = of.Content[0]
	}
	entries := []*yaml.Node{of}
	if of.Kind == yaml.SequenceNode {
		entries = of.Content
	}
	for _, entry := range entries {
		if c := decodeCopied(entry); c != nil {
			s.add(layer{file: file, patch: true, copied: c})
		}
	}
}

// decodeCopied reads an entry; nil for one that names a file, or that kustomize
// refuses.
func decodeCopied(entry *yaml.Node) *copied {
	type options struct {
		Delimiter string `yaml:"delimiter"`
	}
	var text struct {
		Source struct {
			selector  `yaml:",inline"`
			FieldPath string  `yaml:"fieldPath"`
			Options   options `yaml:"options"`
		} `yaml:"source"`
		Targets []struct {
			Select     selector   `yaml:"select"`
			Reject     []selector `yaml:"reject"`
			FieldPaths []string   `yaml:"fieldPaths"`
			Options    options    `yaml:"options"`
		} `yaml:"targets"`
	}
	if entry.Decode(&text) != nil || len(text.Targets) == 0 {
		return nil
	}
	c := &copied{at: whereIs(entry), source: text.Source.selector, field: text.Source.FieldPath, partial: text.Source.Options.Delimiter != ""}
	if _, value := entryNamed(entry, "sourceValue"); value != nil {
		given := whereIs(value)
		c.given = &given
	}
	for _, to := range text.Targets {
		fields := to.FieldPaths
		if len(fields) == 0 {
			fields = []string{"metadata.name"}
		}
		c.targets = append(c.targets, copiedTo{selects: to.Select, rejects: to.Reject, fields: fields, partial: to.Options.Delimiter != ""})
	}
	return c
}

// sets says where a replacement took what it put into a field: from a field of
// the source, or, where it is only a part of the value, from the entry itself.
func (l *layer) copies(o *renderedObject, t *trail, depth int) (placed, bool) {
	for _, to := range l.copied.targets {
		if !to.selects.matches(o) || slices.ContainsFunc(to.rejects, func(r selector) bool { return r != (selector{}) && r.matches(o) }) {
			continue
		}
		for _, field := range to.fields {
			rest, ok := t.reachedBy(field)
			if !ok {
				continue
			}
			entry := placed{file: l.file, line: int32(l.copied.at.lines), column: int32(l.copied.at.columns)}
			if to.partial || l.copied.partial || depth > maxCopies {
				return entry, true
			}
			if l.copied.given != nil {
				return placed{file: l.file, line: int32(l.copied.given.lines), column: int32(l.copied.given.columns)}, true
			}
			if from, ok := l.copied.origin(o.siblings, rest, depth); ok {
				return from, true
			}
			return entry, true
		}
	}
	return placed{}, false
}

// maxCopies bounds how many replacements of replaced values are followed.
const maxCopies = 8

// origin is where the source's field is written, or a part of it.
func (c *copied) origin(objects []*renderedObject, rest string, depth int) (placed, bool) {
	for _, o := range objects {
		if !c.source.matches(o) {
			continue
		}
		field := c.field
		if field == "" {
			field = "metadata.name"
		}
		pointer, ok := fieldPointer(o.Object, field)
		if !ok {
			// An object that was not rendered lacks what a patch, or what is merged into
			// it, adds.
			return o.setBy(pointerTo(field)+rest, depth+1)
		}
		return o.at(pointer+rest, depth+1), true
	}
	return placed{}, false
}

// reachedBy says whether a field of kustomize's spelling is the field, or what that
// is in, and what of its pointer remains below it.
func (t *trail) reachedBy(field string) (rest string, ok bool) {
	parts := splitField(field)
	if len(parts) > len(t.now) {
		return "", false
	}
	var value any = t.object
	for i, part := range parts {
		chosen := isCondition(part) && selectsEntry(part, value, t.final[i])
		if part != t.now[i] && part != "*" && !chosen {
			return "", false
		}
		value, _ = child(value, t.final[i])
	}
	for _, token := range t.now[len(parts):] {
		rest += "/" + escape(token)
	}
	return rest, true
}

// isCondition says whether a part of a field's spelling is one such as [name=a].
func isCondition(part string) bool {
	return strings.HasPrefix(part, "[") && strings.Contains(part, "=")
}

// fieldPointer is the pointer to a field of kustomize's spelling.
func fieldPointer(obj *unstructured.Unstructured, field string) (pointer string, ok bool) {
	var value any = obj.Object
	for _, part := range splitField(field) {
		token := part
		if list, isList := value.([]any); isList {
			token = ""
			for i := range list {
				if selectsEntry(part, value, strconv.Itoa(i)) {
					token = strconv.Itoa(i)
				}
			}
		}
		pointer += "/" + escape(token)
		if value, ok = child(value, token); !ok {
			return "", false
		}
	}
	return pointer, true
}

// selectsEntry says whether a part of a field's spelling, [name=a] or an index,
// means an entry of a list.
func selectsEntry(part string, list any, token string) bool {
	entry, ok := child(list, token)
	if _, isList := list.([]any); !isList || !ok {
		return false
	}
	inner, bracket := strings.CutPrefix(part, "[")
	key, value, equals := strings.Cut(strings.TrimSuffix(inner, "]"), "=")
	if !bracket || !equals {
		return part == token
	}
	if key == "" {
		return entry == value
	}
	text, _ := child(entry, key)
	return text == value
}

// splitField splits kustomize's spelling of a field: at dots that are not
// escaped and not in brackets. A key may stand in brackets.
func splitField(field string) (parts []string) {
	var part strings.Builder
	depth := 0
	for i := 0; i < len(field); i++ {
		switch c := field[i]; {
		case c == '\\' && i+1 < len(field):
			i++
			part.WriteByte(field[i])
			continue
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == '.' && depth <= 0:
			parts = append(parts, part.String())
			part.Reset()
			continue
		}
		part.WriteByte(field[i])
	}
	parts = append(parts, part.String())
	for i, p := range parts {
		if strings.HasPrefix(p, "[") && !strings.Contains(p, "=") {
			parts[i] = strings.Trim(p, "[]")
		}
	}
	return parts
}
