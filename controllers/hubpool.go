package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/retry"
	"cloop.dev/cloop/internal/secret"
)

// hubPoolReconciler makes the pools of a hub what HubPools say that name it, and
// mints their credentials.
//
// A pass climbs a ladder of steps: may the hub be asked, with which token, what has
// it, what does it lack, which credential does the pool's Secret want. Each step
// goes by what it finds, so that a process may die between any two.
type hubPoolReconciler struct {
	// The cluster. client writes, and reads PoolSyncs from a cache; live asks the API
	// server.
	client client.Client
	live   client.Reader

	// The hubs.
	hubs *managementHubs

	// Reporting.
	events  *poolEvents
	metrics *hubPoolMetrics

	// Settings.
	allowedHubs []string
	cluster     clusterName
	clock       clock.PassiveClock
	jitter      func(time.Duration) time.Duration

	mu       sync.Mutex                              // guards memories, not what they point to
	memories map[types.NamespacedName]*hubPoolMemory // HubPool → what is remembered of it
}

// hubPoolMemory is what the process remembers of one HubPool. controller-runtime
// never reconciles one object twice at a time, so nothing guards its fields.
type hubPoolMemory struct {
	uid types.UID
	// status is what the process wrote last, or found when it began; contest is
	// about it.
	status  *v1alpha1.HubPoolStatus
	contest contest
	trouble trouble
	// token was read last: a HubPool that goes together with its Secret is still
	// taken care of.
	token secret.String
	// answered is what the hub said to what it was told last.
	answered pushAnswer
	// awaited is the id of the pool that it waited for to become; empty: it did not.
	awaited string
	// rewrites is about credentials that somebody takes out of their Secret.
	rewrites contest
	// finishes counts tries in a row to end a rotation.
	finishes int
	// failures counts those in a row that may pass by themselves.
	failures int
}

// hubPoolPass is one look at a HubPool.
type hubPoolPass struct {
	// pool is the object as it was read, with the status that the controller gave
	// it; found is the status that it had, and status what becomes of it.
	pool   *v1alpha1.HubPool
	found  v1alpha1.HubPoolStatus
	status *v1alpha1.HubPoolStatus
	memory *hubPoolMemory
	// started is when the pass began.
	started time.Time
	// hub is asked; nil before it may be.
	hub *managedHub
	// have is the pool as the hub has it; nil where it has none, or it is not known.
	have *hubv1.Pool
	// waits is what the pool waits for, as a part of a sentence; empty: nothing.
	waits string
	// gone: the finalizer is off.
	gone bool
	// again is when something put off is due; zero: nothing is.
	again time.Time
	// err is why a step failed.
	err *stageError
}

func (p *hubPoolPass) name() types.NamespacedName { return client.ObjectKeyFromObject(p.pool) }

// comeBack has the next pass come at a time, if none comes sooner.
func (p *hubPoolPass) comeBack(at time.Time) {
	if p.again.IsZero() || at.Before(p.again) {
		p.again = at
	}
}

const (
	// lookForSecret is how long a pool credential's Secret goes without a look: it is
	// not watched, because who watches Secrets can read them all.
	lookForSecret = time.Minute
	// hubRetryLast is the longest wait between tries of what may pass by itself.
	hubRetryLast = time.Minute
)

// Reconcile makes one pass.
func (r *hubPoolReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return lostRace(r.reconcile(ctx, request))
}

