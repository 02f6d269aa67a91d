package controllers

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/retry"
	"cloop.dev/cloop/schemas"
)

// poolSyncReconciler holds a cluster to what a path of a fleet repository says.
//
// A pass climbs a ladder of steps: what Git wants (resolve, build), then what
// the cluster has and lacks (look, apply, prune). A pass that only follows a
// change in the cluster does not ask Git: it holds the cluster to the build that
// was applied last. So does one that cannot read Git or refuses what it reads.
type poolSyncReconciler struct {
	// The cluster. client writes PoolSyncs; pools are ExecutorPools from a cache
	// without managedFields; live asks the API server.
	client   client.Client
	pools    client.Reader
	live     client.Reader
	appliers *appliers

	// observers has the objects that are only compared.
	// observers has the objects that are only compared.
	observers observers
	// sides watches what stands beside pools.
	sides *sideWatches
	// woken has PoolSyncs looked at of which something was learnt outside a pass.
	woken chan event.GenericEvent

	// Git, and sources of Flux.
	sources   *sourceWatches
	cacheDir  string
	validator *schemas.Validator
	// patience is how long a pass waits for Git; builds bounds how many there are at once.
	patience time.Duration
	builds   slots

	// Reporting.
	events  *poolEvents
	metrics *syncMetrics

	// Time.
	clock  clock.PassiveClock
	jitter func(time.Duration) time.Duration

	mu       sync.Mutex                           // guards memories, not what they point to, and waits
	memories map[types.NamespacedName]*syncMemory // PoolSync → what is remembered of it
	waits    map[types.NamespacedName]bool        // PoolSyncs that wait for what they applied
}

// syncMemory is what the process remembers of one PoolSync. controller-runtime
// never reconciles one object twice at a time, so nothing guards its fields.
type syncMemory struct {
	// never are objects that were announced, refused, and applied at no time.
	never map[objectID]bool
	uid   types.UID
	// status is what the process wrote last, or found when it began; contest is
	// about it.
	status  *v1alpha1.PoolSyncStatus
	contest contest
	trouble trouble
	// asking is what Git is asked now; nil: nothing. Passes go on meanwhile.
	asking *inquiry
	// version is the resourceVersion of the last write; empty: there was none yet.
	version string
	// health is about what was applied, where that is waited for.
	health health
	// dependencies is what the last full pass had to say about what it depends on.
	dependencies string
	// git reads the repository; gitFor is what it was opened with.
	git    *fleet.Git
	gitFor string
	// artifact is what the source of Flux offered in the last full pass.
	artifact string
	// builder remembers what it built last; nil before the first build.
	builder *fleet.Builder
	// newest is what Git said last, also where it is refused; applied is what
	// the cluster is held to. They are one where all is well.
	newest  *build
	applied *build
	// source is why the last full pass could not read Git or refused what it
	// read; nil: neither.
	source *stageError
	// unread is why the cluster could not be looked at as a whole last; nil: it could.
	unread *stageError
	// objects: object → what is remembered of it. comparedAt is the generation of
	// the PoolSync that they were last compared at.
	objects    map[objectID]*objectMemory
	comparedAt int64
	// contests: object → how often it was corrected since the last new build.
	contests map[objectID]*contest
	// drift are all entries of which the status has those that it has room for.
	drift []v1alpha1.DriftEntry
	// rivals: object of applied or newest → the other PoolSync that it belongs to.
	rivals map[objectID]types.NamespacedName
	// due is when Git is asked without a trigger; failures counts those in a row
	// that may pass by themselves.
	due      time.Time
	failures int
	// generation and approval are what the last full pass saw.
	generation int64
	approval   string
}

