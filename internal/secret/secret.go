// Package secret holds credentials so that they cannot be printed by accident.
//
// A String goes in where a credential is read and comes out only through
// Reveal, at the place that sends it. It must never grow a method that turns
// the value into text implicitly.
package secret

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
	"strings"
)

const redacted = "[redacted]"

// String is a credential. Whatever verb, encoder or logger prints it, the
// output is "[redacted]".
//
// The value is behind a pointer because fmt calls no method on an unexported
// field: there it prints an address. Two Strings are therefore not comparable;
// Equal compares what they hold.
type String struct {
	_     [0]func()
	value *string
}

// New wraps a credential.
func New(value string) String { return String{value: &value} }

// Line is what is written in a file or in a key of a Secret, without the newlines at its
// end: an editor writes one there, as do most commands, and no header can have one.
func Line(data []byte) string { return strings.TrimRight(string(data), "\r\n") }

// Reveal returns the credential itself.
func (s String) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Equal says whether two credentials are the same, in constant time for equal
// lengths.
func (s String) Equal(other String) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// Empty says whether there is no credential.
func (s String) Empty() bool { return s.Reveal() == "" }

// String is "[redacted]", for fmt.
func (s String) String() string { return redacted }

// GoString is "[redacted]", for %#v.
func (s String) GoString() string { return redacted }

// Format is "[redacted]" for every verb, the ones that ignore Stringer too.
func (s String) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText is "[redacted]", for JSON and YAML.
func (s String) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue is "[redacted]", for slog.
func (s String) LogValue() slog.Value { return slog.StringValue(redacted) }
