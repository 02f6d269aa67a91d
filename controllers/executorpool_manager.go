package controllers

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
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

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/hubclient"
)

const (
	// orphanGrace is how long a Pod or Secret may miss its other half: longer
	// than a cache lags and a runner takes to exit, short enough that nobody
	// wonders about it.
	orphanGrace = 30 * time.Second
	// Failures of one pool are tried again after 100 ms at first and 30 s at
	// most.
	retryFirst = 100 * time.Millisecond
	retryLast  = 30 * time.Second
)

// executorPoolCacheOptions are what the executor controller caches of objects
// that are not its own kind: runner Pods without what nobody reads, and the
// metadata of Secrets and anchors. An empty namespace means all.
func executorPoolCacheOptions(namespace string) map[client.Object]cache.ByObject {
	managed, err := labels.NewRequirement(v1alpha1.LabelExecutorPool, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	of := func(selector labels.Selector, transform func(any) (any, error)) cache.ByObject {
		by := cache.ByObject{Label: selector, Transform: transform}
		if namespace != "" {
			by.Namespaces = map[string]cache.Config{namespace: {}}
		}
		return by
	}
	ofPools := labels.NewSelector().Add(*managed)
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}:       of(ofPools, stripPod),
		&corev1.ConfigMap{}: of(ofPools, cache.TransformStripManagedFields()),
		// The pool credential's Secret carries no label of ours.
		&corev1.Secret{}: of(nil, cache.TransformStripManagedFields()),
	}
}

// stripPod keeps of a Pod what a decision depends on.
func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	pod.Spec = corev1.PodSpec{}
	pod.Status = corev1.PodStatus{
		Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message,
		ContainerStatuses: pod.Status.ContainerStatuses,
		Conditions:        readConditions(pod.Status.Conditions),
	}
	return pod, nil
}

// readConditions are those conditions of a Pod that somebody reads, without
// their times. A Pod in good order has none of them, so its conditions cost the
// cache nothing.
func readConditions(all []corev1.PodCondition) []corev1.PodCondition {
	var read []corev1.PodCondition
	for i := range all {
		if c := &all[i]; unschedulable(c) || disrupted(c) {
			read = append(read, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	return read
}

// setupExecutorPool adds the ExecutorPool controller to a manager.
func setupExecutorPool(mgr ctrl.Manager, opts Options, recorder *eventRecorder) error {
	return addExecutorPool(mgr, opts, recorder, clock.RealClock{}, orphanGrace)
}

// addExecutorPool is setupExecutorPool with what tests replace.
func addExecutorPool(mgr ctrl.Manager, opts Options, recorder *eventRecorder, c clock.PassiveClock, grace time.Duration) error {
	hubs := newHubConnections(hubclient.Hello{
		Instance: opts.Instance, Build: opts.Build, Features: hubv1.ControllerFeatures(),
	}, opts.fence, c)
	hubs.patience = opts.hubPatience
	if err := mgr.Add(hubs); err != nil {
		return fmt.Errorf("add the hub connections: %w", err)
	}
	r := &executorPoolReconciler{
		client:            client.WithFieldOwner(mgr.GetClient(), v1alpha1.FieldManagerExecutorPool),
		live:              mgr.GetAPIReader(),
		hubs:              hubs,
		events:            newPoolEvents(recorder, c),
		metrics:           newPoolMetrics(metrics.Registry),
		allowedHubs:       opts.AllowedHubs,
		runnerImage:       opts.RunnerImage,
		ownServiceAccount: ownAccount(mgr.GetConfig()).Name,
		orphanGrace:       grace,
		clock:             c,
		memories:          map[types.NamespacedName]*poolMemory{},
		lost:              map[types.NamespacedName][]string{},
	}
	if err := indexPools(mgr); err != nil {
		return err
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("executorpool").
		// Every change: a status that somebody else edits is restored, and a
		// finalizer comes back. A pass of what the controller itself wrote costs no
		// request.
		For(&v1alpha1.ExecutorPool{}, builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(&v1alpha1.ExecutorPool{}, handler.EnqueueRequestsFromMapFunc(r.duplicates), builder.WithPredicates(onlyDeletions())).
		Watches(&corev1.Pod{}, podHandler{handler.EnqueueRequestsFromMapFunc(poolOfObject), r.vanished}).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(poolOfObject)).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.poolsOfSecret)).
		WatchesRawSource(source.Channel(hubs.changed, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: hubWorkers,
			SkipNameValidation:      new(true), // several managers of one process, in tests
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryLast),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the ExecutorPool controller: %w", err)
	}
	return nil
}

// duplicates are the pools that another one of their namespace keeps from serving;
// it may have been the one that is gone.
func (r *executorPoolReconciler) duplicates(ctx context.Context, gone client.Object) []reconcile.Request {
	pools := &v1alpha1.ExecutorPoolList{}
	if err := r.client.List(ctx, pools, client.InNamespace(gone.GetNamespace())); err != nil {
		return nil // the cache is stopping
	}
	var requests []reconcile.Request
	for i := range pools.Items {
		degraded := meta.FindStatusCondition(pools.Items[i].Status.Conditions, v1alpha1.ConditionDegraded)
		if degraded != nil && degraded.Reason == string(v1alpha1.ReasonDuplicatePool) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])})
		}
	}
	return requests
}

