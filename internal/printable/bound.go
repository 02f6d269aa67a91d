package printable

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Clip bounds a text that others wrote to a number of bytes and an ellipsis, at
// a character's edge.
func Clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// Abridge shortens a text to about a number of bytes, at a character's edge, and
// says by how many.
func Abridge(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s… (%d bytes more)", text[:end], len(text)-end)
}
