package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

// ForeignSync is what applies ExecutorPools of a cluster in place of a PoolSync: a
// Kustomization of Flux, or an Application of Argo CD.
type ForeignSync struct {
	ForeignReference
	// Repository and Path are what it applies; of Flux the source, as "KIND
	// NAMESPACE/NAME".
	Repository, Path string
	// Source is what Flux applies; nil: not Flux.
	Source *v1alpha1.SourceReference
	// LastAppliedRevision and LastAttemptedRevision are as its own status has them.
	LastAppliedRevision, LastAttemptedRevision string
	// Ready is True, False or Unknown.
	Ready           metav1.ConditionStatus
	Reason, Message string
	Suspended       bool
	// Substitute is what replaces variables; nil: nothing does.
	Substitute *v1alpha1.Substitution
	// Unrendered are its fields that change what the path renders in a way that is not
	// known here.
	Unrendered []string

	// applies is the path with what it changes of what that renders; nil: nothing.
	applies *applier
}

// Build renders what it applies of the files in a directory, as BuildWith does, with
// what it changes of that by fields of its own, as checks and comparisons have it.
// ErrUnrendered is of such fields that are applied there by nobody.
func (f *ForeignSync) Build(ctx context.Context, root string, variables *Variables) ([]Rendered, error) {
	rendered, err := buildAs(ctx, root, f.Path, f.applies, variables)
	if errors.Is(err, ErrUnrendered) {
		err = fmt.Errorf("%s changes what %s renders by its %w", f, f.Path, err)
	}
	return rendered, err
}

// itself is the object, for whoever says where it says something.
func (f *ForeignSync) itself(obj *unstructured.Unstructured) *renderedObject {
	return &renderedObject{Rendered: Rendered{Document: schemas.Document{Object: obj, File: f.String(), Line: 1}}}
}

// ForeignReference names a ForeignSync.
type ForeignReference struct {
	Kind, Namespace, Name string
}

func (r ForeignReference) String() string { return r.Kind + " " + r.Namespace + "/" + r.Name }

// Kinds of a ForeignReference.
const (
	kindKustomization = "Kustomization"
	kindApplication   = "Application"
)

// kindApplicationSet makes Applications.
const kindApplicationSet = "ApplicationSet"

// argoNamespace is where Argo CD is unless an Application says that it is elsewhere.
const argoNamespace = "argocd"

// ForeignKinds are the kinds of objects that a ForeignReference may name.
func ForeignKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		ForeignReference{Kind: kindKustomization}.GroupVersionKind(),
		ForeignReference{Kind: kindApplication}.GroupVersionKind(),
	}
}

// GroupVersionKind is the one of the object itself.
func (r ForeignReference) GroupVersionKind() schema.GroupVersionKind {
	if r.Kind == kindApplication {
		return schema.GroupVersionKind{Group: argoGroup, Version: "v1alpha1", Kind: r.Kind}
	}
	return schema.GroupVersionKind{Group: fluxGroup, Version: "v1", Kind: r.Kind}
}

// manager is the field manager that it applies with.
func (r ForeignReference) manager() string {
	if r.Kind == kindApplication {
		return "argocd-controller"
	}
	return "kustomize-controller"
}

// AppliedBy is what an object says that it is applied by, other than a PoolSync; false
// where it says nothing of that.
func AppliedBy(obj *unstructured.Unstructured) (ForeignReference, bool) {
	labels := obj.GetLabels()
	if labels[v1alpha1.LabelPoolSyncName] != "" {
		return ForeignReference{}, false
	}
	if name := labels[fluxGroup+"/name"]; name != "" {
		return ForeignReference{kindKustomization, labels[fluxGroup+"/namespace"], name}, true
	}
	// "APPLICATION:GROUP/KIND:NAMESPACE/NAME", of an Application of another namespace
	// "NAMESPACE_APPLICATION:…"; neither name has an underscore or a colon.
	tracked, _, _ := strings.Cut(obj.GetAnnotations()["argocd.argoproj.io/tracking-id"], ":")
	if tracked == "" {
		return ForeignReference{}, false
	}
	namespace, name, elsewhere := strings.Cut(tracked, "_")
	if !elsewhere {
		namespace, name = argoNamespace, tracked
	}
	return ForeignReference{kindApplication, namespace, name}, true
}

// ForeignSyncOf reads a Kustomization or an Application.
func ForeignSyncOf(obj *unstructured.Unstructured) ForeignSync {
	sync := ForeignSync{
		ForeignReference: ForeignReference{obj.GetKind(), obj.GetNamespace(), obj.GetName()},
		Ready:            metav1.ConditionUnknown,
	}
	if obj.GetKind() == kindApplication {
		sync.readArgo(obj)
	} else {
		sync.readFlux(obj)
	}
	return sync
}

