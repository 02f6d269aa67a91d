package clustertest_test

import (
	"context"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"cloop.dev/cloop/e2e/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

func TestNamespace(t *testing.T) {
	config, err := clustertest.Start(t).RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	first, second := clustertest.Namespace(t, config), clustertest.Namespace(t, config)
	if first == second {
		t.Fatalf("two namespaces are both %s", first)
	}
	client := kubernetes.NewForConfigOrDie(config)
	if _, err := client.CoreV1().ServiceAccounts(first).Get(context.Background(), "default", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestAuditLogCountsRequests(t *testing.T) {
	clustertest.Start(t)
	config, err := clustertest.Start(t, clustertest.WithAuditLog()).RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Namespace(t, config)
	data, err := os.ReadFile(clustertest.AuditLog(t))
	if err != nil || len(data) == 0 {
		t.Fatalf("audit log has %d bytes: %v", len(data), err)
	}
}

func TestInstallCRDsTwice(t *testing.T) {
	config, err := clustertest.Start(t).RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	clustertest.InstallCRDs(t, config)
	clustertest.InstallCRDs(t, config)
}
