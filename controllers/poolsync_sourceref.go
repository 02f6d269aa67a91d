package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// fluxSource is an empty source of a kind.
func fluxSource(kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.FluxSources.WithKind(kind))
	return object
}

// artifactOf is what a source offers; empty where it offers nothing yet.
func artifactOf(object *unstructured.Unstructured) fleet.Artifact {
	field := func(name string) string {
		value, _, _ := unstructured.NestedString(object.Object, "status", "artifact", name)
		return value
	}
	return fleet.Artifact{URL: field("url"), Revision: shorten(field("revision"), maxRevision), Digest: field("digest")}
}

// maxRevision is the API's bound on revisions, in bytes.
const maxRevision = 256

// artifactSeen tells artifacts apart: one revision may be packed in two ways.
func artifactSeen(a fleet.Artifact) string { return a.Revision + " " + a.Digest }

// resolveArtifact asks the source of Flux what it offers.
func (r *poolSyncReconciler) resolveArtifact(ctx context.Context, p *syncPass) *stageError {
	reference, name := p.sync.Spec.SourceRef, sourceName(p.sync)
	if err := r.sources.watch(reference.Kind, name.Namespace); err != nil {
		return transient(v1alpha1.ReasonArtifactFailed, err)
	}
	object := fluxSource(reference.Kind)
	p.memory.artifact = ""
	switch err := r.live.Get(ctx, name, object); {
	case apierrors.IsNotFound(err):
		return transient(v1alpha1.ReasonArtifactFailed, fmt.Errorf("there is no %s %s", reference.Kind, name))
	case apierrors.IsForbidden(err):
		return transient(v1alpha1.ReasonArtifactFailed, fmt.Errorf("%s %s may not be read: give the fleet controller's account the right to get, list and watch sources in namespace %s: %w", reference.Kind, name, name.Namespace, err))
	case err != nil:
		return transient(v1alpha1.ReasonArtifactFailed, fmt.Errorf("read %s %s: %w", reference.Kind, name, err))
	}
	artifact := artifactOf(object)
	p.memory.artifact = artifactSeen(artifact)
	if artifact.URL == "" || artifact.Revision == "" {
		return transient(v1alpha1.ReasonArtifactFailed, fmt.Errorf("%s %s has no artifact yet: %s", reference.Kind, name, cmp.Or(fleet.ReadyOf(object).Message, "source-controller has not looked at it")))
	}
	_, commit := fleet.Of(artifact.Revision)
	p.artifact, p.commit = &artifact, cmp.Or(commit, artifact.Revision)
	p.status.LastAttemptedRevision = artifact.Revision
	return nil
}

// sourceMoved says whether the source of Flux offers something else than the last full
// pass saw.
func (r *poolSyncReconciler) sourceMoved(ctx context.Context, p *syncPass) bool {
	reference := p.sync.Spec.SourceRef
	if reference == nil {
		return false
	}
	object := fluxSource(reference.Kind)
	return r.sources.get(ctx, sourceName(p.sync), object) == nil && artifactSeen(artifactOf(object)) != p.memory.artifact
}

// sourceReason is the reason of a source that cannot be read.
func sourceReason(sync *v1alpha1.PoolSync) v1alpha1.Reason {
	if sync.Spec.SourceRef != nil {
		return v1alpha1.ReasonArtifactFailed
	}
	return v1alpha1.ReasonSourceUnavailable
}

// closure is equal for what builds the same; empty: that is not known.
func (r *poolSyncReconciler) closure(ctx context.Context, p *syncPass) (string, error) {
	if p.artifact != nil {
		return p.artifact.Digest, nil
	}
	return p.memory.git.Closure(ctx, fleet.Ref{Commit: p.commit}, p.sync.Spec.Path)
}

// unchanged says whether a build is of what the pass has found at a revision that it has
// built before: a source of Flux may pack the same revision anew.
func (p *syncPass) unchanged(b *build) bool {
	return b.revision == p.status.LastAttemptedRevision && (p.artifact == nil || b.closure == p.artifact.Digest)
}

// checkout writes out what was resolved; of Git any commit.
func (r *poolSyncReconciler) checkout(ctx context.Context, p *syncPass, commit string) (*fleet.Tree, error) {
	if p.artifact != nil {
		return p.artifact.Checkout(ctx, r.cloneDir(p.memory))
	}
	return p.memory.git.Checkout(ctx, fleet.Ref{Commit: commit})
}

