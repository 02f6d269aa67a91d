package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fluxcd/pkg/ssa"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet/prunelimit"
)

// leftover is an object that was applied and is not wanted any more.
type leftover struct {
	object *unstructured.Unstructured
	// leaving: it is being deleted, an ExecutorPool that drains.
	leaving bool
}

// prune deletes what an earlier revision applied and the present one lacks, and
// keeps the inventory. What is not gone yet stays in it.
func (r *poolSyncReconciler) prune(ctx context.Context, p *syncPass) *stageError {
	p.noteAbsent()
	held, never := p.held(), p.memory.never
	wanted := merged(having(inventory(p.own(p.target)), func(id objectID) bool { return !never[id] }), having(p.status.Inventory, func(id objectID) bool { return held[id] }))
	if !p.sync.Spec.Prune {
		if p.fresh() {
			p.status.Inventory = wanted
		}
		return nil
	}
	obsolete := having(p.status.Inventory, func(id objectID) bool { return p.target.byID[id] == nil && !held[id] && !never[id] })
	if len(obsolete) == 0 {
		p.status.Inventory = wanted
		return nil
	}
	manager, err := r.appliers.of(p.sync)
	if err != nil {
		return transient(v1alpha1.ReasonPruneFailed, err)
	}
	left, err := r.survivors(ctx, p.sync, manager, obsolete)
	var hidden *unreadable
	if err != nil && !errors.As(err, &hidden) {
		p.doomed = len(obsolete)
		return transient(v1alpha1.ReasonPruneFailed, err)
	}
	// Whatever fails from here on, what is there stays known.
	defer func() {
		p.waits = len(left)
		p.status.Inventory = merged(merged(wanted, inventoryOf(objectsOf(left))), hidden.entriesOf())
	}()
	doomed := slices.DeleteFunc(slices.Clone(left), func(l leftover) bool { return l.leaving })
	// A pass that failed, or holds the cluster to an older build, knows too
	// little to delete.
	if len(doomed) == 0 || !p.fresh() {
		return hidden.stage()
	}
	if p.lacksNew(held) {
		// What replaces it may be among what is not applied.
		p.kept = len(doomed)
		return nil
	}
	if refusal := withinLimit(p, notMoved(p.target, objectsOf(doomed))); refusal != nil {
		p.doomed = len(doomed)
		return refusal
	}
	if err := r.announcePrune(ctx, p, len(doomed)); err != nil {
		return transient(v1alpha1.ReasonPruneFailed, err)
	}
	left, err = r.deleteInOrder(ctx, p, manager, left)
	switch {
	case errors.Is(err, errUnfinished):
		p.doomed = len(doomed) - p.changes.deleted
		p.awaits = fmt.Sprintf("deletes %s that %s lacks: %d went in %s, and the rest follows at once", count.Of(len(doomed), "object"), p.target.revision, p.changes.deleted, p.sync.Spec.Timeout.Duration)
		p.comeBack(r.clock.Now())
		return hidden.stage()
	case err != nil:
		p.doomed = len(doomed)
		return transient(v1alpha1.ReasonPruneFailed, err)
	}
	return hidden.stage()
}

// manyDoomed is how many objects take long enough to be deleted that it is said before, and
// to be read that the cache is asked.
const manyDoomed = 100

// announcePrune says what is about to be deleted, where that takes long, or somebody has
// just approved it: the status asks for that still.
func (r *poolSyncReconciler) announcePrune(ctx context.Context, p *syncPass, doomed int) error {
	ready := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionReady)
	if doomed < manyDoomed && (ready == nil || ready.Reason != string(v1alpha1.ReasonPruneNeedsApproval)) {
		return nil
	}
	message := fmt.Sprintf("deletes %s that %s lacks", count.Of(doomed, "object"), p.target.revision)
	r.set(p, v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonProgressing, message)
	r.set(p, v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonProgressing, message)
	meta.RemoveStatusCondition(&p.status.Conditions, v1alpha1.ConditionStalled)
	return r.writeStatus(ctx, p)
}

