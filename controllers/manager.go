package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"cloop.dev/cloop/apis/v1alpha1"
)

// Names of controllers in Options.Controllers.
const (
	executorPoolController = "executorpool"
	poolSyncController     = "poolsync"
	hubPoolController      = "hubpool"
)

// A standby takes over at once after a leader that was told to stop. After one
// that died without a word it does when it has seen no sign of it for
// leaseDuration. It looks leaseRetry apart, or up to 2.2 times that, because looks
// are spread: one look may pass until it sees the last sign, which it counts from,
// and another until it sees that the time is over, so 12.2 seconds at most. Shorter
// looks cost the leader no writes: it has leaseWrite between them. The leader stops
// acting when it got no answer for leaseRenew, well before another may begin.
const (
	leaseDuration = 10 * time.Second
	leaseRenew    = 7 * time.Second
	leaseRetry    = 500 * time.Millisecond
	leaseWrite    = time.Second
	// stopWithin is how long a controller may finish what it is doing.
	stopWithin = 10 * time.Second
)

// Run runs controllers until ctx ends: the executor controller, or those of the
// fleet. It returns an error for options that
// make no sense, naming each, for an API server that does not answer at the
// start, and when the process has lost its Lease; the process must then end,
// because it gives the Lease back before everything has stopped.
func Run(ctx context.Context, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	var err error
	if o.fence, err = newFence(o); err != nil {
		return err
	}
	config, options := restConfigOf(o), managerOptions(o)
	if o.fence != nil {
		config.Wrap(o.fence.wrap)
		options.LeaderElectionResourceLockInterface = o.fence
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	if err := setup(mgr, o); err != nil {
		return err
	}
	if err := addHealth(ctx, mgr, o); err != nil {
		return err
	}
	err = mgr.Start(ctx)
	if err != nil {
		err = fmt.Errorf("run %s: %w", strings.Join(o.Controllers, " and "), err)
	}
	// The Lease is given back by now, so not through the fence.
	return errors.Join(err, letGo(context.WithoutCancel(ctx), restConfigOf(o), o))
}

// setup adds the controllers that the options name to a manager.
func setup(mgr ctrl.Manager, o Options) error {
	recorder, err := addRecorder(mgr, o)
	if err != nil {
		return err
	}
	for _, one := range []struct {
		name string
		add  func(ctrl.Manager, Options, *eventRecorder) error
	}{{executorPoolController, setupExecutorPool}, {poolSyncController, setupPoolSync}, {hubPoolController, setupHubPool}} {
		if !o.runs(one.name) {
			continue
		}
		if err := one.add(mgr, o, recorder); err != nil {
			return err
		}
	}
	return nil
}

func (o Options) runs(controller string) bool { return slices.Contains(o.Controllers, controller) }

// fleet says whether the controllers are those of the fleet.
func (o Options) fleet() bool { return !o.runs(executorPoolController) }

// validate names everything that is wrong with the options.
func (o Options) validate() error {
	var problems []error
	const names = "name executorpool, poolsync or hubpool"
	for i, name := range o.Controllers {
		switch {
		case !slices.Contains([]string{executorPoolController, poolSyncController, hubPoolController}, name):
			problems = append(problems, fmt.Errorf("there is no controller %q: "+names, name))
		case slices.Contains(o.Controllers[:i], name):
			problems = append(problems, fmt.Errorf("controller %s is named twice", name))
		}
	}
	switch {
	case len(o.Controllers) == 0:
		problems = append(problems, errors.New("no controller is named: "+names))
	case len(o.Controllers) > 1 && !o.fleet():
		// One process would need the union of both accounts' rights.
		problems = append(problems, errors.New("a process that runs executorpool runs nothing else: the namespace that runs code of projects must not hold the fleet controller's rights; start a process for each"))
	}
	if o.ClusterName != "" && !legalClusterName.MatchString(o.ClusterName) {
		problems = append(problems, fmt.Errorf("the cluster's name %q has other characters than letters, digits, dots, dashes and underscores, or more than 128", o.ClusterName))
	}
	if o.Namespace == "" {
		problems = append(problems, errors.New("no namespace is named: name the one to look after"))
	}
	if o.RESTConfig == nil {
		problems = append(problems, errors.New("no API server is named"))
	}
	if o.CacheDir == "" && o.runs(poolSyncController) {
		problems = append(problems, errors.New("no cache directory is named: name one for clones of fleet repositories"))
	}
	if err := checkEventsAddr(o.EventsAddr); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// account names the Lease and the account of a process.
func (o Options) account() string {
	if o.fleet() {
		return v1alpha1.FieldManagerPoolSync
	}
	return v1alpha1.FieldManagerExecutorPool
}

// restConfigOf is the connection of a controller: it says who asks, and leaves
// the bounding of requests to the API server, which sees all its clients.
func restConfigOf(o Options) *rest.Config {
	config := rest.CopyConfig(o.RESTConfig)
	config.UserAgent = o.account()
	if o.Build != "" {
		config.UserAgent += "/" + o.Build
	}
	if config.QPS == 0 {
		config.QPS = -1
	}
	return config
}

func managerOptions(o Options) ctrl.Options {
	duration, renew, retry, stop := leaseDuration, leaseRenew, leaseRetry, stopWithin
	return ctrl.Options{
		Scheme:                  newScheme(),
		Cache:                   cacheOptions(o),
		Metrics:                 metricsserver.Options{BindAddress: o.MetricsAddr},
		HealthProbeBindAddress:  o.HealthAddr,
		GracefulShutdownTimeout: &stop,

		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              o.account(),
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &duration,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
	}
}

// cacheOptions are what a controller keeps of the cluster, and only that: the
// namespace's objects without managedFields, which nobody reads from a cache.
func cacheOptions(o Options) cache.Options {
	options := cache.Options{
		DefaultNamespaces: map[string]cache.Config{o.Namespace: {}},
		DefaultTransform:  cache.TransformStripManagedFields(),
	}
	switch {
	case !o.fleet():
		options.ByObject = executorPoolCacheOptions(o.Namespace)
	case o.runs(poolSyncController):
		options.ByObject = poolSyncCacheOptions()
	}
	return options
}

// cachedObjects are what a process watches, as it asks its cache for them.
func cachedObjects(o Options) []client.Object {
	if !o.fleet() {
		return []client.Object{&v1alpha1.ExecutorPool{}, &corev1.Pod{}, metadataOf("ConfigMap"), metadataOf("Secret")}
	}
	// A HubPool's PoolSync says which repository it is from.
	objects := []client.Object{&v1alpha1.PoolSync{}}
	if o.runs(poolSyncController) {
		objects = append(objects, newPool())
	}
	if o.runs(hubPoolController) {
		objects = append(objects, &v1alpha1.HubPool{})
	}
	return objects
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // two types of one kind: a mistake in the code
		}
	}
	return scheme
}

