package fleet_test

import (
	"slices"
	"testing"
)

// A file that no kustomization speaks of in any way is applied by nothing.
func TestUnlistedFiles(t *testing.T) {
	const document = "# Pool\n---\n" + basePool
	sync := poolSync("eu", "./clusters/eu", "")
	for name, test := range map[string]struct {
		files map[string]string
		paths []string
		want  []string
	}{
		"none":                    {nil, nil, nil},
		"beside a kustomization":  {map[string]string{"clusters/eu/new.yaml": document}, nil, []string{"unlisted clusters/eu/new.yaml:4:1"}},
		"below one":               {map[string]string{"clusters/eu/a/b/new.yml": basePool}, nil, []string{"unlisted clusters/eu/a/b/new.yml:2:1"}},
		"beside a base":           {map[string]string{"pools/base/sync.yaml": sync}, nil, []string{"unlisted pools/base/sync.yaml:1:1"}},
		"not of ours":             {map[string]string{"clusters/eu/values.yaml": "url: https://cloop.dev/x\n"}, nil, nil},
		"turned off":              {map[string]string{"clusters/eu/new.yaml": "# cloop:ignore unlisted a draft\n" + hubPool}, nil, nil},
		"of a part":               {map[string]string{"clusters/eu/new.yaml": document}, []string{"clusters"}, nil},
		"a broken kustomization":  {map[string]string{"clusters/eu/kustomization.yaml": "resources: [nowhere.yaml]\n", "clusters/eu/new.yaml": document}, nil, []string{"missing-reference clusters/eu/kustomization.yaml:1:13"}},
		"listed by another":       {map[string]string{"clusters/eu/sync.yaml": sync, "hub/kustomization.yaml": "resources: [gpu.yaml, ../clusters/eu/sync.yaml]\n"}, nil, nil},
		"a generator's":           {map[string]string{"small/kustomization.yaml": "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\nconfigMapGenerator: [{name: a, files: [k=new.yaml]}]\n", "small/new.yaml": document}, nil, nil},
		"a transformer's patch":   {map[string]string{"small/kustomization.yaml": "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\ntransformers: [t.yaml]\n", "small/t.yaml": "kind: PatchTransformer\npath: new.yaml\n", "small/new.yaml": document}, nil, nil},
		"an inline transformer's": {map[string]string{"small/kustomization.yaml": "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\ntransformers:\n- |\n  kind: PatchTransformer\n  path: new.yaml\n", "small/new.yaml": document}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, with(sound(), test.files), test.paths...)
			if got := places(report); !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("problems %v, want %v: %v", got, test.want, report.Problems)
			}
		})
	}
}