// noteAbsent remembers which objects were announced, refused, and are not there, though
// the inventory did not have them before: they were applied at no time. A status that
// was announced may be read once more.
func (p *syncPass) noteAbsent() {
	for _, s := range p.sights {
		switch {
		case s.refused == nil || s.present() != nil:
			delete(p.memory.never, s.id)
		case p.known != nil && !p.known[s.id]:
			if p.memory.never == nil {
				p.memory.never = map[objectID]bool{}
			}
			p.memory.never[s.id] = true
		}
	}
}

// unreadable are entries of the inventory that the account may not read, so that nobody
// knows whether they are there. A nil one has none.
type unreadable struct {
	entries []v1alpha1.InventoryEntry
	first   error
}

func (u *unreadable) Error() string { return u.first.Error() }

func (u *unreadable) entriesOf() []v1alpha1.InventoryEntry {
	if u == nil {
		return nil
	}
	return u.entries
}

// stage is why the prune is not whole; nil where nothing is hidden.
func (u *unreadable) stage() *stageError {
	if u == nil {
		return nil
	}
	failed := transient(v1alpha1.ReasonPruneFailed, fmt.Errorf("of %s that Git has no more nobody knows whether it is there: %w", count.Of(len(u.entries), "object"), u.first))
	failed.remedy = "give the account that applies the right to get and delete it; everything else was pruned"
	return failed
}

// lacksNew says whether an object of the build is not there at all because it is held
// back or refused: what the build lacks may have been renamed to it.
func (p *syncPass) lacksNew(held map[objectID]bool) bool {
	known := idsOf(p.status.Inventory)
	for id := range held {
		if !known[id] {
			return true
		}
	}
	return slices.ContainsFunc(p.sights, func(s *sight) bool { return s.refused != nil && s.present() == nil })
}

// deleteInOrder deletes ExecutorPools, and what stands beside them in a namespace
// once they are gone: a run that finishes on a removed pool still needs the
// account that it runs as, and the NetworkPolicy that keeps it in. It returns what
// is not gone yet.
func (r *poolSyncReconciler) deleteInOrder(ctx context.Context, p *syncPass, manager *ssa.ResourceManager, left []leftover) ([]leftover, error) {
	for {
		due := dueForDeletion(left)
		if len(due) == 0 {
			return left, nil
		}
		failed := r.delete(ctx, p, manager, due)
		if errors.Is(failed, errUnfinished) {
			return left, failed
		}
		remaining, err := r.survivors(ctx, p.sync, manager, inventoryOf(objectsOf(left)))
		if err == nil {
			left = remaining
		}
		if failed != nil || err != nil {
			return left, errors.Join(failed, err)
		}
		if len(dueForDeletion(left)) >= len(due) {
			// What was deleted is as it was; the next pass sees about it.
			return left, nil
		}
	}
}

// dueForDeletion are the objects that can be deleted now.
func dueForDeletion(left []leftover) []leftover {
	pools := map[string]bool{} // namespaces that have one
	for _, l := range left {
		if idOf(l.object).isPool() {
			pools[l.object.GetNamespace()] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(left), func(l leftover) bool {
		return l.leaving || !idOf(l.object).isPool() && pools[l.object.GetNamespace()]
	})
}

// errUnfinished is of a deletion that takes longer than the pass has; the next one goes
// on with it.
var errUnfinished = errors.New("the time of the pass is over")

// maxDeleteFailures bounds how many objects a condition names that could not be deleted.
const maxDeleteFailures = 10

func (r *poolSyncReconciler) delete(ctx context.Context, p *syncPass, manager *ssa.ResourceManager, doomed []leftover) error {
	options := ssa.DefaultDeleteOptions()
	options.PropagationPolicy = metav1.DeletePropagationBackground
	// Another PoolSync may have taken the object over since it was looked at.
	options.Inclusions = manager.GetOwnerLabels(p.sync.Name, p.sync.Namespace)
	var group errgroup.Group
	group.SetLimit(requestsAtOnce)
	var mu sync.Mutex // guards what follows
	var failures []string
	deleted := 0
	for _, l := range doomed {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			_, err := manager.Delete(ctx, l.object, options)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures = append(failures, err.Error())
				return nil
			}
			deleted++
			return nil
		})
	}
	_ = group.Wait()
	p.changes.deleted += deleted
	switch {
	case ctx.Err() != nil && deleted > 0:
		return errUnfinished
	case ctx.Err() != nil:
		return fmt.Errorf("delete %s: %w", count.Of(len(doomed), "object"), context.Cause(ctx))
	case len(failures) > 0:
		slices.Sort(failures)
		return errors.New(strings.Join(count.First(failures, maxDeleteFailures), "; "))
	}
	return nil
}

