package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

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
which commits it has. What hub and clusters take of another repository, one that
is called otherwise than the remotes of this clone, is noted and not compared.

What the account may not read is said, and the rest is compared: to list the
ExecutorPools is enough to compare a cluster with the hub, to know what Git wants
of it takes its PoolSyncs too, and the ConfigMaps that they take variables from.

Exit code 0: they agree; 1: they differ; 2: it could not be found out, or a part
of it and the rest agrees.`,
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
			case report.Hidden:
				return errors.New("not everything was compared, and the rest agrees: ask for the right to read what the notes name, or for somebody's answer who has it")
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
	live, err := readSurfaces(ctx, reached, publishedCommit(ctx, root, at))
	if err != nil {
		return nil, err
	}
	remotes := addressesOf(ctx, root)
	input, err := withGit(ctx, live, gitTree{root, at.head, remotes})
	if err != nil {
		return nil, err
	}
	report := fleet.Drift(input)
	if at.ahead() {
		published, err := driftOfPublished(ctx, live, gitTree{root, at.published, remotes})
		if err != nil {
			report.Notes = append(report.Notes, fmt.Sprintf("what is pushed could not be compared: %v", err))
		}
		report.Unpublished(published)
	}
	if at.behind {
		report.Outdated()
	}
	report.Notes = append(at.notes(), report.Notes...)
	return report, nil
}

// gitTree is what a revision of a clone says.
type gitTree struct {
	// dir has its files, or is the clone of it.
	dir, revision string
	// remotes are the addresses of the clone's remotes.
	remotes []string
}

// driftOfPublished compares what a commit of a clone says; nil where there is none.
func driftOfPublished(ctx context.Context, live fleet.DriftInput, tree gitTree) (*fleet.DriftReport, error) {
	if tree.revision == "" {
		return nil, nil
	}
	dir, err := exportTree(ctx, tree.dir, tree.revision)
	if err != nil {
		return nil, err
	}
	defer removeTree(dir)
	tree.dir = dir
	input, err := withGit(ctx, live, tree)
	if err != nil {
		return nil, err
	}
	return fleet.Drift(input), nil
}

// readSurfaces reads what the hub and the clusters have.
func readSurfaces(ctx context.Context, reached surfaces, newest commit) (live fleet.DriftInput, err error) {
	if reached.hub != nil {
		if live.Hub, err = readHub(ctx, reached.hub); err != nil {
			return live, err
		}
	}
	for _, cluster := range reached.clusters {
		surface, err := readCluster(ctx, cluster, newest)
		if err != nil {
			return live, err
		}
		live.Clusters = append(live.Clusters, surface)
	}
	return live, nil
}

// withGit adds what a revision wants of each surface. What is of another repository is
// only noted, unless all is.
func withGit(ctx context.Context, live fleet.DriftInput, tree gitTree) (fleet.DriftInput, error) {
	input := fleet.DriftInput{}
	found := &finder{tree: tree}
	if live.Hub != nil {
		hub := *live.Hub
		hub.Revision, hub.Elsewhere = tree.revision, map[string]string{}
		for _, sync := range hub.Syncs {
			rendered, err := found.render(synced{"hub sync " + sync.Name, "defines", sync.Repository, sync.Repository, sync.Path}, func() ([]fleet.Rendered, error) {
				return fleet.BuildWith(ctx, tree.dir, sync.Path, &fleet.Variables{})
			})
			if err := elsewhere(err, hub.Elsewhere, sync.Name); err != nil {
				return input, err
			}
			if err == nil {
				hub.Git = known(hub.Git, rendered)
			}
		}
		input.Hub = &hub
	}
	for _, cluster := range live.Clusters {
		cluster.Revision = tree.revision
		if len(cluster.Hidden) == 0 {
			if err := readGit(ctx, &cluster, found); err != nil {
				return input, err
			}
		}
		input.Clusters = append(input.Clusters, cluster)
	}
	if found.here == 0 && found.lost != nil {
		return input, found.lost
	}
	return input, nil
}

// readGit adds what a revision wants of a cluster. Where not all of that is known, none
// of it is.
func readGit(ctx context.Context, cluster *fleet.ClusterSurface, found *finder) error {
	dir := found.tree.dir
	cluster.Elsewhere = map[string]string{}
	for _, sync := range cluster.Syncs {
		name, address := sync.Namespace+"/"+sync.Name, ""
		if sync.Spec.SourceRef == nil {
			address = sync.Spec.Source.Git.URL
		}
		who := fmt.Sprintf("PoolSync %s of cluster %s", name, cluster.Name)
		rendered, err := found.render(synced{who, "applies", sync.ReadsFrom(), address, sync.Spec.Path}, func() ([]fleet.Rendered, error) {
			return fleet.BuildFetched(ctx, dir, sync.Spec.Path, sync.Spec.SourceRef, cluster.Variables[name])
		})
		if err := elsewhere(err, cluster.Elsewhere, name); err != nil {
			return err
		}
		if err == nil {
			cluster.Git = known(cluster.Git, rendered)
		}
	}
	var hidden []string
	for i := range cluster.Foreign {
		f := &cluster.Foreign[i]
		address := f.Repository
		if f.Source != nil {
			address = ""
		}
		who := fmt.Sprintf("%s of cluster %s", f, cluster.Name)
		rendered, err := found.render(synced{who, "applies", f.Repository, address, f.Path}, func() ([]fleet.Rendered, error) {
			return f.Build(ctx, dir, cluster.Variables[f.String()])
		})
		if errors.Is(err, fleet.ErrUnrendered) {
			hidden = append(hidden, err.Error())
			continue
		}
		if err := elsewhere(err, cluster.Elsewhere, f.String()); err != nil {
			return err
		}
		if err == nil {
			cluster.Git = known(cluster.Git, rendered)
		}
	}
	if len(hidden) > 0 {
		cluster.Git, cluster.Hidden = nil, append(slices.Clone(cluster.Hidden), hidden...)
	}
	return nil
}

// synced is what somebody takes of a repository.
type synced struct {
	// who takes it, and verb says what for, for people.
	who, verb string
	// repository for people, and its address where that is known.
	repository, address, path string
}

// finder renders what is taken of a repository.
type finder struct {
	tree gitTree
	// here counts what was found in it; lost is the first that was not.
	here int
	lost *elsewhereError
}

// elsewhereError is of what is taken of another repository.
type elsewhereError struct {
	synced
}

func (e *elsewhereError) Error() string {
	return e.missing() + ": run this in a clone of that one, or name one with --repo PATH"
}

// note is what is said where the rest is compared.
func (e *elsewhereError) note() string {
	return e.missing() + ", and was not compared: run this in a clone of that one as well"
}

func (s *synced) missing() string {
	return fmt.Sprintf("what %s %s, %s of %s, is not in this repository", s.who, s.verb, s.path, s.repository)
}

// elsewhere notes what is of another repository, in place of an error.
func elsewhere(err error, notes map[string]string, name string) error {
	var other *elsewhereError
	if !errors.As(err, &other) {
		return err
	}
	notes[name] = other.note()
	return nil
}

// render renders what somebody takes. An elsewhereError says that it is of another
// repository: its address is another one's or, where that is not known, its path is not
// there.
func (f *finder) render(s synced, render func() ([]fleet.Rendered, error)) ([]fleet.Rendered, error) {
	_, err := os.Stat(filepath.Join(f.tree.dir, filepath.FromSlash(s.path)))
	missing, other := errors.Is(err, fs.ErrNotExist), &elsewhereError{synced: s}
	switch {
	case !fleet.MayBeOf(f.tree.remotes, s.address), missing && s.address == "":
		if f.lost == nil {
			f.lost = other
		}
		return nil, other
	case missing:
		return nil, errors.New(other.Error()) // and nobody goes on without it
	}
	f.here++
	rendered, err := render()
	if err != nil && !errors.Is(err, fleet.ErrUnrendered) {
		err = fmt.Errorf("build what %s %s: %w", s.who, s.verb, err)
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

func readCluster(ctx context.Context, cluster reachedCluster, newest commit) (fleet.ClusterSurface, error) {
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
	surface.Unserved = unserved(ctx, cluster, syncs.Items, newest)
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
	return surface, readVariablesOf(ctx, cluster, &surface)
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
