// Command schemagen derives from the CUE sources in schemas/ what the rest of
// the project uses of them: the CustomResourceDefinitions that package schemas
// embeds and kustomize/crd installs, the hints of offline validation, and the
// reference tables in docs/reference; and what other people's tools read: JSON
// Schemas for editors, a CUE package for people who write pools in CUE, and a
// kustomize component with merge keys and name references.
//
// In: the repository's folder (-C, default "."). Out: files, always the same
// for the same sources. It is the only program that links CUE; the product
// itself never does.
package main