// addHealth serves /healthz, and /readyz once the caches hold the cluster. The
// informers are asked for before the manager starts, so that a standby has them
// too and takes over without reading the cluster first.
func addHealth(ctx context.Context, mgr ctrl.Manager, o Options) error {
	for _, object := range cachedObjects(o) {
		if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w: are the definitions installed? `cloop executor controller crd | kubectl apply --server-side -f -`", object, err)
		}
	}
	synced := &syncedCaches{cache: mgr.GetCache()}
	if err := mgr.Add(synced); err != nil {
		return fmt.Errorf("add the readiness check: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", synced.check); err != nil {
		return fmt.Errorf("add the readiness check: %w", err)
	}
	return nil
}

// syncedCaches remembers that the caches were filled once.
type syncedCaches struct {
	cache cache.Cache
	done  atomic.Bool
}

// Start waits for the caches.
func (s *syncedCaches) Start(ctx context.Context) error {
	s.done.Store(s.cache.WaitForCacheSync(ctx))
	return nil
}

// NeedLeaderElection says that a standby is ready as well.
func (s *syncedCaches) NeedLeaderElection() bool { return false }

func (s *syncedCaches) check(*http.Request) error {
	if !s.done.Load() {
		return errors.New("the caches are not filled yet")
	}
	return nil
}
