package secret

import (
	"regexp"
	"strconv"
	"strings"
)

// maxEscapes bounds how often what is escaped may have been escaped again; a text
// that goes through more hands than these is not unwrapped.
const maxEscapes = 5

var (
	// escape matches one character as a URL escapes it.
	escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	// wrapped matches a run of what a URL's parts are made of with an escape in it.
	wrapped = regexp.MustCompile(`[0-9A-Za-z_.~-]*(?:%[0-9A-Fa-f]{2}[0-9A-Za-z_.~-]*)+`)
)

// unescape takes the escapes of a URL out of a text, however often they were put
// in. What is none stays, where a URL's own rules would give up on the whole.
func unescape(text string) string {
	for range maxEscapes {
		next := escape.ReplaceAllStringFunc(text, func(code string) string {
			b, _ := strconv.ParseUint(code[1:], 16, 8) // it matched
			return string([]byte{byte(b)})
		})
		if next == text {
			break
		}
		text = next
	}
	return text
}

// redactEscaped is Redact for credentials of which characters are escaped.
func redactEscaped(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	return wrapped.ReplaceAllStringFunc(text, func(run string) string {
		if plain := unescape(run); credential.MatchString(plain) || others.MatchString(plain) {
			return redacted
		}
		return run
	})
}

// Shown says whether there is something in a URL that Redact would take out, also
// where it is escaped.
func Shown(url string) bool {
	plain := unescape(url)
	return Redact(url) != url || Redact(plain) != plain
}
