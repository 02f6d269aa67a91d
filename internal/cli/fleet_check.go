package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/output"
	"cloop.dev/cloop/schemas"
)

func (a *app) newFleetCheckCommand() *cobra.Command {
	var formats []string
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

Exit code 0: nothing is wrong; 1: something is; 2: it could not be checked,
also where a PATH has no document or nothing is of cloop.dev. A repository
without a pool, such as one of PoolSyncs alone, is checked like any other and
the summary says that there is none.`,
		Example: `  cloop fleet check
  cloop fleet check clusters/eu -o text,json=report.json
  cloop fleet check -o github -o sarif=fleet.sarif -o markdown=comment.md`,
		Annotations: map[string]string{formatsAnnotation: strings.Join(formats, ",")},
		RunE:        a.checkFleet,
	}
	// It stands before the flag of that name that all commands have.
	cmd.Flags().StringSliceVarP(&a.options.output, "output", "o", nil,
		"`FORMAT[=FILE]` of the answer, to standard output or to a file; can be given several times: "+alternatives(formats)+" (default text)")
	return cmd
}

func (a *app) checkFleet(cmd *cobra.Command, args []string) error {
	at, report, err := check(cmd.Context(), args)
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
func check(ctx context.Context, args []string) (location, *fleet.Report, error) {
	at, err := locate(args)
	if err != nil {
		return at, nil, err
	}
	validator, err := schemas.NewValidator()
	if err != nil {
		return at, nil, fmt.Errorf("load the schemas: %w", err)
	}
	report, err := fleet.Check(ctx, validator, at.root, at.paths...)
	return at, report, err
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
