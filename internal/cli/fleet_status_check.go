package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/forge"
)

// statusCheck is what `fleet status-check` is told.
type statusCheck struct {
	where    surfaceFlags
	repo     string
	revision string
	remote   string
	kind     string
	api      string
	caFile   string
	// tokenFile holds the forge's token.
	tokenFile string
	link      string
	dryRun    bool
	wait      bool
	timeout   time.Duration
}

// envForgeToken names the file with the forge's token.
const envForgeToken = "CLOOP_FORGE_TOKEN_FILE"

// pollEvery is how often --wait looks again. Tests shorten it.
var pollEvery = 3 * time.Second

// postedStatus is one commit status, as it is shown.
type postedStatus struct {
	// Context is the name of the status.
	Context string `json:"context"`
	// State is success, failure, pending or error.
	State forge.State `json:"state"`
	// Description says why on one line.
	Description string `json:"description"`
	// Link is where there is more.
	Link string `json:"link,omitempty"`
	// Posted says that the forge did not show it before.
	Posted bool `json:"posted"`
	// Failed says that the forge could not be asked or refused it, so that nobody
	// knows what it shows.
	Failed bool `json:"failed,omitempty"`
}

// statusReport is what `fleet status-check` shows.
type statusReport struct {
	// Revision is the commit, in full.
	Revision string `json:"revision"`
	// Repository on the forge, as OWNER/NAME.
	Repository string `json:"repository"`
	// Statuses of the commit.
	Statuses []postedStatus `json:"statuses"`
}

func (a *app) newFleetStatusCheckCommand() *cobra.Command {
	var s statusCheck
	cmd := &cobra.Command{
		Use:   "status-check [--hub URL] [--cluster CONTEXT…] --forge-token-file FILE",
		Short: "Post to the forge what has become of a commit",
		Long: `Post one commit status for the hub, as cloop/hub, and one for each cluster, as
cloop/CONTEXT, to GitHub, GitLab or Gitea: success where the commit, or a later
one, is applied and nothing drifts; failure where it is refused or something
drifts; pending where it was not seen yet; error where that cannot be found out.
What the forge shows already is not posted again. Run it in a job of the branch
that hub and clusters follow, after the merge.

The repository, and which forge it is, are told by the remote of the branch. The
token needs the right to write commit statuses and nothing else.

Exit code 0: every status is success, or pending without --wait; 1: one is
failure, or pending at the end of --wait; 2: it could not be found out or posted.`,
		Example: `  cloop fleet status-check --cluster eu --cluster us --forge-token-file /run/secrets/forge --wait`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := notNegative(cmd, "timeout", s.timeout); err != nil {
				return err
			}
			return a.checkStatus(cmd.Context(), s)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.repo, "repo", ".", "`PATH` of a checked-out fleet repository")
	flags.StringVar(&s.revision, "revision", "HEAD", "`REVISION` of it to post of")
	flags.StringVar(&s.remote, "remote", "", "`URL` of the repository on the forge (default: that of the branch's remote)")
	flags.StringVar(&s.kind, "forge", "", "`KIND` of forge: github, gitlab or gitea (default: by the CI system or the remote's host)")
	flags.StringVar(&s.api, "forge-api", "", "`URL` of the forge's API (default: where that forge has it on the remote's host)")
	flags.StringVar(&s.caFile, "forge-ca-file", "", "PEM `FILE` of the certificates that alone are trusted for the forge")
	flags.StringVar(&s.tokenFile, "forge-token-file", "", "`FILE` with the token for the forge, - for standard input ($"+envForgeToken+")")
	flags.StringVar(&s.link, "link", "", "`URL` that the statuses link to (default: the CI job, or the folder at that commit)")
	flags.BoolVar(&s.dryRun, "dry-run", false, "show the statuses and post none; needs no token")
	flags.BoolVar(&s.wait, "wait", false, "look again until none is pending")
	flags.DurationVar(&s.timeout, "timeout", 5*time.Minute, "end after this long, whoever has not answered; 0: look once, without --wait")
	s.where.register(cmd)
	return cmd
}

// check of a commit, ready to be repeated.
type commitCheck struct {
	found      surfaces
	repository forge.Repository
	remote     string
	root       string
	revision   string
	branch     string
	link       string
	// client is nil in a dry run.
	client *forge.Client
}

func (a *app) checkStatus(ctx context.Context, s statusCheck) error {
	c, err := a.prepareCheck(ctx, s)
	if err != nil {
		return err
	}
	if c.client != nil {
		defer c.client.Close()
	}
	report, troubles, err := c.until(ctx, s)
	if err != nil {
		return err
	}
	if err := a.show(report, func(w io.Writer) { printStatusReport(w, report, s.dryRun) }); err != nil {
		return err
	}
	if len(troubles) > 0 {
		return errors.Join(troubles...)
	}
	return reportVerdict(report, s.wait)
}

// reportVerdict is the error that makes the process exit as the report says.
func reportVerdict(report statusReport, waited bool) error {
	for _, each := range report.Statuses {
		if each.State == forge.Failure || each.State == forge.Pending && waited {
			return &No{}
		}
		if each.State == forge.Error {
			return silent(codeNoAnswer)
		}
	}
	return nil
}

