package controllers

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"cloop.dev/cloop/apis/v1alpha1"
)

// setupHubPool adds the HubPool controller to a manager.
func setupHubPool(mgr ctrl.Manager, opts Options, recorder *eventRecorder) error {
	_, err := addHubPool(mgr, opts, recorder, clock.RealClock{})
	return err
}

// addHubPool is setupHubPool with what tests replace, and returns the reconciler to
// them.
func addHubPool(mgr ctrl.Manager, opts Options, recorder *eventRecorder, c clock.PassiveClock) (*hubPoolReconciler, error) {
	r := newHubPoolReconciler(mgr.GetClient(), mgr.GetAPIReader(), opts, recorder, c)
	if err := mgr.Add(r.hubs); err != nil {
		return nil, fmt.Errorf("add the hub connections: %w", err)
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(hubPoolController).
		// Every change: a request to reconcile and the word to orphan are annotations, and
		// a status that somebody else edits is restored.
		For(&v1alpha1.HubPool{}, builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WatchesRawSource(source.Channel(r.hubs.changed, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: hubWorkers,
			SkipNameValidation:      new(true), // several managers of one process, in tests
		}).
		Complete(r)
	if err != nil {
		return nil, fmt.Errorf("add the HubPool controller: %w", err)
	}
	return r, nil
}

func newHubPoolReconciler(c client.Client, live client.Reader, opts Options, recorder *eventRecorder, at clock.PassiveClock) *hubPoolReconciler {
	hubs := newManagementHubs(opts.Build, opts.fence, at)
	hubs.patience = opts.hubPatience
	return &hubPoolReconciler{
		client:      client.WithFieldOwner(c, v1alpha1.FieldManagerPoolSync),
		live:        live,
		hubs:        hubs,
		events:      newPoolEvents(recorder, at),
		metrics:     newHubPoolMetrics(metrics.Registry),
		allowedHubs: opts.AllowedHubs,
		cluster:     clusterName{configured: opts.ClusterName},
		clock:       at,
		jitter:      jittered,
		memories:    map[types.NamespacedName]*hubPoolMemory{},
	}
}
