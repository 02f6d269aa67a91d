package kustomize

import (
	"embed"
	"io/fs"
)

//go:embed components/kinds/openapi.json
var openAPI []byte

// OpenAPI is the OpenAPI document of components/kinds as JSON: which lists of
// the kinds in a fleet repository a strategic merge patch merges, and by which
// key. The caller must not change it.
func OpenAPI() []byte { return openAPI }

//go:embed components/kinds
var kinds embed.FS

// Kinds are the files of components/kinds, for a copy in a fleet repository.
func Kinds() fs.FS {
	sub, err := fs.Sub(kinds, "components/kinds")
	if err != nil {
		panic(err) // the name is valid
	}
	return sub
}
