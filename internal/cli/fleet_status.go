package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

// syncStatus is one sync of either surface: the hub's, a PoolSync, or what applies
// pools in place of one.
type syncStatus struct {
	// Surface is "hub" or "cluster NAME".
	Surface string `json:"surface"`
	// Name is "namespace/name" in a cluster, with the kind before it unless it is a
	// PoolSync's.
	Name string `json:"name"`
	// Repository and Path that it reads.
	Repository string `json:"repository"`
	Path       string `json:"path"`
	// Ready is True, False or Unknown.
	Ready string `json:"ready"`
	// Reason and Message say why it is as it is.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// LastAppliedRevision is what it applied last, and LastAttemptedRevision what it
	// saw last.
	LastAppliedRevision   string `json:"lastAppliedRevision,omitempty"`
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`
	// Drift is how many fields differ from Git, and on how many the ExecutorPools that a
	// cluster's sync applies and their hub pools disagree; corrected ones do not count.
	Drift int `json:"drift"`
	// DriftUnknown says that nobody knows whether more does: what Git says now is not
	// known or not applied, or nobody looks.
	DriftUnknown bool `json:"driftUnknown,omitempty"`
	// Suspended says that it does nothing for now.
	Suspended bool `json:"suspended,omitempty"`
	// Suspension says who suspended it, why and until when.
	Suspension string `json:"suspension,omitempty"`
	// Unserved says why nobody acts on it: what the rest says is then as old as
	// the last controller.
	Unserved string `json:"unserved,omitempty"`
	// Left says why `fleet reconcile` did not ask it; empty: it did.
	Left string `json:"left,omitempty"`
}

// fleetStatus is what `fleet status` shows.
type fleetStatus struct {
	// Healthy is whether all are ready and nothing drifts.
	Healthy bool         `json:"healthy"`
	Items   []syncStatus `json:"items"`
}

func (a *app) newFleetStatusCommand() *cobra.Command {
	var where surfaceFlags
	cmd := &cobra.Command{
		Use:   "status [--hub URL] [--cluster CONTEXT…]",
		Short: "Show every sync of the hub and of the clusters",
		Long: `Show every sync of the hub and every PoolSync of the clusters, and the
Kustomizations of Flux and Applications of Argo CD that ExecutorPools name as
what applies them: which revision each has applied, and what is wrong where one
has not. DRIFT counts the fields that differ from Git and, where the account may
list the ExecutorPools, on which one and its hub pool disagree: fleet drift shows
each. It is ? where nobody knows: what Git says now cannot be read or is not
applied, or nobody looks.

Exit code 0: all are ready and nothing drifts; 1: not so; 2: it could not be
found out.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := a.look(where)
			if err != nil {
				return err
			}
			status, err := readStatus(cmd.Context(), found)
			if err != nil {
				return err
			}
			if err := a.show(status, func(w io.Writer) { printStatus(w, status) }); err != nil {
				return err
			}
			if !status.Healthy {
				return &No{}
			}
			return nil
		},
	}
	where.register(cmd)
	return cmd
}

func readStatus(ctx context.Context, found surfaces) (fleetStatus, error) {
	status := fleetStatus{Healthy: true, Items: []syncStatus{}}
	if found.hub != nil {
		syncs, err := found.hub.ListSyncs(ctx)
		if err != nil {
			return status, fmt.Errorf("list the hub's syncs: %w", err)
		}
		for _, sync := range syncs {
			status.Items = append(status.Items, hubSyncStatus(sync))
		}
	}
	for _, cluster := range found.clusters {
		var syncs v1alpha1.PoolSyncList
		if err := cluster.client.List(ctx, &syncs, client.InNamespace(cluster.namespace)); err != nil {
			return status, fmt.Errorf("list the PoolSyncs of cluster %s: %w", cluster.name, err)
		}
		away := unserved(ctx, cluster, syncs.Items, commit{})
		for _, sync := range syncs.Items {
			item := poolSyncStatus(cluster.name, sync)
			item.Unserved = away[item.Name]
			status.Items = append(status.Items, item)
		}
		pools, err := executorPoolsOf(ctx, cluster)
		if err != nil {
			return status, err
		}
		foreign, _, err := foreignSyncs(ctx, cluster, pools)
		if err != nil {
			return status, err
		}
		for i := range foreign {
			status.Items = append(status.Items, foreignStatus(cluster.name, &foreign[i]))
		}
		status.Items = append(status.Items, status.countPools(cluster.name, pools)...)
	}
	for _, item := range status.Items {
		if item.Ready != string(metav1.ConditionTrue) || item.Drift > 0 || item.Unserved != "" {
			status.Healthy = false
		}
	}
	return status, nil
}

