package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/pool"
	"cloop.dev/cloop/internal/secret"
)

// lookAgain is the longest that a pool goes without a look: its credential is
// read again that often.
const lookAgain = credentialAge

// executorPoolReconciler turns a hub pool's waiting runs into runner Pods. It
// observes, has package pool decide, acts and reports.
type executorPoolReconciler struct {
	// The cluster. Reads of client come from caches; live asks the API server.
	client client.Client
	live   client.Reader

	// The hub.
	hubs *hubConnections

	// Reporting.
	events  *poolEvents
	metrics *poolMetrics

	// Settings.
	allowedHubs       []string
	runnerImage       string
	ownServiceAccount string
	orphanGrace       time.Duration
	clock             clock.PassiveClock

	mu       sync.Mutex                           // guards what follows, not what memories point to
	memories map[types.NamespacedName]*poolMemory // pool → what is remembered of it
	lost     map[types.NamespacedName][]string    // pool → its Pods that went from the cache unexpectedly
	sweptAt  time.Time                            // when all Pods were last looked through for such
}

// poolMemory is what the process remembers of one pool. controller-runtime
// never reconciles one pool twice at a time, so nothing guards its fields.
type poolMemory struct {
	uid types.UID
	pool.Memory
	// status is what the process wrote last, or found when it began; version is
	// the object's that has it, empty before the first write. contest is about it.
	status  *v1alpha1.ExecutorPoolStatus
	version string
	contest contest
	// troubles: condition type → what is wrong.
	troubles   map[string]trouble
	credential heldCredential
	// served is the connection that the hub last answered over: the runners that
	// were minted with its credential stay this controller's after a rotation.
	served hubTarget
	// endedOf is the credential under which the hub said that it ends the pool; empty:
	// it did not say so to this process.
	endedOf secret.String
	// anchorUID is of an anchor that was just created, at anchorAt.
	anchorUID types.UID
	anchorAt  time.Time
	// handled are the ended Pods that were dealt with and are still cached.
	handled map[types.UID]bool
	// marking is about labels that somebody takes off.
	marking contest
	// podFailures counts refusals of Pods in a row.
	podFailures int
	// told is what the hub was last told; zero: this process told nothing.
	told toldRefusal
}

// Reconcile brings one pool closer to what it should be.
func (r *executorPoolReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return lostRace(r.reconcile(ctx, request))
}

func (r *executorPoolReconciler) reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if err := r.regain(ctx, request.NamespacedName); err != nil {
		return ctrl.Result{}, err
	}
	xpool := &v1alpha1.ExecutorPool{}
	if err := r.client.Get(ctx, request.NamespacedName, xpool); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.forget(request.NamespacedName)
			return ctrl.Result{}, r.collect(ctx, request.NamespacedName)
		}
		return ctrl.Result{}, fmt.Errorf("read ExecutorPool %s: %w", request.NamespacedName, err)
	}
	if xpool.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(xpool, v1alpha1.FinalizerExecutorPool) {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if added, err := r.addFinalizer(ctx, xpool); added || err != nil {
		// The patch comes back as an event with the object as it then is.
		return ctrl.Result{}, err
	}

	seen, err := r.observe(ctx, xpool)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan := pool.Decide(seen.snapshot)
	seen.remember(plan)
	if !plan.Empty() {
		logf.FromContext(ctx).V(1).Info("carries out a plan", "pool", xpool.Name, "plan", plan.String())
	}
	outcome := r.act(ctx, seen, plan)
	if outcome.finished {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err := r.report(ctx, seen, plan, &outcome); err != nil {
		return ctrl.Result{}, err
	}
	if outcome.err != nil {
		return ctrl.Result{}, outcome.err
	}
	return ctrl.Result{RequeueAfter: r.wait(plan, outcome)}, nil
}

// wait is how long until the pool is looked at without a trigger.
func (r *executorPoolReconciler) wait(plan pool.Plan, outcome outcome) time.Duration {
	wait := lookAgain
	if !plan.Wake.IsZero() {
		wait = min(wait, plan.Wake.Sub(r.clock.Now()))
	}
	if outcome.again > 0 {
		wait = min(wait, outcome.again)
	}
	// Zero would mean never.
	return max(wait, 10*time.Millisecond)
}

// addFinalizer makes sure that the pool is drained before it goes, and says
// whether it had to.
func (r *executorPoolReconciler) addFinalizer(ctx context.Context, xpool *v1alpha1.ExecutorPool) (bool, error) {
	if xpool.DeletionTimestamp != nil || controllerutil.ContainsFinalizer(xpool, v1alpha1.FinalizerExecutorPool) {
		return false, nil
	}
	before := xpool.DeepCopy()
	controllerutil.AddFinalizer(xpool, v1alpha1.FinalizerExecutorPool)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, xpool, patch); err != nil {
		return false, fmt.Errorf("add the finalizer to ExecutorPool %s: %w", xpool.Name, err)
	}
	return true, nil
}

// memory returns what is remembered of the pool. One that was deleted and made
// again starts anew.
func (r *executorPoolReconciler) memory(xpool *v1alpha1.ExecutorPool) *poolMemory {
	name := client.ObjectKeyFromObject(xpool)
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.memories[name]
	if !ok || m.uid != xpool.UID {
		m = &poolMemory{
			uid: xpool.UID,
			Memory: pool.Memory{
				Started: map[string]pool.Started{}, Absent: map[string]time.Time{}, Burnt: map[string]bool{},
				Ends: map[string]pool.End{}, OrphanGrace: r.orphanGrace,
			},
			handled: map[types.UID]bool{}, troubles: map[string]trouble{},
		}
		r.memories[name] = m
	}
	return m
}

// forget ends all that there is of a pool in this process.
func (r *executorPoolReconciler) forget(name types.NamespacedName) {
	r.hubs.close(name)
	r.metrics.forget(name)
	r.events.forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, name)
}

// observation is one look at a pool: the snapshot to decide on, and what acting
// on the decision needs.
type observation struct {
	// xpool has the status that the controller gave it; found is the status that
	// it had.
	xpool    *v1alpha1.ExecutorPool
	found    v1alpha1.ExecutorPoolStatus
	snapshot pool.Snapshot
	memory   *poolMemory
	// hub is nil while there is no connection.
	hub *hubConnection
	// pods: name → the cached Pod.
	pods map[string]*corev1.Pod
	// secrets: name → the cached Secret's metadata.
	secrets map[string]*metav1.PartialObjectMetadata
}

// remember keeps what the plan says about absence and settled starts.
func (o *observation) remember(plan pool.Plan) {
	absent := make(map[string]time.Time, len(plan.Absent))
	for _, what := range plan.Absent {
		since, seen := o.memory.Absent[what]
		if !seen {
			since = o.snapshot.Now
		}
		absent[what] = since
	}
	o.memory.Absent = absent
	for _, key := range plan.Settled {
		delete(o.memory.Started, key)
	}
	if !plan.Short {
		// Nothing is wanted, so nothing is refused any more.
		o.memory.PodRefused, o.memory.MintRefused, o.memory.podFailures = nil, nil, 0
	}
}
