// Package fleet is the way from a fleet repository in Git to what ought to be
// true, and the comparison of that with what is.
//
// In come a repository (Git), a directory (Build, Check, BuildChecked), or
// objects that somebody has read from a cluster or a hub (CompareSpecs,
// CompareHub, CrossSurface, Drift). Out come rendered documents with the file that defines
// each, problems with a file, line and column, and differences field by field.
//
// It never writes to a cluster, a hub or a repository, runs no program, and
// never reaches the network except through Git: a kustomization that refers to
// something remote is refused.
package fleet
