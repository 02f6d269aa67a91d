package cli

import (
	"io"
	"time"
)

// SetRemoteTimeout shortens how long a Git remote is waited for, and returns
// what undoes it.
func SetRemoteTimeout(d time.Duration) (undo func()) {
	before := remoteTimeout
	remoteTimeout = d
	return func() { remoteTimeout = before }
}

// SetTerminal makes commands take a stream for a terminal, and returns what
// undoes it.
func SetTerminal(terminal func(io.Writer) bool) (undo func()) {
	before := isTerminal
	isTerminal = terminal
	return func() { isTerminal = before }
}

// SetPollEvery shortens how often --wait looks again, and returns what undoes
// it.
func SetPollEvery(d time.Duration) (undo func()) {
	before := pollEvery
	pollEvery = d
	return func() { pollEvery = before }
}
