package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"cloop.dev/cloop/apis/v1alpha1"
)

// namespaceGoes says whether a namespace is being deleted, or gone. Where that
// cannot be found out, it stays.
func namespaceGoes(ctx context.Context, reader client.Reader, name string) bool {
	namespace := &corev1.Namespace{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return apierrors.IsNotFound(err)
	}
	return namespace.DeletionTimestamp != nil
}

// leaveWithin is how long letting go may take: a part of what a Pod is given to
// end.
const leaveWithin = 10 * time.Second

// letGo takes the finalizers off what the controller looks after, if its own
// namespace is being deleted and the process with it: nobody would be left to do
// so, and the namespace would stay for ever. The namespace's runner Pods are
// deleted at the same time whatever the pools are, so no drain is cut short; what a
// PoolSync applied elsewhere is left there.
func letGo(ctx context.Context, config *rest.Config, o Options) error {
	if account := ownAccount(config); account.Namespace != o.Namespace {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	direct, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return fmt.Errorf("make a client to let go of namespace %s: %w", o.Namespace, err)
	}
	if !namespaceGoes(ctx, direct, o.Namespace) {
		return nil
	}
	kept, err := lookedAfter(ctx, direct, o)
	if err != nil {
		return fmt.Errorf("let go of namespace %s: %w", o.Namespace, err)
	}
	var failed []error
	for _, k := range kept {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return unfinalize(ctx, direct, k.object, k.finalizer) })
		if client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("let go of %s: %w", k.object.GetName(), err))
		}
	}
	return errors.Join(failed...)
}

// unfinalize takes a finalizer off an object as it is now.
func unfinalize(ctx context.Context, c client.Client, object client.Object, finalizer string) error {
	if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return err
	}
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok || !controllerutil.RemoveFinalizer(object, finalizer) {
		return nil
	}
	return c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// keptObject is an object that the process keeps by a finalizer.
type keptObject struct {
	object    client.Object
	finalizer string
}

// lookedAfter are the objects of the process's kinds, and its finalizer on each.
func lookedAfter(ctx context.Context, from client.Reader, o Options) ([]keptObject, error) {
	var kept []keptObject
	for _, kind := range []struct {
		controller, finalizer string
		list                  client.ObjectList
	}{
		{executorPoolController, v1alpha1.FinalizerExecutorPool, &v1alpha1.ExecutorPoolList{}},
		{poolSyncController, v1alpha1.FinalizerPoolSync, &v1alpha1.PoolSyncList{}},
		{hubPoolController, v1alpha1.FinalizerHubPool, &v1alpha1.HubPoolList{}},
	} {
		if !o.runs(kind.controller) {
			continue
		}
		if err := from.List(ctx, kind.list, client.InNamespace(o.Namespace)); err != nil {
			return nil, err
		}
		err := meta.EachListItem(kind.list, func(object runtime.Object) error {
			if object, ok := object.(client.Object); ok {
				kept = append(kept, keptObject{object, kind.finalizer})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return kept, nil
}
