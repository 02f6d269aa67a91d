package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/podspec"
	"cloop.dev/cloop/internal/pool"
)

// The cache holds the Pods that carry a pool's label, so that it does not grow with
// those of others; a NetworkPolicy finds runners by labels too. Somebody may take
// them off. Whose a Pod is says its owner, which Secret is its own says its name,
// and what its mint key is says the one, the other or the hub: labels and
// annotations are put back from there.

// poolIndex finds the runners' Pods and Secrets of a pool in the cache: by the
// pool's name, or by anchorKey and the name of its anchor.
const (
	poolIndex = "pool"
	anchorKey = "anchor:"
)

func indexPools(mgr ctrl.Manager) error {
	for _, object := range []client.Object{&corev1.Pod{}, metadataOf("Secret")} {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), object, poolIndex, indexOf); err != nil {
			return fmt.Errorf("index %T by pool: %w", object, err)
		}
	}
	return nil
}

func indexOf(object client.Object) []string {
	if name := runnersPool(object); name != "" {
		return []string{name}
	}
	if name := anchorOf(object); name != "" {
		return []string{anchorKey + name}
	}
	return nil
}

// runnersPool names the pool whose runner a Pod or a Secret is; empty for any other
// object. The label cannot tell: of a long name it holds a short form, which is a
// legal name too.
func runnersPool(object client.Object) string {
	if owner := metav1.GetControllerOf(object); owner != nil {
		if group, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && group.Group == v1alpha1.Group && owner.Kind == v1alpha1.ExecutorPoolKind {
			return owner.Name
		}
	}
	annotations := object.GetAnnotations()
	if annotations[v1alpha1.AnnotationMintKey] == "" && !strings.HasPrefix(object.GetName(), podspec.SecretPrefix) {
		return "" // an anchor
	}
	return annotations[v1alpha1.AnnotationPoolName]
}

// anchorOf names the anchor that owns an object; empty where none does. An anchor
// stays an owner when the pool goes.
func anchorOf(object client.Object) string {
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == "ConfigMap" && podspec.IsAnchorName(owner.Name) {
			return owner.Name
		}
	}
	return ""
}

// isRunnerOf says whether a Pod or a Secret is of a runner of the pool.
func isRunnerOf(of types.NamespacedName, object client.Object) bool {
	if name := runnersPool(object); name != "" {
		return name == of.Name
	}
	return anchorOf(object) == podspec.AnchorName(of.Name)
}

// cachedOf are the runners' objects of a pool that the cache has.
func cachedOf[L client.ObjectList](ctx context.Context, r *executorPoolReconciler, of types.NamespacedName, byName, byAnchor L) error {
	for value, list := range map[string]L{of.Name: byName, anchorKey + podspec.AnchorName(of.Name): byAnchor} {
		if err := r.client.List(ctx, list, client.InNamespace(of.Namespace), client.MatchingFields{poolIndex: value}); err != nil {
			return fmt.Errorf("list what is of ExecutorPool %s: %w", of, err)
		}
	}
	return nil
}

// cachedPods are the pool's Pods that the cache has.
func (r *executorPoolReconciler) cachedPods(ctx context.Context, of types.NamespacedName) ([]corev1.Pod, error) {
	byName, byAnchor := &corev1.PodList{}, &corev1.PodList{}
	err := cachedOf(ctx, r, of, byName, byAnchor)
	return append(byName.Items, byAnchor.Items...), err
}

// cachedSecrets are the pool's Secrets that the cache has.
func (r *executorPoolReconciler) cachedSecrets(ctx context.Context, of types.NamespacedName) ([]metav1.PartialObjectMetadata, error) {
	byName, byAnchor := metadataListOf("Secret"), metadataListOf("Secret")
	err := cachedOf(ctx, r, of, byName, byAnchor)
	return append(byName.Items, byAnchor.Items...), err
}

// identity is what annotations say of a runner's Pod or Secret.
type identity struct{ key, runnerID string }

