package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hubclient"
)

func (a *app) newFleetReconcileCommand() *cobra.Command {
	var (
		where   surfaceFlags
		wait    bool
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "reconcile [--hub URL] [--cluster CONTEXT…] [--wait]",
		Short: "Have the hub and the clusters sync from Git now",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := notNegative(cmd, "timeout", timeout); err != nil {
				return err
			}
			found, err := a.reach(where)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the syncs have not ended within %s", timeout))
				defer cancel()
			}
			status, err := a.reconcile(ctx, found, wait)
			if err != nil {
				if ctx.Err() != nil && cmd.Context().Err() == nil {
					return fmt.Errorf("%w: %w", context.Cause(ctx), err)
				}
				return err
			}
			return a.showReconciled(status, wait)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for what comes of it")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "give up after this long; 0: never")
	where.register(cmd)
	return cmd
}

func (a *app) showReconciled(status fleetStatus, wait bool) error {
	err := a.show(status, func(w io.Writer) {
		if wait {
			printStatus(w, status)
			return
		}
		for _, item := range status.Items {
			say(w, "Asked %s to sync %s now.\n", item.Surface, item.Name)
		}
	})
	if err != nil {
		return err
	}
	if wait && !status.Healthy {
		return &No{}
	}
	return nil
}

// reconcile asks every sync first, so that all run at once, and then waits for
// each.
func (a *app) reconcile(ctx context.Context, found surfaces, wait bool) (fleetStatus, error) {
	status := fleetStatus{Healthy: true, Items: []syncStatus{}}
	var waits []func() (syncStatus, error)
	if found.hub != nil {
		syncs, err := found.hub.ListSyncs(ctx)
		if err != nil {
			return status, fmt.Errorf("list the hub's syncs: %w", err)
		}
		for _, sync := range syncs {
			if _, err := found.hub.ReconcileSync(ctx, sync.Name); err != nil {
				return status, fmt.Errorf("ask the hub to sync %s: %w", sync.Name, err)
			}
			status.Items = append(status.Items, hubSyncStatus(sync))
			waits = append(waits, func() (syncStatus, error) { return waitHubSync(ctx, found.hub, sync) })
		}
	}
	for _, cluster := range found.clusters {
		asked, err := askPoolSyncs(ctx, cluster)
		if err != nil {
			return status, err
		}
		for _, sync := range asked {
			status.Items = append(status.Items, poolSyncStatus(cluster.name, sync))
			waits = append(waits, func() (syncStatus, error) { return waitPoolSync(ctx, cluster, sync) })
		}
	}
	if !wait {
		return status, nil
	}
	for i, await := range waits {
		item, err := await()
		if err != nil {
			return status, err
		}
		status.Items[i] = item
		status.Healthy = status.Healthy && item.Ready == string(metav1.ConditionTrue)
	}
	return status, nil
}

// askPoolSyncs annotates a cluster's PoolSyncs; suspended ones are left alone.
func askPoolSyncs(ctx context.Context, cluster reachedCluster) ([]v1alpha1.PoolSync, error) {
	var syncs v1alpha1.PoolSyncList
	if err := cluster.client.List(ctx, &syncs, client.InNamespace(cluster.namespace)); err != nil {
		return nil, fmt.Errorf("list the PoolSyncs of cluster %s: %w", cluster.name, err)
	}
	var asked []v1alpha1.PoolSync
	at := time.Now().UTC().Format(time.RFC3339Nano)
	for _, sync := range syncs.Items {
		if sync.SuspendedAt(time.Now()) {
			continue
		}
		before := sync.DeepCopy()
		metav1.SetMetaDataAnnotation(&sync.ObjectMeta, fleet.AnnotationReconcile, at)
		if err := cluster.client.Patch(ctx, &sync, client.MergeFrom(before)); err != nil {
			return nil, fmt.Errorf("ask cluster %s to sync %s/%s: %w", cluster.name, sync.Namespace, sync.Name, err)
		}
		asked = append(asked, sync)
	}
	return asked, nil
}

// waitHubSync waits until a sync has run later than before it was asked.
func waitHubSync(ctx context.Context, hub *hubclient.Client, before hubv1.Sync) (syncStatus, error) {
	last := errWatchEnded
	for sync, err := range hub.WatchSync(ctx, before.Name) {
		if err != nil {
			last = err
			break
		}
		ran := sync.LastRun != nil && (before.LastRun == nil || sync.LastRun.After(*before.LastRun))
		if ran && sync.State != hubv1.SyncPending {
			return hubSyncStatus(sync), nil
		}
	}
	return syncStatus{}, fmt.Errorf("wait for the hub to sync %s: %w", before.Name, last)
}

// waitPoolSync waits until the controller has served the request and says how
// it went.
func waitPoolSync(ctx context.Context, cluster reachedCluster, asked v1alpha1.PoolSync) (syncStatus, error) {
	doing := fmt.Sprintf("wait for cluster %s to sync %s/%s", cluster.name, asked.Namespace, asked.Name)
	events, err := cluster.client.Watch(ctx, &v1alpha1.PoolSyncList{},
		client.InNamespace(asked.Namespace), client.MatchingFields{"metadata.name": asked.Name})
	if err != nil {
		return syncStatus{}, fmt.Errorf("%s: %w", doing, err)
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		sync, ok := event.Object.(*v1alpha1.PoolSync)
		switch {
		case event.Type == watch.Deleted:
			return syncStatus{}, fmt.Errorf("%s: it was deleted", doing)
		case ok && served(sync, asked.Annotations[fleet.AnnotationReconcile]):
			return poolSyncStatus(cluster.name, *sync), nil
		}
	}
	return syncStatus{}, fmt.Errorf("%s: %w", doing, errors.Join(context.Cause(ctx), errWatchEnded))
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
