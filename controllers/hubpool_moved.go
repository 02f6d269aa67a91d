package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

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
		return "", r.takenOver(ctx, p, from)
	}
	if failure != nil {
		return "", hubFailure(failure)
	}
	theirs, err := r.ownerOf(ctx, from)
	if err != nil || !own(&was, theirs) {
		return "", err
	}
	p.memory.awaited = was.ID
	old, gone, failure := r.leaving(ctx, from)
	switch {
	case failure != nil:
		return "", transient(v1alpha1.ReasonApplyFailed, failure)
	case !gone:
		return "", transient(v1alpha1.ReasonRenameWaits, fmt.Errorf("the pool is to be HubPool %s under another name, and that is still there", from.Name))
	}
	claims, err := r.claims(ctx, p, r.client, from)
	if err != nil {
		return "", err
	}
	if next := heir(claims); next != nil && next.Name != p.pool.Name {
		failed := transient(v1alpha1.ReasonRenameWaits, fmt.Errorf("HubPool %s says too that it was %s, and takes the pool over, because it %s", next.Name, from.Name, whyFirst(next, p.pool)))
		failed.remedy = fmt.Sprintf("for this HubPool to take it over, take the annotation %s out of HubPool %s; for a new pool beside that, out of this one", v1alpha1.AnnotationMovedFrom, next.Name)
		return "", failed
	}
	if old != nil && p.status.Credential == nil {
		// So that they are replaced where the new one has its credential in another Secret.
		p.status.Credential = old.Status.Credential.DeepCopy()
	}
	return from.Name, nil
}

// clocksAgree is how exactly the times of a hub and of a cluster are compared: those
// in headers and objects have no fractions of a second.
const clocksAgree = 2 * time.Second

// takenOver says that another HubPool has become what the pass's says that it was.
// What the hub never had, or nobody has taken over, it returns no error for: the pool
// is new then, as where a repository with annotations from long ago meets a new hub.
func (r *hubPoolReconciler) takenOver(ctx context.Context, p *hubPoolPass, from types.NamespacedName) *stageError {
	claims, err := r.claims(ctx, p, r.client, from)
	if err != nil {
		return err
	}
	for _, c := range claims {
		// One that was renamed is older than the HubPool that it is now.
		older := func() bool {
			return c.has.CreatedAt.Add(clocksAgree - p.hub.link.hub.Ahead()).Before(c.pool.CreationTimestamp.Time)
		}
		if c.owns && c.pool.Name != p.pool.Name && (c.has.ID == p.memory.awaited || older()) {
			return stalled(v1alpha1.ReasonRenameTaken, fmt.Errorf("HubPool %s says too that it was %s, and has taken the pool over", c.pool.Name, from.Name))
		}
	}
	return nil
}

// bequeath leaves the pool of a HubPool that is being deleted to the one that says
// that it was this one.
func (r *hubPoolReconciler) bequeath(ctx context.Context, p *hubPoolPass) *stageError {
	if fleet.ToObserve(p.pool) || p.pool.Spec.Hub == nil {
		return nil
	}
	reader, cached := client.Reader(r.client), &v1alpha1.HubPool{}
	if err := r.client.Get(ctx, p.name(), cached); err != nil || cached.DeletionTimestamp == nil {
		// The cache does not have the deletion yet, so it may lack what came before that.
		reader = r.live
	}
	claims, err := r.claims(ctx, p, reader, p.name())
	if err != nil || len(claims) == 0 {
		return err
	}
	mine, err := r.owner(ctx, p)
	switch {
	case err != nil:
		return err
	case p.have == nil:
		return r.bequeathed(ctx, p, claims)
	case !own(p.have, mine):
		return nil
	}
	next := heir(claims)
	if next == nil {
		return nil // each of them is another pool
	}
	p.waits = fmt.Sprintf("HubPool %s to take the pool over at the hub, which it says it is now; without its annotation %s the pool has deletionPolicy %s carried out",
		next.Name, v1alpha1.AnnotationMovedFrom, p.pool.Spec.DeletionPolicy)
	p.comeBack(r.clock.Now().Add(hubRetryLast))
	r.tellAll(ctx, claims)
	return nil
}

