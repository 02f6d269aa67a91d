package secret

import "io"

// Writer passes on what is written, a whole line or document each Write, with
// what looks like a credential taken out by Redact: whatever a log is told by
// libraries and others' errors.
type Writer struct{ To io.Writer }

// Write is io.Writer's.
func (w Writer) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.To, Redact(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}
