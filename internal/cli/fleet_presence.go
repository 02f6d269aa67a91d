package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// leases reads the Leases of a cluster's fleet controllers, each once.
type leases struct {
	cluster reachedCluster
	// known: namespace → its Lease, nil where there is none to be read.
	known map[string]*fleet.ControllerLease
}

func leasesOf(cluster reachedCluster) *leases {
	return &leases{cluster: cluster, known: map[string]*fleet.ControllerLease{}}
}

// in is the Lease of a namespace. An account that may not read it knows less and
// can do all else.
func (l *leases) in(ctx context.Context, namespace string) *fleet.ControllerLease {
	if lease, known := l.known[namespace]; known {
		return lease
	}
	var lease coordinationv1.Lease
	l.known[namespace] = nil
	err := l.cluster.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.FieldManagerPoolSync}, &lease)
	if err != nil || lease.Spec.RenewTime == nil {
		return nil
	}
	found := &fleet.ControllerLease{Renewed: lease.Spec.RenewTime.Time}
	if lease.Spec.HolderIdentity != nil {
		found.Holder = *lease.Spec.HolderIdentity
	}
	if lease.Spec.LeaseDurationSeconds != nil {
		found.Lasts = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	}
	l.known[namespace] = found
	return found
}

// commit is one that is pushed, and when it was made.
type commit struct {
	hash string
	made time.Time
}

// publishedCommit is the newest commit that a clone knows to be pushed.
func publishedCommit(ctx context.Context, root string, at standing) commit {
	if at.published == "" || at.unasked != nil || at.behind {
		return commit{}
	}
	text, err := git(ctx, root, "show", "--no-patch", "--format=%ct", at.published)
	if err != nil {
		return commit{} // it says no more than that nothing is known
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return commit{}
	}
	return commit{hash: at.published, made: time.Unix(seconds, 0)}
}

// unserved says of each PoolSync of a cluster that nobody acts on, why:
// namespace/name → why.
func unserved(ctx context.Context, cluster reachedCluster, syncs []v1alpha1.PoolSync, newest commit) map[string]string {
	leases, why := leasesOf(cluster), map[string]string{}
	for i := range syncs {
		sync := &syncs[i]
		pushed := newest.made
		if newest.hash == "" || strings.HasSuffix(sync.Status.LastAttemptedRevision, newest.hash) {
			pushed = time.Time{}
		}
		if text := fleet.Unserved(sync, leases.in(ctx, sync.Namespace), pushed, time.Now()); text != "" {
			why[fmt.Sprintf("%s/%s", sync.Namespace, sync.Name)] = text
		}
	}
	return why
}
