package dev

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/kustomize"
	"cloop.dev/cloop/schemas"
)

const (
	// fieldManager of what the system installs.
	fieldManager   = "cloop-dev"
	managedByLabel = "app.kubernetes.io/managed-by"
	managedByDev   = "cloop-dev"
	// tokenLifetime of the controllers' ServiceAccount tokens: nothing renews
	// them, and Up makes new ones.
	tokenLifetime = 365 * 24 * time.Hour
)

// contextName is the context in the controllers' kubeconfigs.
const contextName = "dev"

// install puts into the cluster what a platform team would install by hand:
// definitions, namespaces, roles, and the PoolSync that follows the fleet
// repository.
func (s *System) install(ctx context.Context) error {
	if s.state.Kubeconfig != "" {
		if err := s.claim(ctx); err != nil {
			return err
		}
	}
	if err := s.installDefinitions(ctx); err != nil {
		return err
	}
	objects, err := s.wanted()
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := s.apply(ctx, object); err != nil {
			return err
		}
	}
	for _, part := range []string{executorPart, fleetPart} {
		if err := s.writeKubeconfig(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (s *System) installDefinitions(ctx context.Context) error {
	definitions, err := schemas.CRDs()
	if err != nil {
		return err
	}
	for _, definition := range definitions {
		if err := s.apply(ctx, definition); err != nil {
			return err
		}
		err := eventually(ctx, "wait for "+definition.Name, func(ctx context.Context) error {
			var crd apiextensionsv1.CustomResourceDefinition
			if err := s.Cluster.Get(ctx, client.ObjectKeyFromObject(definition), &crd); err != nil {
				return err
			}
			for _, condition := range crd.Status.Conditions {
				if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
					return nil
				}
			}
			return errors.New("it is not established")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// wanted are the objects beside the definitions, in the order to apply them.
func (s *System) wanted() ([]client.Object, error) {
	roles, err := kustomize.Roles(kustomize.Namespaces{Executor: PoolNamespace, Fleet: FleetNamespace})
	if err != nil {
		return nil, err
	}
	objects := []client.Object{
		// Runner Pods must meet the restricted profile; here the API server
		// says so if they do not.
		namespace(PoolNamespace, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}),
		namespace(FleetNamespace, nil),
	}
	for _, role := range roles {
		objects = append(objects, role)
	}
	return append(objects,
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: FleetNamespace, Name: "fleet-git"},
			Data:       map[string][]byte{"ca.crt": s.ca.Certificate},
		},
		&v1alpha1.PoolSync{
			ObjectMeta: metav1.ObjectMeta{Namespace: FleetNamespace, Name: SyncName},
			Spec: v1alpha1.PoolSyncSpec{
				Interval: metav1.Duration{Duration: time.Minute},
				Timeout:  metav1.Duration{Duration: time.Minute},
				Source: v1alpha1.PoolSyncSource{Git: v1alpha1.GitSource{
					URL: s.GitURL("fleet"), Ref: v1alpha1.GitRef{Branch: branch}, SecretRef: &v1alpha1.LocalObjectReference{Name: "fleet-git"},
				}},
				Path:  "./clusters/dev",
				Prune: true,
				// One pool of two is half; a fleet this small needs room.
				PruneLimit: v1alpha1.PruneLimit{Count: 5, Percent: 60},
				Drift:      v1alpha1.DriftPolicy{Mode: v1alpha1.DriftCorrect},
			},
		},
	), nil
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	all := map[string]string{managedByLabel: managedByDev}
	maps.Copy(all, labels)
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all}}
}

