package fleet

import (
	"errors"
	"io/fs"
	"path"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"
)

// kustomizationFile is what the scan needs of one; nodes keep their positions.
type kustomizationFile struct {
	Kind                  string       `yaml:"kind"`
	Resources             []yaml.Node  `yaml:"resources"`
	Bases                 []yaml.Node  `yaml:"bases"`
	Components            []yaml.Node  `yaml:"components"`
	PatchesStrategicMerge []yaml.Node  `yaml:"patchesStrategicMerge"`
	Patches               []patchEntry `yaml:"patches"`
	PatchesJSON6902       []patchEntry `yaml:"patchesJson6902"`
	Generators            []yaml.Node  `yaml:"generators"`
	Transformers          []yaml.Node  `yaml:"transformers"`
	Validators            []yaml.Node  `yaml:"validators"`
	Vars                  []yaml.Node  `yaml:"vars"`
	Replacements          []fileEntry  `yaml:"replacements"`
	OpenAPI               yaml.Node    `yaml:"openapi"`
}

// fileEntry is an entry that may stand in a file of its own.
type fileEntry struct {
	Path yaml.Node `yaml:"path"`
}

type patchEntry struct {
	Path   yaml.Node `yaml:"path"`
	Patch  yaml.Node `yaml:"patch"`
	Target *target   `yaml:"target"`
}

// directories lists the entries that may name other kustomizations.
func (k *kustomizationFile) directories() []yaml.Node {
	var all []yaml.Node
	for _, list := range [][]yaml.Node{k.Resources, k.Bases, k.Components} {
		all = append(all, list...)
	}
	return all
}

// kustomizationIn finds a directory's kustomization; "" where there is none.
func (g *gate) kustomizationIn(dir string) (name string, err error) {
	for _, candidate := range konfig.RecognizedKustomizationFileNames() {
		info, err := g.root.Stat(path.Join(dir, candidate))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", err
		case info.Mode().IsRegular() && g.leftOut(path.Join(dir, candidate), false) == nil:
			return path.Join(dir, candidate), nil
		}
	}
	return "", nil
}