func (f *ForeignSync) readFlux(obj *unstructured.Unstructured) {
	f.Path = WithinRepository(textAt(obj, "spec", "path"))
	f.Source = &v1alpha1.SourceReference{Kind: textAt(obj, "spec", "sourceRef", "kind"), Name: textAt(obj, "spec", "sourceRef", "name"),
		Namespace: cmp.Or(textAt(obj, "spec", "sourceRef", "namespace"), f.Namespace)}
	f.Repository = f.Source.Kind + " " + f.Source.Namespace + "/" + f.Source.Name
	f.LastAppliedRevision = textAt(obj, "status", "lastAppliedRevision")
	f.LastAttemptedRevision = textAt(obj, "status", "lastAttemptedRevision")
	f.Suspended, _, _ = unstructured.NestedBool(obj.Object, "spec", "suspend")
	// A condition that speaks of an older spec says nothing of this one.
	if ready := ReadyOf(obj); ready.ObservedGeneration == 0 || ready.ObservedGeneration == obj.GetGeneration() {
		f.Ready, f.Reason, f.Message = ready.Status, ready.Reason, ready.Message
	}
	itself := f.itself(obj)
	f.applies = &applier{object: itself, path: f.Path, alteration: itself.alterationOf()}
	if _, remote, _ := unstructured.NestedMap(obj.Object, "spec", "kubeConfig"); remote {
		f.Unrendered = append(f.Unrendered, "kubeConfig")
	}
	f.Substitute = fluxSubstitution(obj)
	if f.Substitute != nil && slices.ContainsFunc(f.Substitute.From, func(r v1alpha1.SubstituteReference) bool { return r.Kind != "ConfigMap" }) {
		// No command reads a Secret that is not its own.
		f.Unrendered = append(f.Unrendered, "postBuild.substituteFrom")
	}
}

// ReadyOf is the condition Ready of an object of Flux; Unknown where it has none.
func ReadyOf(obj *unstructured.Unstructured) metav1.Condition {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, each := range conditions {
		condition := unstructured.Unstructured{}
		condition.Object, _ = each.(map[string]any)
		if textAt(&condition, "type") == v1alpha1.ConditionReady {
			observed, _, _ := unstructured.NestedInt64(condition.Object, "observedGeneration")
			return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionStatus(textAt(&condition, "status")), ObservedGeneration: observed,
				Reason: textAt(&condition, "reason"), Message: textAt(&condition, "message")}
		}
	}
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown}
}

// AppliesPaths says whether an object may apply pools in place of a PoolSync.
func AppliesPaths(obj *unstructured.Unstructured) bool {
	return isFlux(obj) || obj.GroupVersionKind().Group == argoGroup && slices.Contains([]string{kindApplication, kindApplicationSet}, obj.GetKind())
}

// TakesAlong says whether what a PoolSync, a Kustomization of Flux, an Application of Argo CD
// or the Applications of an ApplicationSet have applied goes with it.
func TakesAlong(obj *unstructured.Unstructured) bool {
	argo := obj.GroupVersionKind().Group == argoGroup
	switch suspended, _, _ := unstructured.NestedBool(obj.Object, "spec", "suspend"); {
	case isKind(obj, v1alpha1.PoolSyncKind):
		return Prunes(obj) && (!suspended || textAt(obj, "spec", "suspendUntil") != "")
	case isFlux(obj) && suspended:
		// Its finalizer deletes nothing then.
		return false
	case isFlux(obj):
		// https://fluxcd.io/flux/components/kustomize/kustomizations/#deletion-policy
		switch textAt(obj, "spec", "deletionPolicy") {
		case "Orphan":
			return false
		case "Delete", "WaitForTermination":
			return true
		}
		prune, _, _ := unstructured.NestedBool(obj.Object, "spec", "prune")
		return prune
	case argo && obj.GetKind() == kindApplication:
		return takesResources(obj.GetFinalizers())
	case argo && obj.GetKind() == kindApplicationSet:
		// Argo CD gives an Application of a set the finalizer unless the set says
		// otherwise, or its template has some already:
		// https://argo-cd.readthedocs.io/en/stable/operator-manual/applicationset/Application-Deletion/
		if finalizers, _, _ := unstructured.NestedStringSlice(obj.Object, "spec", "template", "metadata", "finalizers"); len(finalizers) > 0 {
			return takesResources(finalizers)
		}
		preserve, _, _ := unstructured.NestedBool(obj.Object, "spec", "syncPolicy", "preserveResourcesOnDeletion")
		return !preserve
	}
	return false
}

