package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet/scaffold"
	"cloop.dev/cloop/internal/printable"
)

// What a new repository has where nothing else is known; the README says where
// they stand.
const (
	exampleHub        = "https://cloop.example.com:8443"
	exampleRepository = "https://git.example.com/platform/fleet.git"
)

// newRepository is what `fleet init` shows.
type newRepository struct {
	// Directory that was written to.
	Directory string `json:"directory"`
	// Files that were written.
	Files []string `json:"files"`
	// Kept were there and stayed as they were.
	Kept []string `json:"kept,omitempty"`
	// Next is what to do now, a step each.
	Next []string `json:"next"`
	// Notes are what else is to be known.
	Notes []string `json:"notes,omitempty"`
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

Nothing is overwritten: where one of the files is there, nothing is written. A
README.md or a job that is there is kept, and ours is written beside it, as
FLEET.md, .gitlab/cloop.yml or .github/workflows/cloop-fleet.yaml. --hub,
--hub-pin and --hub-ca-file, what stands for them in the environment, or the login
say how runners reach the hub.`,
		Example: `  cloop fleet init fleet --hub https://cloop.example.com:8443 --hub-pin sha256:… --cluster eu --cluster us`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return a.initFleet(cmd.Context(), dir, scaffold.Options{Clusters: clusters, Repository: sshOf(repository), Branch: branch})
		},
	}
	cmd.Flags().StringSliceVar(&clusters, "cluster", []string{"eu", "us"}, "`NAME` of a cluster, several times")
	cmd.Flags().StringVar(&repository, "repository", "", "https or ssh `URL` that hub and clusters will fetch from (default: the remote origin of DIR, by https, or an example)")
	cmd.Flags().StringVar(&branch, "branch", "", "`BRANCH` that they will follow (default: the one checked out in DIR, or main)")
	return cmd
}

func (a *app) initFleet(ctx context.Context, dir string, o scaffold.Options) error {
	var shown newRepository
	kept, err := a.options.fromLogin()
	if err != nil {
		return err
	}
	if kept != nil {
		shown.Notes = append(shown.Notes, "the pools are for the hub that you are logged in at, "+kept.URL)
	}
	o.HubURL, o.HubCAPin = a.options.hub, a.options.hubPin
	bundle, err := a.caBundle()
	if err != nil {
		return err
	}
	o.HubCABundle = string(bundle)
	if o.HubURL == "" {
		o.HubURL = exampleHub
		shown.Next = append(shown.Next, fmt.Sprintf("replace %s in pools/base/agents.yaml by your hub's address", exampleHub))
	}
	if o.HubCAPin == "" && o.HubCABundle == "" {
		shown.Next = append(shown.Next, "unless a public authority signed the hub's certificate, set hubCAPin in pools/base/agents.yaml: `cloop hub pin URL` prints it")
	}
	return a.writeRepository(ctx, dir, o, shown)
}

