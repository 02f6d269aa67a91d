// Package kustomize carries the manifests that install cloop in a cluster: the
// definitions (crd/, generated), the rights of the two controllers (rbac/),
// their Deployments (controller/) and all of it together (default/); and a
// component for fleet repositories that tells kustomize of the kinds
// (components/kinds, generated).
//
// People apply these folders with kustomize or refer to them from their own.
// The package embeds rbac/, so that `cloop dev` and tests run the controllers
// with exactly the rights that a cluster gives them. It applies nothing.
package kustomize
