package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
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
		Long: `Have the hub and the clusters sync from Git now: the hub's syncs, the
PoolSyncs of the clusters, the Kustomizations of Flux and Applications of Argo CD
that ExecutorPools name as what applies them, and the sources of Flux that these
read. What is suspended is left alone. DRIFT counts as fleet status does, and changes
nothing of the exit code.

Exit code 0: all were asked and, with --wait, are ready; 1: not so; 2: it could
not be done.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := notNegative(cmd, "timeout", timeout); err != nil {
				return err
			}
			found, err := a.look(where)
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
		if wait || len(status.Items) == 0 {
			printStatus(w, status)
		}
		for _, item := range status.Items {
			switch {
			case item.Left != "":
				say(w, "Left %s of %s alone: %s.\n", item.Name, item.Surface, item.Left)
			case !wait:
				say(w, "Asked %s to sync %s now.\n", item.Surface, item.Name)
			}
		}
	})
	if err != nil {
		return err
	}
	if !status.Healthy {
		return &No{}
	}
	return nil
}

// asked is a sync that was asked to run, or left alone.
type asked struct {
	status syncStatus
	// wait returns what came of it; nil where it was left alone.
	wait func() (syncStatus, error)
}

// reconcile asks every sync first, so that all run at once, and then waits for
// each. It is healthy where all were asked and, having waited, are ready.
func (a *app) reconcile(ctx context.Context, found surfaces, wait bool) (fleetStatus, error) {
	status := fleetStatus{Healthy: true, Items: []syncStatus{}}
	all, err := askHub(ctx, found.hub)
	if err != nil {
		return status, err
	}
	at := time.Now().UTC().Format(time.RFC3339Nano)
	for _, cluster := range found.clusters {
		asker := &asker{ctx: ctx, cluster: cluster, at: at, sources: map[v1alpha1.SourceReference]*askedSource{}}
		for _, ask := range []func() ([]asked, error){asker.poolSyncs, asker.foreign} {
			more, err := ask()
			if err != nil {
				return status, err
			}
			all = append(all, more...)
		}
	}
	for _, one := range all {
		item := one.status
		if wait && one.wait != nil {
			if item, err = one.wait(); err != nil {
				return status, err
			}
		}
		status.Items = append(status.Items, item)
		if item.Left != "" || wait && item.Ready != string(metav1.ConditionTrue) {
			status.Healthy = false
		}
	}
	return status, status.compare(ctx, found, wait)
}

// compare counts where hub and clusters disagree, as fleet status does. Having waited,
// that is shown, also for pools that nobody was asked to apply.
func (s *fleetStatus) compare(ctx context.Context, found surfaces, waited bool) error {
	for _, cluster := range found.clusters {
		pools, err := executorPoolsOf(ctx, cluster)
		if err != nil {
			return err
		}
		if alone := s.countPools(cluster.name, pools); waited {
			s.Items = append(s.Items, alone...)
		}
	}
	return nil
}

// askHub asks the hub for its syncs; nil has none.
func askHub(ctx context.Context, hub *hubclient.Client) (all []asked, err error) {
	if hub == nil {
		return nil, nil
	}
	syncs, err := hub.ListSyncs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the hub's syncs: %w", err)
	}
	for _, sync := range syncs {
		if _, err := hub.ReconcileSync(ctx, sync.Name); err != nil {
			return nil, fmt.Errorf("ask the hub to sync %s: %w", sync.Name, err)
		}
		all = append(all, asked{hubSyncStatus(sync), func() (syncStatus, error) { return waitHubSync(ctx, hub, sync) }})
	}
	return all, nil
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