// syncPass is one look at a PoolSync.
type syncPass struct {
	// sync is the object as it was read, with the status that the controller
	// gave it; found is the status that it had, and status what becomes of it.
	sync   *v1alpha1.PoolSync
	found  v1alpha1.PoolSyncStatus
	status *v1alpha1.PoolSyncStatus
	memory *syncMemory
	// known are the objects of the inventory before the pass announced more; nil where it
	// announced none.
	known map[objectID]bool
	// started is when the pass began.
	started time.Time
	// full: Git is asked. forced: everything is applied, whatever is known of it.
	full, forced bool
	// request and force are what Git was asked for in this pass, as the annotations have
	// it; asking: Git has not answered yet; renewed: about a spec that is new.
	request, force  string
	asking, renewed bool
	// before is the revision that Git named before this pass, where it was asked for
	// the same; empty: none is known.
	before string
	// revision that Git named in this pass; commit is its commit, and verifiedBy
	// who signed it, where somebody had to.
	revision   fleet.Revision
	commit     string
	verifiedBy string
	// artifact of the source of Flux; nil: the commit is Git's.
	artifact *fleet.Artifact
	// built: the commit was rendered in this pass.
	built bool
	// target is what the cluster is held to; nil: nothing is known of it. newest
	// says that it is what Git wants.
	target *build
	newest bool
	// sights: one for each object of target that was looked at.
	sights []*sight
	// inventory of the status as the look found it; nil before.
	inventory map[objectID]bool
	// changes counts what was created, configured and deleted.
	changes changes
	// waits are pruned objects that are not gone yet, kept those that Git lacks and
	// that stay until all of the commit is applied.
	waits, kept int
	// doomed are those whose deletion waits for an approval.
	doomed int
	// awaits says what was applied and is not Ready yet, where Ready waits for that.
	awaits string
	// again is when something put off is due; zero: nothing is.
	again time.Time
	// err is the first failure.
	err *stageError
}

// comeBack has the next pass come at a time, if none comes sooner.
func (p *syncPass) comeBack(at time.Time) {
	if p.again.IsZero() || at.Before(p.again) {
		p.again = at
	}
}

func (p *syncPass) name() types.NamespacedName { return client.ObjectKeyFromObject(p.sync) }

// fail keeps the first failure: what comes after is often its consequence.
func (p *syncPass) fail(err *stageError) {
	if p.err == nil {
		p.err = err
	}
}

// fresh says that target is what Git wants, as far as is known, and that
// nothing went wrong so far.
func (p *syncPass) fresh() bool { return p.err == nil && p.newest }

// held are the objects that the newest build holds back, where the cluster is held
// to the rest of it.
func (p *syncPass) held() map[objectID]bool {
	if !p.newest || p.memory.newest == nil {
		return nil
	}
	return p.memory.newest.held
}

// aim decides what the cluster is held to: what Git wants, with what was applied
// last where that is held back, or as a whole where Git is not known or refused.
func (p *syncPass) aim() {
	m := p.memory
	p.newest = m.source == nil
	switch {
	case !p.newest:
		p.target = m.applied
	case m.newest == nil || len(m.newest.held) == 0:
		p.target = m.newest
	case m.applied != nil && m.applied.of == m.newest:
		p.target = m.applied
	default:
		p.target = m.newest.over(m.applied)
	}
}

// step is one rung of the ladder.
type step struct {
	name string
	do   func(context.Context, *syncPass) *stageError
}

// Reconcile makes one pass.
func (r *poolSyncReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return lostRace(r.reconcile(ctx, request))
}