// withinLimit refuses to delete too much at once without a person's word.
func withinLimit(p *syncPass, doomed []*unstructured.Unstructured) *stageError {
	limit, all := prunelimit.Limit{Count: int(p.sync.Spec.PruneLimit.Count), Percent: int(p.sync.Spec.PruneLimit.Percent)}, len(p.status.Inventory)
	approval := p.sync.Annotations[v1alpha1.AnnotationApprovePrune]
	if limit.Allows(len(doomed), all) || approval == p.target.revision || approval == p.target.commit {
		return nil
	}
	names := make([]string, len(doomed))
	for i, object := range doomed {
		names[i] = idOf(object).String()
	}
	return stalled(v1alpha1.ReasonPruneNeedsApproval, fmt.Errorf("%s; to approve: kubectl annotate --overwrite --namespace %s poolsync %s %s=%s",
		limit.Refusal(p.target.revision, names, all, "object"), p.sync.Namespace, p.sync.Name, v1alpha1.AnnotationApprovePrune, p.target.commit))
}

// survivors are the entries that still exist and are still this PoolSync's. Its error may
// be an unreadable, beside the others. Of many a pool that the cache has is there, for all
// that matters: what deletes it asks the API server first. One that it lacks may be too new.
func (r *poolSyncReconciler) survivors(ctx context.Context, sync *v1alpha1.PoolSync, manager *ssa.ResourceManager, entries []v1alpha1.InventoryEntry) ([]leftover, error) {
	var hidden *unreadable
	ours := manager.GetOwnerLabels(sync.Name, sync.Namespace)
	found, failed := make([]*unstructured.Unstructured, len(entries)), make([]error, len(entries))
	cached := r.cachedPools()
	var group errgroup.Group
	group.SetLimit(requestsAtOnce)
	for i, entry := range entries {
		if id := idOfEntry(entry); id.isPool() && len(entries) > manyDoomed {
			if found[i], failed[i] = cached.get(ctx, id); failed[i] != nil || found[i] != nil {
				continue
			}
		}
		group.Go(func() error {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(schema.FromAPIVersionAndKind(entry.APIVersion, entry.Kind))
			if failed[i] = manager.Client().Get(ctx, client.ObjectKey{Namespace: entry.Namespace, Name: entry.Name}, object); failed[i] == nil {
				found[i] = object
			}
			return nil
		})
	}
	_ = group.Wait()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("see what is left of %s that Git lacks: %w", count.Of(len(entries), "object"), context.Cause(ctx))
	}
	var left []leftover
	for i, entry := range entries {
		switch object, err := found[i], failed[i]; {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		case apierrors.IsForbidden(err) && namespaceGoes(ctx, r.live, entry.Namespace):
			// The account's rights went with the namespace, and so does the object.
		case apierrors.IsForbidden(err):
			if hidden == nil {
				hidden = &unreadable{first: err}
			}
			hidden.entries = append(hidden.entries, entry)
		case err != nil:
			return nil, fmt.Errorf("read %s %s/%s: %w", entry.Kind, entry.Namespace, entry.Name, err)
		case contains(object.GetLabels(), ours):
			left = append(left, leftover{object, object.GetDeletionTimestamp() != nil})
		}
	}
	if hidden != nil {
		return left, hidden
	}
	return left, nil
}

func objectsOf(left []leftover) []*unstructured.Unstructured {
	objects := make([]*unstructured.Unstructured, len(left))
	for i := range left {
		objects[i] = left[i].object
	}
	return objects
}

