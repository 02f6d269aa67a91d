package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/internal/secret"
)

// app is what one invocation shares: where it reads and writes, and the flags
// that every command has.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	options        options
	// command is the path of the one that runs.
	command string
}

// options are the flags that every command has.
type options struct {
	hub       string
	hubCAFile string
	hubPin    string
	tokenFile string
	// plainHTTP takes an http address of the hub.
	plainHTTP bool
	// hubNamed and tokenNamed say that the command line has --hub, --token-file.
	hubNamed, tokenNamed bool
	verbose              bool
	output               []string
}

// Main runs one command line and returns the exit code of the process: 0, 1 or
// 2 as package cli says, or the run's own with `run wait` and
// `run start --wait`.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return a.exit(root.ExecuteContext(ctx))
}

// exit prints an error in one line and returns the code that it stands for.
func (a *app) exit(err error) int {
	if err == nil {
		return 0
	}
	verdict := verdictOf(err)
	if verdict.message != "" {
		say(a.stderr, "cloop: %s\n", verdict.message)
		if a.options.verbose {
			for _, link := range chain(err) {
				say(a.stderr, "  %s\n", link)
			}
		}
	}
	return verdict.code
}

func (a *app) newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "cloop",
		Short: "Runner pools in Kubernetes, defined in Git",
		Long: `cloop runs your projects' commands in Pods on clusters that you operate. Every
pool of runners is defined in a Git repository, and where Git, hub and cluster
differ is always on display.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.command = cmd.CommandPath()
			a.options.fromEnvironment(cmd.Root().PersistentFlags())
			formats := formatsOf(cmd)
			if slices.Equal(formats, []string{formatText}) && len(a.options.output) > 0 {
				return usageError(cmd, fmt.Errorf("-o %s: `%s` has no other output: leave -o away", strings.Join(a.options.output, ","), cmd.CommandPath()))
			}
			return a.options.checkOutput(formats)
		},
	}
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	flags.StringVar(&a.options.hub, "hub", "", "`URL` of the hub ($CLOOP_HUB)")
	flags.StringVar(&a.options.hubCAFile, "hub-ca-file", "", "PEM `FILE` of the certificates that alone are trusted for the hub ($CLOOP_HUB_CA_FILE)")
	flags.StringVar(&a.options.hubPin, "hub-pin", "", "`PIN` of the hub's key, as cloop hub pin prints it ($CLOOP_HUB_PIN)")
	flags.BoolVar(&a.options.plainHTTP, "plain-http", false, "take an http URL of the hub, such as that of a proxy on this machine: the token goes there in clear")
	flags.StringVar(&a.options.tokenFile, "token-file", "", "`FILE` with the token for the hub, - for standard input ($CLOOP_TOKEN_FILE; $CLOOP_TOKEN holds the token itself)")
	flags.BoolVar(&a.options.verbose, "verbose", false, "say more: the whole chain of an error, debug lines in logs")
	flags.StringSliceVarP(&a.options.output, "output", "o", nil, "`FORMAT` of what is shown: text, json or yaml (default text)")
	root.AddCommand(
		a.newHubCommand(),
		a.newDevCommand(),
		a.newExecutorCommand(),
		a.newProjectCommand(),
		a.newRunCommand(),
		a.newFleetCommand(),
		a.newLoginCommand(),
		a.newLogoutCommand(),
		a.newVersionCommand(),
	)
	root.SetHelpCommand(newHelpCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		textOnly(completion.Commands()...)
	}
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}",
		`{{if and .Runnable (not (index .Annotations "`+groupAnnotation+`"))}}`, 1))
	requireVerbs(root)
	return root
}

// logger writes the events of a long-running role to standard error, one JSON
// object a line, with times in UTC and without credentials, whoever logs them.
func (a *app) logger() *slog.Logger {
	level := slog.LevelInfo
	if a.options.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewJSONHandler(secret.Writer{To: printable.JSONWriter{To: a.stderr}}, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, attr slog.Attr) slog.Attr {
			if len(groups) == 0 && attr.Key == slog.TimeKey {
				attr.Value = slog.TimeValue(attr.Value.Time().UTC())
			}
			return attr
		},
	}))
}

// remark writes a line for people to standard error.
func (a *app) remark(format string, args ...any) {
	say(a.stderr, format+"\n", args...)
}
