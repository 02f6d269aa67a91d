package diff

import (
	"context"
	"path"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// cloneOf is the repository that was compared, to be asked later.
func cloneOf(dir string, remotes map[string]bool) *fleet.Clone {
	return &fleet.Clone{Remotes: remotes, Has: func(commit string) bool {
		r, err := openRepository(dir)
		if err != nil {
			return false
		}
		defer r.close()
		return r.hasCommit(context.Background(), commit)
	}}
}

// follows says whose repository a PoolSync of a cluster follows that applies an
// overlay's path. A source of Flux is taken for ours, and so is a PoolSync of which
// the repository says the same.
func (r *Report) follows(sync *v1alpha1.PoolSync, overlay *Overlay) fleet.Whose {
	address := sync.Spec.Source.Git.URL
	if address == "" || slices.Contains(overlay.appliers, v1alpha1.PoolSyncKind+" "+qualified(sync.Namespace, sync.Name)) {
		return fleet.SameRepository
	}
	return r.clone.Whose(address, sync.Status.LastAppliedRevision, sync.Status.LastAttemptedRevision)
}

// appliedBy says whether and by whom an overlay is applied in a cluster.
type appliedBy struct {
	applies bool
	// exact: the cluster says so itself; else names are what tells.
	exact bool
	// sync is nil where it is no PoolSync, and where none could be read.
	sync    *v1alpha1.PoolSync
	cluster string
}

// name of the PoolSync as people know it.
func (a appliedBy) name() string {
	return "PoolSync " + qualified(a.sync.Namespace, a.sync.Name) + " of cluster " + a.cluster
}

// appliedIn says who applies an object of an overlay in a cluster. What a PoolSync
// will not do now is noted, and so is what somebody else applies.
func (l *lives) appliedIn(cluster *LiveCluster, overlay *Overlay, o *Object) appliedBy {
	elsewhere := false
	for i := range cluster.Syncs {
		by := appliedBy{applies: true, exact: true, sync: &cluster.Syncs[i], cluster: cluster.Name}
		if at := fleet.WithinRepository(by.sync.Spec.Path); at != overlay.Path && at != overlay.From {
			continue
		}
		switch l.report.follows(by.sync, overlay) {
		case fleet.OtherRepository:
			l.report.note("%s applies %s of another repository, %s, so it has no part in this", by.name(), by.sync.Spec.Path, by.sync.Spec.Source.Git.URL)
			elsewhere = true
			continue
		case fleet.UnknownRepository:
			l.report.note("this clone has no remote at a server, so whether the clusters' PoolSyncs follow this repository is not known")
			by.exact = false
		case fleet.SameRepository:
		}
		return l.doneBy(by)
	}
	if elsewhere {
		return appliedBy{}
	}
	return l.matched(cluster, overlay, o)
}

// doneBy notes what a PoolSync does not do, or not yet.
func (l *lives) doneBy(by appliedBy) appliedBy {
	spec := &by.sync.Spec
	if by.sync.SuspendedAt(l.live.Now) {
		until := ""
		if spec.SuspendUntil != nil {
			until = " until " + spec.SuspendUntil.UTC().Format(time.RFC3339)
		}
		l.report.note("%s is suspended%s: nothing happens there before it is resumed, so no impact is told", by.name(), until)
		return appliedBy{}
	}
	switch ref := spec.Source.Git.Ref; {
	case ref.Commit != "":
		l.report.note("%s follows a commit: a change counts there once it follows another that has it", by.name())
	case ref.Semver != "" || ref.Tag != "":
		l.report.note("%s follows tags: a change counts there once a tag that it follows has it", by.name())
	}
	return by
}

// fluxName and fluxNamespace are labels by which Flux knows what it has applied.
const (
	fluxName      = "kustomize.toolkit.fluxcd.io/name"
	fluxNamespace = "kustomize.toolkit.fluxcd.io/namespace"
)

// matched finds out by names and labels what no PoolSync that was read tells.
func (l *lives) matched(cluster *LiveCluster, overlay *Overlay, o *Object) appliedBy {
	half := o.before
	if half == nil {
		half = o.after
	}
	named := path.Base(overlay.Path) == cluster.Name
	by := appliedBy{applies: true, cluster: cluster.Name}
	xpool := cluster.find(half)
	if xpool != nil && xpool.Labels[fluxName] != "" {
		kustomization := "Kustomization " + qualified(xpool.Labels[fluxNamespace], xpool.Labels[fluxName])
		if known := len(overlay.appliers) > 0; known && slices.Contains(overlay.appliers, kustomization) || !known && (named || !l.anyNamed(cluster.Name)) {
			l.report.note("%s of Flux applies %s in cluster %s: whether it is suspended, and whether it prunes, was not read", kustomization, qualified(xpool.Namespace, xpool.Name), cluster.Name)
			return by
		}
		return appliedBy{}
	}
	switch {
	case !named && l.anyNamed(cluster.Name):
		return appliedBy{}
	case len(cluster.Syncs) == 0 && named:
		by.exact = true
	case len(cluster.Syncs) == 0:
		l.report.note("which root cluster %s applies is not known: it has no PoolSync that can be read, so its pools are matched by their names", cluster.Name)
	case xpool == nil || xpool.Labels[v1alpha1.LabelPoolSyncName] != "":
		// Another PoolSync applies it, or nobody does.
		return appliedBy{}
	default:
		l.report.note("no PoolSync of cluster %s applies %s: what does is not known, so the pool is matched by its name", cluster.Name, qualified(xpool.Namespace, xpool.Name))
	}
	return by
}

// anyNamed says whether a root has a cluster's name.
func (l *lives) anyNamed(cluster string) bool {
	return slices.ContainsFunc(l.report.Overlays, func(o Overlay) bool { return path.Base(o.Path) == cluster })
}

// removes says whether what the overlay does not have any more goes.
func (a appliedBy) removes(l *lives, o *Object) bool {
	if a.sync == nil || a.sync.Spec.Prune {
		return true
	}
	l.report.note("%s does not prune: %s stays there as it is", a.name(), qualified(o.before.GetNamespace(), o.before.GetName()))
	return false
}

// kept is the pool as it will be, with the fields that the PoolSync leaves to the
// cluster as they are there.
func (a appliedBy) kept(l *lives, now, then *v1alpha1.ExecutorPool) *v1alpha1.ExecutorPool {
	if a.sync == nil || len(a.sync.Spec.Drift.Ignore) == 0 {
		return then
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(now)
	if err != nil {
		return then
	}
	object := &unstructured.Unstructured{Object: fields}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.ExecutorPoolKind))
	ignored := fleet.IgnoredPaths(a.sync.Spec.Drift.Ignore, object.GetKind(), object.GetNamespace(), object.GetName())
	then = then.DeepCopy()
	keep := func(field string, differs bool, set func()) {
		if differs && slices.ContainsFunc(ignored, func(path string) bool { return field == path || inside(field, path) }) {
			l.report.note("%s leaves %s of %s to the cluster, by its spec.drift.ignore", a.name(), field, qualified(now.Namespace, now.Name))
			set()
		}
	}
	keep("/spec/minRunners", now.Spec.MinRunners != then.Spec.MinRunners, func() { then.Spec.MinRunners = now.Spec.MinRunners })
	keep("/spec/maxRunners", now.Spec.MaxRunners != then.Spec.MaxRunners, func() { then.Spec.MaxRunners = now.Spec.MaxRunners })
	keep("/spec/persistence", claimsNow(now) != claimsNow(then), func() { then.Spec.Persistence = now.Spec.Persistence })
	return then
}