// inventoryOf lists objects in the order in which the inventory has them.
func inventoryOf(objects []*unstructured.Unstructured) []v1alpha1.InventoryEntry {
	entries := make([]v1alpha1.InventoryEntry, len(objects))
	for i, object := range objects {
		entries[i] = v1alpha1.InventoryEntry{
			APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(),
		}
	}
	return sorted(entries)
}

func sorted(entries []v1alpha1.InventoryEntry) []v1alpha1.InventoryEntry {
	slices.SortFunc(entries, func(a, b v1alpha1.InventoryEntry) int {
		return cmp.Or(cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return entries
}

// merged is the union of two inventories.
func merged(a, b []v1alpha1.InventoryEntry) []v1alpha1.InventoryEntry {
	return slices.Compact(sorted(slices.Concat(a, b)))
}

// having are the entries of the objects that a condition holds for.
func having(entries []v1alpha1.InventoryEntry, holds func(objectID) bool) []v1alpha1.InventoryEntry {
	return slices.DeleteFunc(slices.Clone(entries), func(e v1alpha1.InventoryEntry) bool { return !holds(idOfEntry(e)) })
}

// lookAtDeletion is how often a PoolSync that is being deleted is looked at
// where no event comes from what it waits for.
const lookAtDeletion = 30 * time.Second

// finalize prunes everything that was applied, whatever the limit: deleting the
// PoolSync is the explicit word. A suspended one, and one that does not prune,
// leaves all of it.
func (r *poolSyncReconciler) finalize(ctx context.Context, p *syncPass) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(p.sync, v1alpha1.FinalizerPoolSync) {
		return ctrl.Result{}, nil
	}
	if p.sync.Spec.Prune && !p.sync.SuspendedAt(r.clock.Now()) {
		left, err := r.pruneAll(ctx, p)
		if errors.Is(err, errUnfinished) {
			p.comeBack(r.clock.Now())
			err = nil
		}
		if err != nil {
			p.fail(transient(v1alpha1.ReasonPruneFailed, fmt.Errorf("%w; to leave the objects instead, set spec.suspend", err)))
		}
		if len(left) > 0 || err != nil {
			p.waits = len(left)
			r.settle(p)
			if err := r.report(ctx, p); err != nil {
				return ctrl.Result{}, err
			}
			if p.err != nil {
				return ctrl.Result{RequeueAfter: r.wait(p)}, nil
			}
			p.comeBack(r.clock.Now().Add(lookAtDeletion))
			return ctrl.Result{RequeueAfter: r.until(p.again)}, nil
		}
	}
	patch := client.MergeFromWithOptions(p.sync.DeepCopy(), client.MergeFromWithOptimisticLock{})
	controllerutil.RemoveFinalizer(p.sync, v1alpha1.FinalizerPoolSync)
	if err := r.client.Patch(ctx, p.sync, patch); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("remove the finalizer of PoolSync %s: %w", p.sync.Name, err)
	}
	r.forget(p.name())
	return ctrl.Result{}, nil
}

// pruneAll deletes what was applied and returns what is not gone yet.
func (r *poolSyncReconciler) pruneAll(ctx context.Context, p *syncPass) ([]leftover, error) {
	ctx, cancel := context.WithTimeout(ctx, p.sync.Spec.Timeout.Duration)
	defer cancel()
	manager, err := r.appliers.of(p.sync)
	if err != nil {
		return nil, err
	}
	// A PoolSync that its own repository defines would wait for itself.
	entries := slices.DeleteFunc(slices.Clone(p.status.Inventory), func(e v1alpha1.InventoryEntry) bool {
		return e.Kind == v1alpha1.PoolSyncKind && e.Namespace == p.sync.Namespace && e.Name == p.sync.Name
	})
	left, err := r.survivors(ctx, p.sync, manager, entries)
	if err != nil {
		return nil, err
	}
	left, err = r.deleteInOrder(ctx, p, manager, left)
	p.status.Inventory = inventoryOf(objectsOf(left))
	return left, err
}
