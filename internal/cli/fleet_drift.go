package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
only reads. Which overlay is whose is read from the PoolSyncs, the hub's syncs,
and the Kustomizations of Flux and Applications of Argo CD that ExecutorPools
name. What is committed here and not pushed is told apart: the remote is asked
which commits it has.

What follows another repository than this clone's is named and left out: that
whose URL is none of the remotes' and of which no commit is here. A mirror, or
what this repository was called before, is made known by git remote add.

What the account may not read is said, and the rest is compared: to list the
ExecutorPools is enough to compare a cluster with the hub, to know what Git wants
of it takes its PoolSyncs too, and the ConfigMaps that they take variables from.

Exit code 0: they agree; 1: they differ; 2: it could not be found out, or a part
of it and the rest agrees, or none of them follows this repository.`,
		Example: `  cloop fleet drift --hub https://cloop.example.com --cluster eu --cluster us`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := locate([]string{repo})
			if err != nil {
				return err
			}
			report, err := a.drift(cmd.Context(), where, at.root)
			if err != nil {
				return err
			}
			if err := a.show(report, func(w io.Writer) { say(w, "%s", verbatim(report.Text())) }); err != nil {
				return err
			}
			switch {
			case report.Any():
				return &No{}
			case report.Elsewhere:
				return errors.New("nothing that the hub and the clusters follow is of this repository: run this in a clone of one that the notes name, or name one with --repo PATH; where one is this under another address, git remote add makes that known")
			case report.Hidden:
				return errors.New("not everything was compared, and the rest agrees: the notes name what was not; where the right to read it lacks, ask for that, or for somebody's answer who has it")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&repo, "repo", ".", "`PATH` of a checked-out fleet repository")
	where.register(cmd)
	return cmd
}

// drift compares the surfaces. Where the work tree is ahead of what is pushed,
// what is pushed is compared as well: only that hub and clusters can have.
func (a *app) drift(ctx context.Context, where surfaceFlags, root string) (*fleet.DriftReport, error) {
	at, err := standingOf(ctx, root)
	if err != nil {
		return nil, err
	}
	reached, err := a.look(where)
	if err != nil {
		return nil, err
	}
	live, err := readSurfaces(ctx, reached, cloneOf(ctx, root, at), publishedCommit(ctx, root, at))
	if err != nil {
		return nil, err
	}
	input, err := withGit(ctx, live, root, at.head)
	if err != nil {
		return nil, err
	}
	report := fleet.Drift(input)
	if at.ahead() {
		published, err := driftOfPublished(ctx, live, root, at.published)
		if err != nil {
			report.Notes = append(report.Notes, fmt.Sprintf("what is pushed could not be compared: %v", err))
		}
		report.Unpublished(published)
	}
	if at.behind {
		report.Outdated()
	}
	report.Notes = append(append(at.notes(), live.notes()...), report.Notes...)
	return report, nil
}

// driftOfPublished compares what a commit says; nil where there is none.
func driftOfPublished(ctx context.Context, live *followed, root, revision string) (*fleet.DriftReport, error) {
	if revision == "" {
		return nil, nil
	}
	dir, err := exportTree(ctx, root, revision)
	if err != nil {
		return nil, err
	}
	defer removeTree(dir)
	input, err := withGit(ctx, live, dir, revision)
	if err != nil {
		return nil, err
	}
	return fleet.Drift(input), nil
}

