package cli

import (
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// errNoCluster is a machine without a kubeconfig.
var errNoCluster = errors.New("no cluster: there is no kubeconfig; name one with --kubeconfig or KUBECONFIG")

// clusterConfig is the connection that a kubeconfig context describes, and the
// context's name. Without a file it is $KUBECONFIG, the default file or the
// Pod's own account, as with kubectl; without a context it is the current one.
func clusterConfig(kubeconfig, context string) (config *rest.Config, name string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context})
	config, err = loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, "", errNoCluster
	case err != nil && context != "":
		return nil, "", fmt.Errorf("find the cluster of context %s: %w: `kubectl config get-contexts` lists those that there are", context, err)
	case err != nil:
		return nil, "", fmt.Errorf("find the cluster: %w", err)
	}
	if name = context; name == "" {
		// A Pod's own account has no context.
		name = config.Host
		if raw, err := loader.RawConfig(); err == nil && raw.CurrentContext != "" {
			name = raw.CurrentContext
		}
	}
	config.UserAgent = "cloop/" + buildVersion().Version
	return config, name, nil
}

// clusterClient is a client for our kinds. It reads the API server itself, no
// cache, and makes no request until it is used. It asks for no discovery: the
// kinds are known, and an account may be allowed nothing but to read them.
func clusterClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{v1alpha1.ExecutorPoolKind, v1alpha1.HubPoolKind, v1alpha1.PoolSyncKind} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	// What applies pools in place of a PoolSync.
	for _, kind := range fleet.ForeignKinds() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	for _, kind := range []string{v1alpha1.SourceGitRepository, v1alpha1.SourceOCIRepository, v1alpha1.SourceBucket} {
		mapper.Add(v1alpha1.FluxSources.WithKind(kind), meta.RESTScopeNamespace)
	}
	// What PoolSyncs take variables from.
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	kinds, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster at %s: %w", config.Host, err)
	}
	return kinds, nil
}