// identify is the identity of the runner with a Pod of this name, as far as it can
// be found out without a request.
func (r *executorPoolReconciler) identify(ctx context.Context, of types.NamespacedName, podName string, object client.Object) (id identity) {
	take := func(key, runnerID string) {
		// A name follows from the key, so a key that is not the Pod's shows.
		if podspec.PodName(of.Name, key) != podName {
			return
		}
		if id.key = key; id.runnerID == "" {
			id.runnerID = runnerID
		}
	}
	for _, object := range []client.Object{object, metadataOf("Secret"), &corev1.Pod{}} {
		if object.GetName() == "" {
			name := podName
			if _, isPod := object.(*corev1.Pod); !isPod {
				name = podspec.SecretOf(podName)
			}
			if r.client.Get(ctx, client.ObjectKey{Namespace: of.Namespace, Name: name}, object) != nil {
				continue
			}
		}
		annotations := object.GetAnnotations()
		if take(annotations[v1alpha1.AnnotationMintKey], annotations[v1alpha1.AnnotationRunnerID]); id.key != "" && id.runnerID != "" {
			return id
		}
	}
	if conn := r.hubs.get(of); conn != nil {
		if _, snapshot := conn.state(); snapshot != nil {
			for i := range snapshot.Runners {
				take(snapshot.Runners[i].Key, snapshot.Runners[i].ID)
			}
		}
	}
	return id
}

// marks are the labels and annotations of a runner's Pod or Secret.
func marks(of types.NamespacedName, id identity, secret bool) (labels, annotations map[string]string) {
	runner := podspec.Runner{
		Pool: &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name}},
		ID:   id.runnerID, Key: id.key,
	}
	if secret {
		return podspec.SecretMarks(runner)
	}
	return podspec.PodMarks(runner)
}

// unmarked says whether an object lacks a mark that it should have.
func unmarked(object client.Object, of types.NamespacedName, id identity, secret bool) bool {
	labels, annotations := marks(of, id, secret)
	return !contains(object.GetLabels(), labels) || !contains(object.GetAnnotations(), annotations)
}

// mark puts labels and annotations back. An object that is another one by now, or
// gone, is left.
func (r *executorPoolReconciler) mark(ctx context.Context, kind, name string, uid types.UID, of types.NamespacedName, id identity) error {
	labels, annotations := marks(of, id, kind == "Secret")
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "labels": labels, "annotations": annotations}})
	if err != nil {
		panic(err) // only strings go in
	}
	object := metadataOf(kind)
	object.Namespace, object.Name = of.Namespace, name
	err = r.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, data))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("put the labels of %s %s back: %w", kind, name, err)
	}
	logf.FromContext(ctx).Info("puts labels and annotations back that somebody took off", "pool", of.Name, "kind", kind, "name", name)
	return nil
}

// mark puts marks back, as long as nobody takes them off again and again.
func (a *actor) mark(ctx context.Context, all []pool.Marking) (again time.Duration) {
	if len(all) == 0 {
		return 0
	}
	now := a.clock.Now()
	if at, may := a.o.memory.marking.enter(now); !may {
		return at.Sub(now)
	}
	each(all, func(m pool.Marking) {
		kind, uid := "Pod", a.podUID(m.Name)
		if m.Secret {
			kind, uid = "Secret", a.o.secrets[m.Name].GetUID()
		}
		a.failIf(a.executorPoolReconciler.mark(ctx, kind, m.Name, uid, a.o.name(), identity{m.Key, m.RunnerID}))
	})
	return 0
}

// markAnchor puts the label back on an anchor: without it the cache never shows it.
func (a *actor) markAnchor(ctx context.Context, anchor *corev1.ConfigMap) error {
	wanted, before := podspec.Anchor(a.o.xpool), anchor.DeepCopy()
	if contains(anchor.Labels, wanted.Labels) && contains(anchor.Annotations, wanted.Annotations) {
		return nil
	}
	metav1.SetMetaDataLabel(&anchor.ObjectMeta, v1alpha1.LabelExecutorPool, wanted.Labels[v1alpha1.LabelExecutorPool])
	metav1.SetMetaDataAnnotation(&anchor.ObjectMeta, v1alpha1.AnnotationPoolName, wanted.Annotations[v1alpha1.AnnotationPoolName])
	return a.client.Patch(ctx, anchor, client.MergeFrom(before))
}

