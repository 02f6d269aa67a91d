package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster"
	"cloop.dev/cloop/internal/dev"
)

// TestExistingCluster brings the system up in a cluster that is somebody
// else's, tells the story there, and takes out what it put in and no more.
func TestExistingCluster(t *testing.T) {
	binaries, err := cluster.FindBinaries(t.Context(), testWriter{t})
	if err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(t.TempDir(), "theirs")
	t.Cleanup(func() {
		if err := cluster.Down(context.Background(), theirs); err != nil {
			t.Error(err)
		}
	})
	existing, err := cluster.Up(t.Context(), cluster.Options{Dir: theirs, Binaries: binaries})
	if err != nil {
		t.Fatal(err)
	}
	var admin client.Client
	t.Run("story", func(t *testing.T) {
		system := up(t, func(o *dev.Options) { o.Kubeconfig = existing.Kubeconfig })
		admin = system.Cluster
		story := dev.Story{System: system, Done: log(t)}
		if err := story.RunUntil(t.Context(), dev.Steps()[1]); err != nil {
			t.Fatal(err)
		}
		before := runnerPods(t, system)
		leavesAlone(t, system)
		if after := runnerPods(t, system); after != before {
			t.Errorf("another system's down changed the runners' Pods from %s to %s", before, after)
		}
		expectPools(t, system)
	})
	if admin == nil {
		t.FailNow()
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := admin.List(t.Context(), &definitions); err != nil || len(definitions.Items) > 0 {
		t.Errorf("down left %d definitions: %v", len(definitions.Items), err)
	}
	var node corev1.Node
	if err := admin.Get(t.Context(), client.ObjectKey{Name: dev.NodeName}, &node); !apierrors.IsNotFound(err) {
		t.Errorf("down left the node: %v", err)
	}
	var namespaces corev1.NamespaceList
	if err := admin.List(t.Context(), &namespaces); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, namespace := range namespaces.Items {
		if namespace.Name == dev.PoolNamespace || namespace.Name == dev.FleetNamespace {
			t.Errorf("down left namespace %s", namespace.Name)
			continue
		}
		kept++
	}
	if kept == 0 {
		t.Error("down removed the namespaces that were there before")
	}
}

// leavesAlone brings a second system up on the cluster of a first: it is
// refused, and taking it down again removes nothing of the first.
func leavesAlone(t *testing.T, first *dev.System) {
	t.Helper()
	executable, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "second")
	_, err = dev.Up(t.Context(), dev.Options{Dir: dir, Kubeconfig: first.Kubeconfig, Executable: executable, Progress: testWriter{t}})
	if err == nil || !strings.Contains(err.Error(), "this system did not make") {
		t.Errorf("a second system in one cluster: %v", err)
	}
	if err := dev.Down(t.Context(), dir); err != nil {
		t.Error(err)
	}
	var sync v1alpha1.PoolSync
	if err := first.Cluster.Get(t.Context(), client.ObjectKey{Namespace: dev.FleetNamespace, Name: dev.SyncName}, &sync); err != nil || sync.DeletionTimestamp != nil {
		t.Errorf("another system's down removed the PoolSync: %v, deleted at %v", err, sync.DeletionTimestamp)
	}
}
