// Package pool decides what an executor pool does next.
//
// In: a Snapshot, which is everything that was observed of one pool at one
// moment: its spec, the hub's view, the Pods, Secrets and anchor in the
// cluster, and what this process remembers of its own last steps. Out: a Plan,
// a value that says what to start, report, retire, delete and show, and when to
// look again.
//
// Nothing here does I/O, reads a clock or keeps state, so every decision can be
// tested without a cluster or a hub. It must never plan to retire a busy runner
// or to delete the Pod of a runner that may hold a run; the one exception is a
// pool whose deletion was forced.
package pool