// writeRepository writes a repository that is hub's and clusters' to follow, and shows
// that. shown has what is known of it already: steps that come first, and notes.
func (a *app) writeRepository(ctx context.Context, dir string, o scaffold.Options, shown newRepository) error {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return &No{Message: dir + " is a file: name a directory"}
	}
	if top := enclosing(ctx, dir); top != "" {
		return &No{Message: fmt.Sprintf("%s lies in the repository %s, and hub and clusters follow a repository from its root; nothing was written: name a directory outside of it, or that root", dir, top)}
	}
	if o.Branch == "" {
		o.Branch = branchOf(ctx, dir)
	}
	if o.Repository == "" {
		if origin := originOf(ctx, dir); origin != "" {
			o.Repository = httpsOf(origin)
			if o.Repository != "" && !strings.HasPrefix(origin, "https://") {
				shown.Next = append(shown.Next, fmt.Sprintf("see that hub and clusters can fetch %s, which origin is by ssh; --repository takes an address of ssh, too", o.Repository))
			}
		}
	}
	if o.Repository == "" {
		o.Repository = exampleRepository
		shown.Next = append(shown.Next, fmt.Sprintf("replace %s in bootstrap/ by the repository's address", exampleRepository))
	}
	files, err := scaffold.Files(o)
	if err != nil {
		return err
	}
	written, beside, err := scaffold.Write(dir, files)
	var occupied *scaffold.OccupiedError
	if errors.As(err, &occupied) {
		return &No{Message: occupied.Error()}
	}
	if err != nil {
		return err
	}
	if ours := beside[scaffold.GitLabJobs]; ours != "" {
		shown.Next = append(shown.Next, fmt.Sprintf("have %s run ours: `include: [{local: %s}]`", scaffold.GitLabJobs, ours))
	}
	guide := cmp.Or(beside[scaffold.Guide], scaffold.Guide)
	shown.Directory, shown.Files, shown.Kept, shown.Next = dir, written, slices.Sorted(maps.Keys(beside)), nextSteps(dir, guide, o, shown.Next)
	return a.show(shown, func(w io.Writer) { printNewRepository(w, shown) })
}

// nextSteps are what is left for a person to do.
func nextSteps(dir, guide string, o scaffold.Options, replace []string) []string {
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
		"have the hub and each cluster follow it: "+filepath.Join(dir, guide)+" says how",
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
	for _, note := range shown.Notes {
		say(w, "note: %s\n", printable.Line(note))
	}
	say(w, "\nNext:\n")
	for i, step := range shown.Next {
		say(w, "  %d. %s\n", i+1, step)
	}
}

// enclosing is the root of the repository that a directory, which need not be
// there yet, lies in without being that root itself; empty where it is in none.
func enclosing(ctx context.Context, dir string) string {
	there, gone, err := existing(dir)
	if err != nil {
		return ""
	}
	top, err := git(ctx, there, "rev-parse", "--show-toplevel")
	if err != nil {
		return ""
	}
	if at, err := filepath.EvalSymlinks(there); err == nil && at == top && gone == "" {
		return ""
	}
	return top
}

// branchOf is the branch that is checked out; main where that is none.
func branchOf(ctx context.Context, dir string) string {
	if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
		if name, err := git(ctx, dir, "symbolic-ref", "--quiet", "--short", "HEAD"); err == nil {
			return name
		}
	}
	return "main"
}

// originOf is the address of the remote origin; empty where there is none.
func originOf(ctx context.Context, dir string) string {
	if _, err := os.Lstat(filepath.Join(dir, ".git")); err != nil {
		return ""
	}
	// Where there is none, the answer is empty, too.
	remote, _ := git(ctx, dir, "remote", "get-url", "origin")
	return remote
}

// shortSSH is a repository as ssh has it: USER@HOST:PATH.
var shortSSH = regexp.MustCompile(`^([^@/:]+)@([^@/:]+):/?([^/].*)$`)

// sshOf is an address as a URL, where it is one that only ssh knows.
func sshOf(remote string) string {
	if match := shortSSH.FindStringSubmatch(remote); match != nil {
		return (&url.URL{Scheme: "ssh", User: url.User(match[1]), Host: match[2], Path: "/" + match[3]}).String()
	}
	return remote
}

// httpsOf is the address of a repository by which hub and clusters can fetch it;
// empty where there is none.
func httpsOf(remote string) string {
	if match := shortSSH.FindStringSubmatch(remote); match != nil {
		return (&url.URL{Scheme: "https", Host: match[2], Path: "/" + match[3]}).String()
	}
	at, err := url.Parse(remote)
	switch {
	case err != nil || at.Hostname() == "":
		return ""
	case at.Scheme == "ssh":
		// ssh's port is not that of https.
		return (&url.URL{Scheme: "https", Host: at.Hostname(), Path: at.Path}).String()
	case at.Scheme != "https":
		return ""
	}
	// A credential of this clone is nobody else's.
	at.User = nil
	return at.String()
}
