// Package hubclient is the typed client of the hub's HTTP API. The controllers,
// the runner and the command line use it; the hub's own tests drive the real
// server through it.
//
// In go messages of package hubv1; out come hubv1 values, sequences of whole
// snapshots for the watches, and errors of three sorts: *hubv1.Problem where the
// hub said no, ErrUnavailable where it could not be asked (transport failures,
// 5xx), and the context's own error.
//
// It speaks HTTPS only. A pin holds the connection to one server key. It never
// follows a redirect, never prints a credential and never retries by itself
// beyond what the transport may repeat safely: callers own their retry loops and
// pace them with Backoff.
package hubclient
