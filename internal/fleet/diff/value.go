package diff

import (
	"encoding/json"
	"strconv"
	"strings"

	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/internal/secret"
)

const (
	// notShown stands for the value of a field that may hold a secret, or that no
	// definition has: nobody knows what somebody wrote there.
	notShown = "[not shown]"
	redacted = "[redacted]"
	// maxShown bounds one text of a value, in bytes, and one value's entries.
	maxShown = 256
	maxPath  = 1024
	maxEntry = 64
	maxDepth = 12
)

// shown is what is told of a value at a JSON pointer of an object: what the
// table knows and does not hide, without what looks like a credential. nil stays
// nil: the field is absent.
func (t table) shown(name string, at []string, value any) any {
	if value == nil {
		return nil
	}
	if len(at) > 0 {
		for _, inner := range t.inner(name, at[0]) {
			if strings.HasSuffix(inner, "{}") && secret.Named(at[0]) {
				return redacted
			}
			if shown := t.shown(inner, at[1:], value); shown != notShown {
				return shown
			}
		}
		return notShown
	}
	switch node := value.(type) {
	case map[string]any:
		return t.shownMap(name, node)
	case []any:
		return t.shownList(name, node)
	}
	if j, ok := t.judges[name]; !ok || j.hidden {
		return notShown
	}
	if text, ok := value.(string); ok {
		return bounded(secret.Redact(text))
	}
	return value
}

func (t table) shownMap(name string, node map[string]any) any {
	if !t.prefixes[name] {
		return notShown
	}
	if len(node) > maxEntry {
		return notShown
	}
	all := make(map[string]any, len(node))
	for key, child := range node {
		all[bounded(secret.Redact(key))] = t.shown(name, []string{key}, child)
	}
	return all
}

func (t table) shownList(name string, node []any) any {
	if j, leaf := t.judges[name+"[]"]; !leaf && !t.prefixes[name+"[]"] || j.hidden {
		return notShown
	}
	all := make([]any, 0, min(len(node), maxEntry))
	for _, child := range node[:min(len(node), maxEntry)] {
		all = append(all, t.shown(name+"[]", nil, child))
	}
	if more := len(node) - maxEntry; more > 0 {
		all = append(all, "and "+strconv.Itoa(more)+" more")
	}
	return all
}

// plain is what is told of a value of a kind that has no place for secrets, under
// a key.
func plain(key string, value any, depth int) any {
	switch node := value.(type) {
	case string:
		if secret.Named(key) {
			return redacted
		}
		return bounded(secret.Redact(node))
	case map[string]any:
		if depth > maxDepth || len(node) > maxEntry {
			return notShown
		}
		all := make(map[string]any, len(node))
		for key, child := range node {
			all[bounded(secret.Redact(key))] = plain(key, child, depth+1)
		}
		return all
	case []any:
		if depth > maxDepth || len(node) > maxEntry {
			return notShown
		}
		all := make([]any, len(node))
		for i, child := range node {
			all[i] = plain(key, child, depth+1)
		}
		return all
	}
	return value
}

// bounded shortens a text and says by how much.
func bounded(text string) string { return printable.Abridge(text, maxShown) }

// written is a value as it is told to people; a dash stands for none.
func written(value any) string {
	switch v := value.(type) {
	case nil:
		return "-"
	case string:
		if v != "" && v != "-" {
			return v
		}
	}
	data, err := json.Marshal(value)
	if err != nil {
		return notShown
	}
	return string(data)
}
