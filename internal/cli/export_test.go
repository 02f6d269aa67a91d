package cli

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Whatever a test has a command show must be what the reference says of it.
func init() {
	observeShown = func(command string, value any) {
		if !slices.ContainsFunc(outputs, func(o Output) bool { return o.Command == command && o.Type == reflect.TypeOf(value) }) {
			panic(fmt.Sprintf("%s shows a %T: say so in outputs", command, value))
		}
	}
}

// CommandsWithJSON are the paths of all commands that have -o json.
func CommandsWithJSON() (paths []string) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Runnable() && !cmd.HasSubCommands() && slices.Contains(formatsOf(cmd), formatJSON) {
			paths = append(paths, cmd.CommandPath())
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk((&app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}).newRootCommand())
	return paths
}

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
