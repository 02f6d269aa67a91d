package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// followed is what hub and clusters have, as far as they follow the repository that it is
// compared with.
type followed struct {
	live fleet.DriftInput
	// sure: who of a synced → that it follows this repository.
	sure map[string]bool
	// unsure are those who may follow another one, as a person knows them.
	unsure []string
}

// follower is something that applies a path of a repository.
type follower struct {
	// who: see synced.
	who string
	// named is it as a person knows it.
	named, address, path string
	revisions            []string
}

func (f follower) elsewhere() string {
	return fmt.Sprintf("%s of another repository, %s", f.path, f.address)
}

// cloneOf is the repository at a root.
func cloneOf(ctx context.Context, root string, at standing) *fleet.Clone {
	clone := &fleet.Clone{Remotes: map[string]bool{}, Has: func(commit string) bool {
		if commit == at.tip {
			return true
		}
		_, err := git(ctx, root, "cat-file", "-e", commit+"^{commit}")
		return err == nil
	}}
	for _, address := range addressesOf(ctx, root) {
		clone.Remotes[fleet.RepositoryOf(address)] = true
	}
	return clone
}

func ofHub(sync *hubv1.Sync) follower {
	return follower{"the hub syncs as " + sync.Name, "the hub's sync " + sync.Name, sync.Repository, sync.Path,
		[]string{sync.LastAppliedRevision, sync.LastAttemptedRevision}}
}

// sources are those of Flux that were read of a cluster, each once.
type sources struct {
	cluster reachedCluster
	// known: source → the repository's URL; empty where that could not be read, or it
	// is none.
	known map[v1alpha1.SourceReference]string
}

// address is the URL of the repository that a source fetches. An account that may not
// read it knows less and can do all else.
func (s *sources) address(ctx context.Context, reference v1alpha1.SourceReference, namespace string) string {
	if reference.Namespace == "" {
		reference.Namespace = namespace
	}
	if known, is := s.known[reference]; is {
		return known
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.FluxSources.WithKind(reference.Kind))
	s.known[reference] = ""
	if err := s.cluster.client.Get(ctx, client.ObjectKey{Namespace: reference.Namespace, Name: reference.Name}, object); err == nil {
		s.known[reference] = fleet.SourceAddress(object)
	}
	return s.known[reference]
}

func (s *sources) ofPoolSync(ctx context.Context, sync *v1alpha1.PoolSync) follower {
	address := sync.Spec.Source.Git.URL
	if sync.Spec.SourceRef != nil {
		address = s.address(ctx, *sync.Spec.SourceRef, sync.Namespace)
	}
	named := fmt.Sprintf("PoolSync %s/%s of cluster %s", sync.Namespace, sync.Name, s.cluster.name)
	return follower{named + " applies", named, address, sync.Spec.Path, []string{sync.Status.LastAppliedRevision, sync.Status.LastAttemptedRevision}}
}

func (s *sources) ofForeign(ctx context.Context, f *fleet.ForeignSync) follower {
	address := f.Repository
	if f.Source != nil {
		address = s.address(ctx, *f.Source, f.Namespace)
	}
	named := fmt.Sprintf("%s of cluster %s", f, s.cluster.name)
	return follower{named + " applies", named, address, f.Path, []string{f.LastAppliedRevision, f.LastAttemptedRevision}}
}

// of says whether something follows the clone, or may.
func (f *followed) of(clone *fleet.Clone, it follower) bool {
	switch clone.Whose(it.address, it.revisions...) {
	case fleet.OtherRepository:
		return false
	case fleet.SameRepository:
		f.sure[it.who] = true
	case fleet.UnknownRepository:
		if it.address != "" {
			f.unsure = append(f.unsure, it.named)
		}
	}
	return true
}

