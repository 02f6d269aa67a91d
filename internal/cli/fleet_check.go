package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/diff"
	"cloop.dev/cloop/internal/fleet/output"
	"cloop.dev/cloop/schemas"
)

func (a *app) newFleetCheckCommand() *cobra.Command {
	var (
		flags   checkFlags
		formats []string
	)
	for _, format := range output.Formats() {
		formats = append(formats, string(format))
	}
	cmd := &cobra.Command{
		Use:   "check [PATH…]",
		Short: "Check a fleet repository, offline",
		Long: `Build every kustomization that no other refers to, or the PATHs, and check each
document as the API server would, and all of them together. Nothing is reached
over the network and no credential is needed. Every problem is reported at the
line of the source file that it comes from.

The answer is shown as text, or as each -o says: sarif for code scanning, github
for annotations in GitHub Actions, gitlab for a Code Quality report, junit for a
test report, markdown for a comment. One format goes to standard output, any
number to files, which are replaced whole. Files say what happened also where
nothing could be checked.

Variables such as ${REGION} have the values that the PoolSyncs of the repository
give in spec.substitute. --substitute gives those that come from elsewhere: for
what a PoolSync takes from its cluster, and for what none of them applies. FILE
is a YAML or JSON map of name to value, or a ConfigMap. DIR=FILE gives them to the
root in DIR alone, where clusters differ.

In a job, where $CI is set, only files that Git tracks are read, as hub and
clusters see no others; --untracked reads all.

What the repository bears, and rules of its own, it says in .cloop and in
comments. --base REV is for those of its rules that look at changes; REV is as in
cloop fleet diff.

Exit code 0: nothing is wrong; 1: something is; 2: it could not be checked,
also where a PATH has no document, nothing is of cloop.dev, or a variable has
neither a value nor a default. A repository
without a pool, such as one of PoolSyncs alone, is checked like any other and
the summary says that there is none.`,
		Example: `  cloop fleet check
  cloop fleet check clusters/eu -o text,json=report.json
  cloop fleet check -o github -o sarif=fleet.sarif -o markdown=comment.md`,
		Annotations: map[string]string{formatsAnnotation: strings.Join(formats, ",")},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.checkFleet(cmd, args, flags)
		},
	}
	cmd.Flags().StringVar(&flags.base, "base", "", "`REV` that a change starts from, for rules of the repository that look at changes")
	cmd.Flags().StringArrayVar(&flags.substitute, "substitute", nil, "`[DIR=]FILE` with values for variables, of the root in DIR or of all; can be given several times, a later one wins, and one with DIR over those without")
	addUntracked(cmd, &flags.untracked)
	// It stands before the flag of that name that all commands have.
	cmd.Flags().StringSliceVarP(&a.options.output, "output", "o", nil,
		"`FORMAT[=FILE]` of the answer, to standard output or to a file; can be given several times: "+alternatives(formats)+" (default text)")
	return cmd
}

// checkFlags are the flags of `fleet check`.
type checkFlags struct {
	base       string
	substitute []string
	untracked  bool
}

// addUntracked adds the flag that has files read that Git does not track.
func addUntracked(cmd *cobra.Command, untracked *bool) {
	cmd.Flags().BoolVar(untracked, "untracked", false, "read files that Git does not track too: the default unless $CI is set, since a job may keep a credential beside the repository")
}

// readTracked says which files are read: in a job only those that Git tracks, which
// is what hub and clusters see.
func readTracked(ctx context.Context, root string, untracked bool) (*fleet.Tracked, error) {
	if ci := os.Getenv("CI"); untracked || ci == "" || ci == "false" || !exists(filepath.Join(root, ".git")) {
		return nil, nil //nolint:nilnil // all files are
	}
	return fleet.ReadTracked(ctx, root)
}

func (a *app) checkFleet(cmd *cobra.Command, args []string, flags checkFlags) error {
	at, report, err := check(cmd.Context(), args, flags)
	if err != nil && cmd.Context().Err() != nil {
		return err
	}
	result := output.Failure(err)
	if err == nil {
		result = output.Judge(report)
	}
	written := a.showResult(result, output.Options{Spell: at.fromHere, Version: buildVersion().Version, At: time.Now()})
	return errors.Join(written, verdictError(result, at.fromHere))
}

