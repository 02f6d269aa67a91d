package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// annotationRefresh has Argo CD look at an Application again; it takes the annotation
// away when it has.
const annotationRefresh = "argocd.argoproj.io/refresh"

// asker asks the syncs of one cluster to run now.
type asker struct {
	ctx     context.Context
	cluster reachedCluster
	// at is the request, as annotations have it.
	at string
	// sources are those of Flux that were asked.
	sources map[v1alpha1.SourceReference]*askedSource
}

// askedSource is a source of Flux that was asked to look at what it fetches.
type askedSource struct {
	name string
	// left says why it was not, so that nothing can be waited for.
	left string
	// wait returns its revision, or why it has no new one. It may be called again.
	wait func() (revision string, failed string, err error)
}

// poolSyncs asks the PoolSyncs; suspended ones are left alone.
func (a *asker) poolSyncs() (all []asked, err error) {
	var syncs v1alpha1.PoolSyncList
	if err := a.cluster.client.List(a.ctx, &syncs, client.InNamespace(a.cluster.namespace)); err != nil {
		return nil, fmt.Errorf("list the PoolSyncs of cluster %s: %w", a.cluster.name, err)
	}
	for _, sync := range syncs.Items {
		status := poolSyncStatus(a.cluster.name, sync)
		if status.Suspended {
			status.Left = status.Suspension
			all = append(all, asked{status: status})
			continue
		}
		source := a.source(sync.Spec.SourceRef, sync.Namespace)
		left, err := a.annotate(&sync, fleet.AnnotationReconcile, a.at)
		if err != nil {
			return nil, fmt.Errorf("ask cluster %s to sync %s/%s: %w", a.cluster.name, sync.Namespace, sync.Name, err)
		}
		all = append(all, a.asked(status, left, source, &v1alpha1.PoolSyncList{}, &sync, func(object client.Object, revision string) (syncStatus, bool) {
			now, ok := object.(*v1alpha1.PoolSync)
			if !ok || !served(now, a.at) || revision != "" && now.Status.LastAttemptedRevision != revision {
				return syncStatus{}, false
			}
			return poolSyncStatus(a.cluster.name, *now), true
		}))
	}
	return all, nil
}

// served says whether a PoolSync has handled a request and is done with it.
func served(sync *v1alpha1.PoolSync, request string) bool {
	if sync.Status.LastHandledReconcileAt != request {
		return false
	}
	if meta.IsStatusConditionTrue(sync.Status.Conditions, v1alpha1.ConditionReconciling) &&
		meta.IsStatusConditionPresentAndEqual(sync.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionUnknown) {
		return false
	}
	return true
}

// foreign asks what applies pools in place of a PoolSync.
func (a *asker) foreign() (all []asked, err error) {
	found, _, err := foreignOf(a.ctx, a.cluster)
	if err != nil {
		return nil, err
	}
	for _, sync := range found {
		status := foreignStatus(a.cluster.name, &sync)
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(sync.GroupVersionKind())
		object.SetNamespace(sync.Namespace)
		object.SetName(sync.Name)
		annotation, value := fleet.AnnotationReconcile, a.at
		if sync.Source == nil {
			annotation, value = annotationRefresh, "normal"
		} else if sync.Suspended {
			status.Left = fmt.Sprintf("it is suspended: `flux resume kustomization %s --namespace %s` has it go on", sync.Name, sync.Namespace)
			all = append(all, asked{status: status})
			continue
		}
		source := a.source(sync.Source, sync.Namespace)
		left, err := a.annotate(object, annotation, value)
		if err != nil {
			return nil, fmt.Errorf("ask cluster %s to sync %s: %w", a.cluster.name, sync, err)
		}
		all = append(all, a.asked(status, left, source, listOf(object), object, func(object client.Object, revision string) (syncStatus, bool) {
			now, ok := object.(*unstructured.Unstructured)
			if !ok {
				return syncStatus{}, false
			}
			after := fleet.ForeignSyncOf(now)
			if sync.Source == nil && !refreshed(now) || sync.Source != nil && !handled(now, a.at) ||
				revision != "" && after.LastAttemptedRevision != revision {
				return syncStatus{}, false
			}
			return foreignStatus(a.cluster.name, &after), true
		}))
	}
	return all, nil
}

// handled says whether a controller of Flux has handled a request and is done with it.
func handled(object *unstructured.Unstructured, request string) bool {
	at, _, _ := unstructured.NestedString(object.Object, "status", "lastHandledReconcileAt")
	return at == request && fleet.ReadyOf(object).Status != metav1.ConditionUnknown
}