func (r *hubPoolReconciler) reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	hubPool := &v1alpha1.HubPool{}
	// Not from the cache: a status that lags would be taken for what is there, and
	// with it which credentials are still accepted.
	if err := r.live.Get(ctx, request.NamespacedName, hubPool); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.forget(request.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("read HubPool %s: %w", request.NamespacedName, err)
	}
	if hubPool.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(hubPool, v1alpha1.FinalizerHubPool) {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	p := r.newPass(hubPool)
	for _, s := range r.ladder(p) {
		if p.err = s.do(ctx, p); p.err != nil || p.gone {
			break
		}
	}
	if p.gone {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err := r.report(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: r.wait(p)}, nil
}

// hubPoolStep is one rung of the ladder.
type hubPoolStep struct {
	name string
	do   func(context.Context, *hubPoolPass) *stageError
}

// ladder are the steps of a pass, in order.
func (r *hubPoolReconciler) ladder(p *hubPoolPass) []hubPoolStep {
	switch {
	case p.pool.DeletionTimestamp != nil:
		return []hubPoolStep{{"orphan", r.orphan}, {"connect", r.connect}, {"look", r.look}, {"bequeath", r.bequeath}, {"withdraw", r.withdraw}}
	case p.pool.Spec.Hub == nil:
		return []hubPoolStep{{"leave", r.leave}}
	case fleet.MisObserved(p.pool):
		return []hubPoolStep{{"refuse", refuseObservation}}
	case fleet.ToObserve(p.pool):
		return []hubPoolStep{{"connect", r.connect}, {"look", r.look}}
	}
	return []hubPoolStep{{"connect", r.connect}, {"hold", r.hold}, {"look", r.look}, {"push", r.push}, {"credential", r.credential}}
}

// refuseObservation is of an annotation that says neither: pushed, the HubPool might take
// over a pool that somebody meant to look at.
func refuseObservation(_ context.Context, p *hubPoolPass) *stageError {
	failed := stalled(v1alpha1.ReasonDefinitionRefused, fmt.Errorf("the annotation %s is %q, and nothing is pushed", v1alpha1.AnnotationObserve, p.pool.Annotations[v1alpha1.AnnotationObserve]))
	failed.remedy = `write "true" to have the pool compared alone, or "false", or remove it`
	return failed
}

// newPass begins a pass over an object as it was read. The status goes on from what
// the controller wrote last, whatever somebody else made of it.
func (r *hubPoolReconciler) newPass(hubPool *v1alpha1.HubPool) *hubPoolPass {
	m := r.memory(hubPool)
	found := hubPool.Status
	if m.status == nil {
		m.status = found.DeepCopy()
		m.status.Conditions = keepConditions(m.status.Conditions, hubPoolConditions)
		m.trouble = troubleLeft(m.status.Conditions, r.clock.Now())
	}
	hubPool.Status = *m.status.DeepCopy()
	return &hubPoolPass{pool: hubPool, found: found, status: m.status.DeepCopy(), memory: m, started: r.clock.Now()}
}

// wait is how long until the HubPool is looked at without a trigger.
func (r *hubPoolReconciler) wait(p *hubPoolPass) time.Duration {
	now, m := r.clock.Now(), p.memory
	var paced errPaced
	switch {
	case p.err != nil && errors.As(p.err.cause, &paced):
		p.again = paced.until.Add(retry.Spread(time.Second))
	case p.err == nil:
		m.failures = 0
		p.comeBack(now.Add(r.jitter(credentialAge)))
		if p.pool.Spec.Credential != nil {
			p.comeBack(now.Add(r.jitter(lookForSecret)))
		}
	case p.err.stalled:
		// Where the token or a Secret is what helps, nothing tells of it.
		m.failures = 0
		p.comeBack(now.Add(r.jitter(hubRetryLast)))
	default:
		p.comeBack(now.Add(r.jitter(backoff(m.failures, hubRetryLast))))
		m.failures++
	}
	return max(p.again.Sub(now), 10*time.Millisecond)
}

// connect finds out whether the hub may be asked, and with what token.
func (r *hubPoolReconciler) connect(ctx context.Context, p *hubPoolPass) *stageError {
	spec := p.pool.Spec.Hub
	if spec == nil {
		// It was pushed once, and now the hub is to read it by itself.
		return r.letGoOf(ctx, p)
	}
	if !hubAllowed(r.allowedHubs, spec.URL) {
		return stalled(v1alpha1.ReasonHubNotAllowed, fmt.Errorf("the hub %s is not on the list of allowed hubs", spec.URL))
	}
	token, err := r.readToken(ctx, p)
	if err != nil {
		return err
	}
	hub, failure := r.hubs.of(p.name(), hubTarget{url: spec.URL, pin: spec.CAPin, bundle: spec.CABundle, credential: token})
	if failure != nil {
		return transient(v1alpha1.ReasonHubUnavailable, failure)
	}
	p.hub = hub
	return nil
}

// hold adds the finalizer: from the first push on the hub has something that the
// deletion policy is about.
func (r *hubPoolReconciler) hold(ctx context.Context, p *hubPoolPass) *stageError {
	if controllerutil.ContainsFinalizer(p.pool, v1alpha1.FinalizerHubPool) {
		return nil
	}
	if err := r.changeFinalizer(ctx, p, controllerutil.AddFinalizer); err != nil {
		return transient(v1alpha1.ReasonApplyFailed, fmt.Errorf("add the finalizer: %w", err))
	}
	return nil
}

func (r *hubPoolReconciler) changeFinalizer(ctx context.Context, p *hubPoolPass, change func(client.Object, string) bool) error {
	changed := p.pool.DeepCopy()
	if !change(changed, v1alpha1.FinalizerHubPool) {
		return nil
	}
	patch := client.MergeFromWithOptions(p.pool.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, changed, patch); err != nil {
		return client.IgnoreNotFound(err)
	}
	p.pool.Finalizers, p.pool.ResourceVersion = changed.Finalizers, changed.ResourceVersion
	return nil
}

// look finds out what the hub has, from the open watch where there is one.
func (r *hubPoolReconciler) look(ctx context.Context, p *hubPoolPass) *stageError {
	if p.have = p.hub.watched(); p.have != nil && !p.asked() {
		return nil
	}
	have, err := p.hub.GetPool(ctx, p.pool.Name)
	switch {
	case problemCode(err) == hubv1.CodeNotFound:
		p.have = nil
		if fleet.ToObserve(p.pool) {
			// Nothing but the hub tells when it has. Of what is pushed the answer does.
			p.hub.watch(p.pool.Name)
		}
		return nil
	case err != nil:
		return hubFailure(err)
	}
	p.have = &have
	p.hub.watch(p.pool.Name)
	return nil
}

// asked says whether somebody has asked for a look at everything.
func (p *hubPoolPass) asked() bool {
	request := requestOf(p.pool)
	return request != "" && request != p.status.LastHandledReconcileAt
}

// leave lets go of a HubPool that the hub reads by itself.
func (r *hubPoolReconciler) leave(ctx context.Context, p *hubPoolPass) *stageError {
	if controllerutil.ContainsFinalizer(p.pool, v1alpha1.FinalizerHubPool) {
		if err := r.changeFinalizer(ctx, p, controllerutil.RemoveFinalizer); err != nil {
			return transient(v1alpha1.ReasonApplyFailed, fmt.Errorf("remove the finalizer: %w", err))
		}
	}
	r.hubs.leave(p.name())
	p.status.Hub, p.status.Drift = nil, nil
	return nil
}

// memory returns what is remembered of the HubPool. One that was deleted and made
// again starts anew.
func (r *hubPoolReconciler) memory(hubPool *v1alpha1.HubPool) *hubPoolMemory {
	name := client.ObjectKeyFromObject(hubPool)
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.memories[name]
	if !ok || m.uid != hubPool.UID {
		m = &hubPoolMemory{uid: hubPool.UID}
		r.memories[name] = m
	}
	return m
}

// forget ends all that there is of a HubPool in this process.
func (r *hubPoolReconciler) forget(name types.NamespacedName) {
	r.hubs.leave(name)
	r.events.forget(name)
	r.metrics.forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, name)
}

// log is where a pass tells of what it did.
func (p *hubPoolPass) log(ctx context.Context, message string, keysAndValues ...any) {
	logf.FromContext(ctx).Info(message, append([]any{"pool", p.pool.Name}, keysAndValues...)...)
}
