package processnode

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// The kubelet's own times: the controller manager calls a node lost after 50
// seconds without a sign, and the status needs a refresh only for people, as
// long as nobody says anything else (followSelf).
const (
	leaseSeconds    = 40
	leaseEvery      = 10 * time.Second
	statusEvery     = 5 * time.Minute
	reasonNodeReady = "ProcessNodeReady"
)

// register makes the Node object, or takes over the one that an earlier run
// made, and reports it ready.
func (n *node) register(ctx context.Context) error {
	nodes := n.client.CoreV1().Nodes()
	wanted := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.NodeName, Labels: map[string]string{
			corev1.LabelHostname: n.NodeName, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
			"cloop.dev/process-node": "true",
		}},
		// With its status from the start, the scheduler need not wait.
		Status: n.status(corev1.ConditionTrue, reasonNodeReady),
	}
	_, err := nodes.Create(ctx, wanted, metav1.CreateOptions{})
	if err == nil || !apierrors.IsAlreadyExists(err) {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": wanted.Labels}})
	if err != nil {
		return err
	}
	if _, err := nodes.Patch(ctx, n.NodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	return n.patchReady(ctx, corev1.ConditionTrue, reasonNodeReady)
}

func (n *node) patchReady(ctx context.Context, ready corev1.ConditionStatus, reason string) error {
	patch, err := json.Marshal(map[string]any{"status": n.status(ready, reason)})
	if err != nil {
		return err
	}
	_, err = n.client.CoreV1().Nodes().Patch(ctx, n.NodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func (n *node) status(ready corev1.ConditionStatus, reason string) corev1.NodeStatus {
	capacity := corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceCPU: resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
	maps.Copy(capacity, n.Capacity)
	now, since := metav1.NewTime(n.Clock.Now()), metav1.NewTime(n.since)
	conditions := []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: ready, Reason: reason, Message: "runs Pods as processes, without isolation",
		LastHeartbeatTime: now, LastTransitionTime: since,
	}}
	for _, pressure := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		conditions = append(conditions, corev1.NodeCondition{
			Type: pressure, Status: corev1.ConditionFalse, Reason: "NotMeasured", LastHeartbeatTime: now, LastTransitionTime: since,
		})
	}
	return corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity, Conditions: conditions,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: n.NodeName}, {Type: corev1.NodeInternalIP, Address: nodeIP},
		},
		NodeInfo: corev1.NodeSystemInfo{
			OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH, KubeletVersion: "process-node", ContainerRuntimeVersion: "process://none",
		},
	}
}

// heartbeat shows until the context ends that the node lives. lost wakes it
// when the API has another word on that.
func (n *node) heartbeat(ctx context.Context, lost <-chan struct{}) {
	lease, status := n.Clock.NewTicker(leaseEvery), n.Clock.NewTicker(statusEvery)
	defer lease.Stop()
	defer status.Stop()
	var held *coordinationv1.Lease
	for {
		var err error
		if held, err = n.renew(ctx, held); err != nil && ctx.Err() == nil {
			n.Log.Warn("cannot renew the node's lease", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-lease.C():
			continue
		case <-status.C():
		case <-lost:
			n.Log.Warn("the node is not known to be ready; it says so again")
			n.since = n.Clock.Now()
		}
		if err := retry(ctx, n.Clock, func() error { return n.register(ctx) }); err != nil && ctx.Err() == nil {
			n.Log.Warn("cannot refresh the node's status", "error", err)
		}
	}
}

// followSelf wakes the heartbeat, until the context ends, when the Node object
// is gone or not Ready. The controller manager takes a node that was silent, be
// it stopped or without the API, for lost and keeps Pods away from it, and in
// the end evicts those it has; a renewed lease alone does not change its mind.
func (n *node) followSelf(ctx context.Context, lost chan<- struct{}) {
	wake := func() {
		select {
		case lost <- struct{}{}:
		default: // it is awake already
		}
	}
	look := func(object any) {
		if node, ok := object.(*corev1.Node); ok && !ready(node) {
			wake()
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(n.client.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll,
			fields.OneTermEqualSelector(metav1.ObjectNameField, n.NodeName)),
		ObjectType: &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: look, UpdateFunc: func(_, object any) { look(object) }, DeleteFunc: func(any) { wake() },
		},
	})
	controller.RunWithContext(ctx)
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// renew renews the lease that is held; after an error it is read again.
func (n *node) renew(ctx context.Context, held *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	leases := n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(n.Clock.Now())
	if held == nil {
		found, err := leases.Get(ctx, n.NodeName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return leases.Create(ctx, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: n.NodeName, Namespace: corev1.NamespaceNodeLease},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: &n.NodeName, LeaseDurationSeconds: new(int32(leaseSeconds)), RenewTime: &now,
				},
			}, metav1.CreateOptions{})
		}
		if err != nil {
			return nil, err
		}
		held = found
	}
	held = held.DeepCopy()
	held.Spec.HolderIdentity, held.Spec.LeaseDurationSeconds, held.Spec.RenewTime = &n.NodeName, new(int32(leaseSeconds)), &now
	renewed, err := leases.Update(ctx, held, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("lease %s: %w", n.NodeName, err)
	}
	return renewed, nil
}
