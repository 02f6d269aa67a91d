package agent

import (
	"bytes"

	"cloop.dev/cloop/internal/secret"
)

// redacted stands in logs and messages where a credential was.
const redacted = "[redacted]"

// secrets are the credentials that must not leave through a log.
func secrets(credentials ...secret.String) [][]byte {
	var out [][]byte
	for _, credential := range credentials {
		if !credential.Empty() {
			out = append(out, []byte(credential.Reveal()))
		}
	}
	return out
}

// masker hides secrets in a stream, also where a secret comes in pieces. The
// zero value hides nothing.
type masker struct {
	secrets [][]byte
	// held is the end of the stream so far, as long as it may be the beginning
	// of a secret.
	held []byte
}

// pass takes the next bytes and returns what may go out. The result is valid
// until the next call.
func (m *masker) pass(data []byte) []byte {
	if len(m.secrets) == 0 {
		return data
	}
	data = append(m.held, data...)
	var out []byte
	for {
		at, length := m.find(data)
		if at < 0 {
			break
		}
		out = append(append(out, data[:at]...), redacted...)
		data = data[at+length:]
	}
	keep := m.suffix(data)
	out = append(out, data[:len(data)-keep]...)
	m.held = append([]byte(nil), data[len(data)-keep:]...)
	return out
}

// rest returns what was held back; the stream has ended.
func (m *masker) rest() []byte {
	held := m.held
	m.held = nil
	return held
}

// find is the leftmost secret, and the longest of those that begin there.
func (m *masker) find(data []byte) (at, length int) {
	at = -1
	for _, secret := range m.secrets {
		found := bytes.Index(data, secret)
		if found >= 0 && (at < 0 || found < at || found == at && len(secret) > length) {
			at, length = found, len(secret)
		}
	}
	return at, length
}

// suffix is the length of the longest end of data that begins a secret.
func (m *masker) suffix(data []byte) int {
	longest := 0
	for _, secret := range m.secrets {
		for length := min(len(secret)-1, len(data)); length > longest; length-- {
			if bytes.HasSuffix(data, secret[:length]) {
				longest = length
			}
		}
	}
	return longest
}

// maskText hides secrets in a whole text.
func maskText(secrets [][]byte, text string) string {
	m := masker{secrets: secrets}
	out := string(m.pass([]byte(text)))
	return out + string(m.rest())
}