// apply applies an object server-side, as kubectl apply --server-side would.
func (s *System) apply(ctx context.Context, object client.Object) error {
	gvk, err := s.Cluster.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[managedByLabel], labels[systemLabel] = managedByDev, s.mark
	u.SetLabels(labels)
	err = s.Cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// writeKubeconfig gives a controller the rights of its own ServiceAccount and
// no more, as it has in a cluster.
func (s *System) writeKubeconfig(ctx context.Context, part string) error {
	namespace, account := PoolNamespace, kustomize.ExecutorServiceAccount
	if part == fleetPart {
		namespace, account = FleetNamespace, kustomize.FleetServiceAccount
	}
	seconds := int64(tokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := s.Cluster.SubResource("token").Create(ctx, owner, request); err != nil {
		return fmt.Errorf("make a token for ServiceAccount %s/%s: %w", namespace, account, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = &clientcmdapi.Cluster{
		Server: s.rest.Host, CertificateAuthority: s.rest.CAFile, CertificateAuthorityData: s.rest.CAData,
	}
	config.AuthInfos[part] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: part, Namespace: namespace}
	config.CurrentContext = contextName
	if err := os.MkdirAll(s.path("kubeconfig"), 0o700); err != nil {
		return err
	}
	return clientcmd.WriteToFile(*config, s.path("kubeconfig", part))
}

// withdrawTimeout bounds the wait for pools in an existing cluster to drain.
const withdrawTimeout = 30 * time.Second

// withdraw takes the pools out of an existing cluster while the controllers
// still run, so that they clean up themselves.
func (s *System) withdraw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, withdrawTimeout)
	defer cancel()
	sync := &v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: FleetNamespace, Name: SyncName}}
	if err := s.Cluster.Get(ctx, client.ObjectKeyFromObject(sync), sync); absent(err) || err == nil && !s.ours(sync) {
		return nil
	} else if err != nil {
		return err
	}
	if err := client.IgnoreNotFound(s.Cluster.Delete(ctx, sync)); err != nil {
		return err
	}
	err := until(ctx, "the pools are gone", func(ctx context.Context) error {
		err := s.Cluster.Get(ctx, client.ObjectKeyFromObject(sync), sync)
		if absent(err) {
			return nil
		}
		return errors.Join(errors.New("the PoolSync is there"), err)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		// A part may be dead. What is left is removed by hand below.
		return nil
	}
	return err
}

// uninstall removes from an existing cluster what install made there, and only
// what carries our mark.
func (s *System) uninstall(ctx context.Context) error {
	own, err := s.ownNamespaces(ctx)
	if err != nil {
		return err
	}
	for _, namespace := range own {
		if err := s.release(ctx, namespace); err != nil {
			return err
		}
	}
	objects, err := s.installed()
	if err != nil {
		return err
	}
	for _, object := range slices.Backward(objects) {
		if err := s.removeMarked(ctx, object); err != nil {
			return err
		}
	}
	if slices.Contains(own, PoolNamespace) {
		// The node has no mark: its name is ours, and so is where its Pods are.
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName}}
		if err := client.IgnoreNotFound(s.Cluster.Delete(ctx, node)); err != nil {
			return err
		}
	}
	// Namespaces and definitions take a while to go with what is in them.
	ctx, cancel := context.WithTimeout(ctx, withdrawTimeout)
	defer cancel()
	for _, object := range objects {
		if err := s.removed(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// removed waits until an object is gone, unless it never was ours.
func (s *System) removed(ctx context.Context, object client.Object) error {
	return until(ctx, fmt.Sprintf("remove %T %s", object, object.GetName()), func(ctx context.Context) error {
		err := s.Cluster.Get(ctx, client.ObjectKeyFromObject(object), object)
		switch {
		case absent(err) || err == nil && !s.ours(object):
			return nil
		case err != nil:
			return err
		}
		return errors.New("it is being deleted")
	})
}

// release lets the objects in a namespace of ours go though their controllers
// and their node are gone.
func (s *System) release(ctx context.Context, namespace string) error {
	for _, list := range []client.ObjectList{&v1alpha1.PoolSyncList{}, &v1alpha1.ExecutorPoolList{}} {
		if err := s.Cluster.List(ctx, list, client.InNamespace(namespace)); absent(err) {
			continue
		} else if err != nil {
			return err
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			object := item.(client.Object)
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
			return client.IgnoreNotFound(s.Cluster.Patch(ctx, object, patch))
		})
		if err != nil {
			return err
		}
	}
	var pods corev1.PodList
	if err := s.Cluster.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range pods.Items {
		// Nobody would confirm the end.
		if err := client.IgnoreNotFound(s.Cluster.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))); err != nil {
			return err
		}
	}
	return nil
}

// removeMarked deletes an object if install made it.
func (s *System) removeMarked(ctx context.Context, object client.Object) error {
	err := s.Cluster.Get(ctx, client.ObjectKeyFromObject(object), object)
	if absent(err) {
		return nil
	} else if err != nil {
		return err
	}
	if !s.ours(object) {
		return nil
	}
	return client.IgnoreNotFound(s.Cluster.Delete(ctx, object))
}

// absent says whether an object, or its whole kind, is not there.
func absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }
