package controllers

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fluxcd/pkg/runtime/jitter"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

const (
	// syncsAtOnce are reconciled in parallel.
	syncsAtOnce = 4
	// syncJitter spreads the syncs of a fleet's clusters, which were started by
	// one rollout, over the interval.
	syncJitter = 0.1
)

// poolSyncCacheOptions are what the fleet controller caches beside its own kind:
// ExecutorPools of all namespaces, because an overlay may name any, without
// managedFields and, but for its Ready, status. Who wrote a field is read when one differs. They are
// only read, so that nobody needs a copy.
func poolSyncCacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		newPool(): {Namespaces: map[string]cache.Config{cache.AllNamespaces: {}}, Transform: stripPool, UnsafeDisableDeepCopy: new(true)},
	}
}

// newPool is an empty ExecutorPool. It is compared with what Git says, so it must
// not lose what a Go type does not know or spells differently.
func newPool() *unstructured.Unstructured {
	pool := &unstructured.Unstructured{}
	pool.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.ExecutorPoolKind))
	return pool
}

// stripPool keeps of an ExecutorPool what is compared and what is waited for.
func stripPool(object any) (any, error) {
	pool, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	pool.SetManagedFields(nil)
	ready := readyOnly(pool)
	delete(pool.Object, "status")
	if ready != nil {
		pool.Object["status"] = ready
	}
	return pool, nil
}

// setupPoolSync adds the PoolSync controller to a manager.
func setupPoolSync(mgr ctrl.Manager, opts Options, recorder *eventRecorder) error {
	return addPoolSync(mgr, opts, recorder, clock.RealClock{})
}

// addPoolSync is setupPoolSync with what tests replace.
func addPoolSync(mgr ctrl.Manager, opts Options, recorder *eventRecorder, c clock.PassiveClock) error {
	validator, err := schemas.NewValidator()
	if err != nil {
		return fmt.Errorf("load the schemas: %w", err)
	}
	r := &poolSyncReconciler{
		client:    client.WithFieldOwner(mgr.GetClient(), v1alpha1.FieldManagerPoolSync),
		pools:     mgr.GetCache(),
		live:      mgr.GetAPIReader(),
		appliers:  newAppliers(mgr.GetConfig(), mgr.GetRESTMapper(), mgr.GetScheme()),
		cacheDir:  opts.CacheDir,
		validator: validator,
		events:    newPoolEvents(recorder, c),
		metrics:   newSyncMetrics(metrics.Registry),
		clock:     c,
		jitter:    jittered,
		memories:  map[types.NamespacedName]*syncMemory{},
		patience:  askPatience,
		woken:     make(chan event.GenericEvent, 256),
	}
	r.sides = newSideWatches(r.appliers, r.woken, c)
	made, err := ctrl.NewControllerManagedBy(mgr).
		Named(poolSyncController).
		// Every change: a request to reconcile and an approval are annotations, and
		// a status that somebody else edits is restored. A pass of what the
		// controller itself wrote finds nothing to write.
		For(&v1alpha1.PoolSync{}, builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(&v1alpha1.PoolSync{}, handler.EnqueueRequestsFromMapFunc(r.waiting), builder.WithPredicates(inventoryChanged())).
		Watches(&v1alpha1.PoolSync{}, handler.EnqueueRequestsFromMapFunc(r.dependents), builder.WithPredicates(readinessMoved())).
		Watches(&v1alpha1.PoolSync{}, r.waiters(opts.Namespace), builder.WithPredicates(readinessMoved())).
		Watches(newPool(), r.waiters(opts.Namespace), builder.WithPredicates(readyChanged())).
		// A HubPool also goes once its hub has carried out its deletion policy.
		Watches(&v1alpha1.HubPool{}, handler.EnqueueRequestsFromMapFunc(syncsOf(opts.Namespace)), builder.WithPredicates(definitionChanged())).
		Watches(&v1alpha1.HubPool{}, handler.EnqueueRequestsFromMapFunc(r.observers.of(v1alpha1.HubPoolKind)), builder.WithPredicates(definitionChanged())).
		Watches(&v1alpha1.HubPool{}, r.waiters(opts.Namespace), builder.WithPredicates(readyChanged())).
		Watches(&v1alpha1.PoolSync{}, handler.EnqueueRequestsFromMapFunc(syncsOf(opts.Namespace)), builder.WithPredicates(definitionChanged())).
		Watches(&v1alpha1.PoolSync{}, handler.EnqueueRequestsFromMapFunc(r.observers.of(v1alpha1.PoolSyncKind)), builder.WithPredicates(definitionChanged())).
		Watches(newPool(), handler.EnqueueRequestsFromMapFunc(syncsOf(opts.Namespace)), builder.WithPredicates(definitionChanged())).
		Watches(newPool(), handler.EnqueueRequestsFromMapFunc(r.observers.of(v1alpha1.ExecutorPoolKind)), builder.WithPredicates(definitionChanged())).
		WatchesRawSource(source.Channel(r.woken, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: syncsAtOnce,
			SkipNameValidation:      new(true), // several managers of one process, in tests
		}).
		Build(r)
	if err != nil {
		return fmt.Errorf("add the PoolSync controller: %w", err)
	}
	r.sources = &sourceWatches{
		mgr: mgr, controller: made, handle: handler.EnqueueRequestsFromMapFunc(r.followers), caches: map[string]cache.Cache{}, watched: map[string]bool{},
	}
	if err := addReceiver(mgr, opts, r.client, r.live, c); err != nil {
		return err
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		r.sides.stopAll()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("add the watches of what stands beside pools: %w", err)
	}
	// Who leads, and has read the PoolSyncs into the cache, knows which there are.
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		r.sweepClones(ctx, opts.Namespace)
		return nil
	}))
	if err != nil {
		return fmt.Errorf("add the sweep of clones: %w", err)
	}
	return nil
}

// jittered is d, a little more or less. Each call has a generator of its own:
// several reconciles run at once.
func jittered(d time.Duration) time.Duration { return jitter.Percent(syncJitter, nil)(d) }

// syncsOf finds the PoolSync that applied an object, by its labels. Those outside
// the namespace that is looked after are somebody else's.
func syncsOf(namespace string) handler.MapFunc {
	return func(_ context.Context, object client.Object) []reconcile.Request {
		name := syncNamed(object)
		if name.Name == "" || name.Namespace != namespace && namespace != "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: name}}
	}
}

// waiting finds the PoolSyncs that wait for another one of their namespace to let
// something go.
func (r *poolSyncReconciler) waiting(ctx context.Context, other client.Object) []reconcile.Request {
	syncs := &v1alpha1.PoolSyncList{}
	if err := r.client.List(ctx, syncs, client.InNamespace(other.GetNamespace())); err != nil {
		return nil // the cache is stopping
	}
	var requests []reconcile.Request
	for i := range syncs.Items {
		ready := meta.FindStatusCondition(syncs.Items[i].Status.Conditions, v1alpha1.ConditionReady)
		if ready != nil && ready.Reason == string(v1alpha1.ReasonOwnedByAnother) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&syncs.Items[i])})
		}
	}
	return requests
}

// inventoryChanged lets through what another PoolSync may have waited for.
func inventoryChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*v1alpha1.PoolSync)
			after, also := e.ObjectNew.(*v1alpha1.PoolSync)
			return ok && also && !equality.Semantic.DeepEqual(before.Status.Inventory, after.Status.Inventory)
		},
	}
}

// definitionChanged lets through what may be drift: anything that a person may
// have changed. A status, which changes all the time, is none of that.
func definitionChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
			!equality.Semantic.DeepEqual(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
	}}
}
