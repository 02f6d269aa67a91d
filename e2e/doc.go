// Package e2e tests the whole system: a real control plane, a node, the hub,
// both controllers and a Git server, each a process of the cloop binary that
// the tests build. Nothing in it is faked.
//
// The story is the product's main job (package internal/dev); the tests here
// play it undisturbed, and again while parts of it are killed. The benchmarks
// measure the figures in docs/performance.md.
package e2e
