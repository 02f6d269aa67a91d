// Package hub is the server: it serves the HTTP API of package api on the
// database of package store, carries out what is due by the clock, and keeps
// the pools that Git defines as Git defines them.
//
// In go Options and, while it runs, requests, commits and push events of forges;
// out come answers, hand-offs, commit statuses, metrics and log lines, one per
// transition. It connects out to Git and its forge only, imports no controller,
// and never acts on what it failed to read.
package hub
