package fleet

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// sshSigner is a line of OpenSSH's allowed signers, or a bare public key. What a line
// means is what `ssh-keygen -Y verify` takes it for; what it would not read is an error
// here, so that nobody takes a restriction for one that holds.
type sshSigner struct {
	// names are patterns of who may sign with the key, a list; empty for a bare key.
	names string
	// comment is whose a bare key is, as far as it says.
	comment string
	key     ssh.PublicKey
	// namespaces are patterns of what the key may sign for, a list; nil: anything.
	namespaces *string
	// after and before bound the times of what the key signs; zero: no bound.
	after, before time.Time
}

// keyDSA is the type of keys that are too weak to believe.
const keyDSA = "ssh-dss"

// whitespace is what OpenSSH has between the fields of a line.
const whitespace = " \t\r\n"

var errNoSigner = errors.New("it is neither an SSH public key nor a line of allowed signers: write NAME, perhaps options, and the key as in `ssh-ed25519 AAAA…`")

// parseAllowed reads a line that is not empty and no comment.
func parseAllowed(line string) (sshSigner, error) {
	if strings.ContainsRune(line, 0) {
		return sshSigner{}, errNoSigner // a line of C ends there
	}
	if key, comment := cutKey(line); key != nil {
		return sshSigner{comment: comment, key: key}.believed()
	}
	names, rest, ok := cutNames(line)
	if !ok || names == "" {
		return sshSigner{}, errNoSigner
	}
	if isOption(names) {
		return sshSigner{}, errors.New("it has options and no name, and OpenSSH takes them for the name: write NAME before them")
	}
	out := sshSigner{names: names}
	if out.key, _ = cutKey(rest); out.key == nil {
		options, behind := cutOptions(rest)
		if out.key, _ = cutKey(behind); out.key == nil {
			return sshSigner{}, errNoSigner
		}
		if err := out.restrict(options); err != nil {
			return sshSigner{}, err
		}
	}
	return out.believed()
}

// believed refuses keys that OpenSSH's rules let in and nobody should rely on: weak
// ones, and certificates, whose time and names a line with them would not hold to.
func (s sshSigner) believed() (sshSigner, error) {
	if _, ok := s.key.(*ssh.Certificate); ok {
		return sshSigner{}, errors.New("certificates are not believed: write the key that it is of")
	}
	if s.key.Type() == keyDSA {
		return sshSigner{}, errNoSigner
	}
	return s, nil
}

// cutKey reads the type of a key, the key and its comment; no key where there is none.
func cutKey(text string) (ssh.PublicKey, string) {
	kind, rest := cutField(text)
	encoded, comment := cutField(rest)
	blob, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(blob) == 0 {
		return nil, ""
	}
	key, err := ssh.ParsePublicKey(blob)
	if err != nil || key.Type() != kind {
		return nil, ""
	}
	return key, strings.TrimSpace(comment)
}

func cutField(text string) (field, rest string) {
	at := strings.IndexAny(text, whitespace)
	if at < 0 {
		return text, ""
	}
	return text[:at], strings.TrimLeft(text[at:], whitespace)
}

// cutNames takes the names off a line. Quotes may be around any part of them, and the
// second ends them.
func cutNames(line string) (names, rest string, ok bool) {
	at := strings.IndexAny(line, whitespace+`"`)
	if at < 0 {
		return "", "", false
	}
	if line[at] != '"' {
		return line[:at], strings.TrimLeft(line[at:], whitespace), true
	}
	quoted, rest, ok := strings.Cut(line[at+1:], `"`)
	return line[:at] + quoted, strings.TrimLeft(rest, whitespace), ok
}

// cutOptions takes the options off the rest of a line: there may be whitespace within
// quotes, and quotes behind a backslash.
func cutOptions(text string) (options, rest string) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text) && text[i+1] == '"':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && strings.IndexByte(whitespace, c) >= 0:
			return text[:i], strings.TrimLeft(text[i:], whitespace)
		}
	}
	return text, ""
}

// The options that are known. Another may restrict, so it is an error.
const (
	optionNamespaces  = "namespaces"
	optionValidAfter  = "valid-after"
	optionValidBefore = "valid-before"
	optionAuthority   = "cert-authority"
)

// isOption says whether what is in the place of the names is an option.
func isOption(text string) bool {
	name, _, valued := strings.Cut(text, "=")
	name = strings.ToLower(name)
	return name == optionAuthority || valued && (name == optionNamespaces || name == optionValidAfter || name == optionValidBefore)
}