// sourceWatches watch sources of Flux, each kind in each namespace that a PoolSync
// names: a cluster may not have them.
type sourceWatches struct {
	mgr        ctrl.Manager
	controller controller.Controller
	handle     handler.EventHandler

	mu      sync.Mutex             // guards what follows
	caches  map[string]cache.Cache // namespace → what is known of its sources
	watched map[string]bool        // kind and namespace
}

// watch begins to watch a kind, where the cluster has it. It goes on until the
// controller ends.
func (w *sourceWatches) watch(kind, namespace string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := kind + " " + namespace
	if w.watched[key] {
		return nil
	}
	gvk := v1alpha1.FluxSources.WithKind(kind)
	if _, err := w.mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); meta.IsNoMatchError(err) {
		return fmt.Errorf("the cluster has no %s of %s: install Flux's source-controller, or write spec.source", kind, v1alpha1.FluxSources)
	} else if err != nil {
		return fmt.Errorf("look for %s of %s: %w", kind, v1alpha1.FluxSources, err)
	}
	known := w.caches[namespace]
	if known == nil {
		var err error
		known, err = cache.New(w.mgr.GetConfig(), cache.Options{
			HTTPClient: w.mgr.GetHTTPClient(), Scheme: w.mgr.GetScheme(), Mapper: w.mgr.GetRESTMapper(),
			DefaultNamespaces: map[string]cache.Config{namespace: {}}, DefaultTransform: stripSource,
		})
		if err == nil {
			err = w.mgr.Add(known)
		}
		if err != nil {
			return fmt.Errorf("watch %s of namespace %s: %w", kind, namespace, err)
		}
		w.caches[namespace] = known
	}
	if err := w.controller.Watch(source.Kind(known, client.Object(fluxSource(kind)), w.handle)); err != nil {
		return fmt.Errorf("watch %s of namespace %s: %w", kind, namespace, err)
	}
	w.watched[key] = true
	return nil
}

var errNotWatched = errors.New("not watched")

// get reads a source as it was seen last.
func (w *sourceWatches) get(ctx context.Context, name client.ObjectKey, object *unstructured.Unstructured) error {
	w.mu.Lock()
	known, watched := w.caches[name.Namespace], w.watched[object.GetKind()+" "+name.Namespace]
	w.mu.Unlock()
	if !watched {
		return errNotWatched
	}
	// Where it may not be listed, the cache is never filled.
	informer, err := known.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil || !informer.HasSynced() {
		return errors.Join(errNotWatched, err)
	}
	return known.Get(ctx, name, object)
}

// stripSource keeps of a source what it offers.
func stripSource(object any) (any, error) {
	from, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	kept := &unstructured.Unstructured{Object: map[string]any{}}
	kept.SetGroupVersionKind(from.GroupVersionKind())
	kept.SetNamespace(from.GetNamespace())
	kept.SetName(from.GetName())
	kept.SetUID(from.GetUID())
	kept.SetResourceVersion(from.GetResourceVersion())
	if artifact, has, _ := unstructured.NestedFieldNoCopy(from.Object, "status", "artifact"); has {
		kept.Object["status"] = map[string]any{"artifact": artifact}
	}
	return kept, nil
}

// followers finds the PoolSyncs that read a source of Flux.
func (r *poolSyncReconciler) followers(ctx context.Context, object client.Object) []reconcile.Request {
	syncs := &v1alpha1.PoolSyncList{}
	if err := r.client.List(ctx, syncs); err != nil {
		return nil // the cache is stopping
	}
	var requests []reconcile.Request
	for i := range syncs.Items {
		sync := &syncs.Items[i]
		reference := sync.Spec.SourceRef
		if reference != nil && reference.Kind == object.GetObjectKind().GroupVersionKind().Kind && sourceName(sync) == client.ObjectKeyFromObject(object) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(sync)})
		}
	}
	if len(requests) > 0 {
		logf.FromContext(ctx).V(1).Info("sees a source change", "kind", object.GetObjectKind().GroupVersionKind().Kind, "source", client.ObjectKeyFromObject(object).String())
	}
	return requests
}
