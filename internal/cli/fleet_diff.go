package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet/diff"
)

// liveTimeout bounds reading one hub or cluster: what is only beside the answer
// must not keep it back. Tests shorten it.
var liveTimeout = 20 * time.Second

// diffFlags are the flags of `fleet diff`.
type diffFlags struct {
	base       string
	failOn     string
	substitute []string
	untracked  bool
	live       surfaceFlags
}

func (a *app) newFleetDiffCommand() *cobra.Command {
	var (
		flags   diffFlags
		formats []string
	)
	for _, format := range diff.Formats() {
		formats = append(formats, string(format))
	}
	cmd := &cobra.Command{
		Use:   "diff --base REV [PATH…]",
		Short: "Show what a change of the fleet repository does",
		Long: `Render the fleet repository as it is in the work tree, changes that are not
committed included, and as it is at REV, and show what differs: for each root
which pools are added, removed, renamed (by the annotation cloop.dev/moved-from)
or changed, field by field, and whether that raises or lowers something, is
destructive, or neutral. PATHs narrow it to the roots in them.

REV is a branch, a tag, a commit, HEAD~1: exactly that commit, as with git diff,
and not where the two lines part. For a pull request name the branch that it goes
to, or git merge-base's answer for the pull request's own changes alone.

With --hub or --cluster it also says what the change means for the runners, runs
and volumes that there are now. That only reads, and what cannot be read is said.

Exit code 0: nothing differs; 1: something does; 2: it could not be compared, or
a part of it and the rest does not differ. With --fail-on=destructive only what is
destructive counts, with --fail-on=none nothing does.`,
		Example: `  cloop fleet diff --base origin/main
  cloop fleet diff --base origin/main --fail-on=destructive -o markdown=comment.md
  cloop fleet diff --base HEAD clusters/eu --hub https://cloop.example.com --cluster eu`,
		Annotations: map[string]string{formatsAnnotation: strings.Join(formats, ",")},
		RunE: func(cmd *cobra.Command, args []string) error {
			on := diff.FailOn(flags.failOn)
			if !slices.Contains(diff.FailOns(), on) {
				return usageError(cmd, fmt.Errorf("--fail-on %s: use any, destructive or none", flags.failOn))
			}
			if flags.base == "" {
				return usageError(cmd, errors.New("name the revision to compare with, such as --base origin/main"))
			}
			return a.diffFleet(cmd.Context(), flags, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.base, "base", "", "`REV` to compare the work tree with")
	f.StringVar(&flags.failOn, "fail-on", string(diff.FailOnAny), "`WHAT` makes the exit code 1: any difference, destructive ones, or none")
	f.StringArrayVar(&flags.substitute, "substitute", nil, "`[DIR=]FILE` with values for variables, of the root in DIR or of all, for both revisions; can be given several times, a later one wins, and one with DIR over those without")
	addUntracked(cmd, &flags.untracked)
	f.StringSliceVar(&flags.live.contexts, "cluster", nil, "kubeconfig `CONTEXT` of a cluster to say the impact on, several times (default: none)")
	f.StringVar(&flags.live.kubeconfig, "kubeconfig", "", "`FILE` with access to the clusters (default: $KUBECONFIG or ~/.kube/config)")
	f.StringVar(&flags.live.namespace, "namespace", "", "only this `NAMESPACE` of each cluster (default: all)")
	// It stands before the flag of that name that all commands have.
	f.StringSliceVarP(&a.options.output, "output", "o", nil,
		"`FORMAT[=FILE]` of the answer, to standard output or to a file; can be given several times: "+alternatives(formats)+" (default text)")
	return cmd
}

func (a *app) diffFleet(ctx context.Context, flags diffFlags, args []string) error {
	report, err := a.compareFleet(ctx, flags, args)
	if err != nil && ctx.Err() != nil {
		return err
	}
	if err != nil {
		report = diff.Failed(flags.base, err)
	}
	report.Judge(diff.FailOn(flags.failOn))
	return errors.Join(a.showDiff(report), diffVerdict(report, err))
}

// diffVerdict is the error that makes the process exit as the report says.
func diffVerdict(report *diff.Report, reason error) error {
	switch code := report.ExitCode(); {
	case reason != nil:
		return reason
	case code == codeNo:
		return &No{}
	case code != 0:
		return silent(code)
	}
	return nil
}

func (a *app) compareFleet(ctx context.Context, flags diffFlags, args []string) (*diff.Report, error) {
	at, err := locateInEither(args)
	if err != nil {
		return nil, err
	}
	options := diff.Options{Dir: at.root, Base: flags.base}
	if options.Variables, err = readVariables(at.root, flags.substitute); err != nil {
		return nil, err
	}
	if options.Tracked, err = readTracked(ctx, at.root, flags.untracked); err != nil {
		return nil, err
	}
	if len(args) > 0 {
		// Without one the whole repository counts, from wherever in it.
		options.Paths = at.paths
	}
	report, err := diff.Compare(ctx, options)
	if err != nil {
		return nil, err
	}
	report.AddImpact(a.readLive(ctx, flags.live))
	return report, nil
}

// locateInEither is locate for paths of which the work tree may not have all: the
// base may have what the change takes away.
func locateInEither(arguments []string) (location, error) {
	if len(arguments) == 0 {
		return locate(nil)
	}
	var all location
	for _, argument := range arguments {
		there, gone, err := existing(argument)
		if err != nil {
			return all, err
		}
		at, err := locate([]string{there})
		switch {
		case err != nil:
			return all, err
		case all.root != "" && all.root != at.root:
			return all, fmt.Errorf("%s lies outside %s: compare one repository at a time", argument, all.root)
		}
		all.root = at.root
		all.paths = append(all.paths, path.Join(append(at.paths, gone)...))
	}
	if slices.Contains(all.paths, ".") || slices.Contains(all.paths, "") {
		all.paths = nil
	}
	return all, nil
}

// existing splits a path into what of it there is, and the rest with slashes.
func existing(name string) (there, gone string, err error) {
	if there, err = filepath.Abs(name); err != nil {
		return "", "", err
	}
	for {
		_, err := filepath.EvalSymlinks(there)
		if err == nil || there == filepath.Dir(there) {
			return there, gone, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return "", "", fmt.Errorf("read %s: %w", name, errors.Unwrap(err))
		}
		gone = path.Join(filepath.Base(there), gone)
		there = filepath.Dir(there)
	}
}

// showDiff writes every output that was asked for, whatever becomes of the
// others.
func (a *app) showDiff(report *diff.Report) error {
	var failed []error
	for _, t := range a.options.targets() {
		for _, format := range diff.Formats() {
			if string(format) != t.format {
				continue
			}
			data, err := report.Render(format)
			if err == nil {
				err = a.write(t, data)
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("write the result: %w", err))
			}
		}
	}
	return errors.Join(failed...)
}

// readLive reads what the flags name of hub and clusters. What cannot be read is
// a note: the comparison of the commits stands without it.
func (a *app) readLive(ctx context.Context, flags surfaceFlags) diff.Live {
	live := diff.Live{Now: time.Now()}
	note := func(format string, args ...any) {
		live.Notes = append(live.Notes, oneLine(fmt.Sprintf(format, args...)))
	}
	if a.options.hub != "" {
		hub, err := a.readLiveHub(ctx)
		if err != nil {
			note("the hub could not be read, so the impact there is not known: %s", verdictOf(err).message)
		}
		live.Hub = hub
	}
	for _, name := range flags.contexts {
		cluster, err := readLiveCluster(ctx, flags, name, note)
		if err != nil {
			note("cluster %s could not be read, so the impact there is not known: %v", name, err)
			continue
		}
		live.Clusters = append(live.Clusters, *cluster)
	}
	return live
}

func (a *app) readLiveHub(ctx context.Context) (*diff.LiveHub, error) {
	hub, err := a.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	pools, err := hub.ListPools(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the hub's pools: %w", err)
	}
	return &diff.LiveHub{Pools: pools}, nil
}

func readLiveCluster(ctx context.Context, flags surfaceFlags, name string, note func(string, ...any)) (*diff.LiveCluster, error) {
	config, name, err := clusterConfig(flags.kubeconfig, name)
	if err != nil {
		return nil, err
	}
	kinds, err := clusterClient(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	in := client.InNamespace(flags.namespace)
	var pools v1alpha1.ExecutorPoolList
	if err := kinds.List(ctx, &pools, in); err != nil {
		return nil, fmt.Errorf("list its ExecutorPools: %w: name the namespace that you may read with --namespace", err)
	}
	cluster := &diff.LiveCluster{Name: name, Pools: pools.Items}
	var syncs v1alpha1.PoolSyncList
	if err := kinds.List(ctx, &syncs); err != nil {
		note("the PoolSyncs of cluster %s could not be listed: %v", name, err)
	}
	cluster.Syncs = syncs.Items
	return cluster, nil
}
