package install

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/apis/v1alpha1"
)

// imageToName stands for an image that nobody publishes yet.
const imageToName = "registry.example.com/cloop:yours"

// KustomizeCommand installs the controller from a checkout of the sources, as
// long as the hub serves no chart. The images in it are to be named first.
func (p Place) KustomizeCommand(h Hub, pool Pool, bundle string) (string, error) {
	manifest, err := p.executorPool(h, pool, bundle)
	if err != nil {
		return "", err
	}
	directory := "install-" + p.Pool
	repository, tag, _ := strings.Cut(imageToName, ":")
	return strings.Join([]string{
		"kubectl apply --server-side -k kustomize/crd",
		"mkdir " + directory,
		"cat >" + directory + "/executorpool.yaml <<'EOF'\n" + manifest + "EOF",
		"cat >" + directory + `/kustomization.yaml <<'EOF'
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: ` + p.Namespace + `
resources: [../kustomize/rbac/executor, ../kustomize/controller/executor, executorpool.yaml]
images:
  - name: cloop
    newName: ` + repository + `
    newTag: ` + tag + `
EOF`,
		"kubectl apply --server-side -k " + directory,
	}, "\n"), nil
}

// executorPool is the object that the chart would make. A runner that gets no
// image from the template would get the published one, which is not there yet.
func (p Place) executorPool(h Hub, pool Pool, bundle string) (string, error) {
	spec := map[string]any{
		"hubURL":                  h.URL,
		"poolCredentialSecretRef": map[string]any{"name": p.Secret},
		"maxRunners":              pool.MaxRunners,
		"template":                map[string]any{"image": imageToName},
	}
	for name, text := range map[string]string{"hubCAPin": h.Pin, "hubCABundle": bundle} {
		if text != "" {
			spec[name] = text
		}
	}
	if pool.Hints.MinRunners > 0 {
		spec["minRunners"] = pool.Hints.MinRunners
	}
	if kept := pool.Hints.Persistence; kept != nil {
		persistence := map[string]any{"enabled": true, "size": kept.Size}
		for name, text := range map[string]string{"storageClassName": kept.StorageClassName, "reclaimPolicy": kept.ReclaimPolicy} {
			if text != "" {
				persistence[name] = text
			}
		}
		spec["persistence"] = persistence
	}
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.ExecutorPoolKind,
		"metadata": map[string]any{"name": p.Pool}, "spec": spec,
	})
	if err != nil {
		return "", fmt.Errorf("write the ExecutorPool %s: %w", p.Pool, err)
	}
	return string(data), nil
}