// restrict reads the options of a line.
func (s *sshSigner) restrict(options string) error {
	given := map[string]bool{}
	for rest := options; ; {
		name, value, behind, err := cutOption(rest)
		switch {
		case err != nil:
		case given[name]:
			err = fmt.Errorf("option %s is there twice", name)
		case name == optionNamespaces:
			s.namespaces = &value
		case name == optionValidAfter:
			s.after, err = parseValidity(value)
		case name == optionValidBefore:
			s.before, err = parseValidity(value)
		}
		if err != nil {
			return err
		}
		given[name] = true
		if behind == "" {
			break
		}
		rest = behind[1:]
	}
	if !s.after.IsZero() && !s.before.IsZero() && !s.before.After(s.after) {
		return errors.New("its time ends before it begins: correct valid-after or valid-before")
	}
	return nil
}

// cutOption takes an option off a list; the rest begins with a comma, or is empty.
func cutOption(text string) (name, value, rest string, err error) {
	name, rest = text, ""
	if at := strings.IndexAny(text, `=,"`); at >= 0 {
		name, rest = text[:at], text[at:]
	}
	switch name = strings.ToLower(name); name {
	case optionAuthority:
		return "", "", "", errors.New("authorities are not believed: write the keys of those who sign")
	case optionNamespaces, optionValidAfter, optionValidBefore:
	default:
		return "", "", "", fmt.Errorf("option %q is not known", name)
	}
	unquoted := fmt.Errorf(`the value of %s is not in quotes: write %s="…"`, name, name)
	rest, ok := strings.CutPrefix(rest, `="`)
	if !ok {
		return "", "", "", unquoted
	}
	var read strings.Builder
	for i := 0; i < len(rest); i++ {
		switch {
		case rest[i] == '\\' && i+1 < len(rest) && rest[i+1] == '"':
			i++
		case rest[i] == '"':
			if rest = rest[i+1:]; rest != "" && rest[0] != ',' {
				return "", "", "", fmt.Errorf("what follows the value of %s is no option: write a comma between options", name)
			}
			return name, read.String(), rest, nil
		}
		read.WriteByte(rest[i])
	}
	return "", "", "", unquoted
}

// parseValidity reads a time as OpenSSH writes it, in UTC also where it has no Z.
func parseValidity(text string) (time.Time, error) {
	bare := text
	switch upper := strings.ToUpper(text); {
	case strings.HasSuffix(upper, "Z"):
		bare = text[:len(text)-len("Z")]
	case strings.HasSuffix(upper, "UTC"):
		bare = text[:len(text)-len("UTC")]
	}
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if at, err := time.Parse(layout, bare); err == nil && len(bare) == len(layout) && at.Unix() > 0 {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: write YYYYMMDD or YYYYMMDDHHMMSS", text)
}

// refuses says why a key must not sign for Git at a time; empty: it may.
func (s *sshSigner) refuses(at time.Time) string {
	switch {
	case s.names != "" && !slices.ContainsFunc(strings.Split(s.names, ","), s.lets):
		return "is let sign by no name of the line: what its patterns name, those with a ! take out"
	case s.namespaces != nil && !matchesList(gitNamespace, *s.namespaces):
		return "may not sign for the namespace " + gitNamespace
	case (!s.after.IsZero() || !s.before.IsZero()) && at.IsZero():
		return "may sign for some time alone, and it does not say when it was made"
	case !s.after.IsZero() && at.Before(s.after):
		return "may sign from " + s.after.Format(time.RFC3339) + " on, and it is dated " + at.UTC().Format(time.RFC3339)
	case !s.before.IsZero() && at.After(s.before):
		return "may sign until " + s.before.Format(time.RFC3339) + ", and it is dated " + at.UTC().Format(time.RFC3339)
	}
	return ""
}

// lets says whether a name of the line is one that the line lets sign. Git asks for each
// of them as it is written there, patterns too.
func (s *sshSigner) lets(name string) bool {
	return name != "" && name[0] != '!' && matchesList(name, s.names)
}

func (s *sshSigner) String() string {
	if s.names == "" {
		return named(s.comment, describeKey(s.key))
	}
	return named(s.names, describeKey(s.key))
}

// maxPattern bounds a pattern, in bytes: OpenSSH lets nothing match a list from a longer
// one on.
const maxPattern = 1022

// matchesList is OpenSSH's match_pattern_list: one of the patterns, which commas are
// between, is the text's, and none of those that begin with `!` is.
func matchesList(text, list string) bool {
	matched := false
	for list != "" {
		first, rest, _ := strings.Cut(list, ",")
		list = rest
		pattern, negated := strings.CutPrefix(first, "!")
		if len(pattern) > maxPattern {
			return false
		}
		if !matchesPattern(text, pattern) {
			continue
		}
		if negated {
			return false
		}
		matched = true
	}
	return matched
}

// matchesPattern is OpenSSH's match_pattern: `*` is any text, `?` any byte, and every
// other byte is itself: there is no way to escape one, and there are no classes.
func matchesPattern(text, pattern string) bool {
	// Where the last star is, and where the text after it was tried.
	star, from := -1, 0
	t, p := 0, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			t, p = t+1, p+1
		case star >= 0:
			from++
			t, p = from, star+1
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
