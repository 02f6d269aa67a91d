package secret

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpproxy"

	"cloop.dev/cloop/internal/printable"
)

const (
	// shortest is the shortest value that is looked for, in bytes: one that is shorter
	// is in every other word.
	shortest = 4
	// maxLine bounds what is quoted of a remote, in bytes: it may answer with a page.
	maxLine = 300
)

// Sent is what a remote is sent of credentials, and so what its words may have in
// them: servers, and proxies before them, answer with what they were asked. Whoever
// quotes a remote does it through the Sent of what it was sent. The zero value knows
// credentials by their looks alone, as Redact does.
type Sent struct {
	_ [0]func()
	// values are behind a pointer for the reason that those of String are. The
	// longest is first: others may be parts of it.
	values *[]string
}

// SentTo is what goes to a remote with credentials, as they are and as each way of
// sending and quoting writes them. The credentials of the environment's proxies are
// always among them.
func SentTo(credentials ...String) Sent {
	s := Sent{values: new([]string)}
	for _, credential := range append(credentials, proxies()...) {
		s.add(credential.Reveal())
	}
	return s
}

// WithBasic also knows what goes with basic authentication.
func (s Sent) WithBasic(username string, password String) Sent {
	more := Sent{values: new([]string)}
	if s.values != nil {
		*more.values = slices.Clone(*s.values)
	}
	if username == "" && password.Empty() {
		return more
	}
	more.add(base64.StdEncoding.EncodeToString([]byte(username + ":" + password.Reveal())))
	more.add(password.Reveal())
	if text := password.Reveal(); len(text) < shortest || text == "x-oauth-basic" {
		// Git servers take a token as a user.
		more.add(username)
	}
	return more
}

// proxies are what the environment has for the proxies that it names.
func proxies() (credentials []String) {
	environment := httpproxy.FromEnvironment()
	for _, proxy := range []string{environment.HTTPProxy, environment.HTTPSProxy} {
		if !strings.Contains(proxy, "@") {
			continue
		}
		if !strings.Contains(proxy, "://") {
			proxy = "http://" + proxy
		}
		at, err := url.Parse(proxy)
		if err != nil || at.User == nil {
			continue
		}
		password, _ := at.User.Password()
		basic := base64.StdEncoding.EncodeToString([]byte(at.User.Username() + ":" + password))
		credentials = append(credentials, New(cmp.Or(password, at.User.Username())), New(basic))
	}
	return credentials
}

// add keeps a credential in each way of writing it. A key of several lines may be
// quoted line by line.
func (s Sent) add(credential string) {
	for _, value := range append(strings.Split(credential, "\n"), credential) {
		value = strings.TrimSpace(value)
		if strings.HasPrefix(value, "-----") {
			continue // Redact knows a whole key, and this line is in every one
		}
		quoted, _ := json.Marshal(value) // a text can be
		for _, written := range []string{
			value, url.QueryEscape(value), url.PathEscape(value), html.EscapeString(value), strings.Trim(string(quoted), `"`),
			strings.Trim(fmt.Sprintf("%q", value), `"`), strings.TrimRight(value, "="),
			base64.StdEncoding.EncodeToString([]byte(value)), base64.RawStdEncoding.EncodeToString([]byte(value)),
		} {
			if len(written) >= shortest && !slices.Contains(*s.values, written) {
				*s.values = append(*s.values, written)
			}
		}
	}
	slices.SortStableFunc(*s.values, func(a, b string) int { return len(b) - len(a) })
}

// Redact is Redact, and takes out what was sent.
func (s Sent) Redact(text string) string {
	if s.values != nil && text != "" {
		for _, value := range *s.values {
			text = strings.ReplaceAll(text, value, redacted)
		}
		for _, value := range *s.values {
			text = withoutBeginning(text, value)
		}
	}
	return Redact(text)
}

// withoutBeginning takes the beginning of a value from the end of a text: what a
// remote says is read up to a bound, which may be in the middle of one.
func withoutBeginning(text, value string) string {
	for n := min(len(value)-1, len(text)); n >= shortest; n-- {
		if strings.HasSuffix(text, value[:n]) {
			return text[:len(text)-n] + redacted
		}
	}
	return text
}

// Line is what a remote says as one line to quote: without what was sent, printable,
// and cut.
func (s Sent) Line(text string) string {
	text = printable.Line(strings.Join(strings.Fields(s.Redact(text)), " "))
	if len(text) > maxLine {
		end := maxLine
		for !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end] + "…"
	}
	return text
}

// Error is an error that may quote a remote, without what was sent. It is what it was
// for errors.Is and errors.As.
func (s Sent) Error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if shown := s.Redact(text); shown != text {
		return &quoting{cause: err, text: shown}
	}
	return err
}

// quoting is an error that quoted what must not be shown.
type quoting struct {
	cause error
	text  string
}

func (e *quoting) Error() string { return e.text }

func (e *quoting) Unwrap() error { return e.cause }

// Format is "[redacted]" for every verb.
func (s Sent) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }
