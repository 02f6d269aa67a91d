package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// tripled are the quotes of a text of several lines.
const tripled = `"""`

var (
	errNoText    = errors.New("only texts in double quotes are taken here")
	errMultiline = errors.New(`a text of several lines begins on the line after """ and is indented as the closing """ is`)
)

// unquote is the text of a literal of CUE in double quotes: plain, raw (#"…"#), or
// of several lines. What it takes means the same to CUE, whose own function brings
// a library for decimal numbers that takes a millisecond of every start.
func unquote(literal string) (string, error) {
	quoted := strings.TrimLeft(literal, "#")
	hashes := literal[:len(literal)-len(quoted)]
	inner, closed := strings.CutSuffix(quoted, hashes)
	if multi, ok := strings.CutPrefix(inner, tripled); ok && closed && len(multi) >= len(tripled) {
		text, err := dedent(strings.TrimSuffix(multi, tripled))
		if err != nil {
			return "", err
		}
		return unescape(text, `\`+hashes)
	}
	if !closed || len(inner) < 2 || inner[0] != '"' || inner[len(inner)-1] != '"' {
		return "", errNoText
	}
	return unescape(inner[1:len(inner)-1], `\`+hashes)
}

// dedent takes the indentation of the last line off all lines.
func dedent(text string) (string, error) {
	lines := strings.Split(text, "\n")
	for i := range lines[:len(lines)-1] {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	indentation := lines[len(lines)-1]
	if len(lines) < 2 || lines[0] != "" || strings.Trim(indentation, " \t") != "" {
		return "", errMultiline
	}
	lines = lines[1 : len(lines)-1]
	for i, line := range lines {
		rest, ok := strings.CutPrefix(line, indentation)
		if !ok && line != "" {
			return "", errMultiline
		}
		lines[i] = rest
	}
	return strings.Join(lines, "\n"), nil
}

// escapes: letter → what it stands for behind a backslash.
var escapes = map[byte]string{
	'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v", '\\': `\`, '/': "/", '"': `"`,
}

// unescape replaces what follows each mark, a backslash with a raw text's hashes.
func unescape(text, mark string) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, mark)
		b.WriteString(before)
		switch {
		case !found:
			return b.String(), nil
		case rest == "":
			return "", errors.New("a text ends with a backslash")
		}
		if plain, ok := escapes[rest[0]]; ok {
			b.WriteString(plain)
			text = rest[1:]
			continue
		}
		digits := map[byte]int{'u': 4, 'U': 8}[rest[0]]
		if digits == 0 || len(rest) <= digits {
			return "", fmt.Errorf("there is no escape %s in a text", quoted(mark+rest[:1]))
		}
		code, err := strconv.ParseUint(rest[1:digits+1], 16, 32)
		if err != nil || code > utf8.MaxRune || !utf8.ValidRune(rune(code)) {
			return "", fmt.Errorf("%s is no character", quoted(mark+rest[:digits+1]))
		}
		b.WriteRune(rune(code))
		text = rest[digits+1:]
	}
}