// countPools counts where the ExecutorPools of a cluster differ from the hub at what
// applies them, and returns those that nothing applies that is shown.
func (s *fleetStatus) countPools(cluster string, pools []unstructured.Unstructured) (alone []syncStatus) {
	surface, at := "cluster "+cluster, map[string]int{}
	for i, item := range s.Items {
		if item.Surface == surface {
			at[item.Name] = i
		}
	}
	for i := range pools {
		pool, err := schemas.As[v1alpha1.ExecutorPool](&pools[i])
		if err != nil {
			continue // whoever applies it has said so
		}
		differ := fleet.Open(pool.Status.Drift)
		if differ == 0 {
			continue
		}
		name := pool.Labels[v1alpha1.LabelPoolSyncNamespace] + "/" + pool.Labels[v1alpha1.LabelPoolSyncName]
		if reference, foreign := fleet.AppliedBy(&pools[i]); foreign {
			name = reference.String()
		}
		if shown, is := at[name]; is {
			s.Items[shown].Drift += differ
			continue
		}
		item := syncStatus{Surface: surface, Name: v1alpha1.ExecutorPoolKind + " " + pool.Namespace + "/" + pool.Name,
			Ready: string(metav1.ConditionUnknown), Drift: differ, Message: "nothing that is shown applies it"}
		if ready := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.ObservedGeneration == pool.Generation {
			item.Ready, item.Reason = string(ready.Status), ready.Reason
		}
		alone = append(alone, item)
	}
	return alone
}

// foreignOf is what applies the pools of a cluster in place of a PoolSync, as far as the
// account may read it; hidden as foreignSyncs has it.
func foreignOf(ctx context.Context, cluster reachedCluster) (found []fleet.ForeignSync, hidden []string, err error) {
	pools, err := executorPoolsOf(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	return foreignSyncs(ctx, cluster, pools)
}

// executorPoolsOf are those of a cluster; none where the account may not list them.
func executorPoolsOf(ctx context.Context, cluster reachedCluster) ([]unstructured.Unstructured, error) {
	pools := &unstructured.UnstructuredList{}
	pools.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.ExecutorPoolKind + "List"))
	err := cluster.client.List(ctx, pools, client.InNamespace(cluster.namespace))
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the ExecutorPools of cluster %s: %w", cluster.name, err)
	}
	return pools.Items, nil
}

func foreignStatus(cluster string, f *fleet.ForeignSync) syncStatus {
	return syncStatus{
		Surface: "cluster " + cluster, Name: f.String(), Repository: f.Repository, Path: f.Path,
		Ready: string(f.Ready), Reason: f.Reason, Message: f.Message, Suspended: f.Suspended,
		LastAppliedRevision: f.LastAppliedRevision, LastAttemptedRevision: f.LastAttemptedRevision,
	}
}

func hubSyncStatus(sync hubv1.Sync) syncStatus {
	ready := map[hubv1.SyncState]metav1.ConditionStatus{
		hubv1.SyncReady: metav1.ConditionTrue, hubv1.SyncFailed: metav1.ConditionFalse,
	}[sync.State]
	if ready == "" {
		ready = metav1.ConditionUnknown
	}
	return syncStatus{
		Surface: "hub", Name: sync.Name, Repository: sync.Repository, Path: sync.Path,
		Ready: string(ready), Message: sync.Message,
		LastAppliedRevision: sync.LastAppliedRevision, LastAttemptedRevision: sync.LastAttemptedRevision,
	}
}

func poolSyncStatus(cluster string, sync v1alpha1.PoolSync) syncStatus {
	status := syncStatus{
		Surface: "cluster " + cluster, Name: sync.Namespace + "/" + sync.Name,
		Repository: sync.ReadsFrom(), Path: sync.Spec.Path, Ready: string(metav1.ConditionUnknown),
		LastAppliedRevision: sync.Status.LastAppliedRevision, LastAttemptedRevision: sync.Status.LastAttemptedRevision,
		Suspended: sync.SuspendedAt(time.Now()),
	}
	// A condition that speaks of an older spec says nothing of this one.
	if ready := meta.FindStatusCondition(sync.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.ObservedGeneration == sync.Generation {
		status.Ready, status.Reason, status.Message = string(ready.Status), ready.Reason, ready.Message
	}
	if status.Suspended {
		status.Suspension = fleet.Suspension(&sync)
		if status.Reason != string(v1alpha1.ReasonSuspended) {
			// Nobody has come to it yet.
			status.Message = strings.TrimSuffix(status.Suspension+"; before that: "+status.Message, "; before that: ")
		}
	}
	status.Drift = fleet.Open(sync.Status.Drift)
	drifted := meta.FindStatusCondition(sync.Status.Conditions, v1alpha1.ConditionDrifted)
	status.DriftUnknown = drifted != nil && drifted.Status == metav1.ConditionUnknown
	return status
}

// shownDrift is how many fields differ, for people.
func (s *syncStatus) shownDrift() string {
	if s.DriftUnknown && s.Drift == 0 {
		return "?"
	}
	return strconv.Itoa(s.Drift)
}

func printStatus(w io.Writer, status fleetStatus) {
	if len(status.Items) == 0 {
		say(w, "No sync: the hub has none in its configuration, and the clusters have no PoolSync.\n")
		return
	}
	row(w, "SURFACE", "NAME", "READY", "APPLIED", "DRIFT", "MESSAGE")
	for _, item := range status.Items {
		ready := item.Ready
		if item.Suspended {
			ready += " (suspended)"
		}
		if item.Unserved != "" {
			item.Message = strings.TrimSuffix(item.Unserved+"; before that: "+item.Message, "; before that: ")
		}
		row(w, item.Surface, item.Name, ready, dash(shortCommit(item.LastAppliedRevision)), item.shownDrift(), dash(oneLine(item.Message)))
	}
}

// shortCommit shortens the hash of a revision that may carry its branch, as in
// "main@sha1:…".
func shortCommit(revision string) string {
	if at := strings.LastIndexByte(revision, ':'); at >= 0 {
		return revision[:at+1] + fleet.Short(revision[at+1:])
	}
	return fleet.Short(revision)
}
