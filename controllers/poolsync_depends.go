package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"cloop.dev/cloop/apis/v1alpha1"
)

// lookAtDependencies is how often PoolSyncs of another namespace are looked at that
// one waits for: nothing tells of their changes.
const lookAtDependencies = 30 * time.Second

// depends refuses to go on to a new build while a PoolSync that this one depends on is
// not Ready. What was applied before is held to meanwhile.
func (r *poolSyncReconciler) depends(ctx context.Context, p *syncPass) *stageError {
	m := p.memory
	m.dependencies = ""
	if len(p.sync.Spec.DependsOn) == 0 {
		return nil
	}
	circle, err := r.circle(ctx, p)
	if err != nil {
		return transient(v1alpha1.ReasonDependencyNotReady, err)
	}
	if m.dependencies = circle; circle != "" {
		failed := stalled(v1alpha1.ReasonDependencyNotReady, errors.New(circle))
		failed.remedy = "take one out of the other's spec.dependsOn; what was applied before stays"
		return failed
	}
	if m.dependencies, err = r.unmet(ctx, p); err != nil {
		return transient(v1alpha1.ReasonDependencyNotReady, err)
	}
	if m.dependencies != "" {
		return transient(v1alpha1.ReasonDependencyNotReady, errors.New(m.dependencies))
	}
	return nil
}

// dependencyMoved says whether what the last full pass waited for is not what it was.
func (r *poolSyncReconciler) dependencyMoved(ctx context.Context, p *syncPass) bool {
	m := p.memory
	if m.source == nil || m.source.reason != v1alpha1.ReasonDependencyNotReady {
		return false
	}
	words, err := r.circle(ctx, p)
	if err == nil && words == "" {
		words, err = r.unmet(ctx, p)
	}
	return err == nil && words != m.dependencies
}

// unmet says which dependencies are not what this PoolSync waits for, and why; empty
// where all are.
func (r *poolSyncReconciler) unmet(ctx context.Context, p *syncPass) (string, error) {
	var lacking []string
	for _, reference := range p.sync.Spec.DependsOn {
		name := dependency(p.sync, reference)
		reader, shown := client.Reader(r.client), name.Name
		if name.Namespace != p.sync.Namespace {
			reader, shown = r.live, name.String()
			p.comeBack(r.clock.Now().Add(lookAtDependencies))
		}
		other := &v1alpha1.PoolSync{}
		switch err := reader.Get(ctx, name, other); {
		case apierrors.IsNotFound(err):
			lacking = append(lacking, "there is no PoolSync "+shown)
		case apierrors.IsForbidden(err):
			lacking = append(lacking, fmt.Sprintf("PoolSync %s may not be read: give the fleet controller's account the right to get poolsyncs in namespace %s", shown, name.Namespace))
		case err != nil:
			return "", fmt.Errorf("read PoolSync %s: %w", shown, err)
		default:
			if why := lacks(p.sync, other, p.status.LastAttemptedRevision); why != "" {
				lacking = append(lacking, "PoolSync "+shown+" "+why)
			}
		}
	}
	return strings.Join(lacking, "; "), nil
}

// lacks says why a PoolSync that is to apply a revision has to wait for another one;
// empty where it has not.
func lacks(sync, other *v1alpha1.PoolSync, revision string) string {
	ready := meta.FindStatusCondition(other.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case other.DeletionTimestamp != nil:
		return "is being deleted"
	case ready == nil || ready.ObservedGeneration != other.Generation || other.Status.ObservedGeneration != other.Generation:
		return "was not looked at since its spec changed"
	case ready.Status != metav1.ConditionTrue:
		return "is not Ready (" + ready.Reason + ")"
	case sameSource(sync, other) && other.Status.LastAppliedRevision != revision:
		return fmt.Sprintf("has not applied %s yet but %s", revision, orElse(other.Status.LastAppliedRevision, "nothing"))
	}
	return ""
}

// sameSource says whether two PoolSyncs read the same, so that their revisions can be
// compared.
func sameSource(a, b *v1alpha1.PoolSync) bool {
	if a.Spec.SourceRef != nil || b.Spec.SourceRef != nil {
		return a.Spec.SourceRef != nil && b.Spec.SourceRef != nil && a.Spec.SourceRef.Kind == b.Spec.SourceRef.Kind && sourceName(a) == sourceName(b)
	}
	return a.Spec.Source.Git.URL == b.Spec.Source.Git.URL && a.Spec.Source.Git.Ref == b.Spec.Source.Git.Ref
}

