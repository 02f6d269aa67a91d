package kustomize

import _ "embed"

//go:embed components/kinds/openapi.json
var openAPI []byte

// OpenAPI is the OpenAPI document of components/kinds as JSON: which lists of
// the kinds in a fleet repository a strategic merge patch merges, and by which
// key. The caller must not change it.
func OpenAPI() []byte { return openAPI }
