package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hubclient"
)

func (a *app) newFleetDriftCommand() *cobra.Command {
	var (
		where surfaceFlags
		repo  string
	)
	cmd := &cobra.Command{
		Use:   "drift [--repo PATH] [--hub URL] [--cluster CONTEXT…]",
		Short: "Show where Git, hub and cluster disagree now",
		Long: `Compare what a checked-out fleet repository says with what the hub and the
clusters have, field by field. Nothing is changed anywhere: the clusters see
only reads. Which overlay is whose is read from the PoolSyncs and the hub's
syncs.

Exit code 0: they agree; 1: they differ; 2: it could not be found out.`,
		Example: `  cloop fleet drift --hub https://cloop.example.com --cluster eu --cluster us`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := locate([]string{repo})
			if err != nil {
				return err
			}
			input, notes, err := a.readSurfaces(cmd.Context(), where, at)
			if err != nil {
				return err
			}
			report := fleet.Drift(input)
			report.Notes = append(notes, report.Notes...)
			if err := a.show(report, func(w io.Writer) { say(w, "%s", verbatim(report.Text())) }); err != nil {
				return err
			}
			if report.Any() {
				return &No{}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&repo, "repo", ".", "`PATH` of a checked-out fleet repository")
	where.register(cmd)
	return cmd
}

// readSurfaces reads what Git, the hub and the clusters say, and what it could
// not take into account.
func (a *app) readSurfaces(ctx context.Context, where surfaceFlags, at location) (input fleet.DriftInput, notes []string, err error) {
	revision, changed, err := headOf(ctx, at.root)
	if err != nil {
		return input, nil, err
	}
	if changed {
		notes = append(notes, "the work tree has changes that are not committed; they were compared as if they were")
	}
	reached, err := a.reach(where)
	if err != nil {
		return input, nil, err
	}
	if reached.hub != nil {
		if input.Hub, err = readHub(ctx, reached.hub, at.root, revision); err != nil {
			return input, nil, err
		}
	}
	for _, cluster := range reached.clusters {
		surface, err := readCluster(ctx, cluster, at.root, revision)
		if err != nil {
			return input, nil, err
		}
		input.Clusters = append(input.Clusters, surface)
	}
	return input, notes, nil
}

func readHub(ctx context.Context, hub *hubclient.Client, root, revision string) (*fleet.HubSurface, error) {
	surface := &fleet.HubSurface{Revision: revision}
	var err error
	if surface.Pools, err = hub.ListPools(ctx); err != nil {
		return nil, fmt.Errorf("list the hub's pools: %w", err)
	}
	if surface.Syncs, err = hub.ListSyncs(ctx); err != nil {
		return nil, fmt.Errorf("list the hub's syncs: %w", err)
	}
	for _, sync := range surface.Syncs {
		rendered, err := fleet.Build(ctx, root, sync.Path)
		if err != nil {
			return nil, fmt.Errorf("build what the hub syncs as %s: %w", sync.Name, err)
		}
		surface.Git = known(surface.Git, rendered)
	}
	return surface, nil
}

func readCluster(ctx context.Context, cluster reachedCluster, root, revision string) (fleet.ClusterSurface, error) {
	surface := fleet.ClusterSurface{Name: cluster.name, Revision: revision}
	in := client.InNamespace(cluster.namespace)
	var syncs v1alpha1.PoolSyncList
	if err := cluster.client.List(ctx, &syncs, in); err != nil {
		return surface, fmt.Errorf("list the PoolSyncs of cluster %s: %w", cluster.name, err)
	}
	surface.Syncs = syncs.Items
	live := &unstructured.UnstructuredList{}
	live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.ExecutorPoolKind + "List"))
	if err := cluster.client.List(ctx, live, in); err != nil {
		return surface, fmt.Errorf("list the ExecutorPools of cluster %s: %w", cluster.name, err)
	}
	surface.Live = live.Items
	for _, sync := range surface.Syncs {
		rendered, err := fleet.Build(ctx, root, sync.Spec.Path)
		if err != nil {
			return surface, fmt.Errorf("build what PoolSync %s/%s of cluster %s applies: %w", sync.Namespace, sync.Name, cluster.name, err)
		}
		surface.Git = known(surface.Git, rendered)
	}
	return surface, nil
}

// known adds what was rendered. The result is never nil: a path that renders
// nothing says that there ought to be nothing, which is not the same as a path
// that nobody knows.
func known(before, rendered []fleet.Rendered) []fleet.Rendered {
	return append(append([]fleet.Rendered{}, before...), rendered...)
}

// headOf asks git for the revision that a work tree is at, and whether it has
// changes that no commit has.
func headOf(ctx context.Context, root string) (revision string, changed bool, err error) {
	revision, err = git(ctx, root, "rev-parse", "HEAD")
	if err != nil {
		return "", false, fmt.Errorf("find the revision of %s: %w: name a checked-out fleet repository with --repo", root, err)
	}
	status, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return "", false, fmt.Errorf("find the changes of %s: %w", root, err)
	}
	return revision, status != "", nil
}

// git runs a reading git command. Optional locks are off, so that nothing in
// the work tree is written either.
func git(ctx context.Context, directory string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", append([]string{"--no-optional-locks", "-C", directory}, arguments...)...)
	output, err := command.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("git %s: %s", arguments[0], oneLine(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(output)), err
}
