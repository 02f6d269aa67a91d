package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hubclient"
)

func (a *app) newRunCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "run", Short: "Runs: one execution of a command on a project's commit"}
	logs := a.newRunLogsCommand()
	textOnly(logs)
	cmd.AddCommand(
		a.newRunStartCommand(),
		a.newRunListCommand(),
		a.newRunShowCommand(),
		logs,
		a.newRunCancelCommand(),
		a.newRunWaitCommand(),
	)
	return cmd
}

func (a *app) newRunStartCommand() *cobra.Command {
	var (
		request hubv1.StartRunRequest
		key     string
		wait    bool
	)
	cmd := &cobra.Command{
		Use:   "start --project PROJECT [flags] -- COMMAND [ARGUMENT…]",
		Short: "Queue a run",
		Long: `Queue a run of a command on a commit of a project. With --wait, write the run's
log to standard output and exit with the command's own exit code: 128 and the
signal's number where a signal ended it, 1 where it ended without a code. An
interrupt (Ctrl-C) ends the waiting and not the run.

With --no-wait-for-capacity a run that no runner takes at once is not queued: the
answer is waiting_for_pool_capacity with what keeps runners away, and the exit
code 1.`,
		Example: `  cloop run start --project app -- make test
  cloop run start --project app --ref v1.2.0 --wait -- ./check --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if request.Project == "" {
				return usageError(cmd, errors.New("--project is missing"))
			}
			if len(args) == 0 {
				return usageError(cmd, errors.New("no command: write one after --"))
			}
			for i, text := range append([]string{request.Ref}, args...) {
				if !utf8.ValidString(text) {
					// The hub keeps text; sent all the same it would run something else.
					return usageError(cmd, fmt.Errorf("%s %q is not UTF-8: put the bytes into a file of the project", textName(i), text))
				}
			}
			hub, err := a.connect()
			if err != nil {
				return err
			}
			request.Command = args
			if key == "" {
				// A key of our own lets the transport repeat a request whose
				// answer was lost, without a second run.
				key = uuid.NewString()
			}
			run, err := hub.StartRun(cmd.Context(), request, key)
			if interrupted(cmd.Context(), err) {
				return &interruption{fmt.Sprintf("the hub has not answered, so the run may be queued all the same: `cloop run list --project %s` shows it", shellQuote(request.Project))}
			}
			if errors.Is(err, hubclient.ErrOutcomeUnknown) {
				// The answers were lost, and perhaps not the requests.
				err = &withAdvice{fmt.Errorf("%w: the run may be queued all the same: `cloop run list --project %s` shows it, and the same command with --idempotency-key %s returns it and starts no other",
					err, shellQuote(request.Project), shellQuote(key))}
			}
			if err != nil {
				return fmt.Errorf("start a run of project %s: %w", request.Project, err)
			}
			if wait {
				a.remark("run %s is %s%s", run.ID, run.State, because(run.Reason))
				return goesOn(cmd.Context(), run.ID, a.follow(cmd.Context(), hub, run.ID))
			}
			return a.show(run, func(w io.Writer) {
				say(w, "Run %s is %s%s.\nFollow it with `cloop run logs --follow %s`.\n", run.ID, run.State, because(run.Reason), shellQuote(run.ID))
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&request.Project, "project", "", "`PROJECT` to run")
	flags.StringVar(&request.Ref, "ref", "", "`REF`, a branch, tag or full commit (default: the project's)")
	flags.StringVar(&request.Failover, "failover", "", "`WHEN` to start the run again if its runner is lost: once or never (default once)")
	flags.StringVar(&key, "idempotency-key", "", "`KEY` whose repetition returns the run that it started first")
	flags.BoolVar(&request.NoWait, "no-wait-for-capacity", false, "start it on a runner that is free now, or not at all")
	flags.BoolVar(&wait, "wait", false, "show the log and exit with the command's exit code")
	return cmd
}

// textName names the ref and the words of the command that follow it.
func textName(i int) string {
	if i == 0 {
		return "--ref"
	}
	return fmt.Sprintf("word %d of the command", i)
}

func (a *app) newRunListCommand() *cobra.Command {
	var (
		project string
		limit   int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, newest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := notNegative(cmd, "limit", limit); err != nil {
				return err
			}
			hub, err := a.connect()
			if err != nil {
				return err
			}
			runs, err := hub.ListRuns(cmd.Context(), project, limit)
			if err != nil {
				return fmt.Errorf("list runs: %w", err)
			}
			return a.show(hubv1.RunList{Items: listed(runs)}, func(w io.Writer) {
				row(w, "RUN", "PROJECT", "STATE", "EXIT", "COMMIT", "AGE", "COMMAND")
				for _, r := range runs {
					row(w, r.ID, r.Project, r.State, exitText(r), dash(fleet.Short(r.Commit)), age(time.Now(), r.QueuedAt), shortCommand(r.Command))
				}
			})
		},
	}
	cmd.Flags().StringVar(&project, "project", "", "only runs of this `PROJECT`")
	cmd.Flags().IntVar(&limit, "limit", 50, "at most `N` runs; 0: all")
	return cmd
}

func (a *app) newRunShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show RUN",
		Short: "Show a run",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := a.connect()
			if err != nil {
				return err
			}
			run, err := hub.GetRun(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("show run %s: %w", args[0], err)
			}
			return a.show(run, func(w io.Writer) { printRun(w, run, newPoolNames(hub).of(cmd.Context(), run.PoolID)) })
		},
	}
}

func (a *app) newRunLogsCommand() *cobra.Command {
	var (
		follow bool
		offset int64
	)
	cmd := &cobra.Command{
		Use:   "logs RUN",
		Short: "Write a run's log to standard output",
		Long: `Write a run's log to standard output, byte for byte into a file or a pipe. On a
terminal colours work, and other control sequences are shown, not obeyed.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := notNegative(cmd, "offset", offset); err != nil {
				return err
			}
			hub, err := a.connect()
			if err != nil {
				return err
			}
			to, end := logWriter(a.stdout)
			defer end()
			err = a.copyLog(cmd.Context(), hub, logPart{run: args[0], offset: offset, follow: follow}, to)
			if follow {
				return goesOn(cmd.Context(), args[0], err)
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run is settled")
	cmd.Flags().Int64Var(&offset, "offset", 0, "start after this many `BYTES`")
	return cmd
}

func (a *app) newRunCancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel RUN",
		Short: "Stop a run; one that waits is cancelled at once",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := a.connect()
			if err != nil {
				return err
			}
			run, err := hub.CancelRun(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("cancel run %s: %w", args[0], err)
			}
			return a.show(run, func(w io.Writer) {
				say(w, "Run %s is %s%s.\n", run.ID, run.State, because(run.Reason))
			})
		},
	}
}

