package cli

import "io"

// SetTerminal makes commands take a stream for a terminal, and returns what
// undoes it.
func SetTerminal(terminal func(io.Writer) bool) (undo func()) {
	before := isTerminal
	isTerminal = terminal
	return func() { isTerminal = before }
}
