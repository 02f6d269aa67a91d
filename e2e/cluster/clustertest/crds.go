package clustertest

import (
	"context"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"cloop.dev/cloop/schemas"
)

// InstallCRDs installs the project's kinds, or finds them installed, and waits
// until the API serves them.
func InstallCRDs(t testing.TB, config *rest.Config) {
	t.Helper()
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := schemas.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, definition := range definitions {
		_, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, definition, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("install %s: %v", definition.Name, err)
		}
	}
	for _, definition := range definitions {
		for _, version := range definition.Spec.Versions {
			if !version.Served {
				continue
			}
			// Established is said before every path of the server knows it.
			wait(ctx, t, definition.Name+" to be served", func() error {
				return client.Discovery().RESTClient().Get().Param("limit", "1").
					AbsPath("/apis", definition.Spec.Group, version.Name, definition.Spec.Names.Plural).Do(ctx).Error()
			})
		}
	}
}