// leaveOut takes out what follows another repository than the clone.
func (f *followed) leaveOut(ctx context.Context, clone *fleet.Clone, clusters []reachedCluster) {
	read := make([]*sources, len(clusters))
	var all []follower
	if f.live.Hub != nil {
		for i := range f.live.Hub.Syncs {
			all = append(all, ofHub(&f.live.Hub.Syncs[i]))
		}
	}
	for i := range clusters {
		read[i] = &sources{clusters[i], map[v1alpha1.SourceReference]string{}}
		for j := range f.live.Clusters[i].Syncs {
			all = append(all, read[i].ofPoolSync(ctx, &f.live.Clusters[i].Syncs[j]))
		}
		for j := range f.live.Clusters[i].Foreign {
			all = append(all, read[i].ofForeign(ctx, &f.live.Clusters[i].Foreign[j]))
		}
	}
	// An address of which one commit is here is this clone's, whoever reads it.
	for _, it := range all {
		clone.Learn(it.address, it.revisions...)
	}
	if f.live.Hub != nil {
		f.leaveOutOfHub(clone, f.live.Hub)
	}
	for i := range clusters {
		cluster := &f.live.Clusters[i]
		cluster.Elsewhere = map[string]string{}
		cluster.Syncs = slices.DeleteFunc(cluster.Syncs, func(sync v1alpha1.PoolSync) bool {
			it := read[i].ofPoolSync(ctx, &sync)
			if f.of(clone, it) {
				return false
			}
			cluster.Elsewhere[poolSyncNamed(&sync)] = it.elsewhere()
			return true
		})
		cluster.Foreign = slices.DeleteFunc(cluster.Foreign, func(foreign fleet.ForeignSync) bool {
			it := read[i].ofForeign(ctx, &foreign)
			if f.of(clone, it) {
				return false
			}
			cluster.Elsewhere[foreign.String()] = it.elsewhere()
			return true
		})
	}
}

// poolSyncNamed is a key of ClusterSurface.Elsewhere.
func poolSyncNamed(sync *v1alpha1.PoolSync) string {
	return v1alpha1.PoolSyncKind + " " + sync.Namespace + "/" + sync.Name
}

func (f *followed) leaveOutOfHub(clone *fleet.Clone, hub *fleet.HubSurface) {
	hub.Elsewhere = map[string]string{}
	there := map[string]bool{}
	hub.Syncs = slices.DeleteFunc(hub.Syncs, func(sync hubv1.Sync) bool {
		there[sync.Name] = true
		it := ofHub(&sync)
		if f.of(clone, it) {
			return false
		}
		hub.Elsewhere[sync.Name] = it.elsewhere()
		return true
	})
	for i := range hub.Pools {
		from := hub.Pools[i].Source
		if from == nil || there[from.Sync] {
			continue
		}
		if _, _, _, ofCluster := from.Cluster(); ofCluster {
			continue
		}
		// Its sync is out of the hub's configuration, and what it brought is still there.
		it := follower{address: from.Repository, path: from.Path}
		if clone.Whose(it.address, from.Revision) == fleet.OtherRepository {
			hub.Elsewhere[from.Sync] = it.elsewhere()
		}
	}
}

// notes say of whom it is not known whether they follow this repository.
func (f *followed) notes() []string {
	if len(f.unsure) == 0 {
		return nil
	}
	who := f.unsure[0]
	if more := len(f.unsure) - 1; more > 0 {
		who = fmt.Sprintf("%s and %d more", who, more)
	}
	return []string{"this clone has no remote at a server, so nothing tells whether it is the repository of " + who + ": it was taken for that"}
}

// absent says of what somebody takes of a path that is not in a directory why it is not
// compared: it may be another repository's, or another revision's, which input notes.
func (f *followed) absent(dir string, s synced, input *fleet.DriftInput) (elsewhere string, is bool) {
	if !notThere(dir, s.path) {
		return "", false
	}
	if !f.sure[s.who] {
		return fmt.Sprintf("%s of %s, which is not in this repository", s.path, s.repository), true
	}
	elsewhere = fmt.Sprintf("%s of %s, which is not in what is compared", s.path, s.repository)
	input.Missing = append(input.Missing, fmt.Sprintf("%s, %s of %s, is not in what is compared", s.who, s.path, s.repository))
	return elsewhere, true
}

// notThere says whether a directory has nothing at a path.
func notThere(dir, path string) bool {
	_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(path)))
	return os.IsNotExist(err)
}
