package cli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/internal/fleet"
)

// foreignSyncs reads what applies pools in place of a PoolSync, as the pools name it.
// hidden says what may not be read, so that what Git wants of the cluster is not known.
func foreignSyncs(ctx context.Context, cluster reachedCluster, pools []unstructured.Unstructured) (found []fleet.ForeignSync, hidden []string, err error) {
	asked := map[fleet.ForeignReference]bool{}
	for i := range pools {
		reference, foreign := fleet.AppliedBy(&pools[i])
		if !foreign || asked[reference] {
			continue
		}
		asked[reference] = true
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(reference.GroupVersionKind())
		err := cluster.client.Get(ctx, client.ObjectKey{Namespace: reference.Namespace, Name: reference.Name}, object)
		switch {
		case apierrors.IsForbidden(err):
			hidden = append(hidden, fmt.Sprintf("%s, which applies ExecutorPools: %v", reference, err))
			continue
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			// It is gone and left them behind.
			hidden = append(hidden, fmt.Sprintf("%s, which ExecutorPools name as what applies them, is not there", reference))
			continue
		case err != nil:
			return nil, nil, fmt.Errorf("read %s of cluster %s: %w", reference, cluster.name, err)
		}
		sync := fleet.ForeignSyncOf(object)
		found = append(found, sync)
	}
	return found, hidden, nil
}
