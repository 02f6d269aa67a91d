package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// pattern matches paths of the repository: * stands for anything but a slash,
// ** for anything, ? for one character; a directory stands for what is in it.
type pattern struct{ expression *regexp.Regexp }

// maxPattern bounds a pattern in bytes.
const maxPattern = 1024

// newPattern reads a pattern. Matching takes linear time, whatever it is.
func newPattern(text string) (pattern, error) {
	clean := strings.TrimSuffix(strings.TrimPrefix(text, "./"), "/")
	switch {
	case clean == "":
		return pattern{}, errors.New("the path is empty; ** stands for every file")
	case len(clean) > maxPattern:
		return pattern{}, fmt.Errorf("the path is longer than %d bytes", maxPattern)
	case !utf8.ValidString(clean):
		return pattern{}, errors.New("the path is not UTF-8")
	case strings.HasPrefix(clean, "/"), clean == "..", strings.HasPrefix(clean, "../"):
		return pattern{}, errors.New("the path must be relative to the root of the repository and inside it")
	}
	var b strings.Builder
	for rest := clean; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString("(?:.*/)?")
			rest = rest[3:]
		case strings.HasPrefix(rest, "**"):
			b.WriteString(".*")
			rest = rest[2:]
		case rest[0] == '*':
			b.WriteString("[^/]*")
			rest = rest[1:]
		case rest[0] == '?':
			b.WriteString("[^/]")
			rest = rest[1:]
		default:
			next := strings.IndexAny(rest, "*?")
			if next < 0 {
				next = len(rest)
			}
			b.WriteString(regexp.QuoteMeta(rest[:next]))
			rest = rest[next:]
		}
	}
	expression, err := regexp.Compile(`(?s)\A` + b.String() + `(?:/.*)?\z`)
	return pattern{expression}, err
}

func (p pattern) matches(path string) bool { return p.expression.MatchString(path) }

func matchAny(patterns []pattern, path string) bool {
	return slices.ContainsFunc(patterns, func(p pattern) bool { return p.matches(path) })
}