// refreshed says whether Argo CD has looked at an Application again, and is done with
// what comes of that by itself.
func refreshed(object *unstructured.Unstructured) bool {
	if _, waits := object.GetAnnotations()[annotationRefresh]; waits {
		return false
	}
	synced, _, _ := unstructured.NestedString(object.Object, "status", "sync", "status")
	phase, _, _ := unstructured.NestedString(object.Object, "status", "operationState", "phase")
	_, automated, _ := unstructured.NestedMap(object.Object, "spec", "syncPolicy", "automated")
	failed := phase == "Failed" || phase == "Error"
	return phase != "Running" && (synced != "OutOfSync" || !automated || failed)
}

// source asks a source of Flux, once; nil where there is none to ask.
func (a *asker) source(reference *v1alpha1.SourceReference, namespace string) *askedSource {
	if reference == nil {
		return nil
	}
	key := *reference
	if key.Namespace == "" {
		key.Namespace = namespace
	}
	if known := a.sources[key]; known != nil {
		return known
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.FluxSources.WithKind(key.Kind))
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	source := &askedSource{name: key.Kind + " " + key.Namespace + "/" + key.Name}
	a.sources[key] = source
	left, err := a.annotate(object, fleet.AnnotationReconcile, a.at)
	if suspended, _, _ := unstructured.NestedBool(object.Object, "spec", "suspend"); suspended {
		left = "it is suspended"
	}
	if err != nil {
		left = err.Error()
	}
	if source.left = left; left != "" {
		return source
	}
	var revision, failed string
	source.wait = func() (string, string, error) {
		if revision != "" || failed != "" {
			return revision, failed, nil
		}
		err := a.watch(listOf(object), object, "look at what "+source.name+" fetches", func(now client.Object) bool {
			object, ok := now.(*unstructured.Unstructured)
			if !ok || !handled(object, a.at) {
				return false
			}
			revision, _, _ = unstructured.NestedString(object.Object, "status", "artifact", "revision")
			if ready := fleet.ReadyOf(object); ready.Status == metav1.ConditionFalse {
				failed = source.name + ": " + ready.Message
			}
			return true
		})
		return revision, failed, err
	}
	return source
}

// annotate writes an annotation; left says why this account may not.
func (a *asker) annotate(object client.Object, name, value string) (left string, err error) {
	before, _ := object.DeepCopyObject().(client.Object)
	annotations := map[string]string{}
	maps.Copy(annotations, object.GetAnnotations())
	annotations[name] = value
	object.SetAnnotations(annotations)
	err = a.cluster.client.Patch(a.ctx, object, client.MergeFrom(before))
	if apierrors.IsForbidden(err) {
		return err.Error(), nil
	}
	return "", err
}

// asked is a sync that was asked, and what is waited for: that its source has looked,
// and then that done says what came of it, of the source's revision where that is known.
func (a *asker) asked(status syncStatus, left string, source *askedSource, list client.ObjectList, object client.Object,
	done func(now client.Object, revision string) (syncStatus, bool),
) asked {
	if left != "" {
		status.Left = left
		return asked{status: status}
	}
	return asked{status, func() (after syncStatus, err error) {
		revision, failed := "", ""
		if source != nil && source.wait != nil {
			if revision, failed, err = source.wait(); err != nil {
				return after, err
			}
		}
		if failed != "" {
			// What it has of the source is as old as before.
			status.Ready, status.Message = string(metav1.ConditionFalse), failed
			return status, nil
		}
		err = a.watch(list, object, "sync "+status.Name, func(now client.Object) bool {
			found, ok := done(now, revision)
			if ok {
				after = found
			}
			return ok
		})
		if source != nil && source.left != "" {
			after.Message += fmt.Sprintf(" (%s was not asked: %s)", source.name, source.left)
		}
		return after, err
	}}
}

// watch waits until done says so of an object.
func (a *asker) watch(list client.ObjectList, object client.Object, what string, done func(client.Object) bool) error {
	doing := fmt.Sprintf("wait for cluster %s to %s", a.cluster.name, what)
	events, err := a.cluster.client.Watch(a.ctx, list, client.InNamespace(object.GetNamespace()), client.MatchingFields{"metadata.name": object.GetName()})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		now, ok := event.Object.(client.Object)
		switch {
		case event.Type == watch.Deleted:
			return fmt.Errorf("%s: it was deleted", doing)
		case ok && done(now):
			return nil
		}
	}
	return fmt.Errorf("%s: %w", doing, errors.Join(context.Cause(a.ctx), errWatchEnded))
}

func listOf(object *unstructured.Unstructured) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	kind := object.GroupVersionKind()
	kind.Kind += "List"
	list.SetGroupVersionKind(kind)
	return list
}
