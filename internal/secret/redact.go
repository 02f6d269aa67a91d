package secret

import (
	"regexp"
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
	// port is what a URL may have behind its host.
	port = regexp.MustCompile(`^[0-9]*$`)
)

// Redact takes out of a text that others wrote, to be shown or kept, whatever looks
// like a credential of cloop's, of a forge or a cloud, or a private key, and the
// passwords of URLs: those before the host, and the values of parameters whose names
// speak of one. A credential with escapes of a URL in it is one, too.
func Redact(text string) string {
	text = redactEscaped(text)
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
