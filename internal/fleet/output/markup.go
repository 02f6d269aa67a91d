package output

import (
	"regexp"
	"strings"
)

// code is a code span: the one place in Markdown where text is only text. No
// forge makes a mention, a link, an image or HTML of what is in one. text is
// visible, so it is on one line.
func code(text string) string {
	if text == "" {
		return ""
	}
	fence, run := 1, 0
	for _, r := range text {
		if r != '`' {
			run = 0
			continue
		}
		// A run of as many backticks would end the span.
		if run++; run >= fence {
			fence = run + 1
		}
	}
	// A span drops one space on both sides where both have one.
	pad := ""
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") || strings.HasPrefix(text, " ") && strings.HasSuffix(text, " ") {
		pad = " "
	}
	ticks := strings.Repeat("`", fence)
	return ticks + pad + text + pad + ticks
}

var (
	// plainWord is a word that means nothing to Markdown or a forge: letters or
	// digits, with the punctuation of a sentence around it.
	plainWord = regexp.MustCompile(`^([("']*[\p{L}\p{N}]+(['’-]\p{L}+)*[)"']*[.,;:!?]?[)]?|[.,;:])$`)
	// revision is what forges make the link to a commit of.
	revision = regexp.MustCompile(`^[0-9a-f]{7,}\W*$`)
)

// prose is text that reads as such where it can: plain words as they are, and
// everything else in code spans. What the text itself has between backticks is
// one too. text is visible.
func prose(text string) string {
	var b strings.Builder
	parts := strings.Split(text, "`")
	for i, part := range parts {
		quoted := i%2 == 1 && i < len(parts)-1
		if quoted {
			span(&b, part)
		} else {
			words(&b, part)
		}
	}
	return b.String()
}

func words(b *strings.Builder, text string) {
	var odd []string
	for _, word := range strings.Fields(text) {
		if !plainWord.MatchString(word) || revision.MatchString(word) {
			odd = append(odd, word)
			continue
		}
		span(b, strings.Join(odd, " "))
		odd = nil
		separate(b)
		b.WriteString(word)
	}
	span(b, strings.Join(odd, " "))
}

// span adds a code span, with the punctuation that ends it outside. Two of them
// never touch: their backticks would add up to other fences.
func span(b *strings.Builder, text string) {
	if text == "" {
		return
	}
	separate(b)
	end := len(text)
	if end > 1 && strings.ContainsRune(".,;:", rune(text[end-1])) {
		end--
	}
	b.WriteString(code(text[:end]) + text[end:])
}

func separate(b *strings.Builder) {
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
}