func (a *app) prepareCheck(ctx context.Context, s statusCheck) (*commitCheck, error) {
	at, err := locate([]string{s.repo})
	if err != nil {
		return nil, err
	}
	c := &commitCheck{root: at.root, remote: s.remote, branch: os.Getenv("CI_COMMIT_BRANCH"), link: s.link}
	if c.revision, err = git(ctx, at.root, "rev-parse", "--verify", s.revision+"^{commit}"); err != nil {
		return nil, fmt.Errorf("find commit %s of %s: %w: name one that is there with --revision", s.revision, at.root, err)
	}
	if c.remote == "" {
		name, _ := upstreamOf(ctx, at.root)
		if name == "" {
			return nil, fmt.Errorf("%s has no remote: name the repository on the forge with --remote URL", at.root)
		}
		if c.remote, err = git(ctx, at.root, "remote", "get-url", name); err != nil {
			return nil, fmt.Errorf("find the URL of remote %s: %w", name, err)
		}
	}
	kind := forge.Kind(s.kind)
	if kind == "" {
		kind = forgeOfJob()
	}
	if c.repository, err = forge.Locate(c.remote, kind, s.api); err != nil {
		if errors.Is(err, forge.ErrUnknownForge) {
			return nil, fmt.Errorf("%w with --forge", err)
		}
		return nil, err
	}
	if c.link == "" {
		c.link = linkOfJob()
	}
	if c.found, err = a.reach(s.where); err != nil {
		return nil, err
	}
	if err := c.checkNames(); err != nil {
		return nil, err
	}
	if !s.dryRun {
		c.client, err = a.connectForge(s, c.repository)
	}
	return c, err
}

// checkNames refuses clusters that have no name of their own.
func (c *commitCheck) checkNames() error {
	names := map[string]bool{hubStatus: c.found.hub != nil}
	for _, cluster := range c.found.clusters {
		if cluster.unnamed {
			return errors.New("the cluster has no name for its status: reach it by a kubeconfig with a context, named with --cluster")
		}
		if names[cluster.name] {
			return fmt.Errorf("two statuses would be called %s%s: rename the context of one cluster", statusPrefix, cluster.name)
		}
		names[cluster.name] = true
	}
	return nil
}

func (a *app) connectForge(s statusCheck, repository forge.Repository) (*forge.Client, error) {
	file := s.tokenFile
	if file == "" {
		file = os.Getenv(envForgeToken)
	}
	if file == "" {
		return nil, errors.New("no token for the forge: name a file with --forge-token-file or " + envForgeToken + ", or look first with --dry-run")
	}
	token, err := a.readSecret("the forge's token", file)
	if err != nil {
		return nil, err
	}
	o := forge.Options{Repository: repository, Token: token, Patience: s.timeout, UserAgent: "cloop/" + buildVersion().Version}
	if s.caFile != "" {
		if o.CABundle, err = os.ReadFile(s.caFile); err != nil {
			return nil, fmt.Errorf("read the forge's certificates: %w", err)
		}
	}
	return forge.New(o)
}

// until looks and posts, again and again where it is to wait. Troubles are what
// could not be found out or posted in the last round; where the time ran out in
// the middle of one, the round before it counts. The error is the context's.
func (c *commitCheck) until(ctx context.Context, s statusCheck) (report statusReport, troubles []error, err error) {
	over := fmt.Errorf("not all have answered within %s: give them longer with --timeout", s.timeout)
	// A surface that takes the connection and says nothing counts, too.
	bounded, cancel := context.WithTimeoutCause(ctx, cmp.Or(s.timeout, graceTime), over)
	defer cancel()
	posted := map[string]bool{}
	for whole := false; ; whole = true {
		now, wrong := c.round(bounded, posted)
		switch {
		case ctx.Err() != nil:
			return report, troubles, context.Cause(ctx)
		case bounded.Err() != nil && whole:
			return report, troubles, nil
		case bounded.Err() != nil && len(wrong) > 0:
			return now, outOfTime(over, wrong), nil
		}
		report, troubles = now, wrong
		if !s.wait || s.timeout == 0 || settled(report, troubles) {
			return report, troubles, nil
		}
		again := time.NewTimer(pollEvery)
		select {
		case <-again.C:
		case <-bounded.Done():
			again.Stop()
			return report, troubles, context.Cause(ctx)
		}
	}
}

// outOfTime are the troubles of a round that the end of the time has cut short:
// that it has is said once.
func outOfTime(over error, troubles []error) []error {
	told, said := make([]error, 0, len(troubles)+1), false
	for _, trouble := range troubles {
		if late := errors.Is(trouble, over) || errors.Is(trouble, context.DeadlineExceeded); !late || !said {
			told, said = append(told, trouble), said || errors.Is(trouble, over)
		}
	}
	if !said {
		told = append(told, over)
	}
	return told
}

// graceTime is what requests may take where --timeout is 0: one look.
const graceTime = 10 * time.Second

