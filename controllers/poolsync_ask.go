package controllers

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"cloop.dev/cloop/apis/v1alpha1"
)

// askPatience is how long a pass waits for Git's answer. Git may be asked for longer, up
// to spec.timeout: the cluster is held meanwhile to what was applied, and no worker, of
// which there are few, waits for a server that says nothing.
const askPatience = time.Second

// inquiry is one question to Git, or to a source of Flux, and the build of what it says.
type inquiry struct {
	// pass is its own, with a copy of the memory: it runs beside other passes.
	pass *syncPass
	// generation, request and force are the PoolSync's when it began.
	generation     int64
	request, force string
	stop           context.CancelFunc
	// done is closed at the end; failure is known then.
	done    chan struct{}
	failure *stageError

	mu sync.Mutex // guards late
	// late: nobody waits for it any more, and its end wakes the PoolSync.
	late bool
}

// source learns what Git says, where that is due. A pass goes on without it where the
// answer is not here yet.
func (r *poolSyncReconciler) source(ctx context.Context, p *syncPass) {
	m := p.memory
	if m.asking != nil && m.asking.generation != p.sync.Generation {
		m.stopAsking() // it was about another spec
	}
	if m.asking == nil {
		if !r.dueNow(ctx, p) {
			return
		}
		m.asking = r.ask(ctx, p)
		m.asking.await(ctx, r.patience)
	}
	if p.asking = !m.asking.over(); p.asking {
		return
	}
	r.answered(ctx, p)
}

// ask begins to ask.
func (r *poolSyncReconciler) ask(ctx context.Context, p *syncPass) *inquiry {
	memory := *p.memory
	if p.forced {
		memory.builder, memory.newest = nil, nil // it is rendered once more
	}
	own := &syncPass{sync: p.sync.DeepCopy(), status: p.status.DeepCopy(), memory: &memory, forced: p.forced, started: p.started}
	whole := ctx
	ctx, stop := context.WithTimeout(ctx, p.sync.Spec.Timeout.Duration)
	a := &inquiry{
		pass: own, generation: p.sync.Generation, request: requestOf(p.sync), force: forceOf(p.sync),
		stop: stop, done: make(chan struct{}),
	}
	go func() {
		defer stop()
		defer r.ended(whole, a)
		defer func() {
			// As controller-runtime has it for what a worker does.
			if failure := recover(); failure != nil {
				logf.FromContext(ctx).Error(fmt.Errorf("panic: %v", failure), "asking Git failed", "stack", string(debug.Stack()))
				a.failure = transient(v1alpha1.ReasonBuildFailed, fmt.Errorf("panic: %v", failure))
			}
		}()
		a.failure = r.climb(ctx, own, []step{{"resolve", r.resolve}, {"verify", r.verify}, {"depends", r.depends}, {"build", r.build}})
		r.tellHistory(ctx, own)
		r.recall(ctx, own)
	}()
	return a
}

// await waits until it has ended, or for so long.
func (a *inquiry) await(ctx context.Context, long time.Duration) {
	waited := time.NewTimer(long)
	defer waited.Stop()
	select {
	case <-a.done:
	case <-waited.C:
	case <-ctx.Done():
	}
}

// over says whether it has ended. Where it has not, its end wakes the PoolSync.
func (a *inquiry) over() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.done:
		return true
	default:
		a.late = true
		return false
	}
}

// ended notes the end of an ask.
func (r *poolSyncReconciler) ended(ctx context.Context, a *inquiry) {
	a.mu.Lock()
	close(a.done)
	late := a.late
	a.mu.Unlock()
	if !late {
		return
	}
	sync := &v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: a.pass.sync.Namespace, Name: a.pass.sync.Name}}
	select {
	case r.woken <- event.GenericEvent{Object: sync}:
	case <-ctx.Done(): // the controller is ending
	}
}

// stopAsking ends what is asked, and drops the answer.
func (m *syncMemory) stopAsking() {
	if m.asking == nil {
		return
	}
	m.asking.stop()
	<-m.asking.done
	m.asking = nil
}

// answered takes the answer over.
func (r *poolSyncReconciler) answered(ctx context.Context, p *syncPass) {
	m, a := p.memory, p.memory.asking
	m.asking = nil
	p.full, p.forced, p.started = true, a.pass.forced, a.pass.started
	p.request, p.force = a.request, a.force
	p.before, p.revision, p.commit = a.pass.before, a.pass.revision, a.pass.commit
	p.artifact, p.verifiedBy, p.built = a.pass.artifact, a.pass.verifiedBy, a.pass.built
	p.status.LastAttemptedRevision = a.pass.status.LastAttemptedRevision
	if !a.pass.again.IsZero() {
		p.comeBack(a.pass.again)
	}
	if a.late {
		// What was asked for meanwhile was not looked at.
		p.comeBack(r.clock.Now())
	}
	found := a.pass.memory
	m.git, m.gitFor, m.artifact = found.git, found.gitFor, found.artifact
	m.builder, m.newest, m.dependencies = found.builder, found.newest, found.dependencies
	if m.applied == nil {
		m.applied = found.applied
	}
	if p.forced {
		m.force()
	}
	if m.source = a.failure; m.source == nil {
		m.source = r.climb(ctx, p, []step{{"fit", r.fit}})
	}
}

// stillAsking says that Git is asked, where somebody waits for the answer: of a spec that
// is new, or by request.
func (r *poolSyncReconciler) stillAsking(p *syncPass) {
	ready := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionReady)
	renewed := ready == nil || ready.ObservedGeneration != p.sync.Generation
	request, force := requestOf(p.sync), forceOf(p.sync)
	asked := request != "" && request != p.status.LastHandledReconcileAt || force != "" && force != p.status.LastHandledForceAt
	if !renewed && !asked {
		return
	}
	message := "asks " + p.sync.ReadsFrom()
	if p.renewed = renewed; renewed {
		r.set(p, v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonProgressing, message)
	}
	r.set(p, v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonProgressing, message)
	meta.RemoveStatusCondition(&p.status.Conditions, v1alpha1.ConditionStalled)
}
