package printable

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Joiners belong to the spelling of words in several scripts, and to emoji.
const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
)

// obeyed says whether a terminal does something for a character instead of
// showing it: control characters, what turns the reading direction or is not
// seen at all, and line breaks of every kind.
func obeyed(r rune) bool {
	switch r {
	case zeroWidthNonJoiner, zeroWidthJoiner:
		return false
	case '\u2028', '\u2029':
		return true
	case '\ufffe', '\uffff':
		// They are no characters; neither YAML nor XML takes them.
		return true
	}
	if r < utf8.RuneSelf {
		// Nearly all text; the tables take longer.
		return unicode.IsControl(r)
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point)
}

// Disguises says whether a text of one line has in it what a terminal obeys, what
// breaks the line, or characters that nobody sees and that can carry anything, such
// as tags. Joiners and variation selectors are seen by what they do to the character
// before them; more of them than that are not.
func Disguises(text string) bool {
	var last rune
	for _, r := range text {
		seen, joins := seenBy(r), joiner(r)
		switch {
		case obeyed(r):
			return true
		case (seen || joins) && (last == 0 || unicode.IsSpace(last) || joiner(last)), seen && seenBy(last):
			return true
		}
		last = r
	}
	return false
}

func joiner(r rune) bool { return r == zeroWidthNonJoiner || r == zeroWidthJoiner }

// seenBy says whether a character chooses how the one before it looks.
func seenBy(r rune) bool { return unicode.Is(unicode.Variation_Selector, r) }

// Blank says whether there is nothing to be seen of a text: spaces, and characters
// that are there for others, such as joiners, tags and variation selectors.
func Blank(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsSpace(r) && !unicode.IsControl(r) && !unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) && r != brailleBlank
	})
}

// brailleBlank is a pattern of no dots.
const brailleBlank = '\u2800'

// Line returns the text as one line that a terminal only shows.
func Line(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r == utf8.RuneError || obeyed(r) }) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		if r == utf8.RuneError {
			// The character itself, or a byte that is no UTF-8.
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				fmt.Fprintf(&b, `\x%02x`, text[i])
				continue
			}
		}
		writeShown(&b, r)
	}
	return b.String()
}

func writeShown(b *strings.Builder, r rune) {
	switch {
	case !obeyed(r):
		b.WriteRune(r)
	case r == '\n':
		b.WriteString(`\n`)
	case r == '\r':
		b.WriteString(`\r`)
	case r == '\t':
		b.WriteString(`\t`)
	case r < utf8.RuneSelf:
		fmt.Fprintf(b, `\x%02x`, r)
	case r > 0xffff:
		fmt.Fprintf(b, `\U%08x`, r)
	default:
		fmt.Fprintf(b, `\u%04x`, r)
	}
}

// Safe says whether a text of several lines has nothing in it but line breaks
// and tabs that a terminal would obey.
func Safe(text []byte) bool {
	return !bytes.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && obeyed(r) })
}

// JSON returns the same JSON document with every such character escaped; in
// JSON they stand only in strings.
func JSON(document []byte) []byte {
	if Safe(document) {
		return document
	}
	var b bytes.Buffer
	for _, r := range string(document) {
		switch {
		case r == '\n' || r == '\t' || !obeyed(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

// JSONWriter passes whole JSON documents on through JSON, one each Write.
type JSONWriter struct{ To io.Writer }

// Write is io.Writer's.
func (w JSONWriter) Write(document []byte) (int, error) {
	if _, err := w.To.Write(JSON(document)); err != nil {
		return 0, err
	}
	return len(document), nil
}