// takesResources says whether an Application with some finalizers takes along what it has
// applied.
func takesResources(finalizers []string) bool {
	return slices.ContainsFunc(finalizers, func(name string) bool { return strings.HasPrefix(name, "resources-finalizer.argocd.argoproj.io") })
}

// Unpruned says whether Flux or Argo CD leave an object where it is that Git does not have
// any more, since the object says so itself.
func Unpruned(obj *unstructured.Unstructured) bool {
	for _, said := range []map[string]string{obj.GetLabels(), obj.GetAnnotations()} {
		if said[fluxGroup+"/prune"] == "disabled" {
			return true
		}
	}
	return slices.ContainsFunc(strings.Split(obj.GetAnnotations()["argocd.argoproj.io/sync-options"], ","), func(option string) bool {
		return strings.TrimSpace(option) == "Prune=false"
	})
}

// fluxSubstitution is what a Kustomization replaces variables by.
func fluxSubstitution(obj *unstructured.Unstructured) *v1alpha1.Substitution {
	if _, substitutes, _ := unstructured.NestedMap(obj.Object, "spec", "postBuild"); !substitutes {
		return nil
	}
	found := &v1alpha1.Substitution{}
	found.Vars, _, _ = unstructured.NestedStringMap(obj.Object, "spec", "postBuild", "substitute")
	from, _, _ := unstructured.NestedSlice(obj.Object, "spec", "postBuild", "substituteFrom")
	for _, each := range from {
		reference := unstructured.Unstructured{}
		reference.Object, _ = each.(map[string]any)
		optional, _, _ := unstructured.NestedBool(reference.Object, "optional")
		found.From = append(found.From, v1alpha1.SubstituteReference{Kind: textAt(&reference, "kind"), Name: textAt(&reference, "name"), Optional: optional})
	}
	return found
}

func (f *ForeignSync) readArgo(obj *unstructured.Unstructured) {
	f.Path = WithinRepository(textAt(obj, "spec", "source", "path"))
	f.Repository = textAt(obj, "spec", "source", "repoURL")
	health, synced := textAt(obj, "status", "health", "status"), textAt(obj, "status", "sync", "status")
	phase := textAt(obj, "status", "operationState", "phase")
	f.LastAttemptedRevision = cmp.Or(textAt(obj, "status", "operationState", "syncResult", "revision"), textAt(obj, "status", "sync", "revision"))
	f.Suspended = health == "Suspended"
	f.Message = cmp.Or(textAt(obj, "status", "health", "message"), textAt(obj, "status", "operationState", "message"))
	if synced == "Synced" {
		f.LastAppliedRevision = textAt(obj, "status", "sync", "revision")
	} else if phase == "Succeeded" {
		f.LastAppliedRevision = f.LastAttemptedRevision
	}
	switch {
	case health == "Degraded" || phase == "Failed" || phase == "Error":
		f.Ready = metav1.ConditionFalse
		f.Reason = cmp.Or(map[bool]string{true: phase}[phase == "Failed" || phase == "Error"], health)
	case synced == "Synced" && health == "Healthy":
		f.Ready, f.Reason = metav1.ConditionTrue, synced
	default:
		f.Reason = synced
	}
	if several, _, _ := unstructured.NestedSlice(obj.Object, "spec", "sources"); len(several) > 0 {
		f.Unrendered = append(f.Unrendered, "sources")
	} else if found := f.itself(obj).argoAppliers(""); len(found) > 0 {
		f.applies = &found[0]
	}
}

// foreignOf finds what applies an object in place of a PoolSync: what it says itself,
// and of an object that is not in the cluster the only one there is.
func (c *ClusterSurface) foreignOf(obj *unstructured.Unstructured) *ForeignSync {
	reference, said := AppliedBy(obj)
	for i := range c.Foreign {
		if f := &c.Foreign[i]; said && f.ForeignReference == reference {
			return f
		}
	}
	if !said && len(c.Foreign) == 1 && len(c.Syncs) == 0 && obj.GetResourceVersion() == "" {
		return &c.Foreign[0]
	}
	return nil
}

// cause says why the cluster differs from what is applied.
func (f *ForeignSync) cause(revision string) string {
	switch {
	case sameRevision(f.LastAppliedRevision, revision):
		return v1alpha1.DriftClusterEdited
	case f.Suspended || f.Ready == metav1.ConditionFalse:
		return v1alpha1.DriftCommitNotApplied
	}
	return v1alpha1.DriftConverging
}
