package access

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/printable"
)

// Exceeds names each field of a pool's definition that goes beyond the ceiling,
// with the bound. It is how Git syncs and tokens alike are held to theirs: a
// definition that they give a pool must be within it, and so must the one that a
// pool has before they change it or take it over. A pool that is beyond the
// ceiling is another's, and would otherwise be cut to size and taken away.
func Exceeds(c hubv1.Ceiling, name string, definition hubv1.PoolDefinition) []hubv1.FieldError {
	var out []hubv1.FieldError
	say := func(field, format string, args ...any) {
		out = append(out, hubv1.FieldError{Location: field, Message: fmt.Sprintf(format, args...)})
	}
	if !Sees(c, name) {
		say("name", "%s matches none of %s", name, strings.Join(c.Names, ", "))
	}
	if c.MaxRunners > 0 && definition.MaxRunners > c.MaxRunners {
		say("maxRunners", "%d is above %d", definition.MaxRunners, c.MaxRunners)
	}
	if len(c.Labels) > 0 {
		for _, key := range slices.Sorted(maps.Keys(definition.Labels)) {
			if label := key + "=" + definition.Labels[key]; !matches(c.Labels, label) {
				say("labels."+key, "%s matches none of %s", label, strings.Join(c.Labels, ", "))
			}
		}
	}
	if len(c.Audience) > 0 {
		if len(definition.Audience) == 0 {
			say("audience", "anyone is more than %s", strings.Join(c.Audience, ", "))
		}
		for i, entry := range definition.Audience {
			if !matches(c.Audience, entry) {
				say(fmt.Sprintf("audience[%d]", i), "%s matches none of %s", entry, strings.Join(c.Audience, ", "))
			}
		}
	}
	if len(c.Owners) > 0 && !matches(c.Owners, definition.Owner) {
		owner := definition.Owner
		if owner == "" {
			owner = "no owner"
		}
		say("owner", "%s matches none of %s", owner, strings.Join(c.Owners, ", "))
	}
	return out
}

// Sees says whether a pool of that name is within the ceiling.
func Sees(c hubv1.Ceiling, name string) bool { return len(c.Names) == 0 || matches(c.Names, name) }

func matches(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := path.Match(pattern, text)
		return err == nil && matched
	})
}

// CheckCeiling names what is wrong with a ceiling itself.
func CheckCeiling(location string, c hubv1.Ceiling) []hubv1.FieldError {
	var out []hubv1.FieldError
	for _, part := range []struct {
		field    string
		patterns []string
	}{{"names", c.Names}, {"labels", c.Labels}, {"audience", c.Audience}, {"owners", c.Owners}} {
		for i, pattern := range part.patterns {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" || len(pattern) > maxPattern {
				out = append(out, hubv1.FieldError{
					Location: fmt.Sprintf("%s.%s[%d]", location, part.field, i),
					Message:  fmt.Sprintf("%q is no pattern: write letters, * and ?, at most %d characters", printable.Clip(pattern, maxPattern), maxPattern),
				})
			}
		}
	}
	if c.MaxRunners < 0 {
		out = append(out, hubv1.FieldError{Location: location + ".maxRunners", Message: "must not be negative"})
	}
	return out
}

// maxPattern bounds one pattern, in bytes.
const maxPattern = 256