func onlyDeletions() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
}

// poolOfObject is the pool whose runner, or anchor, an object is.
func poolOfObject(_ context.Context, object client.Object) []reconcile.Request {
	name := cmp.Or(runnersPool(object), object.GetAnnotations()[v1alpha1.AnnotationPoolName])
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
}

// poolsOfSecret are the pools that a Secret matters to: as a runner's, or as
// the pool credential.
func (r *executorPoolReconciler) poolsOfSecret(ctx context.Context, object client.Object) []reconcile.Request {
	requests := poolOfObject(ctx, object)
	pools := &v1alpha1.ExecutorPoolList{}
	if err := r.client.List(ctx, pools, client.InNamespace(object.GetNamespace())); err != nil {
		return requests // the cache is stopping
	}
	for i := range pools.Items {
		if pools.Items[i].Spec.PoolCredentialSecretRef.Name == object.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])})
		}
	}
	return requests
}

// addRecorder returns a recorder of a process's core/v1 Events that ends with
// the manager, and posts them too where the options name an address. The recorder of events.k8s.io drops what is too long instead of
// cutting it.
func addRecorder(mgr ctrl.Manager, o Options) (*eventRecorder, error) {
	clientset, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make a client for Events: %w", err)
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clientset.CoreV1().Events(metav1.NamespaceAll)})
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		broadcaster.Shutdown()
		return nil
	}))
	if err != nil {
		return nil, fmt.Errorf("add the Event recorder: %w", err)
	}
	recorder := &eventRecorder{EventRecorder: broadcaster.NewRecorder(mgr.GetScheme(), corev1.EventSource{Component: o.account()})}
	if o.EventsAddr != "" {
		recorder.poster = newPoster(o, mgr.GetScheme(), metrics.Registry)
		if err := mgr.Add(recorder.poster); err != nil {
			return nil, fmt.Errorf("add what posts Events: %w", err)
		}
	}
	return recorder, nil
}

// ownAccount is the ServiceAccount that the controller runs as, from its token;
// empty outside a cluster. The token's signature is the API server's to check: here
// it only keeps runners off the controller's account, and tells where the
// controller lives.
func ownAccount(config *rest.Config) types.NamespacedName {
	token := config.BearerToken
	if config.BearerTokenFile != "" {
		data, err := os.ReadFile(config.BearerTokenFile)
		if err != nil {
			return types.NamespacedName{}
		}
		token = string(data)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return types.NamespacedName{}
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return types.NamespacedName{}
	}
	var claims struct {
		Subject string `json:"sub"`
	}
	if json.Unmarshal(data, &claims) != nil {
		return types.NamespacedName{}
	}
	subject := strings.Split(claims.Subject, ":")
	if len(subject) != 4 || subject[0] != "system" || subject[1] != "serviceaccount" {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: subject[2], Name: subject[3]}
}