func (r *poolSyncReconciler) reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	sync, err := r.read(ctx, request.NamespacedName)
	switch {
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("read PoolSync %s: %w", request.NamespacedName, err)
	case sync == nil:
		r.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	r.replace(sync)
	p := newSyncPass(sync, r.memory(sync), r.clock.Now())
	switch {
	case sync.DeletionTimestamp != nil:
		p.memory.stopAsking()
		return r.finalize(ctx, p)
	case sync.SuspendedAt(r.clock.Now()):
		p.memory.stopAsking()
		err := r.suspend(ctx, p)
		return ctrl.Result{RequeueAfter: r.until(p.again)}, err
	}
	r.resume(p)
	if err := r.addFinalizer(ctx, sync); err != nil {
		return ctrl.Result{}, err
	}
	r.run(ctx, p)
	if err := r.report(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	after := r.wait(p)
	if p.built {
		// A build needs several times what is kept of it, and the next may be
		// hours away. What the pass has seen of the cluster goes as well.
		p.sights = nil
		debug.FreeOSMemory()
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// read reads a PoolSync, nil where there is none. A status that lags would be taken for
// what is there, and entries of the inventory would be lost: the cache is asked only by a
// process that knows what it wrote itself, and is believed where it has that. With the
// inventory of thousands, asking the API server takes as long as all else of a pass
// without news.
func (r *poolSyncReconciler) read(ctx context.Context, name types.NamespacedName) (*v1alpha1.PoolSync, error) {
	r.mu.Lock()
	m := r.memories[name]
	r.mu.Unlock()
	sync := &v1alpha1.PoolSync{}
	// Who suspended it is in managedFields, which the cache has not.
	if m != nil && m.version != "" && r.client.Get(ctx, name, sync) == nil && !sync.Spec.Suspend && sync.DeletionTimestamp == nil &&
		sync.UID == m.uid && !older(sync.ResourceVersion, m.version) {
		return sync, nil
	}
	sync = &v1alpha1.PoolSync{}
	err := r.live.Get(ctx, name, sync)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // no PoolSync is neither a value nor an error
	}
	return sync, err
}

// newSyncPass begins a pass over an object as it was read. The status goes on from
// what the controller wrote last, whatever somebody else made of it.
func newSyncPass(sync *v1alpha1.PoolSync, m *syncMemory, now time.Time) *syncPass {
	found := sync.Status
	if m.status == nil {
		m.begin(&found, now)
	}
	sync.Status = *m.status.DeepCopy()
	return &syncPass{sync: sync, found: found, status: m.status.DeepCopy(), memory: m, started: now}
}

// begin takes over what an earlier process left.
func (m *syncMemory) begin(found *v1alpha1.PoolSyncStatus, now time.Time) {
	m.status = found.DeepCopy()
	m.status.Conditions = keepConditions(m.status.Conditions, syncConditions)
	m.drift = slices.Clone(m.status.Drift)
	if ready := meta.FindStatusCondition(m.status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status == metav1.ConditionFalse {
		m.trouble = troubleOf(ready, !meta.IsStatusConditionTrue(m.status.Conditions, v1alpha1.ConditionStalled), now)
	}
	m.beginHealth()
}

// run climbs the ladder.
func (r *poolSyncReconciler) run(ctx context.Context, p *syncPass) {
	before := p.status.LastAppliedRevision
	r.source(ctx, p)
	ctx, cancel := context.WithTimeout(ctx, p.sync.Spec.Timeout.Duration)
	defer cancel()
	p.fail(p.memory.source)
	p.aim()
	if p.target != nil {
		p.fail(r.climb(ctx, p, []step{{"look", r.lookAt}, {"apply", r.apply}, {"prune", r.prune}}))
		p.fail(p.shortfall())
		p.fail(p.rivalry())
	}
	r.settle(p)
	r.await(ctx, p)
	if p.status.LastAppliedRevision != before {
		r.metrics.synced(p.name(), r.clock.Since(p.started))
	}
}

// climb carries out steps until one fails.
func (r *poolSyncReconciler) climb(ctx context.Context, p *syncPass, steps []step) *stageError {
	log := logf.FromContext(ctx).V(1)
	for _, s := range steps {
		started := r.clock.Now()
		err := s.do(ctx, p)
		log.Info("climbs", "step", s.name, "took", r.clock.Since(started).String(), "revision", p.status.LastAttemptedRevision, "failed", err != nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// dueNow says whether Git is asked in this pass: in time, after a change of the
// spec, on request, when a prune was approved, and when what it waits for
// or what its source of Flux offers has moved.
func (r *poolSyncReconciler) dueNow(ctx context.Context, p *syncPass) bool {
	m := p.memory
	request := requestOf(p.sync)
	approval := p.sync.Annotations[v1alpha1.AnnotationApprovePrune]
	force := forceOf(p.sync)
	p.forced = force != "" && force != p.status.LastHandledForceAt
	due := p.forced || !r.clock.Now().Before(m.due) || m.generation != p.sync.Generation ||
		request != "" && request != p.status.LastHandledReconcileAt || approval != m.approval ||
		r.dependencyMoved(ctx, p) || r.sourceMoved(ctx, p)
	if due {
		m.generation, m.approval = p.sync.Generation, approval
	}
	return due
}

// maxRequest is the API's bound on status.lastHandledReconcileAt, in bytes.
const maxRequest = 1024

// requestOf is the request to reconcile that an object carries.
func requestOf(object client.Object) string {
	return shorten(object.GetAnnotations()[fluxmeta.ReconcileRequestAnnotation], maxRequest)
}

// settle ends a pass: it notes what was applied and served, and decides when Git
// is asked next.
func (r *poolSyncReconciler) settle(p *syncPass) {
	m := p.memory
	if p.request != "" {
		p.status.LastHandledReconcileAt = p.request
	}
	if p.force != "" {
		p.status.LastHandledForceAt = p.force
	}
	if p.target != nil && p.fresh() && p.doomed == 0 {
		p.status.LastAppliedRevision, p.status.LastAppliedPath = p.target.revision, p.target.path
		if p.full {
			p.status.VerifiedBy = p.verifiedBy
		}
	}
	interval := p.sync.Spec.Interval.Duration
	switch {
	case !p.full && (p.err == nil || p.err == m.source || p.err == m.unread || m.failures > 0):
		// The clock of the last full pass runs on: whatever else wakes the PoolSync must
		// not put off what is tried again.
	case p.err == nil:
		m.failures = 0
		m.due = r.clock.Now().Add(r.jitter(interval))
	case p.err.stalled, p.err.reason == v1alpha1.ReasonDependencyNotReady:
		// Only a change of Git or of an object helps, which is watched: no hurry.
		m.failures = 0
		if p.full {
			m.due = r.clock.Now().Add(r.jitter(interval))
		}
	default:
		last := interval
		if retry := p.sync.Spec.RetryInterval; retry != nil && retry.Duration > 0 {
			last = retry.Duration
		}
		m.due = r.clock.Now().Add(r.jitter(backoff(m.failures, last)))
		m.failures++
	}
}

// retrySoonest is the wait after the first failure.
const retrySoonest = time.Second

// backoff is the wait after so many failures before this one.
func backoff(failures int, last time.Duration) time.Duration {
	return retry.After(min(failures, 16), retrySoonest, last)
}

// wait is how long until the PoolSync is looked at without a trigger.
func (r *poolSyncReconciler) wait(p *syncPass) time.Duration {
	if !p.asking {
		p.comeBack(p.memory.due)
	}
	for i := range p.memory.drift {
		if corrected := p.memory.drift[i].Corrected; corrected != nil {
			p.comeBack(corrected.Add(keepCorrected))
		}
	}
	return r.until(p.again)
}

// until is how long it is until a time, as a result of Reconcile: never, where
// there is none.
func (r *poolSyncReconciler) until(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return max(at.Sub(r.clock.Now()), 10*time.Millisecond)
}

func (r *poolSyncReconciler) addFinalizer(ctx context.Context, sync *v1alpha1.PoolSync) error {
	if controllerutil.ContainsFinalizer(sync, v1alpha1.FinalizerPoolSync) {
		return nil
	}
	changed := sync.DeepCopy()
	controllerutil.AddFinalizer(changed, v1alpha1.FinalizerPoolSync)
	patch := client.MergeFromWithOptions(sync.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("add the finalizer to PoolSync %s: %w", sync.Name, err)
	}
	sync.Finalizers, sync.ResourceVersion = changed.Finalizers, changed.ResourceVersion
	return nil
}

// memory returns what is remembered of the PoolSync, and notes before anything is
// applied whether it waits for that.
func (r *poolSyncReconciler) memory(sync *v1alpha1.PoolSync) *syncMemory {
	name := client.ObjectKeyFromObject(sync)
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.memories[name]
	if !ok {
		m = &syncMemory{uid: sync.UID}
		r.memories[name] = m
	}
	if r.waits == nil {
		r.waits = map[types.NamespacedName]bool{}
	}
	r.waits[name] = sync.Spec.Wait
	return m
}

// replace ends all that there is of a PoolSync that went unseen, and was made again under
// its name.
func (r *poolSyncReconciler) replace(sync *v1alpha1.PoolSync) {
	name := client.ObjectKeyFromObject(sync)
	r.mu.Lock()
	m := r.memories[name]
	r.mu.Unlock()
	if m != nil && m.uid != sync.UID {
		r.forget(name)
	}
}

// waitsFor says whether a PoolSync waits for what it applied.
func (r *poolSyncReconciler) waitsFor(name types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waits[name]
}

// forget ends all that there is of a PoolSync in this process.
func (r *poolSyncReconciler) forget(name types.NamespacedName) {
	r.mu.Lock()
	m := r.memories[name]
	delete(r.memories, name)
	delete(r.waits, name)
	r.mu.Unlock()
	if m == nil {
		return
	}
	m.stopAsking()
	r.removeClone(m)
	r.observers.forget(name)
	r.sides.forget(name)
	r.events.forget(name)
	r.metrics.forget(name, m.applied)
}
