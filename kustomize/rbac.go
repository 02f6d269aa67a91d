package kustomize

import (
	"embed"
	"fmt"
	"io/fs"
	"path"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Names of the controllers' ServiceAccounts.
const (
	ExecutorServiceAccount = "cloop-executor-controller"
	FleetServiceAccount    = "cloop-fleet-controller"
)

// The namespaces that the manifests are written for.
const (
	defaultExecutorNamespace = "cloop-pools"
	defaultFleetNamespace    = "cloop-fleet"
)

//go:embed rbac
var rbacFiles embed.FS

// Namespaces says where the controllers live. An empty name is the manifests'
// own: cloop-pools and cloop-fleet.
type Namespaces struct {
	// Executor has the executor controller, its pools and their runners.
	Executor string
	// Fleet has the fleet controller, its PoolSyncs and the credentials of Git.
	Fleet string
}

// Roles returns the controllers' ServiceAccounts, roles and bindings. They can
// be applied in any order: a binding may come before what it names.
func Roles(n Namespaces) ([]*unstructured.Unstructured, error) {
	renamed := map[string]string{}
	if n.Executor != "" {
		renamed[defaultExecutorNamespace] = n.Executor
	}
	if n.Fleet != "" {
		renamed[defaultFleetNamespace] = n.Fleet
	}
	var objects []*unstructured.Unstructured
	err := fs.WalkDir(rbacFiles, "rbac", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Base(file) == "kustomization.yaml" {
			return err
		}
		object, err := read(file)
		if err != nil {
			return err
		}
		moveTo(object, renamed)
		objects = append(objects, object)
		return nil
	})
	return objects, err
}

func read(file string) (*unstructured.Unstructured, error) {
	data, err := rbacFiles.ReadFile(file)
	if err != nil {
		return nil, err
	}
	content := map[string]any{}
	if err := yaml.UnmarshalStrict(data, &content); err != nil {
		return nil, fmt.Errorf("decode the embedded %s: %w", file, err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// moveTo renames the namespaces of an object and of the subjects that it binds.
func moveTo(object *unstructured.Unstructured, renamed map[string]string) {
	if to, ok := renamed[object.GetNamespace()]; ok {
		object.SetNamespace(to)
	}
	subjects, _ := object.Object["subjects"].([]any)
	for _, one := range subjects {
		subject, ok := one.(map[string]any)
		if !ok {
			continue
		}
		if namespace, ok := subject["namespace"].(string); ok && renamed[namespace] != "" {
			subject["namespace"] = renamed[namespace]
		}
	}
}