// readSurfaces reads what the hub and the clusters have that may be of a clone.
func readSurfaces(ctx context.Context, reached surfaces, clone *fleet.Clone, newest commit) (*followed, error) {
	all := &followed{sure: map[string]bool{}}
	var err error
	if reached.hub != nil {
		if all.live.Hub, err = readHub(ctx, reached.hub); err != nil {
			return nil, err
		}
	}
	for _, cluster := range reached.clusters {
		surface, err := readCluster(ctx, cluster)
		if err != nil {
			return nil, err
		}
		all.live.Clusters = append(all.live.Clusters, surface)
	}
	all.leaveOut(ctx, clone, reached.clusters)
	for i, cluster := range reached.clusters {
		surface := &all.live.Clusters[i]
		surface.Unserved = unserved(ctx, cluster, surface.Syncs, newest)
		surface.Hidden = append(surface.Hidden, unrendered(surface.Foreign)...)
		if err := readVariablesOf(ctx, cluster, surface); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// withGit adds what a revision, whose files are in a directory, wants of each
// surface.
func withGit(ctx context.Context, all *followed, dir, revision string) (fleet.DriftInput, error) {
	input := fleet.DriftInput{}
	if all.live.Hub != nil {
		hub := *all.live.Hub
		hub.Revision, hub.Syncs, hub.Elsewhere = revision, nil, maps.Clone(hub.Elsewhere)
		for _, sync := range all.live.Hub.Syncs {
			from := synced{ofHub(&sync).who, sync.Repository, sync.Path}
			if absent, is := all.absent(dir, from, &input); is {
				hub.Elsewhere[sync.Name] = absent
				continue
			}
			rendered, err := renderSynced(from, func() ([]fleet.Rendered, error) {
				return fleet.BuildWith(ctx, dir, sync.Path, &fleet.Variables{})
			})
			if err != nil {
				return input, err
			}
			hub.Syncs = append(hub.Syncs, sync)
			hub.Git = known(hub.Git, rendered)
		}
		input.Hub = &hub
	}
	for _, cluster := range all.live.Clusters {
		cluster.Revision = revision
		if len(cluster.Hidden) == 0 {
			if err := all.readGit(ctx, &cluster, dir, &input); err != nil {
				return input, err
			}
		}
		input.Clusters = append(input.Clusters, cluster)
	}
	if len(input.Missing) > 0 && !input.Compares() {
		return input, fmt.Errorf("what %s: add the path, or have another one applied; to compare another revision, name a clone that has it with --repo PATH", input.Missing[0])
	}
	return input, nil
}

// readGit adds what the files in a directory want of a cluster. Where not all of that is
// known, none of it is.
func (f *followed) readGit(ctx context.Context, cluster *fleet.ClusterSurface, dir string, input *fleet.DriftInput) error {
	syncs, foreign := cluster.Syncs, cluster.Foreign
	cluster.Syncs, cluster.Foreign = nil, nil
	cluster.Elsewhere, cluster.Unserved = maps.Clone(cluster.Elsewhere), maps.Clone(cluster.Unserved)
	for _, sync := range syncs {
		from := synced{fmt.Sprintf("PoolSync %s/%s of cluster %s applies", sync.Namespace, sync.Name, cluster.Name), sync.ReadsFrom(), sync.Spec.Path}
		if absent, is := f.absent(dir, from, input); is {
			cluster.Elsewhere[poolSyncNamed(&sync)] = absent
			delete(cluster.Unserved, sync.Namespace+"/"+sync.Name)
			continue
		}
		rendered, err := renderSynced(from, func() ([]fleet.Rendered, error) {
			return fleet.BuildFetched(ctx, dir, sync.Spec.Path, sync.Spec.SourceRef, cluster.Variables[sync.Namespace+"/"+sync.Name])
		})
		if err != nil {
			return err
		}
		cluster.Syncs = append(cluster.Syncs, sync)
		cluster.Git = known(cluster.Git, rendered)
	}
	var hidden []string
	for i := range foreign {
		each := &foreign[i]
		from := synced{fmt.Sprintf("%s of cluster %s applies", each, cluster.Name), each.Repository, each.Path}
		if absent, is := f.absent(dir, from, input); is {
			cluster.Elsewhere[each.String()] = absent
			continue
		}
		rendered, err := renderSynced(from, func() ([]fleet.Rendered, error) {
			return each.Build(ctx, dir, cluster.Variables[each.String()])
		})
		switch {
		case errors.Is(err, fleet.ErrUnrendered):
			hidden = append(hidden, err.Error())
		case err != nil:
			return err
		default:
			cluster.Git = known(cluster.Git, rendered)
		}
		cluster.Foreign = append(cluster.Foreign, *each)
	}
	if len(hidden) > 0 {
		cluster.Git, cluster.Hidden = nil, append(slices.Clone(cluster.Hidden), hidden...)
	}
	return nil
}

// synced is what somebody takes of a repository.
type synced struct {
	// who takes it, as the end of "what …".
	who, repository, path string
}

// renderSynced renders what somebody takes of a directory.
func renderSynced(s synced, render func() ([]fleet.Rendered, error)) ([]fleet.Rendered, error) {
	rendered, err := render()
	if err != nil && !errors.Is(err, fleet.ErrUnrendered) {
		err = fmt.Errorf("build what %s: %w", s.who, err)
	}
	return rendered, err
}

func readHub(ctx context.Context, hub *hubclient.Client) (*fleet.HubSurface, error) {
	surface := &fleet.HubSurface{}
	var err error
	if surface.Pools, err = hub.ListPools(ctx); err != nil {
		return nil, fmt.Errorf("list the hub's pools: %w", err)
	}
	if surface.Syncs, err = hub.ListSyncs(ctx); err != nil {
		return nil, fmt.Errorf("list the hub's syncs: %w", err)
	}
	return surface, nil
}

func readCluster(ctx context.Context, cluster reachedCluster) (fleet.ClusterSurface, error) {
	surface := fleet.ClusterSurface{Name: cluster.name}
	in := client.InNamespace(cluster.namespace)
	var syncs v1alpha1.PoolSyncList
	err := cluster.client.List(ctx, &syncs, in)
	if apierrors.IsForbidden(err) {
		surface.Hidden, err = append(surface.Hidden, fmt.Sprintf("its PoolSyncs: %v", err)), nil
	}
	if err != nil {
		return surface, fmt.Errorf("list the PoolSyncs of cluster %s: %w", cluster.name, err)
	}
	surface.Syncs = syncs.Items
	live := &unstructured.UnstructuredList{}
	live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.ExecutorPoolKind + "List"))
	if err := cluster.client.List(ctx, live, in); err != nil {
		return surface, fmt.Errorf("list the ExecutorPools of cluster %s: %w", cluster.name, err)
	}
	surface.Live = live.Items
	var hidden []string
	if surface.Foreign, hidden, err = foreignSyncs(ctx, cluster, live.Items); err != nil {
		return surface, err
	}
	surface.Hidden = append(surface.Hidden, hidden...)
	return surface, nil
}

