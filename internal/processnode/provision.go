package processnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"cloop.dev/cloop/internal/removal"
)

const (
	// StorageClass is the class of volumes that the node makes, and the
	// cluster's default.
	StorageClass = "cloop-process-node"
	// Provisioner is the name that the class knows the node's provisioner by.
	Provisioner = "cloop.dev/process-node"

	// Kubernetes' own annotations: the scheduler names the node, the volume
	// binder the provisioner, the provisioner itself.
	annotationSelectedNode  = "volume.kubernetes.io/selected-node"
	annotationProvisioner   = "volume.kubernetes.io/storage-provisioner"
	annotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
	annotationDefaultClass  = "storageclass.kubernetes.io/is-default-class"
)

// volumeDir is the directory of a volume that the node made.
func volumeDir(volume *corev1.PersistentVolume, claims string) (string, bool) {
	source := volume.Spec.HostPath
	if volume.Annotations[annotationProvisionedBy] != Provisioner || source == nil || filepath.Dir(source.Path) != claims {
		return "", false
	}
	return source.Path, true
}

// provision makes and removes volumes until the context ends.
func (n *node) provision(ctx context.Context) {
	if err := retry(ctx, n.Clock, func() error { return n.makeStorageClass(ctx) }); err != nil {
		if ctx.Err() == nil {
			n.Log.Error("no volumes: cannot make the storage class", "error", err)
		}
		return
	}
	var loops sync.WaitGroup
	loops.Go(func() {
		follow(ctx, n, "persistentvolumeclaims", &corev1.PersistentVolumeClaim{}, n.claimChanged)
	})
	loops.Go(func() {
		follow(ctx, n, "persistentvolumes", &corev1.PersistentVolume{}, n.volumeChanged)
	})
	loops.Wait()
}

// follow calls a function for every object of a resource and each of its
// changes. An error is retried with the object as it was: what changed
// meanwhile comes again anyway, and every function allows for repetition.
func follow[T runtime.Object](ctx context.Context, n *node, resource string, example T, act func(context.Context, T) error) {
	handle := func(object any) {
		err := retry(ctx, n.Clock, func() error { return act(ctx, object.(T)) })
		if err != nil && ctx.Err() == nil {
			n.Log.Error("cannot serve a claim or volume", "resource", resource, "error", err)
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(n.client.CoreV1().RESTClient(), resource, corev1.NamespaceAll, fields.Everything()),
		ObjectType:    example,
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: handle, UpdateFunc: func(_, object any) { handle(object) }},
	})
	controller.RunWithContext(ctx)
}

func (n *node) makeStorageClass(ctx context.Context) error {
	_, err := n.client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: StorageClass, Annotations: map[string]string{annotationDefaultClass: "true"}},
		Provisioner:       Provisioner,
		ReclaimPolicy:     new(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// claimChanged makes the volume of a claim once the scheduler has chosen this
// node for the Pod that wants it. The controller manager binds the two.
func (n *node) claimChanged(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Annotations[annotationProvisioner] != Provisioner || claim.Annotations[annotationSelectedNode] != n.NodeName ||
		claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
		return nil
	}
	class, err := n.client.StorageV1().StorageClasses().Get(ctx, *claim.Spec.StorageClassName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("class of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	dir := filepath.Join(n.store.claims(), entryName(claim.Namespace, claim.Name, claim.UID))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	_, err = n.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		// The name makes the second attempt a conflict, not a second volume.
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-" + string(claim.UID), Annotations: map[string]string{annotationProvisionedBy: Provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class.Name, PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
			AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
			Capacity: corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{n.NodeName},
				}},
			}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("volume of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// volumeChanged removes a volume, with its data, that its claim has left.
func (n *node) volumeChanged(ctx context.Context, volume *corev1.PersistentVolume) error {
	dir, ours := volumeDir(volume, n.store.claims())
	if !ours || volume.Status.Phase != corev1.VolumeReleased ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	if err := removal.All(dir); err != nil {
		return err
	}
	err := n.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &volume.UID},
	})
	if err != nil && !gone(err) {
		return errors.Join(fmt.Errorf("remove volume %s", volume.Name), err)
	}
	return nil
}
