package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
)

// health is what is known of the readiness of what a PoolSync applied.
type health struct {
	// sound is the revision at which all of it was Ready last.
	sound string
	// revision that objects have been waited for at, since when; zero: for none.
	revision string
	since    time.Time
	// failed says that they were waited for too long.
	failed bool
}

// healthOf is what the Ready condition that an earlier process left says.
func healthOf(ready *metav1.Condition, applied string) health {
	switch {
	case ready == nil:
		return health{}
	case ready.Status == metav1.ConditionTrue:
		return health{sound: applied}
	case ready.Reason == string(v1alpha1.ReasonHealthCheckFailed):
		return health{revision: applied, since: ready.LastTransitionTime.Time, failed: true}
	case ready.Reason == string(v1alpha1.ReasonProgressing):
		return health{revision: applied, since: ready.LastTransitionTime.Time}
	}
	return health{}
}

// judge notes whether all objects of a revision are Ready. Where some are not, they
// have until a time to become so.
func (h *health) judge(all bool, revision string, timeout time.Duration, now time.Time) (until time.Time) {
	if all {
		*h = health{sound: revision}
		return time.Time{}
	}
	if h.since.IsZero() || h.revision != revision {
		*h = health{sound: h.sound, revision: revision, since: now}
	}
	until = h.since.Add(timeout)
	h.failed = h.failed || !now.Before(until)
	return until
}

// maxUnready bounds how many objects a condition names that are not Ready.
const maxUnready = 10

// await holds Ready back until every object that was applied is Ready. Once all were,
// one that is not any more has as long to come back as it had to come up. Nothing is
// asked for: pools and PoolSyncs tell by watch.
func (r *poolSyncReconciler) await(ctx context.Context, p *syncPass) {
	m := p.memory
	if !p.sync.Spec.Wait {
		m.health = health{}
		return
	}
	if p.err != nil || p.target == nil {
		return
	}
	unready, err := r.unready(ctx, p)
	if err != nil {
		p.fail(transient(v1alpha1.ReasonHealthCheckFailed, err))
		return
	}
	now, timeout := r.clock.Now(), p.sync.Spec.Timeout.Duration
	until := m.health.judge(len(unready) == 0, p.target.revision, timeout, now)
	if len(unready) == 0 {
		return
	}
	waited := fmt.Sprintf("%d of %s of %s not Ready: %s", len(unready), count.Of(len(p.target.objects), "object"), p.target.revision,
		strings.Join(count.First(unready, maxUnready), "; "))
	if m.health.failed {
		p.fail(transient(v1alpha1.ReasonHealthCheckFailed, fmt.Errorf("in %s: %s", timeout, waited)))
		return
	}
	p.comeBack(until)
	if m.health.sound != p.target.revision {
		p.awaits = "applied, and waits: " + waited
	}
}

// unready names the objects of the target that are not Ready, and says why. Kinds that
// have no such condition are Ready where they are there.
func (r *poolSyncReconciler) unready(ctx context.Context, p *syncPass) ([]string, error) {
	var out []string
	note := func(id objectID, why string) {
		if why != "" {
			out = append(out, id.String()+" ("+why+")")
		}
	}
	for _, s := range p.sights {
		switch {
		case !s.id.isPool(), s.observed:
		case s.have == nil:
			note(s.id, "is gone")
		case versionOf(s.have) == p.memory.object(s.id).behind:
			note(s.id, "was written just now")
		default:
			note(s.id, notReady(s.have))
		}
	}
	for id, object := range p.target.byID {
		// Its own PoolSync would wait for itself; others' are not in the cache.
		if object.observed || !id.ofFleet() || id.namespace != p.sync.Namespace || id.kind == v1alpha1.PoolSyncKind && id.name == p.sync.Name {
			continue
		}
		why, err := r.notReadyOf(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", id, err)
		}
		note(id, why)
	}
	slices.Sort(out)
	return out, nil
}

// notReadyOf says why a HubPool or a PoolSync of the cache is not Ready; empty where it is.
func (r *poolSyncReconciler) notReadyOf(ctx context.Context, id objectID) (string, error) {
	var object client.Object = &v1alpha1.HubPool{}
	if id.kind == v1alpha1.PoolSyncKind {
		object = &v1alpha1.PoolSync{}
	}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: id.namespace, Name: id.name}, object); client.IgnoreNotFound(err) != nil {
		return "", err
	}
	return notReadyTyped(object)
}

func notReadyTyped(object client.Object) (string, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return "", err
	}
	return notReady(&unstructured.Unstructured{Object: content}), nil
}

// notReady says why an object is not Ready; empty where it is.
func notReady(object *unstructured.Unstructured) string {
	if object.GetDeletionTimestamp() != nil {
		return "is being deleted"
	}
	status, reason, observed := readyOf(object)
	switch {
	case status == "" || observed < object.GetGeneration():
		return "no controller has looked at it yet"
	case status != string(metav1.ConditionTrue):
		return reason
	}
	return ""
}

// readyOf is an object's Ready condition; status is empty where it has none.
func readyOf(object *unstructured.Unstructured) (status, reason string, observed int64) {
	list, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "conditions")
	conditions, _ := list.([]any)
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] != v1alpha1.ConditionReady {
			continue
		}
		status, _ = condition["status"].(string)
		reason, _ = condition["reason"].(string)
		observed, _ = condition["observedGeneration"].(int64)
	}
	return status, reason, observed
}

// readyOnly is the part of a status that is waited for; nil where there is none.
func readyOnly(object *unstructured.Unstructured) map[string]any {
	status, reason, observed := readyOf(object)
	if status == "" {
		return nil
	}
	return map[string]any{"conditions": []any{map[string]any{
		"type": v1alpha1.ConditionReady, "status": status, "reason": reason, "observedGeneration": observed,
	}}}
}

// readyChanged lets through ExecutorPools and HubPools whose readiness has changed.
func readyChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, err := readinessOf(e.ObjectOld)
			after, alsoErr := readinessOf(e.ObjectNew)
			return err == nil && alsoErr == nil && before != after
		},
	}
}

func readinessOf(object client.Object) (string, error) {
	if pool, ok := object.(*unstructured.Unstructured); ok {
		return notReady(pool), nil
	}
	return notReadyTyped(object)
}

// collectReadiness is how long is collected what becomes Ready: a thousand pools that
// do are no thousand passes.
const collectReadiness = 250 * time.Millisecond

// waiters has the PoolSync that applied an object look again, where it waits for what
// it applied. It is not read to find that out: that copies an inventory, and there are
// as many events as the inventory has objects.
func (r *poolSyncReconciler) waiters(namespace string) handler.EventHandler {
	find := syncsOf(namespace)
	queue := func(ctx context.Context, object client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		for _, request := range find(ctx, object) {
			if r.waitsFor(request.NamespacedName) {
				q.AddAfter(request, collectReadiness)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			queue(ctx, e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			queue(ctx, e.ObjectNew, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			queue(ctx, e.Object, q)
		},
	}
}

// beginHealth takes over what an earlier process left.
func (m *syncMemory) beginHealth() {
	m.health = healthOf(meta.FindStatusCondition(m.status.Conditions, v1alpha1.ConditionReady), m.status.LastAppliedRevision)
}
