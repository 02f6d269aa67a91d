package dev

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

// Dump is the state of hub and cluster as text that two systems with the same
// history agree on: no ids, times, ports, keys or counters of attempts.
func (s *System) Dump(ctx context.Context) (string, error) {
	var b strings.Builder
	for _, part := range []func(context.Context, *strings.Builder) error{s.dumpHub, s.dumpRuns, s.dumpCluster} {
		if err := part(ctx, &b); err != nil {
			return "", err
		}
	}
	return strings.NewReplacer(s.HubURL, "HUB", s.HubPin, "PIN", s.GitURL("fleet"), "FLEET", s.GitURL(ProjectName), "PROJECT").Replace(b.String()), nil
}

func (s *System) dumpHub(ctx context.Context, b *strings.Builder) error {
	pools, err := s.Hub.ListPools(ctx)
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, pool := range pools {
		names["pool:"+pool.ID] = pool.Name
		definition, err := json.Marshal(pool.PoolDefinition)
		if err != nil {
			return err
		}
		path := ""
		if pool.Source != nil {
			path = pool.Source.Path
		}
		fmt.Fprintf(b, "hub pool %s %s from %q cordon %v queued %d idle %d busy %d starting %d retiring %d: %s\n", pool.Name, pool.State, path,
			pool.Cordon != nil, pool.Queued, pool.Runners.Idle, pool.Runners.Busy, pool.Runners.Starting, pool.Runners.Retiring, definition)
	}
	projects, err := s.Hub.ListProjects(ctx)
	if err != nil {
		return err
	}
	for _, project := range projects {
		bound := names[project.ExecutorID]
		if bound == "" && project.ExecutorID != "" {
			bound = "a pool that is gone"
		}
		fmt.Fprintf(b, "hub project %s at %s bound to %s\n", project.Name, project.Remote, bound)
	}
	sync, err := s.Hub.GetSync(ctx, SyncName)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "hub sync %s %s, up to date %v, pools %v\n", sync.Name, sync.State, sync.LastAppliedRevision == sync.LastAttemptedRevision, sync.Pools)
	return nil
}

func (s *System) dumpRuns(ctx context.Context, b *strings.Builder) error {
	runs, err := s.Hub.ListRuns(ctx, ProjectName, 1000)
	if err != nil {
		return err
	}
	slices.SortFunc(runs, func(a, b hubv1.Run) int { return a.QueuedAt.Compare(b.QueuedAt) })
	for _, run := range runs {
		code := "none"
		if run.ExitCode != nil {
			code = fmt.Sprint(*run.ExitCode)
		}
		fmt.Fprintf(b, "hub run %q %s exit code %s\n", run.Command, run.State, code)
	}
	return nil
}

func (s *System) dumpCluster(ctx context.Context, b *strings.Builder) error {
	var pools v1alpha1.ExecutorPoolList
	if err := s.Cluster.List(ctx, &pools); err != nil {
		return err
	}
	for _, pool := range pools.Items {
		pool.Spec.HubCABundle = ""
		spec, err := json.Marshal(pool.Spec)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "cluster pool %s/%s ready %v runners %d idle %d busy %d: %s\n", pool.Namespace, pool.Name,
			meta.IsStatusConditionTrue(pool.Status.Conditions, v1alpha1.ConditionReady), pool.Status.Runners, pool.Status.Idle, pool.Status.Busy, spec)
		for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.SecretList{}, &corev1.ConfigMapList{}} {
			if err := s.Cluster.List(ctx, list, client.InNamespace(pool.Namespace), client.MatchingLabels{v1alpha1.LabelExecutorPool: pool.Name}); err != nil {
				return err
			}
			fmt.Fprintf(b, "cluster pool %s/%s has %d in its %T\n", pool.Namespace, pool.Name, lengthOf(list), list)
		}
	}
	// Whatever carries no living pool's name is left over.
	var left corev1.PodList
	if err := s.Cluster.List(ctx, &left, client.InNamespace(PoolNamespace), client.HasLabels{v1alpha1.LabelExecutorPool}); err != nil {
		return err
	}
	fmt.Fprintf(b, "cluster runner Pods %d\n", len(left.Items))
	var syncs v1alpha1.PoolSyncList
	if err := s.Cluster.List(ctx, &syncs); err != nil {
		return err
	}
	for _, sync := range syncs.Items {
		fmt.Fprintf(b, "cluster sync %s/%s ready %v, up to date %v\n", sync.Namespace, sync.Name,
			meta.IsStatusConditionTrue(sync.Status.Conditions, v1alpha1.ConditionReady), sync.Status.LastAppliedRevision == sync.Status.LastAttemptedRevision)
		for _, entry := range sync.Status.Inventory {
			fmt.Fprintf(b, "cluster sync %s/%s applied %s %s/%s\n", sync.Namespace, sync.Name, entry.Kind, entry.Namespace, entry.Name)
		}
	}
	return nil
}
