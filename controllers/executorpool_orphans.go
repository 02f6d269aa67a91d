package controllers

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/podspec"
	"cloop.dev/cloop/internal/pool"
)

// collect removes what is left of a pool that is gone without having been drained:
// somebody took its finalizer off by hand. Its anchor keeps the runners' Pods. Those
// that run are left to end; the others go, and with the last of them the anchor and
// what that owns.
func (r *executorPoolReconciler) collect(ctx context.Context, name types.NamespacedName) error {
	pods, err := r.cachedPods(ctx, name)
	if err != nil {
		return err
	}
	anchor := metadataOf("ConfigMap")
	err = r.client.Get(ctx, client.ObjectKey{Namespace: name.Namespace, Name: podspec.AnchorName(name.Name)}, anchor)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the anchor of ExecutorPool %s, which is gone: %w", name, err)
	}
	if len(pods) == 0 && apierrors.IsNotFound(err) {
		return nil
	}
	// A new pool of that name may be on its way into the cache.
	switch err := r.live.Get(ctx, name, &v1alpha1.ExecutorPool{}); {
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look for ExecutorPool %s: %w", name, err)
	}
	var failed []error
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp == nil && podOf(pod, "").Phase != pool.PodRunning {
			// Only as it was seen: it may have begun to run.
			failed = append(failed, r.deleteExactly(ctx, pod))
		}
	}
	if len(pods) == 0 && anchor.UID != "" {
		// Without its anchor a Pod that runs would go.
		if found, err := r.strays(ctx, name.Namespace, &name); found || err != nil {
			return err
		}
		logf.FromContext(ctx).Info("removes what is left of a pool that was not drained", "pool", name.Name)
		failed = append(failed, r.deleteExactly(ctx, anchor))
	}
	return errors.Join(failed...)
}

// deleteExactly deletes an object as it was seen; one that has changed since comes
// back as an event.
func (r *executorPoolReconciler) deleteExactly(ctx context.Context, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := r.client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete %s: %w", object.GetName(), err)
}
