// Package controllers reconciles the kinds of group cloop.dev in a cluster, one
// file a kind and what belongs to it beside it: executorpool_hub.go for its
// connections, executorpool_events.go for its Events, and so on.
//
// Every reconciler observes, lets a pure function decide (package pool for
// ExecutorPools, package fleet for PoolSyncs), acts and reports once; manager.go
// runs one of them in a process. In: objects, through caches, and what
// hub and Git say. Out: objects, status, Events and metrics. Nothing here may
// decide on a runner's life by itself, and no credential may get into an
// object, an Event, a condition or a log line.
package controllers
