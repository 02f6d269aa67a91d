package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
)

func (a *app) newHubDoctorCommand() *cobra.Command {
	failOn := string(hubv1.SeverityFail)
	cmd := &cobra.Command{
		Use:   "doctor [--fail-on warn]",
		Short: "Say what is wrong with the hub and its pools, and what to do",
		Long: `Ask the hub what is wrong with it, with its syncs and with its pools. Each
finding has an id, what it means, what was found, and what to do about it; the
reference lists them all.

Exit code 0: nothing fails; 1: something does, or with --fail-on warn is to be
looked at; 2: the hub could not be asked.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			least := hubv1.Severity(failOn)
			if least != hubv1.SeverityWarn && least != hubv1.SeverityFail {
				return usageError(cmd, fmt.Errorf("--fail-on %s: there is only warn and fail", failOn))
			}
			hub, err := a.connect()
			if err != nil {
				return err
			}
			diagnosis, err := hub.Doctor(cmd.Context())
			if err != nil {
				return fmt.Errorf("ask the hub's doctor: %w", err)
			}
			if err := a.show(diagnosis, func(w io.Writer) { printDiagnosis(w, diagnosis) }); err != nil {
				return err
			}
			if diagnosis.Severity.Rank() >= least.Rank() {
				return &No{}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&failOn, "fail-on", failOn, "least `SEVERITY` that makes the exit code 1: warn or fail")
	return cmd
}

func printDiagnosis(w io.Writer, d hubv1.Diagnosis) {
	row(w, "SEVERITY", "FINDING", "ABOUT", "FOUND")
	for _, f := range d.Findings {
		row(w, f.Severity, f.ID, dash(f.About), f.Found)
	}
	// What several findings share is said once.
	said := map[hubv1.FindingID]bool{}
	for _, f := range d.Findings {
		if f.Severity == hubv1.SeverityPass || said[f.ID] {
			continue
		}
		said[f.ID] = true
		say(w, "\n%s: %s.\n", f.ID, f.Meaning)
		printRemedy(w, f.Remedy, commandsOf(d.Findings, f.ID))
	}
}

// commandsOf are the commands of all findings of an id, each once.
func commandsOf(findings []hubv1.Finding, id hubv1.FindingID) []string {
	var commands []string
	for _, f := range findings {
		if f.ID == id && f.Command != "" && !slices.Contains(commands, f.Command) {
			commands = append(commands, f.Command)
		}
	}
	return commands
}

func printRemedy(w io.Writer, remedy string, commands []string) {
	if remedy != "" {
		say(w, "  What to do: %s.\n", remedy)
	}
	for _, command := range commands {
		say(w, "  Command: %s\n", command)
	}
}

// printFindings says what is wrong with one pool.
func printFindings(w io.Writer, findings []hubv1.Finding) {
	for _, f := range findings {
		say(w, "\n%s %s: %s.\n", f.Severity, f.ID, f.Found)
		printRemedy(w, f.Remedy, []string{f.Command})
	}
}

// health names what is wrong with a pool in a word each.
func health(p hubv1.Pool) string {
	if len(p.Findings) == 0 {
		return "ok"
	}
	var words []string
	for _, f := range p.Findings {
		id := string(f.ID)
		if word := string(f.Severity) + ":" + id[strings.LastIndexByte(id, '.')+1:]; !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return strings.Join(words, ",")
}
