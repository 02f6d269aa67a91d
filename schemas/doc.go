// Package schemas knows what a cloop.dev document may say.
//
// The kinds are authored once, as closed CUE data in this folder's *.cue
// files: fields, defaults, bounds, patterns, CEL rules, printer columns.
// cmd/schemagen turns them into the CustomResourceDefinitions under crds/,
// which this package embeds, into kustomize/crd and into docs/reference.
//
// In: YAML or JSON text. Out: documents with their positions, and the verdict
// that an API server would give on each, reached with the API server's own
// code, in its order and with its words, plus file, line, column and a hint.
//
// It never talks to a cluster, never looks at two documents together (package
// fleet does), and never links CUE: only cmd/schemagen loads the sources.
package schemas