func (a *app) newRunWaitCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait RUN",
		Short: "Wait for a run to end and exit with its exit code",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := notNegative(cmd, "timeout", timeout); err != nil {
				return err
			}
			hub, err := a.connect()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("run %s has not ended within %s", args[0], timeout))
				defer cancel()
			}
			run, err := a.settled(ctx, hub, args[0])
			if err != nil {
				return goesOn(ctx, args[0], err)
			}
			if err := a.show(run, func(w io.Writer) { printRun(w, run, newPoolNames(hub).of(cmd.Context(), run.PoolID)) }); err != nil {
				return err
			}
			return runExit(run)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after this long; 0: never")
	return cmd
}

func printRun(w io.Writer, r hubv1.Run, pool string) {
	row(w, "Run:", r.ID)
	row(w, "Project:", r.Project)
	row(w, "Pool:", dash(pool))
	row(w, "Command:", commandText(r.Command))
	row(w, "State:", string(r.State)+because(r.Reason))
	if r.ExitCode != nil || r.Signal != "" {
		row(w, "Exit:", exitText(r))
	}
	row(w, "Commit:", dash(r.Commit))
	switch {
	case r.Requirements == nil && !r.State.Terminal():
		row(w, "Requires:", "not known to the hub, so its runner checks")
	case r.Requirements != nil && !r.Requirements.Empty():
		row(w, "Requires:", demandText(*r.Requirements))
	}
	row(w, "Attempt:", r.Attempt)
	for _, a := range r.Earlier {
		row(w, "Before:", attemptText(a))
	}
	row(w, "Runner:", dash(r.Runner))
	row(w, "Started by:", r.StartedBy)
	if r.LogRemovedAt != nil {
		row(w, "Log:", "removed at "+r.LogRemovedAt.UTC().Format(time.RFC3339))
	}
	row(w, "Queued:", r.QueuedAt.UTC().Format(time.RFC3339))
	for _, step := range []struct {
		name string
		at   *time.Time
	}{{"Handed out:", r.HandedAt}, {"Started:", r.StartedAt}, {"First log:", r.FirstLogAt}, {"Settled:", r.SettledAt}} {
		if step.at != nil {
			row(w, step.name, fmt.Sprintf("%s (after %s)", step.at.UTC().Format(time.RFC3339), step.at.Sub(r.QueuedAt).Round(time.Millisecond)))
		}
	}
}

// attemptText is what became of a run in the hands of a runner that it came back
// from.
func attemptText(a hubv1.RunAttempt) string {
	text := fmt.Sprintf("attempt %d on runner %s, handed out %s, ", a.Attempt, a.Runner, a.HandedAt.UTC().Format(time.RFC3339))
	if a.StartedAt == nil {
		text += "not started"
	} else {
		text += "started " + a.StartedAt.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s, ended %s: %s", text, a.EndedAt.UTC().Format(time.RFC3339), a.Reason)
}

func commandText(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = shellQuote(word)
	}
	return strings.Join(words, " ")
}

// maxListed is how much of a command a list shows, in characters.
const maxListed = 80

// shortCommand is a command as a cell of a table: its beginning, on one line.
func shortCommand(command []string) string {
	text := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, commandText(command)))
	if len(text) > maxListed {
		return string(text[:maxListed-1]) + "…"
	}
	return string(text)
}

func exitText(r hubv1.Run) string {
	if r.Signal != "" {
		return r.Signal
	}
	if r.ExitCode != nil {
		return fmt.Sprint(*r.ExitCode)
	}
	return "-"
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