// settled says whether looking again can show nothing else soon.
func settled(report statusReport, troubles []error) bool {
	for _, trouble := range troubles {
		if refusalOf(trouble) != nil {
			return true
		}
	}
	if len(troubles) > 0 {
		return false
	}
	for _, each := range report.Statuses {
		if each.State == forge.Pending || each.State == forge.Error {
			return false
		}
	}
	return true
}

// round looks at every surface and posts. Posted: context → whether any round
// has posted.
func (c *commitCheck) round(ctx context.Context, posted map[string]bool) (statusReport, []error) {
	report := statusReport{Revision: c.revision, Repository: c.repository.Web, Statuses: []postedStatus{}}
	judged, troubles := c.judge(ctx)
	for _, j := range judged {
		s := forge.Status{
			Revision: c.revision, Context: statusPrefix + j.name, State: j.state, Description: j.text, Branch: c.branch,
			Link: c.link, StateOnly: j.name == hubStatus,
		}
		if s.Link == "" {
			s.Link = c.repository.Tree(c.revision, j.path)
		}
		failed := false
		if c.client != nil {
			now, err := c.client.Publish(ctx, s)
			if err != nil {
				failed = true
				if !toldAlready(troubles, err) {
					troubles = append(troubles, err)
				}
			}
			posted[s.Context] = posted[s.Context] || now
		}
		report.Statuses = append(report.Statuses, postedStatus{
			Context: s.Context, State: s.State, Description: s.Description, Link: s.Link, Posted: posted[s.Context], Failed: failed,
		})
	}
	return report, troubles
}

// toldAlready says whether a trouble is a refusal that waiting does not mend, such as
// of the token, and another status had the same.
func toldAlready(troubles []error, err error) bool {
	refusal := refusalOf(err)
	return refusal != nil && slices.ContainsFunc(troubles, func(other error) bool {
		before := refusalOf(other)
		return before != nil && before.Error() == refusal.Error()
	})
}

// refusalOf is the refusal that an error is, if it is one that does not pass.
func refusalOf(err error) *forge.Refusal {
	var refusal *forge.Refusal
	if errors.As(err, &refusal) && !refusal.Passes {
		return refusal
	}
	return nil
}

// judge reads every surface and says what has become of the commit there. What
// cannot be read is judged as an error, without the reason: that is for the
// job's log and not for the forge.
func (c *commitCheck) judge(ctx context.Context) (judged []judgement, troubles []error) {
	if c.found.hub != nil {
		var syncs []syncStatus
		list, err := c.found.hub.ListSyncs(ctx)
		if err != nil {
			troubles = append(troubles, fmt.Errorf("list the hub's syncs: %w", err))
		}
		for _, sync := range list {
			syncs = append(syncs, hubSyncStatus(sync))
		}
		judged = append(judged, c.judgeSurface(ctx, hubStatus, syncs, err))
	}
	for _, cluster := range c.found.clusters {
		var syncs []syncStatus
		var list v1alpha1.PoolSyncList
		err := cluster.client.List(ctx, &list, client.InNamespace(cluster.namespace))
		if err != nil {
			troubles = append(troubles, fmt.Errorf("list the PoolSyncs of cluster %s: %w", cluster.name, err))
		}
		for _, sync := range list.Items {
			syncs = append(syncs, poolSyncStatus(cluster.name, sync))
		}
		judged = append(judged, c.judgeSurface(ctx, cluster.name, syncs, err))
	}
	return judged, troubles
}

func printStatusReport(w io.Writer, report statusReport, dryRun bool) {
	say(w, "Commit %s of %s\n", report.Revision, report.Repository)
	row(w, "STATUS", "STATE", "POSTED", "DESCRIPTION")
	for _, each := range report.Statuses {
		posted := "no change"
		switch {
		case dryRun:
			posted = "dry run"
		case each.Failed:
			posted = "failed"
		case each.Posted:
			posted = "yes"
		}
		row(w, each.Context, each.State, posted, oneLine(each.Description))
	}
}

// forgeOfJob is the forge whose CI system runs this process; empty elsewhere.
func forgeOfJob() forge.Kind {
	switch {
	case os.Getenv("GITLAB_CI") != "":
		return forge.GitLab
	// Gitea's and Forgejo's runners pose as GitHub's as well.
	case os.Getenv("GITEA_ACTIONS") != "" || os.Getenv("FORGEJO_ACTIONS") != "":
		return forge.Gitea
	case os.Getenv("GITHUB_ACTIONS") != "":
		return forge.GitHub
	}
	return ""
}

// linkOfJob is the page of the CI job that runs this process; empty elsewhere.
func linkOfJob() string {
	if link := os.Getenv("CI_JOB_URL"); link != "" {
		return link
	}
	server, repository, run := os.Getenv("GITHUB_SERVER_URL"), os.Getenv("GITHUB_REPOSITORY"), os.Getenv("GITHUB_RUN_ID")
	if server == "" || repository == "" || run == "" {
		return ""
	}
	return server + "/" + repository + "/actions/runs/" + run
}
