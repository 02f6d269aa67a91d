// Package hubv1 holds the messages of the hub's HTTP API: what the hub's
// typed handlers take and give, and what package hubclient sends and reads.
// The OpenAPI document is generated from these types.
//
// Three bases share them: /api/v1 for people and CI (pool.go, project.go,
// run.go, sync.go), /pool/v1 for executor controllers (controller.go) and
// /runner/v1 for runners (runner.go). Watches are Server-Sent Events whose
// every message is a whole snapshot with a revision. Errors are RFC 9457
// problem documents with a stable code (problem.go). Times are RFC 3339 in UTC.
// This package never does I/O.
package hubv1
