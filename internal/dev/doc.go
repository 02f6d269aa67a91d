// Package dev runs a whole cloop on one machine: a real Kubernetes control
// plane, a process node, the hub, both controllers and a Git server, each as a
// process of its own, all of their state in one directory.
//
// Up brings the parts up and may be repeated; Down removes everything that Up
// made. A Story is the product's main job as a list of steps over a running
// System: `cloop dev demo`, the end-to-end tests and the benchmarks play the
// same one. This package starts and observes; it must never stand in for a
// part, and nothing in production imports it.
package dev
