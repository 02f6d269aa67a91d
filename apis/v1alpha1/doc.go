// Package v1alpha1 holds the Go types of cloop's Kubernetes kinds, API group
// cloop.dev, one file a kind.
//
// The types are written by hand and carry no rules: defaults, bounds, patterns
// and CEL rules are authored once in package schemas, and a reflection test
// there proves that the two agree on every path, type and required field.
// Condition types and reasons are constants here, each beside its remedy.
// This package never does I/O and imports nothing of cloop.
//
// +kubebuilder:object:generate=true
// +groupName=cloop.dev
package v1alpha1