// verdictError is the error that makes the process exit as the verdict says.
func verdictError(result *output.Result, spell func(string) string) error {
	reason := result.Err(spell)
	if result.Verdict != output.Unsound {
		return reason
	}
	no := &No{}
	if reason != nil {
		no.Message = reason.Error()
	}
	return no
}

// check is the report on the repository that the arguments lie in.
func check(ctx context.Context, args []string, flags checkFlags) (location, *fleet.Report, error) {
	at, err := locate(args)
	if err != nil {
		return at, nil, err
	}
	validator, err := schemas.NewValidator()
	if err != nil {
		return at, nil, fmt.Errorf("load the schemas: %w", err)
	}
	checking := fleet.Checking{Validator: validator, Sparse: diff.Sparse(at.root)}
	if checking.Variables, err = readVariables(at.root, flags.substitute); err != nil {
		return at, nil, err
	}
	if checking.Tracked, err = readTracked(ctx, at.root, flags.untracked); err != nil {
		return at, nil, err
	}
	if flags.base != "" {
		base, err := diff.OpenBase(ctx, at.root, flags.base)
		if err != nil {
			return at, nil, err
		}
		defer base.Close()
		if checking.Base, err = fleet.NewRenderer(base.Dir, checking.Variables); err != nil {
			return at, nil, err
		}
		defer checking.Base.Close()
	}
	report, err := checking.Check(ctx, at.root, at.paths...)
	return at, report, err
}

// readVariables reads files with values, each for the whole repository or, as
// DIR=FILE, for one root of it; none: nil.
func readVariables(root string, arguments []string) (*fleet.Variables, error) {
	var all *fleet.Variables
	for _, argument := range arguments {
		file, of := argument, ""
		if dir, rest, found := strings.Cut(argument, "="); found && !exists(argument) {
			if file, of = rest, inRepository(root, dir); of == "" || !exists(dir) {
				return nil, fmt.Errorf("--substitute %s: %s is no directory of the repository at %s: write DIR=FILE, or FILE for all of it", argument, dir, root)
			}
		}
		data, err := readValues(root, file)
		if err != nil {
			return nil, fmt.Errorf("--substitute %s: %w", argument, err)
		}
		read, err := fleet.ReadVariables(inRepository(root, file), data)
		if err != nil {
			return nil, fmt.Errorf("--substitute %s: %w", argument, err)
		}
		if of != "" {
			all = all.With(of, read)
			continue
		}
		all = read.Over(all)
	}
	return all, nil
}

// maxValues bounds a file of values, in bytes.
const maxValues = 4 << 20

// readValues reads a file with values. A pull request may have made one of the
// repository's own: it stays in there, and is a file.
func readValues(root, name string) ([]byte, error) {
	if written, err := filepath.Abs(name); err == nil {
		if _, in := fleet.Inside(root, written); in && exists(written) && inRepository(root, written) == "" {
			return nil, errors.New("it is a link that leads out of the repository: commit the file itself")
		}
	}
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer func() { _ = file.Close() }()
	switch info, err := file.Stat(); {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errors.New("is a directory: name a file in it")
	case !info.Mode().IsRegular() && inRepository(root, name) != "":
		return nil, errors.New("it is no file: commit a file")
	}
	data, err := io.ReadAll(io.LimitReader(file, maxValues+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxValues:
		return nil, fmt.Errorf("it is larger than %d MiB: keep only the values in it", maxValues>>20)
	}
	return data, nil
}

// inRepository is a path, whatever links it leads over, relative to the
// repository's root; empty where it is not in it.
func inRepository(root, name string) string {
	path, err := resolved(name)
	if err != nil {
		return ""
	}
	relative, _ := fleet.Inside(root, path)
	return relative
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// showResult writes every output that was asked for, whatever becomes of the
// others.
func (a *app) showResult(result *output.Result, options output.Options) error {
	var failed []error
	for _, t := range a.options.targets() {
		data, err := output.Render(output.Format(t.format), result, options)
		if err == nil {
			err = a.write(t, data)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("write the result: %w", err))
		}
	}
	return errors.Join(failed...)
}