// sourceName is the source of Flux that a PoolSync names.
func sourceName(sync *v1alpha1.PoolSync) types.NamespacedName {
	return types.NamespacedName{Namespace: orElse(sync.Spec.SourceRef.Namespace, sync.Namespace), Name: sync.Spec.SourceRef.Name}
}

func dependency(sync *v1alpha1.PoolSync, reference v1alpha1.PoolSyncReference) types.NamespacedName {
	return types.NamespacedName{Namespace: orElse(reference.Namespace, sync.Namespace), Name: reference.Name}
}

// circle says that a PoolSync waits for itself, over which others; empty where it does
// not, as far as what may be read tells.
func (r *poolSyncReconciler) circle(ctx context.Context, p *syncPass) (string, error) {
	list := &v1alpha1.PoolSyncList{}
	if err := r.client.List(ctx, list, client.InNamespace(p.sync.Namespace)); err != nil {
		return "", fmt.Errorf("list PoolSyncs: %w", err)
	}
	near := map[types.NamespacedName]*v1alpha1.PoolSync{}
	for i := range list.Items {
		near[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
	}
	way := wayBack(p.sync, func(name types.NamespacedName) *v1alpha1.PoolSync {
		if name.Namespace == p.sync.Namespace {
			return near[name]
		}
		p.comeBack(r.clock.Now().Add(lookAtDependencies))
		other := &v1alpha1.PoolSync{}
		if r.live.Get(ctx, name, other) != nil {
			return nil // what is unmet says why
		}
		return other
	})
	if len(way) == 0 {
		return "", nil
	}
	return "the PoolSync depends on itself: " + strings.Join(way, " depends on "), nil
}

// wayBack is the shortest way from a PoolSync over its dependencies back to itself;
// nil where there is none. read returns a PoolSync, nil where there is none.
func wayBack(sync *v1alpha1.PoolSync, read func(types.NamespacedName) *v1alpha1.PoolSync) []string {
	type hop struct {
		sync *v1alpha1.PoolSync
		way  []string
	}
	start := client.ObjectKeyFromObject(sync)
	seen := map[types.NamespacedName]bool{start: true}
	for open := []hop{{sync, []string{sync.Name}}}; len(open) > 0; {
		at := open[0]
		open = open[1:]
		for _, reference := range at.sync.Spec.DependsOn {
			name := dependency(at.sync, reference)
			shown := name.Name
			if name.Namespace != sync.Namespace {
				shown = name.String()
			}
			way := append(slices.Clone(at.way), shown)
			if name == start {
				return way
			}
			if seen[name] {
				continue
			}
			seen[name] = true
			if next := read(name); next != nil {
				open = append(open, hop{next, way})
			}
		}
	}
	return nil
}

// dependents finds the PoolSyncs that depend on one.
func (r *poolSyncReconciler) dependents(ctx context.Context, other client.Object) []reconcile.Request {
	syncs := &v1alpha1.PoolSyncList{}
	if err := r.client.List(ctx, syncs); err != nil {
		return nil // the cache is stopping
	}
	var requests []reconcile.Request
	for i := range syncs.Items {
		sync := &syncs.Items[i]
		if slices.ContainsFunc(sync.Spec.DependsOn, func(d v1alpha1.PoolSyncReference) bool {
			return dependency(sync, d) == client.ObjectKeyFromObject(other)
		}) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(sync)})
		}
	}
	return requests
}

// readinessMoved lets through what others may wait for of a PoolSync.
func readinessMoved() predicate.Predicate {
	shown := func(object client.Object) []any {
		sync, ok := object.(*v1alpha1.PoolSync)
		if !ok {
			return nil
		}
		var status metav1.ConditionStatus
		var reason string
		var observed int64
		if ready := meta.FindStatusCondition(sync.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			status, reason, observed = ready.Status, ready.Reason, ready.ObservedGeneration
		}
		return []any{sync.Generation, sync.DeletionTimestamp != nil, sync.Status.LastAppliedRevision, sync.Status.ObservedGeneration, status, reason, observed}
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(shown(e.ObjectOld), shown(e.ObjectNew))
	}}
}
