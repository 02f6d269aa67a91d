package dev

import (
	"embed"
	"io/fs"

	"cloop.dev/cloop/internal/fleet/scaffold"
)

//go:embed all:seed
var seed embed.FS

// fleetValues fill the seed of the fleet repository.
type fleetValues struct {
	HubURL      string
	HubCAPin    string
	HubCABundle string
	Namespace   string
}

// seedFiles renders one folder of the seed, keyed by path in the repository.
func seedFiles(folder string, values any) (map[string][]byte, error) {
	root, err := fs.Sub(seed, "seed/"+folder)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	err = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		files[name], err = scaffold.Render(name, content, values)
		return err
	})
	return files, err
}
