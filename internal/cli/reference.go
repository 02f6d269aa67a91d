package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// WriteReference writes a Markdown page with every command and its flags.
func WriteReference(w io.Writer) {
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	root := a.newRootCommand()
	fmt.Fprint(w, "<!-- Written by cmd/docgen from internal/cli. Change it there. -->\n\n# Command line\n\n")
	fmt.Fprint(w, "Exit codes: 0 done, or nothing differs; 1 the answer is no; 2 there is no answer. "+
		"`cloop run start --wait` and `cloop run wait` exit with the run's own.\n\n")
	fmt.Fprintf(w, "Every command takes:\n\n```\n%s```\n\n", flagText(root.PersistentFlags()))
	fmt.Fprint(w, "A flag beats its environment variable, an empty one too. Of $CLOOP_TOKEN and $CLOOP_TOKEN_FILE at most one may be set.\n")
	writeCommands(w, root)
}

func writeCommands(w io.Writer, cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		if !child.IsAvailableCommand() || child.Name() == "help" {
			continue
		}
		if child.Name() == "completion" {
			// Its pages are the library's, and each shell's own.
			fmt.Fprint(w, "\n## cloop completion\n\nWrite the script by which a shell completes command lines; its help says where it goes.\n\n```\ncloop completion bash | fish | powershell | zsh\n```\n")
			continue
		}
		writeCommand(w, child)
		writeCommands(w, child)
	}
}

func writeCommand(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, "\n## %s\n\n%s.\n", cmd.CommandPath(), strings.TrimSuffix(cmd.Short, "."))
	if cmd.HasAvailableSubCommands() {
		if flags := flagText(cmd.PersistentFlags()); flags != "" {
			fmt.Fprintf(w, "\nEach of its commands takes:\n\n```\n%s```\n", flags)
		}
		return
	}
	fmt.Fprintf(w, "\n```\n%s\n```\n", cmd.UseLine())
	if cmd.Long != "" {
		fmt.Fprintf(w, "\n%s\n", cmd.Long)
	}
	if cmd.Example != "" {
		fmt.Fprintf(w, "\n```\n%s\n```\n", cmd.Example)
	}
	if flags := flagText(cmd.LocalNonPersistentFlags()); flags != "" {
		fmt.Fprintf(w, "\n```\n%s```\n", flags)
	}
}

// flagText is the usage of flags without the help flag, which all have.
func flagText(flags *pflag.FlagSet) string {
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "help" && !flag.Hidden {
			shown.AddFlag(flag)
		}
	})
	return string(bytes.TrimLeft([]byte(shown.FlagUsages()), "\n"))
}
