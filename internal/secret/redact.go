package secret

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

var (
	// credential matches every credential that cloop makes.
	credential = regexp.MustCompile(`cloop_[a-z]+1_[0-9A-Za-z_-]+`)
	// others are credentials that are not cloop's and are known by their looks:
	// private keys, and what forges and clouds hand out.
	others = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY.*` +
		`|\b(?:(?:gh[pousr]_|github_pat_|glpat-)[0-9A-Za-z_-]{16,}|AKIA[0-9A-Z]{16}|xox[abprs]-[0-9A-Za-z-]{10,}|eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]*)`)
	// address matches a URL as a sentence or a quoted value has it, up to where it
	// ends for sure. What is quoted may have escaped quotes in it.
	address = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)((?:\\.|[^\s"\\])*)`)
	// parameter matches a parameter of a URL's query or fragment whose name speaks of
	// a credential, as in token=, access_token=, X-Amz-Signature=, sig= and apikey=.
	// Escaped letters in the name are not looked through.
	parameter = regexp.MustCompile(`(?i)([?&;#](?:[0-9a-z_.%\[\]-]*(?:token|passw(?:or)?d|passphrase|pwd|secret|credentials?|signature|apikey|accesskey|privatekey|[_.-]key|jwt)|key|sig|pass|auth|authorization|code|session(?:id)?)(?:\]|%5D)?=)([^&;#\s"'<>\\]+)`)
	// spoken matches a name that speaks of a credential.
	spoken = regexp.MustCompile(`(?i)(?:token|passw(?:or)?d|passphrase|pwd|secret|credentials?|signature|jwt|api[_.-]?key|access[_.-]?key|private[_.-]?key)$`)
	// header matches a header of HTTP that carries a credential, as a request's own
	// lines, maps and JSON have it, with what it carries: a scheme, if there is one, and
	// a credential. What follows a comma or a semicolon are parameters of Digest and the
	// like, which no one can use again.
	header = regexp.MustCompile(`(?i)\b((?:proxy-)?authorization|(?:private|job|deploy|x-gitlab|x-auth)-token|x-api-key)((?:\\*["'])?[ \t]*[:=][ \t]*(?:\[|\\*["'])*)((?:[a-z][0-9a-z_-]*[ \t]+)?[^\s"'<>,;\\\]]+)`)
	// scheme matches what HTTP's authentication sends, without the header's name.
	scheme = regexp.MustCompile(`(?i)\b(basic|bearer)([ \t]+|\+|%20)([0-9a-z._~+/-]{6,}=*)`)
	// port is what a URL may have behind its host.
	port = regexp.MustCompile(`^[0-9]*$`)
)

// Redact takes out of a text that others wrote, to be shown or kept, whatever looks
// like a credential of cloop's, of a forge or a cloud, or a private key, what HTTP's
// authentication sends, and the passwords of URLs: those before the host, and the
// values of parameters whose names speak of one. A credential with escapes of a URL in
// it is one, too.
func Redact(text string) string {
	text = redactEscaped(text)
	text = redactHeaders(text)
	text = credential.ReplaceAllString(text, redacted)
	text = others.ReplaceAllString(text, redacted)
	if !strings.Contains(text, "://") {
		return text
	}
	return address.ReplaceAllStringFunc(text, func(url string) string {
		parts := address.FindStringSubmatch(url)
		return parts[1] + parameter.ReplaceAllString(withoutPassword(parts[1], parts[2]), "${1}"+redacted)
	})
}

// headerEnds are what the other names of headers end with, in each way of writing them.
var headerEnds = []string{"-token", "-Token", "-TOKEN", "-key", "-Key", "-KEY"}

// redactHeaders takes out what HTTP's authentication sends. Most texts speak of none,
// and are searched for that alone.
func redactHeaders(text string) string {
	if containsFolded(text, "authorization") || slices.ContainsFunc(headerEnds, func(end string) bool { return strings.Contains(text, end) }) {
		text = header.ReplaceAllStringFunc(text, func(match string) string {
			parts := header.FindStringSubmatch(match)
			if strings.HasSuffix(match, strings.TrimSuffix(redacted, "]")) {
				return match
			}
			return parts[1] + parts[2] + redacted
		})
	}
	if !containsFolded(text, "basic") && !containsFolded(text, "bearer") {
		return text
	}
	return scheme.ReplaceAllStringFunc(text, func(match string) string {
		parts := scheme.FindStringSubmatch(match)
		if strings.EqualFold(parts[1], "basic") && !isBasic(parts[3]) || strings.EqualFold(parts[1], "bearer") && !isToken(parts[3]) {
			return match
		}
		return parts[1] + parts[2] + redacted
	})
}

// containsFolded says whether a text has a word as headers are written: all small,
// with a capital, or all capitals.
func containsFolded(text, word string) bool {
	return strings.Contains(text, word[1:]) || strings.Contains(text, strings.ToUpper(word[1:]))
}

// isBasic says whether a text is user and password as basic authentication sends them,
// or the beginning of that, and no word.
func isBasic(text string) bool {
	text = strings.TrimRight(text, "=")
	plain, err := base64.RawStdEncoding.DecodeString(text[:len(text)-len(text)%4])
	return err == nil && (bytes.ContainsRune(plain, ':') || isToken(text))
}

// isToken says whether a text is none of the words that follow "bearer" in a sentence.
func isToken(text string) bool {
	return strings.ContainsAny(text, digits[:10]) || text[1:] != strings.ToLower(text[1:])
}

// Named says whether a name, such as that of a label, speaks of a credential, so
// that its value may be one.
func Named(name string) bool { return spoken.MatchString(name) }

// withoutPassword redacts what stands before the host. A password that is not escaped
// as it should be may hold any character, so what cannot be a port is one.
func withoutPassword(scheme, rest string) string {
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndex(rest[:end], "@")
	if at < 0 {
		_, behind, colon := strings.Cut(rest[:end], ":")
		if at = strings.LastIndex(rest, "@"); at < 0 || !colon || port.MatchString(behind) {
			return rest
		}
	}
	user, _, colon := strings.Cut(rest[:at], ":")
	switch {
	case colon:
		return user + ":" + redacted + rest[at:]
	case strings.HasPrefix(strings.ToLower(scheme), "http"):
		// Git servers take a token as a user.
		return redacted + rest[at:]
	}
	return rest
}

// RedactValue is Redact for every text in a value as JSON decodes it. What it is
// given stays as it is.
func RedactValue(value any) any {
	switch value := value.(type) {
	case string:
		return Redact(value)
	case []any:
		out := make([]any, len(value))
		for i := range value {
			out[i] = RedactValue(value[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(value))
		for key := range value {
			out[key] = RedactValue(value[key])
		}
		return out
	}
	return value
}
