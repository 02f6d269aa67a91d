// Package store is what the hub knows, in SQL: pools, credentials, runners,
// projects, runs, logs, syncs and the audit trail.
//
// In come decisions of people, controllers, runners, Git sync and time, one
// method each; out come hubv1 values, *hubv1.Problem for a refusal, wake-ups on
// the Bus, and Events for logs and metrics after the commit. Every method that
// changes something is one transaction, which also writes its audit row, hands
// queued runs to idle runners and moves a draining pool on (settle.go), so that
// no state waits for a second step. The schema's checks and triggers refuse
// what the code should never do.
//
// One connection writes; transactions that wait for it are committed together.
// It must never store a credential in clear, and never call the network.
package store
