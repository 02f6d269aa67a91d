package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of every cloop kind.
const Group = "cloop.dev"

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// Kinds as they are spelled in a manifest.
const (
	ExecutorPoolKind = "ExecutorPool"
	HubPoolKind      = "HubPool"
	PoolSyncKind     = "PoolSync"
)

// AddToScheme registers the kinds of this package with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&ExecutorPool{}, &ExecutorPoolList{},
		&HubPool{}, &HubPoolList{},
		&PoolSync{}, &PoolSyncList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
