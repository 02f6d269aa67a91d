package cli_test

import (
	"strings"
	"testing"

	"cloop.dev/cloop/internal/cli"
)

// Whoever reads a command's JSON finds its keys in the reference: every command that
// has JSON says what it writes, once for each flag that changes it. That it writes
// this, all the tests together show.
func TestEveryCommandSaysWhatItWrites(t *testing.T) {
	said := map[string]bool{}
	for _, o := range cli.Outputs() {
		if said[o.Command+" "+o.With] {
			t.Errorf("%s %s is said twice", o.Command, o.With)
		}
		said[o.Command+" "+o.With], said[o.Command] = true, true
		if o.With != "" && !strings.HasPrefix(o.With, "--") {
			t.Errorf("%s: %q is no flag", o.Command, o.With)
		}
	}
	commands := cli.CommandsWithJSON()
	if len(commands) < 40 {
		t.Errorf("only %d commands have JSON: %v", len(commands), commands)
	}
	for _, command := range commands {
		if !said[command] {
			t.Errorf("%s has JSON and does not say what: add it to outputs", command)
		}
		delete(said, command)
	}
	for rest := range said {
		if command, _, flag := strings.Cut(strings.TrimSpace(rest), " --"); !flag && !strings.HasSuffix(rest, " ") {
			t.Errorf("there is no command %s that has JSON", command)
		}
	}
}
