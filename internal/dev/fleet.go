package dev

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"text/template"
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
		parsed, err := template.New(name).Option("missingkey=error").Funcs(template.FuncMap{"indent": indent}).Parse(string(content))
		if err != nil {
			return fmt.Errorf("seed %s/%s: %w", folder, name, err)
		}
		var rendered bytes.Buffer
		if err := parsed.Execute(&rendered, values); err != nil {
			return fmt.Errorf("seed %s/%s: %w", folder, name, err)
		}
		files[name] = rendered.Bytes()
		return nil
	})
	return files, err
}

// indent puts spaces before every line of a text but its first.
func indent(spaces int, text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+strings.Repeat(" ", spaces))
}