// podHandler notes the Pods that go from the cache without having been deleted, as
// far as the cache has seen.
type podHandler struct {
	handler.EventHandler
	vanished func(client.Object)
}

// Delete is handler.EventHandler's.
func (h podHandler) Delete(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	h.vanished(e.Object)
	h.EventHandler.Delete(ctx, e, queue)
}

func (r *executorPoolReconciler) vanished(object client.Object) {
	name := runnersPool(object)
	if object.GetDeletionTimestamp() != nil || name == "" {
		return
	}
	of := types.NamespacedName{Namespace: object.GetNamespace(), Name: name}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost[of] = append(r.lost[of], object.GetName())
}

// regain finds the pool's Pods that the cache does not show any more although they
// exist, and puts the label back by which it does: those that have just gone from
// it, and now and then all that there are.
func (r *executorPoolReconciler) regain(ctx context.Context, of types.NamespacedName) error {
	r.mu.Lock()
	lost := r.lost[of]
	delete(r.lost, of)
	now := r.clock.Now()
	due := now.Sub(r.sweptAt) >= lookAgain
	if due {
		r.sweptAt = now
	}
	r.mu.Unlock()
	for i, name := range lost {
		pod := metadataOf("Pod")
		err := r.live.Get(ctx, client.ObjectKey{Namespace: of.Namespace, Name: name}, pod)
		if err == nil {
			err = r.regainPod(ctx, of, pod)
		}
		if client.IgnoreNotFound(err) != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.lost[of] = append(r.lost[of], lost[i:]...)
			return fmt.Errorf("look for Pod %s: %w", name, err)
		}
	}
	if !due {
		return nil
	}
	_, err := r.strays(ctx, of.Namespace, nil)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sweptAt = time.Time{}
	}
	return err
}

// regainPod puts the label back on a runner's Pod that lacks it.
func (r *executorPoolReconciler) regainPod(ctx context.Context, of types.NamespacedName, pod *metav1.PartialObjectMetadata) error {
	if _, cached := pod.Labels[v1alpha1.LabelExecutorPool]; cached || pod.DeletionTimestamp != nil {
		return nil
	}
	return r.mark(ctx, "Pod", pod.Name, pod.UID, of, r.identify(ctx, of, pod.Name, pod))
}

// unlabelled selects what the cache does not hold.
var unlabelled = func() labels.Selector {
	lacks, err := labels.NewRequirement(v1alpha1.LabelExecutorPool, selection.DoesNotExist, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	return labels.NewSelector().Add(*lacks)
}()

// straysAtOnce are read of the API server in one answer.
const straysAtOnce = 500

// strays asks the API server for the Pods that the cache does not hold, puts the
// label back on those that are runners, and says whether one is of the pool.
func (r *executorPoolReconciler) strays(ctx context.Context, namespace string, of *types.NamespacedName) (found bool, err error) {
	pools := &v1alpha1.ExecutorPoolList{}
	if err := r.client.List(ctx, pools, client.InNamespace(namespace)); err != nil {
		return false, fmt.Errorf("list ExecutorPools: %w", err)
	}
	anchors := map[string]string{} // name → its pool's
	for i := range pools.Items {
		anchors[podspec.AnchorName(pools.Items[i].Name)] = pools.Items[i].Name
	}
	if of != nil {
		anchors[podspec.AnchorName(of.Name)] = of.Name // that pool may be gone
	}
	page := metadataListOf("Pod")
	for {
		err := r.live.List(ctx, page, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: unlabelled},
			client.Limit(straysAtOnce), client.Continue(page.Continue))
		if err != nil {
			return found, fmt.Errorf("look for Pods without a label in %s: %w", namespace, err)
		}
		for i := range page.Items {
			pod := &page.Items[i]
			name := cmp.Or(runnersPool(pod), anchors[anchorOf(pod)])
			if name == "" {
				continue
			}
			found = found || of != nil && name == of.Name
			if err := r.regainPod(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod); err != nil {
				return found, err
			}
		}
		if page.Continue == "" {
			return found, nil
		}
	}
}
