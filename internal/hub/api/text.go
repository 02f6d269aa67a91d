package api

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/internal/secret"
)

const (
	messageNotUTF8   = "must be UTF-8"
	messageTwice     = "must be given once: of two the last would count"
	messageSurrogate = "must not hold half of a surrogate pair: it stands for no character"
)

// maxTextErrors bounds how many faulty texts one answer names, and maxLocation
// the name of each in bytes.
const (
	maxTextErrors = 20
	maxLocation   = 256
)

// textErrors names the texts of a JSON document that a decoder would replace
// with something else than was sent, which are those that are not UTF-8 and those
// with an escape for half of a surrogate pair, those that hold a credential, and
// properties that are there twice.
func textErrors(document []byte) []hubv1.FieldError {
	if !json.Valid(document) {
		if !utf8.Valid(document) {
			return []hubv1.FieldError{{Location: "body", Message: messageNotUTF8}}
		}
		return nil // the decoder says what is wrong with it
	}
	s := scan{document: document, path: []string{"body"}}
	s.value()
	return s.found
}

// scan walks through a valid JSON document.
type scan struct {
	document []byte
	at       int
	// path leads to where the scan is; it is put together only for what is
	// found, because a hostile document is deep and its keys are long.
	path  []string
	found []hubv1.FieldError
}

// next is the first byte that is not between two tokens; 0 at the end.
func (s *scan) next() byte {
	for s.at < len(s.document) {
		switch c := s.document[s.at]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// value passes over one value.
func (s *scan) value() {
	switch s.next() {
	case '{':
		keys := map[string]bool{}
		for s.at++; s.next() != '}'; {
			key := s.text()
			if keys[key] {
				s.note(messageTwice, "."+key)
			}
			keys[key] = true
			s.below("." + key)
		}
		s.at++
	case '[':
		s.at++
		for i := 0; s.next() != ']'; i++ {
			s.below("[" + strconv.Itoa(i) + "]")
		}
		s.at++
	case '"':
		s.text()
	default: // a number, true, false or null
		for s.at < len(s.document) && !strings.ContainsRune(" \t\r\n,]}", rune(s.document[s.at])) {
			s.at++
		}
	}
}

// below passes over a value that is one step further down.
func (s *scan) below(step string) {
	s.path = append(s.path, step)
	s.value()
	s.path = s.path[:len(s.path)-1]
}

// text passes over a string, notes what is wrong with it and returns it.
func (s *scan) text() string {
	start := s.at
	for s.at++; s.document[s.at] != '"'; s.at++ {
		if s.document[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
	token := s.document[start:s.at]
	var text string
	_ = json.Unmarshal(token, &text) // the document is valid
	message := ""
	switch {
	case !utf8.Valid(token):
		message = messageNotUTF8
	case halved(token):
		message = messageSurrogate
	case secret.Held(text) && !slices.Contains(taken, strings.Join(s.path, "")):
		message = messageCredential
	}
	if message != "" {
		s.note(message, "")
	}
	return text
}

// note keeps what is wrong where the scan is, or one step further down.
func (s *scan) note(message, step string) {
	if len(s.found) < maxTextErrors {
		s.found = append(s.found, hubv1.FieldError{Location: printable.Clip(strings.Join(s.path, "")+step, maxLocation), Message: message})
	}
}

// halved says whether a JSON string has an escape for half of a surrogate pair
// without the other half right behind it.
func halved(token []byte) bool {
	for i := 0; i < len(token); i++ {
		if token[i] != '\\' {
			continue
		}
		first, escaped := escape(token[i:])
		if !escaped {
			i++ // what is escaped is no backslash of its own
			continue
		}
		i += 5
		if !utf16.IsSurrogate(first) {
			continue
		}
		second, escaped := escape(token[i+1:])
		if !escaped || utf16.DecodeRune(first, second) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

// escape reads the code unit of an escape such as \u00e9.
func escape(text []byte) (unit rune, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil //nolint:gosec // 16 bits
}