// bequeathed lets a HubPool go whose pool one of those that claim it has by now.
func (r *hubPoolReconciler) bequeathed(ctx context.Context, p *hubPoolPass, claims []claim) *stageError {
	for _, c := range claims {
		if c.owns && (p.status.Hub == nil || p.status.Hub.ID == c.has.ID) {
			p.log(ctx, "leaves a pool to the HubPool that it is now", "heir", c.pool.Name)
			r.tellAll(ctx, claims) // its Secret is free
			return r.letGoOf(ctx, p)
		}
	}
	return nil
}

// claim is a HubPool that says that it was another one.
type claim struct {
	pool *v1alpha1.HubPool
	// has is what the hub has under its name; nil: nothing. owns says that this is its own.
	has  *hubv1.Pool
	owns bool
}

// claims are the HubPools of the pass's hub that say that they were one, the pass's own
// among them, the oldest first.
func (r *hubPoolReconciler) claims(ctx context.Context, p *hubPoolPass, reader client.Reader, was types.NamespacedName) ([]claim, *stageError) {
	list := &v1alpha1.HubPoolList{}
	if err := reader.List(ctx, list, client.InNamespace(was.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, transient(v1alpha1.ReasonApplyFailed, fmt.Errorf("list the HubPools: %w", err))
	}
	pools := []*v1alpha1.HubPool{p.pool} // as it is, whatever a cache still has
	for i := range list.Items {
		if list.Items[i].Name != p.pool.Name {
			pools = append(pools, &list.Items[i])
		}
	}
	slices.SortFunc(pools, func(a, b *v1alpha1.HubPool) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var claims []claim
	for _, pool := range pools {
		from, moved := predecessor(pool)
		if !moved || from != was || pool.DeletionTimestamp != nil || fleet.ToObserve(pool) || pool.Spec.Hub == nil || fleet.HubAddress(pool.Spec.Hub.URL) != fleet.HubAddress(p.url()) {
			continue
		}
		c, err := r.claimOf(ctx, p, pool.DeepCopy())
		if err != nil {
			return nil, err
		}
		claims = append(claims, c)
	}
	return claims, nil
}

func (r *hubPoolReconciler) claimOf(ctx context.Context, p *hubPoolPass, pool *v1alpha1.HubPool) (claim, *stageError) {
	owner, err := r.ownerOf(ctx, client.ObjectKeyFromObject(pool))
	if err != nil {
		return claim{}, err
	}
	switch has, failure := p.hub.GetPool(ctx, pool.Name); {
	case problemCode(failure) == hubv1.CodeNotFound:
		return claim{pool: pool}, nil
	case failure != nil:
		return claim{}, hubFailure(failure)
	default:
		return claim{pool, &has, own(&has, owner)}, nil
	}
}

// heir is the HubPool that takes a pool over of those that claim it, the oldest first;
// nil where each has another pool. One whose name the hub has for something else comes
// last: the hub refuses it the name, and it says so.
func heir(claims []claim) *v1alpha1.HubPool {
	var last *v1alpha1.HubPool
	for _, c := range claims {
		switch {
		case c.has == nil:
			return c.pool
		case !c.owns && last == nil:
			last = c.pool
		}
	}
	return last
}

// whyFirst says what makes one of two HubPools that claim the same the heir.
func whyFirst(a, b *v1alpha1.HubPool) string {
	switch a.CreationTimestamp.Compare(b.CreationTimestamp.Time) {
	case -1:
		return "is the older one"
	case 0:
		return "comes first by its name"
	}
	return "may have its name at the hub"
}

func (r *hubPoolReconciler) tellAll(ctx context.Context, claims []claim) {
	for _, c := range claims {
		r.hubs.tell(ctx, client.ObjectKeyFromObject(c.pool))
	}
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
