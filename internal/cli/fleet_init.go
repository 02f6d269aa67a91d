package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet/scaffold"
)

// What a new repository has where nothing else is known; the README says where
// they stand.
const (
	exampleHub        = "https://cloop.example.com:8443"
	exampleRepository = "https://git.example.com/platform/fleet.git"
)

// newRepository is what `fleet init` shows.
type newRepository struct {
	Directory string   `json:"directory"`
	Files     []string `json:"files"`
	// Kept were there and stayed as they were.
	Kept []string `json:"kept,omitempty"`
	// Next is what to do now, a step each.
	Next []string `json:"next"`
}

func (a *app) newFleetInitCommand() *cobra.Command {
	var clusters []string
	var repository, branch string
	cmd := &cobra.Command{
		Use:   "init [DIR] [--hub URL] [--cluster NAME…]",
		Short: "Write a fleet repository to begin with",
		Long: `Write a fleet repository to begin with: the hub's half, a base, an overlay for
each cluster, what kustomize has to know of the kinds, jobs that check a change in
GitHub Actions and GitLab CI, and a hook that checks before a commit. The check
passes as it is, and hub and clusters can follow the first commit.

Nothing is overwritten: where one of the files is there, nothing is written. Only
a README.md that is there is kept. --hub, --hub-pin and --hub-ca-file, or what
stands for them in the environment, say how runners reach the hub.`,
		Example: `  cloop fleet init fleet --hub https://cloop.example.com:8443 --hub-pin sha256:… --cluster eu --cluster us`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			o := scaffold.Options{
				HubURL: a.options.hub, HubCAPin: a.options.hubPin, Clusters: clusters, Repository: repository, Branch: branch,
			}
			return a.initFleet(cmd.Context(), dir, o)
		},
	}
	cmd.Flags().StringSliceVar(&clusters, "cluster", []string{"eu", "us"}, "`NAME` of a cluster, several times")
	cmd.Flags().StringVar(&repository, "repository", "", "https `URL` that hub and clusters will fetch from (default: the remote origin of DIR, or an example)")
	cmd.Flags().StringVar(&branch, "branch", "main", "`BRANCH` that they will follow")
	return cmd
}

func (a *app) initFleet(ctx context.Context, dir string, o scaffold.Options) error {
	if name := a.options.hubCAFile; name != "" {
		bundle, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read the hub's certificates: %w", err)
		}
		o.HubCABundle = string(bundle)
	}
	var replace []string
	if o.HubURL == "" {
		o.HubURL = exampleHub
		replace = append(replace, fmt.Sprintf("replace %s in pools/base/agents.yaml by your hub's address", exampleHub))
	}
	if o.Repository == "" {
		o.Repository = originOf(ctx, dir)
	}
	if o.Repository == "" {
		o.Repository = exampleRepository
		replace = append(replace, fmt.Sprintf("replace %s in bootstrap/ by the repository's address", exampleRepository))
	}
	files, err := scaffold.Files(o)
	if err != nil {
		return err
	}
	written, kept, err := scaffold.Write(dir, files)
	var occupied *scaffold.OccupiedError
	if errors.As(err, &occupied) {
		return &No{Message: occupied.Error()}
	}
	if err != nil {
		return err
	}
	shown := newRepository{Directory: dir, Files: written, Kept: kept, Next: nextSteps(dir, o, replace)}
	return a.show(shown, func(w io.Writer) { printNewRepository(w, shown) })
}

// nextSteps are what is left for a person to do.
func nextSteps(dir string, o scaffold.Options, replace []string) []string {
	at := "git"
	if dir != "." {
		at = "git -C " + shellQuote(dir)
	}
	steps := replace
	if _, err := os.Lstat(filepath.Join(dir, ".git")); err != nil {
		steps = append(steps, fmt.Sprintf("%s init --initial-branch %s", at, shellQuote(o.Branch)))
	}
	return append(steps,
		at+" config core.hooksPath .githooks",
		at+" add --all && "+at+" commit --message 'Begin the fleet', and push it to "+o.Repository,
		"have the hub and each cluster follow it: "+filepath.Join(dir, "README.md")+" says how",
	)
}

func printNewRepository(w io.Writer, shown newRepository) {
	where := "to " + shown.Directory
	if shown.Directory == "." {
		where = "here"
	}
	say(w, "Wrote %s %s.\n", count.Of(len(shown.Files), "file"), where)
	for _, name := range shown.Kept {
		say(w, "Kept %s as it was.\n", name)
	}
	say(w, "\nNext:\n")
	for i, step := range shown.Next {
		say(w, "  %d. %s\n", i+1, step)
	}
}

// originOf is the address of the remote origin, where it is one that hub and
// clusters can fetch from; empty where not.
func originOf(ctx context.Context, dir string) string {
	if _, err := os.Lstat(filepath.Join(dir, ".git")); err != nil {
		return ""
	}
	remote, err := git(ctx, dir, "remote", "get-url", "origin")
	if err != nil {
		return ""
	}
	at, err := url.Parse(remote)
	if err != nil || at.Scheme != "https" {
		return ""
	}
	// A credential of this clone is nobody else's.
	at.User = nil
	return at.String()
}
