package controllers

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// orphan lets go of a HubPool that somebody has said is not to wait for its hub, and
// records that. Where the hub can be asked, the pool is nobody's there afterwards.
func (r *hubPoolReconciler) orphan(ctx context.Context, p *hubPoolPass) *stageError {
	if p.pool.Annotations[v1alpha1.AnnotationOrphan] != "true" {
		return nil
	}
	said := "the pool stays at the hub as it is, and nobody's"
	if err := r.release(ctx, p); err != nil {
		said = "the hub was not told, so the pool stays there as it is: " + err.message()
	}
	message := fmt.Sprintf("let go because of the annotation %s, without deletionPolicy %s: %s", v1alpha1.AnnotationOrphan, p.pool.Spec.DeletionPolicy, said)
	p.log(ctx, "orphans a pool", "message", shorten(message, maxEventMessage), "state", p.state())
	r.events.record(p.pool, poolEvent{warning: true, reason: v1alpha1.ReasonOrphaned, message: message})
	return r.letGoOf(ctx, p)
}

// release has the hub let go of the pool whatever the deletion policy is.
func (r *hubPoolReconciler) release(ctx context.Context, p *hubPoolPass) *stageError {
	if p.pool.Spec.Hub == nil {
		return nil
	}
	for _, step := range []func(context.Context, *hubPoolPass) *stageError{r.connect, r.look} {
		if err := step(ctx, p); err != nil {
			return err
		}
	}
	return r.letPoolGo(ctx, p)
}

func (p *hubPoolPass) state() string {
	if p.have != nil {
		return string(p.have.State)
	}
	return "unknown"
}

// letPoolGo has the hub make the pool nobody's, exactly as it is there.
func (r *hubPoolReconciler) letPoolGo(ctx context.Context, p *hubPoolPass) *stageError {
	if p.have == nil {
		return p.neverWas()
	}
	owner, err := r.owner(ctx, p)
	if err != nil || over(p.have, owner) || p.have.State != hubv1.PoolActive {
		return err
	}
	have, failure := p.hub.releasePool(ctx, p.pool.Name, owner)
	switch {
	case problemCode(failure) == hubv1.CodeNotFound:
		return transient(v1alpha1.ReasonHubTooOld, fmt.Errorf("the hub %s does not let go of a pool as it is", p.pool.Spec.Hub.URL))
	case failure != nil:
		return hubFailure(failure)
	}
	p.have = &have
	return nil
}

// withdraw has the hub carry out the deletion policy, and lets the HubPool go once
// it has. The pool of one that is only compared stays as it is, and so does the
// credential of one that is another's by now.
func (r *hubPoolReconciler) withdraw(ctx context.Context, p *hubPoolPass) *stageError {
	if p.waits != "" {
		return nil // for the one that has the pool next
	}
	policy, do := p.pool.Spec.DeletionPolicy, r.undefine
	if fleet.ToObserve(p.pool) {
		policy, do = v1alpha1.DeletionOrphan, r.letPoolGo
	}
	if err := do(ctx, p); err != nil {
		return err
	}
	if p.waits != "" {
		return nil
	}
	if policy == v1alpha1.DeletionRevoke && (p.have == nil || p.have.State == hubv1.PoolRevoked) {
		if err := r.removeSecret(ctx, p); err != nil {
			return err
		}
	}
	p.log(ctx, "lets go of a pool", "deletionPolicy", policy, "state", p.state())
	return r.letGoOf(ctx, p)
}

// undefine has the hub act on the deletion policy. What it keeps of the definition
// decides there, so that is made to say the same first.
func (r *hubPoolReconciler) undefine(ctx context.Context, p *hubPoolPass) *stageError {
	if p.have == nil {
		return p.neverWas()
	}
	request, err := r.definition(ctx, p)
	if err != nil {
		return err
	}
	owner := request.Provenance.Sync
	switch {
	case over(p.have, owner):
		return nil
	case p.have.State == hubv1.PoolDraining:
		p.drains()
		return nil
	}
	if p.have.State == hubv1.PoolActive && p.have.DeletionPolicy != p.pool.Spec.DeletionPolicy {
		if _, failure := p.hub.definePool(ctx, p.pool.Name, request); failure != nil {
			return hubFailure(failure)
		}
	}
	have, failure := p.hub.undefinePool(ctx, p.pool.Name, owner)
	if failure != nil {
		return hubFailure(failure)
	}
	p.have = &have
	if !over(&have, owner) {
		p.drains()
	}
	return nil
}

// drains has the HubPool wait for the hub, whose watch says when it is over.
func (p *hubPoolPass) drains() {
	p.waits = "the pool to drain at the hub: busy runners finish, then it is revoked"
	p.hub.watch(p.pool.Name)
	p.comeBack(p.hub.hubs.clock.Now().Add(hubRetryLast))
}

// over says whether nothing of a HubPool's is left to do at the hub.
func over(have *hubv1.Pool, owner string) bool {
	return have.Source == nil || have.Source.Sync != owner
}

// neverWas tells a pool that the hub never had from one that the token does not
// show any more.
func (p *hubPoolPass) neverWas() *stageError {
	if p.status.Hub == nil || p.status.Hub.State == string(hubv1.PoolRevoked) {
		return nil
	}
	return stalled(v1alpha1.ReasonTokenRefused, fmt.Errorf("the hub does not show pool %s for this token any more", p.pool.Name))
}

// letGoOf takes the finalizer off.
func (r *hubPoolReconciler) letGoOf(ctx context.Context, p *hubPoolPass) *stageError {
	if err := r.changeFinalizer(ctx, p, controllerutil.RemoveFinalizer); err != nil {
		return transient(v1alpha1.ReasonApplyFailed, fmt.Errorf("remove the finalizer: %w", err))
	}
	p.gone = true
	return nil
}
