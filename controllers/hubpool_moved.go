package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// A HubPool whose annotation cloop.dev/moved-from names another one of its namespace
// takes over that one's pool at the hub, which keeps its id, and with it bindings,
// credentials and volumes. For a cluster the two are objects that come and go apart:
// the new one waits until the old one is being deleted, or a mistaken annotation would
// take a pool that is in use, and the old one then leaves the pool to the new one
// before it carries out its deletion policy.

// predecessor is the HubPool that one says it was; false where it says nothing, or
// names one that it cannot have been.
func predecessor(pool *v1alpha1.HubPool) (types.NamespacedName, bool) {
	from := pool.Annotations[v1alpha1.AnnotationMovedFrom]
	if from == "" {
		return types.NamespacedName{}, false
	}
	was := movedFrom(objectID{namespace: pool.Namespace}, from)
	return types.NamespacedName{Namespace: was.namespace, Name: was.name}, was.namespace == pool.Namespace && was.name != pool.Name
}

// leaving is the HubPool of a name, nil where there is none; ok says that it is gone
// or being deleted.
func (r *hubPoolReconciler) leaving(ctx context.Context, name types.NamespacedName) (pool *v1alpha1.HubPool, ok bool, err error) {
	pool = &v1alpha1.HubPool{}
	switch err := r.live.Get(ctx, name, pool); {
	case apierrors.IsNotFound(err):
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("read HubPool %s: %w", name.Name, err)
	}
	return pool, pool.DeletionTimestamp != nil, nil
}

// own says whether the hub has the pool for an owner, and it serves.
func own(have *hubv1.Pool, owner string) bool {
	return have != nil && !over(have, owner) && have.State == hubv1.PoolActive
}

// inherits is the name that the hub's pool has until now; empty: the pool is new.
func (r *hubPoolReconciler) inherits(ctx context.Context, p *hubPoolPass, owner string) (string, *stageError) {
	from, moved := predecessor(p.pool)
	if !moved || own(p.have, owner) {
		return "", nil // or a rename that is over
	}
	was, failure := p.hub.GetPool(ctx, from.Name)
	if problemCode(failure) == hubv1.CodeNotFound {
		return "", nil
	}
	if failure != nil {
		return "", hubFailure(failure)
	}
	theirs, err := r.ownerOf(ctx, from)
	if err != nil || !own(&was, theirs) {
		return "", err
	}
	old, gone, failure := r.leaving(ctx, from)
	switch {
	case failure != nil:
		return "", transient(v1alpha1.ReasonApplyFailed, failure)
	case !gone:
		return "", transient(v1alpha1.ReasonRenameWaits, fmt.Errorf("the pool is to be HubPool %s under another name, and that is still there", from.Name))
	case old != nil && p.status.Credential == nil:
		// So that they are replaced where the new one has its credential in another Secret.
		p.status.Credential = old.Status.Credential.DeepCopy()
	}
	return from.Name, nil
}

// bequeath leaves the pool of a HubPool that is being deleted to the one that says
// that it was this one.
func (r *hubPoolReconciler) bequeath(ctx context.Context, p *hubPoolPass) *stageError {
	heir, err := r.heir(ctx, p)
	if err != nil || heir == nil {
		return err
	}
	name := client.ObjectKeyFromObject(heir)
	mine, failed := r.owner(ctx, p)
	if failed != nil {
		return failed
	}
	if p.have != nil && !own(p.have, mine) {
		return nil
	}
	theirs, failure := p.hub.GetPool(ctx, heir.Name)
	if failure != nil && problemCode(failure) != hubv1.CodeNotFound {
		return hubFailure(failure)
	}
	owner, failed := r.ownerOf(ctx, name)
	switch has := failure == nil && own(&theirs, owner); {
	case failed != nil:
		return failed
	case has && p.have == nil && (p.status.Hub == nil || p.status.Hub.ID == theirs.ID):
		p.log(ctx, "leaves a pool to the HubPool that it is now", "heir", heir.Name)
		r.hubs.tell(ctx, name) // its Secret is free
		return r.letGoOf(ctx, p)
	case has || p.have == nil:
		return nil // that is another pool
	}
	p.waits = fmt.Sprintf("HubPool %s to take the pool over at the hub, which it says it is now; without its annotation %s the pool has deletionPolicy %s carried out",
		heir.Name, v1alpha1.AnnotationMovedFrom, p.pool.Spec.DeletionPolicy)
	p.comeBack(r.clock.Now().Add(hubRetryLast))
	r.hubs.tell(ctx, name)
	return nil
}

// heir is the HubPool of the same hub that says that it was the one of the pass; nil
// where there is none.
func (r *hubPoolReconciler) heir(ctx context.Context, p *hubPoolPass) (*v1alpha1.HubPool, *stageError) {
	if fleet.ToObserve(p.pool) || p.pool.Spec.Hub == nil {
		return nil, nil //nolint:nilnil // no heir is neither a value nor an error
	}
	reader, cached := client.Reader(r.client), &v1alpha1.HubPool{}
	if err := r.client.Get(ctx, p.name(), cached); err != nil || cached.DeletionTimestamp == nil {
		// The cache does not have the deletion yet, so it may lack what came before that.
		reader = r.live
	}
	pools := &v1alpha1.HubPoolList{}
	if err := reader.List(ctx, pools, client.InNamespace(p.pool.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, transient(v1alpha1.ReasonApplyFailed, fmt.Errorf("list the HubPools: %w", err))
	}
	for i := range pools.Items {
		other := &pools.Items[i]
		from, moved := predecessor(other)
		if moved && from == p.name() && other.DeletionTimestamp == nil && !fleet.ToObserve(other) && other.Spec.Hub != nil && fleet.HubAddress(other.Spec.Hub.URL) == fleet.HubAddress(p.url()) {
			return other.DeepCopy(), nil
		}
	}
	return nil, nil //nolint:nilnil // as above
}

// inheritSecret makes the Secret of the HubPool that the pass's was its own, once that
// one is going. Every other Secret it returns as it is.
func (r *hubPoolReconciler) inheritSecret(ctx context.Context, p *hubPoolPass, object *corev1.Secret) (*corev1.Secret, *stageError) {
	from, moved := predecessor(p.pool)
	if !moved || object.Labels[v1alpha1.LabelCredentialOf] != credentialOf(from) {
		return object, nil
	}
	if _, gone, err := r.leaving(ctx, from); err != nil || !gone {
		return object, nil //nolint:nilerr // it is not ours before that is known
	}
	changed := object.DeepCopy()
	metav1.SetMetaDataLabel(&changed.ObjectMeta, v1alpha1.LabelCredentialOf, p.credentialOf())
	if err := r.client.Patch(ctx, changed, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})); err != nil {
		return object, p.unwritten("write", err)
	}
	return changed, nil
}
