package controllers

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/podspec"
	"cloop.dev/cloop/internal/pool"
)

// observe reads everything that a decision on the pool depends on, from caches
// and from memory.
func (r *executorPoolReconciler) observe(ctx context.Context, xpool *v1alpha1.ExecutorPool) (*observation, error) {
	o := &observation{
		xpool: xpool, found: xpool.Status, memory: r.memory(xpool),
		pods: map[string]*corev1.Pod{}, secrets: map[string]*metav1.PartialObjectMetadata{},
	}
	o.ownStatus(r.clock.Now())
	pools := &v1alpha1.ExecutorPoolList{}
	if err := r.client.List(ctx, pools, client.InNamespace(xpool.Namespace)); err != nil {
		return nil, fmt.Errorf("list ExecutorPools: %w", err)
	}
	o.snapshot = pool.Snapshot{
		Now:  r.clock.Now(),
		Pool: poolOf(xpool),
		Problems: podspec.Check(xpool, podspec.Limits{
			OwnServiceAccount: r.ownServiceAccount, DefaultImage: r.runnerImage, ForbiddenSecrets: credentialSecrets(pools),
		}),
		Unsupported: pool.Unsupported(xpool),
		Memory:      o.memory.Memory,
	}
	if err := r.observeCluster(ctx, o); err != nil {
		return nil, err
	}
	if err := r.observeHub(ctx, o); err != nil {
		return nil, err
	}
	o.snapshot.Duplicate = r.duplicate(o, pools)
	return o, nil
}

// ownStatus has the status go on from what the controller wrote last, whatever
// somebody else made of it. A cache that lags does not show that yet.
func (o *observation) ownStatus(now time.Time) {
	m := o.memory
	if m.status == nil {
		m.status = o.found.DeepCopy()
		m.status.Conditions = keepConditions(m.status.Conditions, poolConditions)
		if c := meta.FindStatusCondition(m.status.Conditions, v1alpha1.ConditionReady); c != nil && c.Reason == string(v1alpha1.ReasonPoolRevoked) {
			m.Closed = &pool.Closed{Message: c.Message, Drained: !meta.IsStatusConditionTrue(m.status.Conditions, v1alpha1.ConditionDegraded)}
		}
		for _, c := range m.status.Conditions {
			if isTrouble(c.Type, c.Status) {
				m.troubles[c.Type] = troubleOf(&c, mayPass(v1alpha1.Reason(c.Reason)), now)
			}
		}
	}
	if m.version != "" && older(o.xpool.ResourceVersion, m.version) {
		o.found = *m.status.DeepCopy()
	}
	o.xpool.Status = *m.status.DeepCopy()
}

func poolOf(xpool *v1alpha1.ExecutorPool) pool.Pool {
	return pool.Pool{
		UID:            string(xpool.UID),
		MinRunners:     xpool.Spec.MinRunners,
		MaxRunners:     xpool.Spec.MaxRunners,
		ScaleDownDelay: xpool.Spec.ScaleDownDelay.Duration,
		Deleting:       xpool.DeletionTimestamp != nil,
		ForceDelete:    xpool.Annotations[v1alpha1.AnnotationForceDelete] == "true",
		Finalizer:      controllerutil.ContainsFinalizer(xpool, v1alpha1.FinalizerExecutorPool),
	}
}

// credentialSecrets names the Secrets that hold a pool's credential.
func credentialSecrets(pools *v1alpha1.ExecutorPoolList) map[string]bool {
	names := map[string]bool{}
	for _, p := range pools.Items {
		names[p.Spec.PoolCredentialSecretRef.Name] = true
	}
	return names
}

// cacheLag is longer than a cache takes to show what was written.
const cacheLag = 30 * time.Second

// observeCluster reads the pool's Pods, Secrets and anchor from the caches.
func (r *executorPoolReconciler) observeCluster(ctx context.Context, o *observation) error {
	anchor := metadataOf("ConfigMap")
	key := client.ObjectKey{Namespace: o.xpool.Namespace, Name: podspec.AnchorName(o.xpool.Name)}
	switch err := r.client.Get(ctx, key, anchor); {
	case err == nil:
		o.snapshot.AnchorUID, o.memory.anchorUID = string(anchor.UID), ""
	case client.IgnoreNotFound(err) == nil:
		if o.snapshot.Now.Sub(o.memory.anchorAt) >= cacheLag {
			// It was deleted before the cache ever showed it. An owner that is not
			// there protects no Pod.
			o.memory.anchorUID = ""
		}
		o.snapshot.AnchorUID = string(o.memory.anchorUID)
	default:
		return fmt.Errorf("read the anchor of ExecutorPool %s: %w", o.xpool.Name, err)
	}
	if err := r.observePods(ctx, o); err != nil {
		return err
	}
	return r.observeSecrets(ctx, o)
}

func (r *executorPoolReconciler) observePods(ctx context.Context, o *observation) error {
	pods, err := r.cachedPods(ctx, o.name())
	if err != nil {
		return err
	}
	handled := map[types.UID]bool{}
	template := podspec.Template(podspec.Runner{Pool: o.xpool, Image: r.runnerImage})
	for i := range pods {
		pod := &pods[i]
		if o.memory.handled[pod.UID] {
			handled[pod.UID] = true
		}
		o.pods[pod.Name] = pod
		id := r.identify(ctx, o.name(), pod.Name, pod)
		seen := podOf(pod, types.UID(o.snapshot.AnchorUID))
		seen.Key, seen.RunnerID, seen.Unmarked = id.key, id.runnerID, unmarked(pod, o.name(), id, false)
		if seen.Key == "" {
			seen.Key, seen.Unmarked = pool.Unknown(pod.Name), false
		}
		seen.Outdated = outdated(pod, template)
		o.snapshot.Pods = append(o.snapshot.Pods, seen)
	}
	o.memory.handled = handled
	return nil
}

