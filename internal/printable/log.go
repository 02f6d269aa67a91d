package printable

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"unicode/utf8"
)

// Log shows the output of a program on a terminal as it comes: colours, line
// breaks, tabs and the carriage returns of progress bars work, and everything
// else that a terminal would obey (moving the cursor, the title, the clipboard,
// links, answers typed by the terminal itself) is shown instead. Close ends it.
type Log struct {
	to io.Writer
	// pending is the beginning of a character or of an escape sequence whose
	// rest has not come yet.
	pending []byte
	// styled says that a colour was set and not reset.
	styled bool
}

// NewLog writes to a terminal.
func NewLog(to io.Writer) *Log { return &Log{to: to} }

// maxSequence bounds an escape sequence in bytes: what is longer is no colour.
const maxSequence = 64

var (
	// colour is a whole sequence that is passed on: colours and the erasing of a
	// line's rest, which progress bars use.
	colour = regexp.MustCompile(`^\x1b\[[0-9;:]*[mK]`)
	// begun is the beginning of one.
	begun = regexp.MustCompile(`^\x1b(\[[0-9;:]*)?$`)
	// reset ends every colour.
	reset = regexp.MustCompile(`^\x1b\[0*m$`)
)

// Write is io.Writer's. It keeps what cannot be judged yet.
func (l *Log) Write(p []byte) (int, error) {
	text := slices.Concat(l.pending, p)
	var out bytes.Buffer
	rest := l.show(&out, text)
	l.pending = slices.Clone(rest)
	if _, err := l.to.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// show writes what can be judged and returns the rest.
func (l *Log) show(out *bytes.Buffer, text []byte) []byte {
	for len(text) > 0 {
		if text[0] == '\x1b' {
			if sequence := colour.Find(text[:min(len(text), maxSequence)]); sequence != nil {
				l.styled = l.styled || sequence[len(sequence)-1] == 'm'
				l.styled = l.styled && !reset.Match(sequence)
				out.Write(sequence)
				text = text[len(sequence):]
				continue
			}
			if len(text) < maxSequence && begun.Match(text) {
				return text
			}
		}
		if !utf8.FullRune(text) {
			return text
		}
		r, size := utf8.DecodeRune(text)
		switch r {
		case '\n', '\t', '\r':
			out.WriteRune(r)
		default:
			out.WriteString(Line(string(text[:size])))
		}
		text = text[size:]
	}
	return nil
}

// Close shows what was left and ends colours that the program did not end.
func (l *Log) Close() error {
	var out bytes.Buffer
	if len(l.pending) > 0 {
		out.WriteString(Line(string(l.pending)))
		l.pending = nil
	}
	if l.styled {
		out.WriteString("\x1b[0m")
		l.styled = false
	}
	_, err := l.to.Write(out.Bytes())
	return err
}
