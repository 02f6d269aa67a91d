package e2e

import (
	"context"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