func (r *executorPoolReconciler) observeSecrets(ctx context.Context, o *observation) error {
	secrets, err := r.cachedSecrets(ctx, o.name())
	if err != nil {
		return err
	}
	for i := range secrets {
		o.secrets[secrets[i].Name] = &secrets[i]
	}
	for _, pod := range o.snapshot.Pods {
		name := podspec.SecretOf(pod.Name)
		if o.secrets[name] != nil {
			continue
		}
		// It may have lost its annotations.
		secret := metadataOf("Secret")
		err := r.client.Get(ctx, client.ObjectKey{Namespace: o.xpool.Namespace, Name: name}, secret)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read Secret %s: %w", name, err)
		}
		if err == nil {
			o.secrets[name] = secret
		}
	}
	for name, secret := range o.secrets {
		podName := strings.TrimPrefix(name, podspec.SecretPrefix)
		id := r.identify(ctx, o.name(), podName, secret)
		seen := secretOf(secret)
		seen.Key, seen.RunnerID, seen.Unmarked = id.key, id.runnerID, unmarked(secret, o.name(), id, true)
		if seen.Key == "" {
			seen.Key, seen.Unmarked = pool.Unknown(podName), false
		}
		o.snapshot.Secrets = append(o.snapshot.Secrets, seen)
	}
	return nil
}

// duplicate names another ExecutorPool that serves the same hub pool and comes
// before this one.
func (r *executorPoolReconciler) duplicate(o *observation, pools *v1alpha1.ExecutorPoolList) string {
	if o.snapshot.Hub == nil {
		return ""
	}
	for i := range pools.Items {
		other := &pools.Items[i]
		if other.UID == o.xpool.UID || !r.serveTheSame(o, other) {
			continue
		}
		if precedes(other, o.xpool, o.snapshot.Hub.Pool.Name) {
			return other.Name
		}
	}
	// One in another namespace or cluster, which only the hub can see.
	return o.snapshot.Hub.Duplicate
}

// precedes says which of two ExecutorPools with one hub pool's credential serves
// it: the one that names it, so that a credential put into the wrong Secret takes
// nothing from its owner, and then the older one.
func precedes(a, b *v1alpha1.ExecutorPool, hubPool string) bool {
	if names := a.HubPoolName() == hubPool; names != (b.HubPoolName() == hubPool) {
		return names
	}
	if age := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); age != 0 {
		return age < 0
	}
	return a.Name < b.Name
}

// serveTheSame says whether another ExecutorPool serves the same hub pool: by what
// the hub said, and before it did, because it uses the same credential.
func (r *executorPoolReconciler) serveTheSame(o *observation, other *v1alpha1.ExecutorPool) bool {
	if id := r.hubs.poolID(client.ObjectKeyFromObject(other)); id != "" {
		return id == o.snapshot.Hub.Pool.ID
	}
	return other.Spec.HubURL == o.xpool.Spec.HubURL && other.Spec.PoolCredentialSecretRef == o.xpool.Spec.PoolCredentialSecretRef
}

// outdated says that a Pod was made of another template. One that does not say of
// which is an older controller's.
func outdated(pod *corev1.Pod, template string) bool {
	of := pod.Annotations[v1alpha1.AnnotationTemplate]
	return of != "" && of != template
}

// podOf is what a decision depends on of a Pod, without its identity.
func podOf(pod *corev1.Pod, anchor types.UID) pool.Pod {
	p := pool.Pod{
		Name:     pod.Name,
		Phase:    pool.PodPending,
		Deleting: pod.DeletionTimestamp != nil,
		Stuck:    stuck(pod),
		Created:  pod.CreationTimestamp.Time,
	}
	for _, owner := range pod.OwnerReferences {
		p.Anchored = p.Anchored || anchor != "" && owner.UID == anchor
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.Name != podspec.ContainerName {
			continue
		}
		if ended := status.State.Terminated; ended != nil {
			p.Phase = pool.PodEnded
			p.End = endOf(pod, ended)
			return p
		}
		if status.State.Running != nil {
			p.Phase = pool.PodRunning
		}
	}
	switch pod.Status.Phase {
	case corev1.PodRunning, corev1.PodUnknown:
		p.Phase = pool.PodRunning
	case corev1.PodSucceeded:
		p.Phase, p.End = pool.PodEnded, pool.End{Reason: "Completed", Message: pod.Status.Message, ExitCode: new(int32(0))}
	case corev1.PodFailed:
		// Evicted, preempted or never admitted: there is no container to ask.
		p.Phase = pool.PodEnded
		p.End.Reason, p.End.Message = whyPodEnded(pod)
	case corev1.PodPending:
	}
	return p
}

// secretOf is what a decision depends on of a runner's Secret, without its identity.
func secretOf(secret *metav1.PartialObjectMetadata) pool.Secret {
	s := pool.Secret{Name: secret.Name}
	for _, owner := range secret.OwnerReferences {
		s.Owned = s.Owned || owner.Kind == "Pod"
	}
	return s
}

func metadataOf(kind string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return m
}

func metadataListOf(kind string) *metav1.PartialObjectMetadataList {
	l := &metav1.PartialObjectMetadataList{}
	l.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
	return l
}