// unrendered says which of them change what they apply in a way that is not known, so
// that what Git wants of the cluster is not known.
func unrendered(foreign []fleet.ForeignSync) (hidden []string) {
	for i := range foreign {
		if f := &foreign[i]; len(f.Unrendered) > 0 {
			hidden = append(hidden, fmt.Sprintf("%s changes what %s renders by its spec.%s", f, f.Path, strings.Join(f.Unrendered, ", spec.")))
		}
	}
	return hidden
}

// readVariablesOf reads what the surface's PoolSyncs, and what else applies its pools,
// replace variables by.
func readVariablesOf(ctx context.Context, cluster reachedCluster, surface *fleet.ClusterSurface) error {
	surface.Variables = map[string]*fleet.Variables{}
	for i := range surface.Syncs {
		sync := &surface.Syncs[i]
		at := sync.Namespace + "/" + sync.Name
		if err := readSubstituted(ctx, cluster, surface, at, "PoolSync "+at, sync.Namespace, sync.Spec.Substitute); err != nil {
			return err
		}
	}
	for i := range surface.Foreign {
		f := &surface.Foreign[i]
		if err := readSubstituted(ctx, cluster, surface, f.String(), f.String(), f.Namespace, f.Substitute); err != nil {
			return err
		}
	}
	return nil
}

// readSubstituted reads what one of them replaces variables by, and keeps it under a key.
func readSubstituted(ctx context.Context, cluster reachedCluster, surface *fleet.ClusterSurface, key, who, namespace string, substitution *v1alpha1.Substitution) error {
	read, err := fleet.VariablesOf(substitution, func(reference v1alpha1.SubstituteReference) (map[string]string, error) {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion("v1")
		object.SetKind(reference.Kind)
		err := cluster.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: reference.Name}, object)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		data, _, broken := unstructured.NestedStringMap(object.Object, "data")
		if data == nil {
			data = map[string]string{}
		}
		return data, broken
	})
	switch {
	case apierrors.IsForbidden(err):
		surface.Hidden = append(surface.Hidden, fmt.Sprintf("what %s substitutes: %v", who, err))
	case err != nil:
		return fmt.Errorf("read what %s of cluster %s substitutes: %w", who, cluster.name, err)
	case read != nil:
		surface.Variables[key] = read
	}
	return nil
}

// known adds what was rendered. The result is never nil: a path that renders
// nothing says that there ought to be nothing, which is not the same as a path
// that nobody knows.
func known(before, rendered []fleet.Rendered) []fleet.Rendered {
	return append(append([]fleet.Rendered{}, before...), rendered...)
}
